"""The benchmarks are a distribution of their own: neither the wheel nor the image of the product contains them."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BENCH = tomllib.loads((ROOT / "bench" / "pyproject.toml").read_text())
CONSTRAINTS = (ROOT / "constraints.txt").read_text()


def packages_of_the_wheel() -> set[str]:
    return {name.removesuffix("*") for name in PRODUCT["tool"]["setuptools"]["packages"]["find"]["include"]}


def names(dependencies: list[str]) -> set[str]:
    return {re.split(r"[\[<>=]", dependency)[0] for dependency in dependencies}


def test_the_wheel_contains_every_package_of_the_product_and_no_benchmark() -> None:
    """A package is a folder with an __init__.py; tests are none."""
    folders = {file.parent.name for file in ROOT.glob("*/__init__.py")}

    assert packages_of_the_wheel() == folders - {"bench", "tests"}


def test_the_image_contains_the_packages_of_the_wheel() -> None:
    """What the Dockerfile copies is what .dockerignore lets through, and what the wheel is built of."""
    copied = set(re.findall(r"^COPY (\w+) /source/\1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    admitted = set(re.findall(r"^!(\w+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))

    assert copied == packages_of_the_wheel()
    assert admitted == packages_of_the_wheel()


def test_the_wheel_contains_the_files_of_the_console() -> None:
    """Every kind of file below its static folder."""
    patterns = PRODUCT["tool"]["setuptools"]["package-data"]["console"]
    found = {path for pattern in patterns for path in (ROOT / "console").glob(pattern) if path.is_file()}

    assert found == {path for path in (ROOT / "console" / "static").rglob("*") if path.is_file()}
    assert {".js", ".css", ".html", ".svg", ".jpg"} <= {path.suffix for path in found}


def test_the_product_needs_nothing_of_the_benchmarks() -> None:
    """No plots, load generator or servers to compare with."""
    product, bench = names(PRODUCT["project"]["dependencies"]), names(BENCH["project"]["dependencies"])

    assert not product & bench
    assert "protoquad" in bench


def test_the_benchmarks_list_all_their_packages() -> None:
    """setuptools cannot find packages in the folder of the project file, so they are listed."""
    bench = ROOT / "bench"
    folders = {".".join(file.parent.relative_to(ROOT).parts) for file in bench.rglob("__init__.py")}

    assert set(BENCH["tool"]["setuptools"]["packages"]) == folders
    assert BENCH["project"]["version"] == PRODUCT["project"]["version"]


def test_every_dependency_is_pinned() -> None:
    """Also those of the benchmarks and of development."""
    projects = (PRODUCT["project"], BENCH["project"])
    optional = [names(some) for project in projects for some in project.get("optional-dependencies", {}).values()]
    needed = set().union(*optional, *(names(project["dependencies"]) for project in projects)) - {"protoquad"}
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in CONSTRAINTS.splitlines() if "==" in line}

    assert {name.lower().replace("_", "-") for name in needed} <= pinned
