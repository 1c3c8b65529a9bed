"""The page on architecture says what is true of the source: names, paths, imports."""

import ast
import re
from itertools import groupby
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY, section, tables, text_of

PAGE = text_of("docs/architecture.md")
PATHS = re.findall(r"^### (.+)$", section(PAGE, "Paths"), re.MULTILINE)
MAY_IMPORT = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[3])) for row in tables(section(PAGE, "Packages"))[0]}


def _hops(path: str) -> list[tuple[str, str]]:
    """The steps of a path: file and name."""
    lines = re.findall(r"^\d+\. (.+)$", section(PAGE, path), re.MULTILINE)
    found = [re.match(r"`([\w/]+\.py):([\w.]+)`: \S", line) for line in lines]
    assert all(found), f"a step of '{path}' is not of the form `file:name`: what it does"
    return [(hop[1], hop[2]) for hop in found if hop]


def test_the_paths_are_there() -> None:
    """Those that the service is about."""
    assert {"Predict", "Teach", "Session", "Base", "Activate"} <= set(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_every_step_exists(path: str) -> None:
    """As a function, a class, or a method of a class in that file."""
    hops = _hops(path)

    assert len(hops) >= 3
    assert [hop for hop in hops if hop[1] not in _names(REPOSITORY / hop[0])] == []


@pytest.mark.parametrize("path", PATHS)
def test_a_path_never_returns_to_a_package_it_has_left(path: str) -> None:
    """Each idea has one package, so the data passes each package once."""
    packages = [package for package, _ in groupby(file.split("/")[0] for file, _ in _hops(path))]

    assert set(packages) <= set(MAY_IMPORT)
    assert len(packages) == len(set(packages)), packages


def test_the_table_has_every_package() -> None:
    """Every package at the top, and no other."""
    packages = {file.parent.name for file in REPOSITORY.glob("*/__init__.py")}

    assert packages == set(MAY_IMPORT)


@pytest.mark.parametrize("package", list(MAY_IMPORT))
def test_a_package_imports_what_the_table_allows(package: str) -> None:
    """And nothing else of ours."""
    used = {name for file in (REPOSITORY / package).rglob("*.py") for name in _imports(file)}

    assert (used & set(MAY_IMPORT)) - {package} - MAY_IMPORT[package] == set()


def test_the_diagram_shows_the_packages_of_the_table() -> None:
    """An arrow only to what may be imported."""
    (diagram,) = re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)
    packages = set(re.findall(r"^    (\w+)\[", diagram, re.MULTILINE))
    arrows = re.findall(r"^    (\w+) --> (.+)$", diagram, re.MULTILINE)

    assert packages == set(MAY_IMPORT)
    assert [
        (one, other) for one, others in arrows for other in others.split(" & ") if other not in MAY_IMPORT[one]
    ] == []


def _names(file: Path) -> set[str]:
    """What a file defines; methods as Class.method."""
    if not file.exists():
        return set()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, (*functions, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, functions)}
    return names


def _imports(file: Path) -> set[str]:
    """The packages that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found
