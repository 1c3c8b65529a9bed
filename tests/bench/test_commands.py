"""The `protoquad bench` commands, as somebody types them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import cost
from protoquad.main import app

SMALL = ["--backbone", "resnet32", "--set", "base.epochs=1", "--set", "views=1"]


@pytest.fixture
def resnet32_weights(tmp_path: Path) -> Path:
    """A local weight file, so that the small network counts as pretrained."""
    import torch
    from safetensors.torch import save_file

    from core.backbones.resnet import CifarResNet

    torch.manual_seed(0)
    file = tmp_path / "resnet32.safetensors"
    save_file(CifarResNet(blocks=5).state_dict(), file)
    return file


def test_fscil_prints_a_table_and_leaves_figures_and_a_plot(tmp_path: Path, resnet32_weights: Path) -> None:
    """The JSON holds what the table says and all that is needed to repeat it."""
    command = ["bench", "fscil", "--dataset", "shapes", "--weights", str(resnet32_weights), *SMALL]
    command += ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"), "--name", "small", "--draw", "1"]

    result = CliRunner().invoke(app, command)

    assert result.exit_code == 0, result.output
    assert "accuracy by session" in result.output
    figures = json.loads((tmp_path / "out" / "small.json").read_text())
    assert len(figures["accuracy"]) == len(figures["seconds"]) == 6
    assert figures["average"] == pytest.approx(sum(figures["accuracy"]) / 6, abs=0.01)
    assert {"pd", "bwt", "base", "novel", "harmonic_mean", "configuration", "seed", "commit", "machine"} <= set(figures)
    assert figures["configuration"]["base"]["epochs"] == 1
    assert figures["draw"] == 1
    assert (tmp_path / "out" / "small.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--dataset", "cub200"], "say which folder"),
        (["--dataset", "cub200", "--data", "nowhere"], "nowhere"),
        (["--dataset", "birds"], "there is no data set"),
        (["--backbone", "resnet1000"], "there is no backbone"),
        (["--dataset", "shapes", "--method", "magic"], "there is no method"),
        (["--dataset", "shapes", "--metric", "manhattan"], "manhattan|cosine"),
        (["--dataset", "shapes", "--set", "speed=9"], "names nothing"),
    ],
)
def test_a_wrong_argument_is_a_sentence_and_exit_code_2(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    """No traceback for what a user can put right."""
    import re

    result = CliRunner().invoke(app, ["bench", "fscil", *arguments, "--cache", str(tmp_path)])

    assert result.exit_code == 2
    assert re.search(complaint, " ".join(result.output.split()))
    assert "Traceback" not in result.output


def test_tune_ranks_what_it_tried(tmp_path: Path, resnet32_weights: Path) -> None:
    """Each value gets a row, and the comparison can be kept as a file."""
    command = ["bench", "tune", "--dataset", "shapes", "--weights", str(resnet32_weights), *SMALL]
    command += ["--try", "method=ncm,teen", "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]

    result = CliRunner().invoke(app, command)

    assert result.exit_code == 0, result.output
    trials = json.loads((tmp_path / "out" / "tune.json").read_text())["trials"]
    assert {tuple(trial["settings"]) for trial in trials} == {("method=ncm",), ("method=teen",)}


def test_help_lists_the_benchmarks() -> None:
    """Somebody who types the bare command is told what there is."""
    result = CliRunner().invoke(app, ["bench", "--help"])

    assert all(name in result.output for name in ("fscil", "tune", "cost"))


def test_cost_measures_each_session_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds and peak memory for a small and a large past; on a tiny network the past must not matter much."""
    monkeypatch.setattr(cost, "SCENES", ((2, 2, 20), (2, 2, 2000)))
    result = CliRunner().invoke(app, ["bench", "cost", "--backbone", "resnet32", "--out", str(tmp_path)])

    assert result.exit_code == 0, result.output
    costs = json.loads((tmp_path / "cost.json").read_text())["costs"]
    assert [(entry["ways"], entry["past"]) for entry in costs] == [(2, 20), (2, 2000)]
    assert all(entry["seconds"] > 0 for entry in costs)
    assert costs[1]["megabytes"] < 2 * costs[0]["megabytes"]
