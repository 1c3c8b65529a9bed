"""The report of the paper's tables: its verdicts follow from the figures, and its page loads nothing."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bench.commands import app
from bench.feature_map import FeatureMap, feature_map, separation
from bench.methods import METHODS, Setup
from bench.paper.claims import Claim, claims_of
from bench.paper.figures import Figures, Results
from bench.paper.measure import Remaining, duration
from bench.paper.pages import html, markdown
from bench.paper.plan import ABLATIONS, plan
from bench.paper.report import About, blocks_of
from tests.bench.test_commands import SMALL

MAP = FeatureMap([0, 0, 1, 1], [(0.0, 0.0), (0.1, 0.0), (1.0, 1.0), (1.1, 1.0)], 2.0)


def figures(last: float, bwt: float = -5.0, size: int = 1000) -> Figures:
    return Figures((80.0, last), (80 + last) / 2, 80 - last, bwt, 70.0, 50.0, 58.3, (60.0, 3.0), size, MAP)


def good_results() -> Results:
    """What the paper says, twice: two draws that differ by half a point."""
    ends = {"protoquad": 63.0, "f2m": 60.0, "icarl": 21.0}
    methods = {name: [figures(end, size=2000), figures(end + 0.5, size=2000)] for name, end in ends.items()}
    ablations = {
        "loss": {"prototypical-quadruplet": figures(57.4), "triplet": figures(44.3), "contrastive": figures(42.1)},
        "margins": {"0.0, 0.0": figures(30.0), "1.0, 0.5": figures(57.4), "1.2, 0.2": figures(51.4)},
        "lambda": {"0.3": figures(42.4), "0.1": figures(57.4)},
        "fraction": {"0.05": figures(50.0), "0.1": figures(57.4), "0.15": figures(52.0)},
        "bank": {"1": figures(50.0, -9.0, 500), "20": figures(60.0, -0.5, 2000)},
    }
    return Results(methods, ablations)


def verdicts(results: Results) -> list[str]:
    return [claim.verdict for claim in claims_of(results, "cub200")]


def test_figures_like_those_of_the_paper_reproduce_its_claims() -> None:
    """Every one; the method is first in the first session too, since all begin alike."""
    assert set(verdicts(good_results())) == {"reproduced"}


def changed(ablation: str, **values: Figures) -> Results:
    results = good_results()
    ablations = {**results.ablations, ablation: {**results.ablations[ablation], **values}}
    return replace(results, ablations=ablations)


@pytest.mark.parametrize(
    ("results", "place"),
    [
        (changed("loss", triplet=figures(57.2)), 4),
        (changed("margins", **{"0.0, 0.0": figures(57.3)}), 5),
        (changed("lambda", **{"0.3": figures(57.2)}), 6),
        (changed("fraction", **{"0.05": figures(60.0)}), 7),
        (changed("bank", **{"20": figures(60.0, -8.0, 2000)}), 8),
        (changed("bank", **{"1": figures(20.0, -9.0, 500)}), 9),
    ],
)
def test_a_verdict_turns_with_its_figures(results: Results, place: int) -> None:
    """Only that one; in an ablation a lead within the spread over the draws counts as none."""
    expected = ["reproduced"] * 10
    expected[place] = "not reproduced"

    assert verdicts(results) == expected


def test_a_better_rival_is_named() -> None:
    """The claims about being first fall, with the figures of both."""
    results = good_results()
    better = replace(results, methods={**results.methods, "ranpac": [figures(66.0), figures(66.0)]})

    first = claims_of(better, "cub200")[0]

    assert first.verdict == "not reproduced"
    assert "ranpac 66.00" in first.figure
    assert "-2.75" in first.figure


def test_methods_are_compared_draw_by_draw() -> None:
    """Draws that differ by ten points: what counts is the difference in each of them, here from 0.9 to 1.1."""
    ours, theirs = [50.0, 60.0, 70.0, 55.0], [49.0, 58.9, 69.1, 54.0]
    results = Results({"protoquad": list(map(figures, ours)), "f2m": list(map(figures, theirs))}, {})
    apart = torch.tensor(ours) - torch.tensor(theirs)
    error = float(apart.std() / 2)

    first, sessions, f2m, lost = claims_of(results, "cub200")[:4]

    assert {one.verdict for one in (first, sessions, f2m, lost)} == {"reproduced"}
    assert f"{float(apart.mean()):+.2f} ± {2 * error:.2f}" in f2m.figure


def test_a_lead_within_two_standard_errors_is_none() -> None:
    """Ahead by a point on average, but behind in one of three draws; the lead of the paper is no part of the claim."""
    ours, theirs = [63.0, 63.0, 63.0], [60.0, 62.0, 64.0]
    results = Results({"protoquad": list(map(figures, ours)), "f2m": list(map(figures, theirs))}, {})

    found = claims_of(results, "cub200")[:4]

    assert [one.verdict for one in found] == ["not reproduced"] * 4
    assert "first in 1 of 2 sessions; not beyond chance in 2" in found[1].figure
    assert "3.13" not in found[2].claim
    assert "+1.00 ± 2.31" in found[2].figure
    assert "+3.13" in found[2].figure


def test_one_draw_tells_no_lead_from_chance() -> None:
    """However large the difference: no verdict, and the figure says why."""
    results = good_results()
    one_draw = replace(results, methods={name: runs[:1] for name, runs in results.methods.items()})

    found = claims_of(one_draw, "cub200")

    assert {claim.verdict for claim in found} == {"not measured"}
    assert all("one draw" in claim.figure for claim in found)


def test_ablations_are_compared_on_the_standard_draw() -> None:
    """The rival with exemplars too: its other draws, however good, do not count."""
    results = good_results()
    easy = {**results.methods, "icarl": [figures(21.0, size=2000), figures(90.0, size=2000)]}

    memory = claims_of(replace(results, methods=easy), "cub200")[9]

    assert memory.verdict == "reproduced"
    assert "icarl 21.00" in memory.figure
    assert "on the standard draw" in memory.figure


def test_nodes_with_an_image_each_are_exemplars_too() -> None:
    """TOPIC is a rival in the comparison of memory."""
    results = good_results()
    others = {"protoquad": results.methods["protoquad"], "topic": results.methods["icarl"]}

    assert "topic 21.00" in claims_of(replace(results, methods=others), "cub200")[9].figure


def test_backward_transfer_must_change_beyond_its_spread() -> None:
    """Half a point nearer to zero, where our runs differ by seven tenths: chance."""
    results = changed("bank", **{"1": figures(50.0, -1.0, 500)})
    spread = [figures(63.0, -5.0, 2000), figures(63.5, -4.0, 2000)]

    bank = claims_of(replace(results, methods={**results.methods, "protoquad": spread}), "cub200")[8]

    assert bank.verdict == "not reproduced"


def test_a_bank_that_is_never_small_measures_nothing_about_memory() -> None:
    """Where shots and guard images outweigh the copies, no bank has 62 % of the largest memory."""
    memory = claims_of(changed("bank", **{"1": figures(50.0, -9.0, 1900)}), "cub200")[9]

    assert memory.verdict == "not measured"
    assert "no bank of ours is that small" in memory.figure
    assert "0.95" in memory.figure


def test_what_was_not_run_is_not_measured() -> None:
    """One method alone says nothing about any claim."""
    alone = Results({"protoquad": [figures(63.0)]}, {})

    assert set(verdicts(alone)) == {"not measured"}


def test_the_page_has_every_figure_and_loads_nothing() -> None:
    """No address to fetch in the HTML; the Markdown links to its plots; both have the tables and verdicts."""
    results = good_results()
    claims = claims_of(results, "cub200")
    blocks = blocks_of(results, claims, About("cub200", "resnet18", 2, "abc"))

    page, text = html(blocks, "paper"), markdown(blocks, "paper")

    assert not re.findall(r"(?:src|href)=[\"'](?!#)", page.replace("xlink:", ""))
    assert "url(http" not in page
    assert "@import" not in page
    assert page.count("<svg") == text.count(".svg)") == 4
    for shown in ("63.25 ± 0.35", "21.25", "prototypical-quadruplet", "reproduced"):
        assert shown in page
        assert shown in text


def test_the_page_says_what_was_tuned_and_which_draw_is_standard() -> None:
    """A reader of the page alone knows that rivals were not tuned, and that not every standard draw is published."""
    results = good_results()

    text = markdown(blocks_of(results, claims_of(results, "grocery"), About("grocery", "resnet18", 2, "abc")), "paper")

    assert "on training images of the base classes of CUB-200" in text
    assert "starting points that no tuning has chosen" in text
    assert "as for grocery, folder and shapes, it is a seeded draw" in text


def test_every_method_and_every_ablation_is_planned() -> None:
    """Each method on each draw, then every value of every ablation once."""
    runs = plan({name: Setup(method=name) for name in METHODS}, 4, ablations=True)

    assert [(run.name, run.draw) for run in runs[: len(METHODS)]] == [(name, None) for name in METHODS]
    assert sum(run.group == "methods" for run in runs) == 4 * len(METHODS)
    assert len({(run.group, run.name, run.draw) for run in runs}) == len(runs)
    assert sum(run.group != "methods" for run in runs) == sum(map(len, ABLATIONS.values()))


def test_the_time_left_comes_from_runs_of_the_same_method() -> None:
    """A run that was only read tells nothing."""
    runs = plan({"ncm": Setup(method="ncm"), "joint": Setup(method="joint")}, 3, ablations=False)
    remaining = Remaining(runs)

    assert remaining.after(1, 0.1) == ""
    assert remaining.after(2, 600.0) == "; about 40 min left"
    assert remaining.after(3, 60.0) == "; about 21 min left"
    assert duration(7500) == "2 h 05 min"


def test_a_feature_map_keeps_distances_of_two_dimensions() -> None:
    """Points in a plane keep their distances; separation is that of the vectors, by hand."""
    vectors = torch.tensor([[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [4.0, 0.0, 0.0], [4.0, 2.0, 0.0]])
    labels = torch.tensor([3, 3, 8, 8])

    one = feature_map((vectors[:2], labels[:2]), (vectors[2:], labels[2:]))

    assert one.class_ids == [3, 3, 8, 8]
    points = torch.tensor(one.points)
    assert torch.allclose(torch.cdist(points, points), torch.cdist(vectors, vectors), atol=1e-3)
    assert separation(vectors, labels) == pytest.approx(4.0)


@pytest.mark.usefixtures("few_images")
def test_paper_writes_a_report_and_reads_it_again(tmp_path: Path, resnet32_weights: Path) -> None:
    """The second call trains nothing and writes the same figures."""
    command = ["paper", "--dataset", "shapes", *SMALL, "--methods", "ncm,teen", "--draws", "2"]
    for setting in (f"weights={resnet32_weights}", f"cache={tmp_path / 'cache'}", "ablations=false", "name=small"):
        command += ["--set", setting]
    command += ["--set", "teen.rival.strength=2", "--out", str(tmp_path / "out")]

    written = []
    for _ in range(2):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        written.append(json.loads((tmp_path / "out" / "small.json").read_text()))

    assert written[0]["methods"] == written[1]["methods"]
    assert [len(runs) for runs in written[0]["methods"].values()] == [2, 2]
    assert [one["rival"]["strength"] for one in written[0]["configuration"].values()] == [1.0, 2.0]
    assert "[4/4] teen, draw 1" in result.output
    for suffix in ("small.md", "small.html", "small-accuracy.svg", "small-memory.svg"):
        assert (tmp_path / "out" / suffix).stat().st_size > 0
    assert {Claim(**claim).verdict for claim in written[0]["claims"]} == {"not measured"}
