"""The tables of results are those of the result files, each of one commit."""

import json
import re
from collections.abc import Callable
from statistics import mean, stdev
from typing import Any

import pytest

from tests.docs.pages import REPOSITORY, section, tables, text_of

PAGE = text_of("docs/results.md")
BY_SESSION = (
    "Against baselines",
    "Larger images",
    "Other draws of the shots",
    "What each part is worth",
    "A larger network",
    "The larger network on larger images",
)
COLUMNS: tuple[Callable[[dict[str, Any]], float], ...] = (
    lambda run: run["accuracy"][0],
    lambda run: run["accuracy"][5],
    lambda run: run["accuracy"][10],
    lambda run: run["average"],
    lambda run: run["base"],
    lambda run: run["novel"],
    lambda run: run["harmonic_mean"],
)
HALF_A_DIGIT = 0.0501


@pytest.mark.parametrize("heading", BY_SESSION)
def test_a_table_of_accuracies_is_that_of_its_files(heading: str) -> None:
    """Every cell, and the mean with its deviation where a row has several files."""
    (table,) = tables(section(PAGE, heading))
    for first, *cells in table:
        runs = _files(first)
        for cell, read in zip(cells, COLUMNS, strict=True):
            shown = [float(number) for number in re.findall(r"[\d.]+", cell)]
            values = [read(run) for run in runs]
            expected = [mean(values)] + ([stdev(values)] if len(shown) > 1 else [])
            assert shown == pytest.approx(expected, abs=HALF_A_DIGIT), (first, cell)


NEWCOMER = (
    *("provisional", "refined", "gain", "streamed", "accepted", "near_refused", "near_refused_at_95", "near_auroc"),
    *("far_refused", "far_auroc", "calibration_error"),
)


def test_the_table_of_newcomers_is_that_of_its_files() -> None:
    """Each mean with its error; a dash where there was nothing to measure."""
    (table,) = tables(section(PAGE, "Without a base session"))

    assert len(table) >= 2
    for first, *cells in table:
        (run,) = _files(first)
        (found,) = run["scenes"].values()
        for cell, name in zip(cells, NEWCOMER, strict=True):
            shown = [float(number) for number in re.findall(r"[\d.]+", cell)]
            expected = [found[name]["mean"], found[name]["error"]] if found[name] else []
            assert shown == pytest.approx(expected, abs=HALF_A_DIGIT), (first, name)


@pytest.mark.parametrize("page", ["docs/results.md", "docs/speed.md"])
def test_each_section_names_the_one_commit_of_its_files(page: str) -> None:
    """A figure without its commit cannot be repeated."""
    text = text_of(page)
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    found = {heading: (_commits(section(text, heading)), _files(section(text, heading))) for heading in headings}

    assert sum(bool(files) for _, files in found.values()) >= 5
    for heading, (named, files) in found.items():
        own = {one for file in files for one in file.get("commits", {"": file.get("commit")}).values()}
        assert own == named, heading


def test_what_others_published_is_quoted_rightly() -> None:
    """First and last session, and the average."""
    rivals = json.loads(text_of("bench/published.json"))["cub200"]
    (table,) = tables(section(PAGE, "What others have published"))

    known = {name: [curve[0], curve[-1], mean(curve)] for name, curve in rivals["curves"].items()} | rivals["ends"]
    for name, *numbers in table:
        assert [float(number) for number in numbers] == pytest.approx(known[name], abs=0.011), name


def _files(text: str) -> list[dict[str, Any]]:
    names = re.findall(r"\]\(\.\./(bench/results/[^)]+\.json)\)", text)
    return [json.loads((REPOSITORY / name).read_text()) for name in dict.fromkeys(names)]


def _commits(text: str) -> set[str]:
    """Those that the first sentence names."""
    found = re.search(r"^Commits? (.+?)[.,:(]", text, re.MULTILINE)
    return set(re.findall(r"`([0-9a-f]{7,12}(?:-dirty)?)`", found[1])) if found else set()
