"""The benchmarks and the client are distributions of their own: neither the wheel nor the image contains them."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import protoquad_client
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PRODUCT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CLIENT = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())
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

    assert copied == packages_of_the_wheel() | {"client"}
    assert admitted == packages_of_the_wheel() | {"client"}


def test_the_wheel_contains_the_files_of_the_console() -> None:
    """Every kind of file below its static folder."""
    patterns = PRODUCT["tool"]["setuptools"]["package-data"]["console"]
    found = {path for pattern in patterns for path in (ROOT / "console").glob(pattern) if path.is_file()}

    assert found == {path for path in (ROOT / "console" / "static").rglob("*") if path.is_file()}
    assert {".js", ".css", ".html", ".svg", ".jpg"} <= {path.suffix for path in found}


def test_the_product_needs_nothing_of_the_benchmarks() -> None:
    """No plots, load generator or servers to compare with."""
    product, bench = names(PRODUCT["project"]["dependencies"]), names(BENCH["project"]["dependencies"])

    assert product & bench <= {"protoquad-client"}
    assert "protoquad" in bench


def test_the_client_is_installed_with_the_product() -> None:
    """It is not on any index: the Makefile and the Dockerfile install it from this repository."""
    makefile, dockerfile = ((ROOT / name).read_text() for name in ("Makefile", "Dockerfile"))

    assert "protoquad-client" in names(PRODUCT["project"]["dependencies"])
    assert "--editable './client[images]'" in makefile
    assert "/source/client /source" in dockerfile


def test_the_benchmarks_list_all_their_packages() -> None:
    """setuptools cannot find packages in the folder of the project file, so they are listed."""
    bench = ROOT / "bench"
    folders = {".".join(file.parent.relative_to(ROOT).parts) for file in bench.rglob("__init__.py")}

    assert set(BENCH["tool"]["setuptools"]["packages"]) == folders
    assert BENCH["project"]["version"] == PRODUCT["project"]["version"]


def test_the_client_is_small_and_of_the_same_release() -> None:
    """It needs an HTTP library and click, Pillow only if it is asked for, and nothing of the product."""
    assert names(CLIENT["project"]["dependencies"]) == {"httpx2", "click"}
    assert names(CLIENT["project"]["optional-dependencies"]["images"]) == {"pillow"}
    assert CLIENT["project"]["version"] == PRODUCT["project"]["version"] == protoquad_client.__version__


def test_the_client_brings_few_small_packages() -> None:
    """With itself at most ten, and 10 MB."""
    found, waiting = set[str](), names(CLIENT["project"]["dependencies"])
    while waiting:
        name = waiting.pop()
        found.add(name)
        needed = [Requirement(text) for text in metadata.requires(name) or []]
        waiting |= {one.name for one in needed if not one.marker or one.marker.evaluate({"extra": ""})} - found
    files = [file for name in found for file in metadata.files(name) or [] if file.suffix != ".pyc"]

    assert "httpx2" in found
    assert len(found) + 1 <= 10
    assert sum(file.size or 0 for file in files) < 10_000_000


def test_every_dependency_is_pinned() -> None:
    """Also those of the client, of the benchmarks and of development."""
    projects = (PRODUCT["project"], CLIENT["project"], BENCH["project"])
    optional = [names(some) for project in projects for some in project.get("optional-dependencies", {}).values()]
    ours = {"protoquad", "protoquad-client"}
    needed = set().union(*optional, *(names(project["dependencies"]) for project in projects)) - ours
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in CONSTRAINTS.splitlines() if "==" in line}

    assert {name.lower().replace("_", "-") for name in needed} <= pinned
