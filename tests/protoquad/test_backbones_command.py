"""`protoquad backbones`: what can be used here, where its weights are, and what it costs."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from click.testing import Result
from safetensors.torch import save_file
from typer.testing import CliRunner

from core.backbones.resnet import CifarResNet
from engine import preparation
from protoquad.backbones_command import backbones

PAIR = "efficientnet_lite0+efficientnet_lite2"

app = typer.Typer()
app.command()(backbones)


@pytest.fixture(autouse=True)
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of weight files, one for ResNet-32; nothing was downloaded."""
    (tmp_path / "weights").mkdir()
    save_file(CifarResNet(blocks=5).state_dict(), tmp_path / "weights" / "resnet32.safetensors")
    monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PROTOQUAD_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    return tmp_path / "weights"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def listed(*arguments: str) -> dict[str, Any]:
    result = run("--json", *arguments)
    assert result.exit_code == 0, result.output
    return {one["name"]: one for one in json.loads(result.stdout)}


def test_what_is_known_or_has_a_file_or_is_the_default_is_listed(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, with its sizes and where its weights are."""
    (weights / "timm:test_vit.pth").touch()
    monkeypatch.setenv("PROTOQUAD_BACKBONE", PAIR)

    found = listed()

    names = ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2", "resnet18", "resnet32"]
    assert list(found) == [*names, "timm:test_vit", PAIR]
    lite0 = found["efficientnet_lite0"]
    assert (lite0["input"], lite0["features"], lite0["parameters"]) == (224, 1280, 3_371_008)
    assert (lite0["available"], lite0["cost"], lite0["milliseconds"]) == (True, 1.0, None)
    assert lite0["weights"][0]["kind"] == "package"
    assert found["resnet32"]["weights"][0] == {
        "network": "resnet32",
        "kind": "file",
        "where": str(weights / "resnet32.safetensors"),
        "available": True,
    }
    assert (found["resnet18"]["weights"][0]["kind"], found["resnet18"]["available"]) == ("hub", False)
    assert not (weights.parent / "home").exists(), "it only looks"


def test_a_pair_costs_what_both_cost() -> None:
    """And a little for scaling the image; its features are those of both."""
    found = listed("efficientnet_lite0", "efficientnet_lite2", PAIR)

    lite0, lite2, pair = found.values()
    assert pair["features"] == lite0["features"] + lite2["features"]
    assert pair["parameters"] == lite0["parameters"] + lite2["parameters"]
    assert 1.0 < pair["cost"] / (lite0["cost"] + lite2["cost"]) < 1.15
    assert [source["network"] for source in pair["weights"]] == ["efficientnet_lite0", "efficientnet_lite2"]


def test_larger_images_cost_as_many_times_as_they_have_pixels() -> None:
    """With the weights of the same network."""
    own, larger = listed("efficientnet_lite0", "efficientnet_lite0@288").values()

    assert larger["input"] == 288
    assert larger["cost"] == pytest.approx((288 / 224) ** 2, rel=0.02)
    assert larger["weights"] == own["weights"]


def test_multiply_adds_are_those_that_a_convolution_does() -> None:
    """ResNet-18 on 224 pixels is known to take 1.81 billion."""
    assert listed("resnet18")["resnet18"]["multiply_adds"] == pytest.approx(1.814e9, rel=0.005)


def test_people_read_a_table_that_explains_pairs() -> None:
    """A name is never cut, whatever the width of the terminal."""
    result = run("resnet18", PAIR)

    assert result.exit_code == 0, result.output
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["backbone", "input", "features", "parameters", "cost", "weights"]
    assert rows[0].split()[:4] == ["resnet18", "224", "px", "512"]
    assert rows[0].endswith("hub, at first use")
    assert rows[1].startswith(f"{PAIR}  260 px  2,560")
    assert "Any two can be joined with '+'" in result.stdout


def test_a_file_that_no_model_is_named_after_is_left_out_with_a_reason(weights: Path) -> None:
    """The others are listed."""
    (weights / "timm:test_vot.pth").touch()

    result = run("--json")

    assert result.exit_code == 0, result.output
    assert "timm:test_vot" not in result.stdout
    assert "left out: timm has no model 'test_vot'" in result.stderr
    assert len(json.loads(result.stdout)) == 5


def test_an_unknown_name_is_refused() -> None:
    """With what there is."""
    result = run("abacus")

    assert result.exit_code == 2
    assert "there is no backbone 'abacus'" in result.stderr


@pytest.mark.usefixtures("unchanged_process")
def test_measuring_takes_the_time_of_what_is_here(
    tmp_path: Path, prepared_backbones: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard output is JSON alone, though a backbone is prepared meanwhile; what is not here has no time."""
    preparation.prepare("resnet32", prepared_backbones)
    before = prepared_backbones / preparation._key("resnet32")

    def copy(_: str, folder: Path, *__: object) -> None:
        shutil.copytree(before, folder, dirs_exist_ok=True)

    monkeypatch.setattr(preparation, "_compile_in_process", copy)
    monkeypatch.setenv("PROTOQUAD_CACHE", str(tmp_path / "cache"))

    ended = run("--json", "--measure", "resnet32", "resnet18")

    resnet32, resnet18 = json.loads(ended.stdout)
    assert "preparing a backbone" in ended.stderr
    assert resnet32["milliseconds"] > 0
    assert resnet18["milliseconds"] is None
