"""What the pages show can be pasted: every line of it is run, against a real service."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import REPOSITORY, blocks, section, shell_lines, text_of
from tests.processes import Service

START = section(text_of("README.md"), "Start in one minute")
ADDRESS = "http://127.0.0.1:8000"
END = "-- end of a line --"
pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the pages show curl")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """As `make run` starts it, with the network that a newcomer gets."""
    environment = {
        "PROTOQUAD_HOME": str(tmp_path_factory.mktemp("home")),
        "PROTOQUAD_BACKBONE": "efficientnet_lite0",
        "PROTOQUAD_ENGINE": "auto",
        "PROTOQUAD_SESSION_DELAY": "4",  # a busy machine still teaches three classes before the session starts
    }
    with closing(Service(environment)) as running:
        yield running


@pytest.fixture(scope="module")
def started(service: Service) -> dict[str, str]:
    """What each line of the README's start prints."""
    first, *lines = shell_lines(START)
    assert first == "make run"
    return _run(service, lines, REPOSITORY)


def test_make_run_starts_the_service() -> None:
    """The one line of the start that is not run here."""
    (recipe,) = re.findall(r"^run:.*\n\t(.+)", text_of("Makefile"), re.MULTILINE)

    assert recipe.endswith("/protoquad serve")


def test_the_start_of_the_readme_works_line_by_line(started: dict[str, str]) -> None:
    """Three classes, two answers, a session, the versions, a rollback."""
    taught = [json.loads(text) for line, text in started.items() if "name=" in line]
    known, unknown = (json.loads(text)["predictions"][0] for line, text in started.items() if "/predict" in line)
    (events,) = (text for line, text in started.items() if "/events" in line)
    (versions,) = (json.loads(text)["items"] for line, text in started.items() if line.endswith("/versions"))
    (activated,) = (json.loads(text) for line, text in started.items() if "/activate" in line)

    assert [answer["class"]["name"] for answer in taught] == ["fish", "house", "mug"]
    assert [answer["outliers"] for answer in taught] == [[], [], []]
    assert (known["label"], known["unknown"]) == ("mug", False)
    assert (unknown["label"], unknown["unknown"]) == (None, True)
    assert "event: succeeded" in events
    assert versions[0]["kind"] == "incremental"
    assert (activated["number"], activated["active"]) == (3, True)


def test_the_answer_that_the_readme_shows_is_the_one_that_comes(started: dict[str, str]) -> None:
    """To three digits: engines may differ beyond them."""
    (shown,) = (json.loads(block) for block in blocks(START, "json"))
    answer = json.loads(next(text for line, text in started.items() if "new-mug" in line))

    assert answer == _rounded(shown)


def test_the_examples_of_the_http_page_work_line_by_line(service: Service, started: dict[str, str]) -> None:
    """None of them is answered with a problem."""
    assert started
    printed = _run(service, shell_lines(text_of("docs/http-api.md")), REPOSITORY / "console" / "static" / "samples")

    answers = {line: json.loads(text) for line, text in printed.items() if text}
    silent = {line for line in printed if " -o " in line or ("DELETE" in line and "/shots/" not in line)}
    silent |= {line for line in printed if line.startswith("python3 -m zipfile")}
    assert {line for line, text in printed.items() if not text} == silent
    assert {line: answer for line, answer in answers.items() if "title" in answer} == {}
    labels = [answer["predictions"][0]["top"][0]["label"] for line, answer in answers.items() if "/predict" in line]
    assert labels == ["fish", "fish", "fish", "fish", "mug"]


def test_the_examples_of_webhooks_work_line_by_line(service: Service) -> None:
    """The first shows the secret, the second does not."""
    page = section(text_of("docs/integrations.md"), "Webhooks")

    made, listed = (json.loads(text) for text in _run(service, shell_lines(page), REPOSITORY).values() if text)

    assert made["secret"].startswith("whsec_")
    assert made["events"] == ["version.published"]
    assert listed["items"] == [{name: value for name, value in made.items() if name != "secret"}]


def test_the_python_example_works(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A new image of the first class is recognised."""
    (example,) = blocks(text_of("docs/how-it-learns.md"), "python")
    monkeypatch.chdir(REPOSITORY)

    exec(compile(example, "docs/how-it-learns.md", "exec"), {"__name__": "example"})

    found = re.findall(r"class_id=(\d+)", capsys.readouterr().out)
    assert found == ["7", "9"]


def _run(service: Service, lines: list[str], folder: Path) -> dict[str, str]:
    """What each line prints, one after another in one shell."""
    script = "".join(f"{line.replace(ADDRESS, service.url)}\nprintf '%s' '{END}'\n" for line in lines)
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(["bash", "-euc", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(zip(lines, done.stdout.split(END)[:-1], strict=True))


def _rounded(value: Any) -> Any:
    """With numbers that can be compared with those on a page."""
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return pytest.approx(value, abs=0.0011) if isinstance(value, float) else value
