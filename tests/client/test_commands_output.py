"""What all commands have in common: help, errors, colours, pipes, completion, and that `protoquad` has them too."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import click.testing
import pytest
from click.shell_completion import ShellComplete
from protoquad_client import AnswerTimeout
from protoquad_client.commands import exit_codes
from protoquad_client.commands.error_sentences import sentence_of
from protoquad_client.commands.plain_command import PlainCommand
from protoquad_client.commands.pq import NAMES, command_named, pq
from typer.testing import CliRunner

from protoquad import client_commands
from protoquad.main import app
from tests.client.answering import answering
from tests.client.command_line import CLIENT, SECONDS, CommandLine, run_pq
from tests.service.conftest import Service

NOWHERE = "http://127.0.0.1:1"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CLIENT), os.environ.get("PYTHONPATH", "")])}
ANSI = "\x1b["


def commands() -> dict[str, click.Command]:
    """Each by what is typed for it."""
    found: dict[str, click.Command] = {}
    for name in NAMES:
        command = command_named(name)
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        found |= {f"{name} {own}".strip(): one for own, one in inner.items()}
    return found


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_with_examples_and_exit_codes(name: str) -> None:
    """Each example is a command with options that exist."""
    done = run_pq(*name.split(), "--help")

    examples = re.findall(r"pq ((?:\w+ )?.*)", done.stdout.partition("Examples:")[2].partition("Exit codes:")[0])
    assert done.exit_code == 0
    assert examples
    assert re.search(r"^  1 +failed", done.stdout, re.MULTILINE)
    options = {one for parameter in commands()[name].params for one in parameter.opts} | {"--help"}
    assert {word for example in examples for word in re.findall(r"--[a-z-]+", example)} <= options


def test_every_exit_code_has_a_meaning() -> None:
    """The page lists the same codes."""
    page = (CLIENT.parent / "docs" / "cli.md").read_text()
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}

    assert listed == set(exit_codes.MEANINGS)


def test_every_command_reports_errors_in_one_sentence() -> None:
    """None is left out."""
    assert [name for name, one in commands().items() if not isinstance(one, PlainCommand)] == []


@pytest.mark.parametrize("arguments", [["classes"], ["rollback", "1"], ["watch"]], ids=" ".join)
def test_a_service_that_is_not_there_is_one_sentence(arguments: list[str]) -> None:
    """On standard error, with what to look at, and exit code 1."""
    done = run_pq(*arguments, "--url", NOWHERE)

    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "PROTOQUAD_URL" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_an_address_that_is_none_is_wrong_use() -> None:
    """It is repeated, with what one looks like."""
    done = run_pq("classes", "--url", "localhost")

    assert done.exit_code == 2
    assert "'localhost'" in done.stderr


def test_what_standard_output_cannot_encode_is_escaped() -> None:
    """As on a Windows that is not set to UTF-8. JSON says the same all the same."""
    owl = {"id": 1, "name": "Käuze 🦉", "status": "learned", "shots": 5, "since": 1, "served": True}
    page = {"items": [{**owl, "created_at": "2026-01-01T00:00:00Z"}], "next": None, "total": 1}
    with answering({"/classes": (200, page)}) as service:
        runner = click.testing.CliRunner(charset="latin-1")
        text, document = (runner.invoke(pq, ["classes", "--url", service.url, *more]) for more in ([], ["--json"]))

    assert (text.exit_code, document.exit_code) == (0, 0), text.output
    assert "Käuze \\U0001f989" in text.stdout
    assert json.loads(document.stdout)[0]["name"] == "Käuze 🦉"


def test_a_reason_is_given_once() -> None:
    """A problem may have it in its detail and beside the field."""
    errors = [{"where": "name", "reason": "too long"}, {"where": "body", "reason": "odd"}]
    body = {"type": "/problems/invalid-name", "status": 422, "detail": "the name is too long", "errors": errors}
    with answering({"/classes": (422, body)}) as service:
        done = run_pq("classes", "--url", service.url)

    assert done.stderr == "error: the name is too long (body: odd)\n"


def test_advice_for_programs_is_not_given_to_people() -> None:
    """Commands have no parameter `timeout`."""
    late = AnswerTimeout("http://x did not answer in time (timed out); allow more with `timeout`")

    assert sentence_of(late) == "http://x did not answer in time (timed out); `pq doctor` looks closer"


def test_url_and_key_come_from_the_environment() -> None:
    """An option goes before it."""
    with answering({"/classes": (200, {"items": [], "next": None, "total": 0})}) as service:
        of_variables = run_pq("classes", PROTOQUAD_URL=service.url, PROTOQUAD_KEY="pq_variable")
        of_options = run_pq(
            "classes", "--url", service.url, "--key", "pq_option", PROTOQUAD_URL=NOWHERE, PROTOQUAD_KEY="pq_variable"
        )

    assert [of_variables.exit_code, of_options.exit_code] == [0, 0], of_variables.output
    assert service.keys == ["Bearer pq_variable", "Bearer pq_option"]


def test_a_model_that_does_not_exist_is_named(service: Service) -> None:
    """By the service."""
    done = run_pq("classes", "--url", service.url, "--model", "dodos")

    assert done.exit_code == 1
    assert "dodos" in done.stderr


def test_colours_are_for_terminals_only(command_line: CommandLine) -> None:
    """What goes to a pipe has none."""
    own, theirs = pty.openpty()
    arguments = [sys.executable, "-m", "protoquad_client.commands", "versions", *command_line.options]
    with subprocess.Popen(arguments, stdout=theirs, env={**ENVIRONMENT, "NO_COLOR": ""}) as process:
        os.close(theirs)
        assert process.wait(SECONDS) == 0
    in_terminal = os.read(own, 100_000).decode()
    os.close(own)

    assert ANSI in in_terminal
    assert ANSI not in command_line("versions").output


def test_no_color_switches_colours_off() -> None:
    """Of results and of errors."""
    coloured, plain = (run_pq("doctor", "--url", "x", color=True, NO_COLOR=value) for value in (None, "1"))
    error = run_pq("classes", "--url", "x", color=True, NO_COLOR="1")

    assert ANSI in coloured.output
    assert ANSI not in plain.output
    assert error.stderr.startswith("error: 'x' ")


def test_a_reader_that_goes_away_is_no_error(command_line: CommandLine) -> None:
    """As in `pq versions | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    arguments = [sys.executable, "-m", "protoquad_client.commands", "versions", *command_line.options]
    done = subprocess.run(
        arguments, stdout=writer, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=SECONDS, check=False
    )
    os.close(writer)

    assert done.stderr == b""


def test_names_cannot_change_what_a_terminal_shows(tmp_path: Path, command_line: CommandLine) -> None:
    """A file's name may contain control characters."""
    (tmp_path / "a\x1b[2Jb.jpg").write_bytes(b"broken")

    done = command_line("predict", tmp_path)

    assert done.exit_code == 3
    assert "a?[2Jb.jpg" in done.stderr
    assert "\x1b" not in done.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_of_a_shell_is_printed(shell: str) -> None:
    """It calls pq back with a variable that click reads."""
    done = run_pq("completion", shell)

    assert done.exit_code == 0
    assert f"_PQ_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(("words", "completed"), [(["teach"], "--folders"), (["inbox"], "dismiss")])
def test_commands_and_options_are_completed(words: list[str], completed: str) -> None:
    """As the script asks for them."""
    found = ShellComplete(pq, {}, "pq", "_PQ_COMPLETE").get_completions(words, completed[:4])

    assert [item.value for item in found] == [completed]


# The same under `protoquad`


def test_protoquad_has_the_same_commands() -> None:
    """But for its own doctor, and completion, which is an option there."""
    assert set(client_commands.NAMES) == set(NAMES) - {"doctor", "completion"}


def test_protoquad_hands_everything_on(service: Service) -> None:
    """Arguments, output and exit codes."""
    runner = CliRunner()
    done = runner.invoke(app, ["versions", "--url", service.url])
    failed = runner.invoke(app, ["rollback", "99", "--url", service.url])
    wrong = runner.invoke(app, ["predict", "--", "--json"])
    inner = runner.invoke(app, ["inbox", "list", "--url", service.url])

    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("version")
    assert failed.exit_code == 1
    assert wrong.exit_code == 3, "it is the name of a file here"
    assert inner.exit_code == 0, inner.output


def test_protoquad_lists_and_explains_them() -> None:
    """Under its own name."""
    runner = CliRunner()
    listed = runner.invoke(app, ["--help"]).output
    explained = runner.invoke(app, ["teach", "--help"]).output

    assert [name for name in client_commands.NAMES if f" {name} " not in listed] == []
    assert explained.startswith("Usage: protoquad teach ")
    assert "  protoquad teach owl owls/" in explained


def test_protoquad_completes_their_options() -> None:
    """Typer asks the command itself."""
    command = client_commands.ClientCommand("teach")

    context = command.make_context("teach", ["owl"], resilient_parsing=True)
    found = [item.value for item in command.shell_complete(context, "--f")]

    assert found == ["--folders"]
