"""The core keeps its word: tensors and bytes in, tensors out; no disk, network, clock, processes or threads."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import core

FORBIDDEN_MODULES = {
    "asyncio",
    "concurrent",
    "datetime",
    "fcntl",
    "glob",
    "http",
    "httpx",
    "huggingface_hub",
    "logging",
    "multiprocessing",
    "openvino",
    "os",
    "pathlib",
    "requests",
    "shutil",
    "socket",
    "structlog",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
}
FORBIDDEN_NAMES = {
    "io.FileIO",
    "io.open",
    "safetensors.safe_open",
    "safetensors.torch.load_file",
    "safetensors.torch.save_file",
    "torch.hub",
    "torch.load",
    "torch.save",
}
EXCEPTIONS = {"torchvision_ops.py": {"pathlib"}}  # finds torchvision's own operators, so that it can be imported at all
FOLDER = Path(core.__file__).parent


def imported(tree: ast.AST) -> Iterator[str]:
    """Everything that is imported, by its full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def used(tree: ast.AST) -> Iterator[str]:
    """Every dotted name, such as torch.load."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def called(tree: ast.AST) -> Iterator[str]:
    """Every function that is called by its plain name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def impurities(source: str) -> set[str]:
    tree = ast.parse(source)
    found = {name.split(".")[0] for name in imported(tree)} & FORBIDDEN_MODULES
    found |= (set(imported(tree)) | set(used(tree))) & FORBIDDEN_NAMES
    return found | ({"open", "__import__", "exec", "eval"} & set(called(tree)))


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.py")), ids=lambda file: str(file.relative_to(FOLDER)))
def test_a_module_of_the_core_is_pure(file: Path) -> None:
    """It imports and calls nothing that reaches outside; the one exception is named."""
    assert impurities(file.read_text()) == EXCEPTIONS.get(str(file.relative_to(FOLDER)), set())


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.py")), ids=lambda file: str(file.relative_to(FOLDER)))
def test_a_module_of_the_core_imports_nothing_of_ours_but_the_core(file: Path) -> None:
    """Neither the engine nor anything above it."""
    packages = {folder.name for folder in FOLDER.parent.iterdir() if (folder / "__init__.py").is_file()} - {"core"}

    names = {name.split(".")[0] for name in imported(ast.parse(file.read_text()))}

    assert {"engine", "store"} <= packages
    assert names & packages == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os.path", "os"),
        ("from pathlib import Path", "pathlib"),
        ("def late():\n    from concurrent.futures import Future", "concurrent"),
        ("open('file')", "open"),
        ("with open('file') as file: pass", "open"),
        ("import torch\ntorch.load('file')", "torch.load"),
        ("from torch import load", "torch.load"),
        ("from safetensors.torch import load, save_file", "safetensors.torch.save_file"),
        ("import io\nio.open('file')", "io.open"),
    ],
)
def test_what_is_not_pure_is_found(source: str, found: str) -> None:
    """Wherever in a module it is."""
    assert impurities(source) == {found}


def test_reading_images_and_tensors_from_bytes_is_pure() -> None:
    """Pillow's and safetensors' readers take bytes as well as files."""
    source = "import io\nfrom PIL import Image\nfrom safetensors.torch import load, save\nImage.open(io.BytesIO(b''))"

    assert impurities(source) == set()
