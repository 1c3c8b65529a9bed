"""Statements are written in the store and in migrations; every other package of the product calls their functions."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "engine", "learners", "messaging", "protoquad", "service", "tracing", "workers")
ALLOWED = {"sqlalchemy.exc": None, "sqlalchemy.orm": {"Session"}}  # errors, and the type of a transaction
STATEMENTS = {"add", "add_all", "delete", "execute", "flush", "get", "get_one", "merge", "query", "scalar", "scalars"}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_query_is_made_elsewhere(package: str) -> None:
    """Neither by importing what makes one, nor by calling the transaction itself."""
    files = sorted((ROOT / package).rglob("*.py"))

    found = [
        f"{file.relative_to(ROOT)}:{line} {what}"
        for file in files
        for line, what in queries(ast.parse(file.read_text()))
    ]
    assert files
    assert found == []


def test_a_query_would_be_found() -> None:
    """In each form that Python has for it."""
    source = """
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.orm import Session, aliased
from sqlalchemy.exc import SQLAlchemyError

def rows(db: Session):
    return db.scalars(select())
"""

    assert [line for line, _ in queries(ast.parse(source))] == [2, 3, 4, 8]


def queries(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the name of everything that makes or executes a statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.partition(".")[0] == "sqlalchemy"]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sqlalchemy":
            allowed = ALLOWED.get(str(node.module), set())
            names = [alias.name for alias in node.names if allowed is not None and alias.name not in allowed]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "db":
            names = [f"db.{node.attr}"] if node.attr in STATEMENTS else []
        else:
            continue
        yield from ((node.lineno, name) for name in names)
