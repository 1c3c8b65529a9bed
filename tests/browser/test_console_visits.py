"""`protoquad bench console` in a real browser, at a small size."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.commands import app
from bench.load.console_visits import CHROMIUM, LIMITS, ConsoleVisits

BACKBONE = "resnet32"


@pytest.fixture(autouse=True)
def _torch_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It needs no prepared backbone."""
    monkeypatch.setenv("PROTOQUAD_ENGINE", "torch")
    monkeypatch.setenv("PROTOQUAD_CACHE", str(tmp_path / "backbones"))


@pytest.mark.skipif(not any(map(shutil.which, CHROMIUM)), reason="there is no Chromium on PATH")
def test_a_visit_is_measured_and_a_lesson_is_taught(tmp_path: Path) -> None:
    """Every visit transfers everything again; the JSON file has each of them, and what is needed to repeat them."""
    command = ["console", "--backbone", BACKBONE, "--visits", "2", "--lessons", "1", "--out", str(tmp_path)]

    result = CliRunner().invoke(app, command)  # on a busy machine a paint may take longer than its limit

    figures = json.loads((tmp_path / "console.json").read_text())
    assert figures["kilobytes"][0] == pytest.approx(figures["kilobytes"][1], rel=0.2)
    assert 20 < figures["medians"]["kilobytes"] < LIMITS["kilobytes"]
    assert min(figures["requests"]) > 30
    assert 0 < figures["medians"]["first_paint"] <= figures["medians"]["usable"]
    assert [len(figures[name]) for name in ("first_paint", "usable", "taught", "tried")] == [2, 2, 1, 1]
    assert "first contentful paint" in result.output
    assert {"command", "commit", "machine"} <= set(figures)


def test_a_slow_or_large_page_exceeds_its_limits() -> None:
    """The median counts: a single slow visit does not."""
    fast = ConsoleVisits(kilobytes=[80.0, 80.0, 80.0], first_paint=[90.0, 900.0, 90.0])
    slow = ConsoleVisits(kilobytes=[101.0, 101.0, 80.0], first_paint=[301.0, 90.0, 301.0])

    assert fast.exceeded() == []
    assert slow.exceeded() == ["kilobytes", "first_paint"]


def test_without_chromium_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A sentence and exit code 2, before a service is started."""
    monkeypatch.setenv("PATH", str(tmp_path))

    result = CliRunner().invoke(app, ["console"])

    assert result.exit_code == 2
    assert "apt-get install chromium" in " ".join(result.output.split())


def test_without_playwright_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also a sentence and exit code 2."""
    (tmp_path / "chromium").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)

    result = CliRunner().invoke(app, ["console"])

    assert result.exit_code == 2
    assert "pip install playwright" in " ".join(result.output.split())
