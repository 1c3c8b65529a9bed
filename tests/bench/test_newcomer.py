"""What a newcomer gets, measured on a folder of small images; and the measures themselves, recomputed."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bench.commands import app
from bench.newcomer import read_pools
from bench.open_set import auroc, calibration_error, calibration_gaps
from tests.painted import paint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return paint(tmp_path / "images", dict.fromkeys(("ant", "bee", "cow", "dog", "elk", "fox", "gnu", "hen"), 8))


def run(folder: Path, out: Path, weights: Path | None, *options: str) -> tuple[int, str]:
    command = ["newcomer", "--data", str(folder), "--backbone", "resnet32", "--draws", "2", "--out", str(out)]
    for setting in ("engine=torch", f"cache={out / 'cache'}", "name=small"):
        command += ["--set", setting]
    if weights:
        command += ["--set", f"weights={weights}"]
    result = CliRunner().invoke(app, [*command, *options])
    return result.exit_code, result.output


def test_it_measures_accuracy_strangers_and_confidence(folder: Path, tmp_path: Path, resnet32_weights: Path) -> None:
    """The file has every figure with its error, and all that is needed to repeat it."""
    far = paint(tmp_path / "far", {"oak": 4, "yew": 4})

    code, output = run(folder, tmp_path, resnet32_weights, "--far", str(far), "--scene", "3x3", "--half", "all")

    assert code == 0, output
    found = json.loads((tmp_path / "small.json").read_text())
    figures = found["scenes"]["3x3"]
    assert 0 <= figures["provisional"]["mean"] <= 100
    assert figures["gain"]["mean"] == pytest.approx(
        figures["refined"]["mean"] - figures["provisional"]["mean"], abs=0.001
    )
    assert {"accepted", "near_refused", "near_auroc", "far_refused", "far_auroc", "seconds"} <= figures.keys()
    assert 0 <= figures["calibration_error"]["mean"] <= 1
    assert figures["streamed"] is None
    assert {"commit", "machine", "configuration"} <= found.keys()


def test_settings_and_results_come_from_different_classes(folder: Path) -> None:
    """Each half has every other class, and shots are never asked about."""
    chosen, reported = read_pools(folder, "choose"), read_pools(folder, "report")

    assert chosen.keys() | reported.keys() == set(range(8))
    assert not chosen.keys() & reported.keys()
    pool = chosen[0]
    assert not {one.key for one in pool.shots} & {one.key for one in pool.tests}


def test_more_classes_than_there_are_is_an_error(folder: Path, tmp_path: Path, resnet32_weights: Path) -> None:
    """It says how many there are."""
    code, output = run(folder, tmp_path, resnet32_weights, "--scene", "5x3", "--half", "choose")

    assert code != 0
    assert "5 classes were asked for; 4 have 3 images" in " ".join(output.split())


def test_a_network_that_has_learned_nothing_is_refused(folder: Path, tmp_path: Path) -> None:
    """Without a base session its features mean nothing."""
    code, output = run(folder, tmp_path, None, "--scene", "3x3")

    assert code != 0
    assert "resnet32 has no pretrained weights" in " ".join(output.split())


def test_strangers_that_are_always_farther_are_told_apart() -> None:
    """AUROC is the share of pairs in the right order, ties half."""
    known, strange = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.2, 0.4])

    pairs = [(k, s) for k in known.tolist() for s in strange.tolist()]
    assert auroc(known, strange) == pytest.approx(sum((s > k) + 0.5 * (s == k) for k, s in pairs) / len(pairs))
    assert auroc(known, known + 1) == 1


def test_confidence_that_is_right_on_average_has_no_error() -> None:
    """Half of the images, at a confidence of a half, are right; if all were, half would be missing."""
    unsure = torch.full((4, 2), 0.5)

    right_half = calibration_gaps(unsure, torch.tensor([0, 0, 1, 1]))
    always_right = calibration_gaps(unsure, torch.zeros(4, dtype=torch.long))

    assert calibration_error([right_half.tolist()]) == pytest.approx(0)
    assert calibration_error([always_right.tolist()]) == pytest.approx(0.5)


def test_errors_by_chance_cancel_over_draws() -> None:
    """One draw has too many right, another too few."""
    above, below = [0.1] + [0.0] * 14, [-0.1] + [0.0] * 14

    assert calibration_error([above, below]) == pytest.approx(0)
    assert calibration_error([above, above]) == pytest.approx(0.1)
