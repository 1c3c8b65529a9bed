"""The pages name only what exists: links, settings, routes, commands, errors, targets."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from protoquad_client.commands.pq import NAMES, pq
from typer.main import get_command

from protoquad import client_commands
from protoquad.main import app as command_line
from service.app import create_app
from store.database import Database
from store.settings import Settings
from tests.deploy.page import anchors
from tests.docs.pages import DECISIONS, PAGES, REPOSITORY, inline_code, section, shell_lines, tables, text_of
from tests.service.test_scopes import documented_scope

# Read by one command alone, by the client, by docker compose, and the earlier name of a setting.
NOT_SETTINGS = {"PROTOQUAD_KEY", "PROTOQUAD_URL", "PROTOQUAD_IMAGE", "PROTOQUAD_GUARD_PICTURES"}
ROUTE = re.compile(r"(GET|POST|PATCH|DELETE) (/\S*)")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))


@pytest.mark.parametrize("page", [*PAGES, *DECISIONS], ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file or folder of this repository, and to a heading where one is named."""
    text = page.read_text()
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)

    assert broken == []


def test_every_page_is_linked_from_the_readme() -> None:
    """So that a reader finds it."""
    linked = set(re.findall(r"\]\(([^)#\s]+)", text_of("README.md")))

    pages = {str(page.relative_to(REPOSITORY)) for page in PAGES} - {"README.md"}
    assert pages - linked == set()


def test_the_readme_is_short() -> None:
    """What it is, how to start, where to read on."""
    assert len(text_of("README.md").splitlines()) <= 150


@each_page
def test_every_setting_that_it_names_exists(page: Path) -> None:
    """By its full name."""
    named = set(re.findall(r"PROTOQUAD_[A-Z_]+", page.read_text())) - NOT_SETTINGS

    assert {name.removeprefix("PROTOQUAD_").lower() for name in named} - set(Settings.model_fields) == set()


@each_page
def test_every_make_target_that_it_names_exists(page: Path) -> None:
    """In code, inline or in a block."""
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))

    code = [*shell_lines(page.read_text()), *inline_code(page.read_text())]
    named = {found for line in code for found in re.findall(r"^make ([a-z-]+)", line)}
    assert named - targets == set()


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    """The command line. To look a command up is to prepare this process for it, so that is undone."""
    umask, policy = os.umask(0o022), os.environ.get("OMP_WAIT_POLICY")
    os.umask(umask)
    yield get_command(command_line)
    os.umask(umask)
    if policy is None:
        os.environ.pop("OMP_WAIT_POLICY", None)


@each_page
def test_every_command_that_it_shows_exists(page: Path, group: Any) -> None:
    """With its sub-command and its options."""
    text = page.read_text()
    shown = [found[1] for line in shell_lines(text) if (found := re.search(r"(?:^|/|\s)protoquad ([a-z].*)", line))]
    shown += [found[1] for code in inline_code(text) if (found := re.fullmatch(r"(?:.*/)?protoquad ([a-z].*)", code))]

    assert [line for line in shown if not _exists(group, shlex.split(line))] == []


@each_page
def test_every_command_of_the_client_that_it_shows_exists(page: Path) -> None:
    """With its sub-command and its options."""
    text = page.read_text()
    shown = [found[1] for line in shell_lines(text) if (found := re.search(r"(?:^|\s)pq ([a-z][^|<>]*)", line))]
    shown += [found[1] for code in inline_code(text) if (found := re.fullmatch(r"pq ([a-z][^|<>]*)", code))]

    assert [line for line in shown if not _exists(pq, shlex.split(line))] == []


def test_the_commands_are_listed(group: Any) -> None:
    """On the page for users, each of them; those of the client have a page of their own."""
    (table,) = tables(section(text_of("docs/http-api.md"), "Commands"))
    listed = {found for row in table for found in re.findall(r"^`protoquad ([a-z-]+)", row[0])}

    assert listed == set(group.list_commands(None)) - set(client_commands.NAMES)
    page = text_of("docs/cli.md")
    assert [name for name in NAMES if f"pq {name}" not in page] == []


def _exists(command: Any, words: list[str]) -> bool:
    command = getattr(command, "wrapped", command)  # a command of the client under `protoquad`
    if hasattr(command, "list_commands"):  # a group
        if not words or words[0].startswith("-"):
            return True
        found = command.get_command(None, words[0])
        return found is not None and _exists(found, words[1:])
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"} <= options | {"--help"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    folder = tmp_path_factory.mktemp("app")
    return create_app(Settings(home=folder), Database(f"sqlite:///{folder}/unused.db"))


@each_page
def test_every_route_that_it_names_exists(page: Path, app: FastAPI) -> None:
    """With its method; a parameter may have any name."""
    known = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    patterns = [(method, re.sub(r"\{\w+\}", "[^/]+", path)) for method, path in known]

    named = {(found[1], found[2]) for code in inline_code(page.read_text()) if (found := ROUTE.fullmatch(code))}
    unknown = {
        (method, path)
        for method, path in named
        if not any(method == own and re.fullmatch(pattern, path) for own, pattern in patterns)
    }
    assert unknown == set()


def test_the_routes_are_listed_with_their_scopes(app: FastAPI) -> None:
    """All that act on the default model, on models, and on nothing."""
    (table,) = tables(section(text_of("docs/http-api.md"), "Routes"))
    listed = {tuple(row[0].strip("`").split(" ", 1)): row[2] for row in table}

    documented = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    repeated = {(method, f"/models/{{model}}{path}") for method, path in documented}  # each acts on a named model too
    own = documented - repeated
    assert listed == {(method, path): documented_scope(method, path) or "none" for method, path in own}


def test_every_problem_type_is_used() -> None:
    """A type is a contract: callers compare with it."""
    page = section(text_of("docs/http-api.md"), "Errors")
    source = "".join(path.read_text() for path in (REPOSITORY / "service").rglob("*.py"))
    listed = set(re.findall(r"`/problems/([a-z-]+)`", page))

    assert {slug for slug in listed if f'"{slug}"' not in source} == set()
    assert set(re.findall(r'slug="([a-z-]+)"', source)) - listed == set()


def test_messages_that_are_quoted_are_printed() -> None:
    """Word for word, so that a search finds them; … stands for what differs."""
    source = "".join(path.read_text() for path in (REPOSITORY / "protoquad").rglob("*.py"))
    quoted = re.findall(r'\*\*"(.+?)"\*\*', text_of("docs/troubleshooting.md"))

    assert quoted
    assert [part for text in quoted for part in text.split("…") if part.strip() not in source] == []
