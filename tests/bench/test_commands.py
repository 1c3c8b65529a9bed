"""The commands of `protoquad bench`, as a user types them."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from bench import cost
from bench.commands import app

SMALL = ["--backbone", "resnet32"]
for _setting in ("engine=torch", "base.epochs=1", "views=1", "incremental.epochs=1", "incremental.episodes=2"):
    SMALL += ["--set", _setting]
README = Path(__file__).parents[2] / "README.md"
REPRODUCE = Path(__file__).parents[2] / "bench" / "reproduce.sh"


@pytest.mark.usefixtures("few_images")
def test_fscil_prints_a_table_and_writes_results_and_a_plot(tmp_path: Path, resnet32_weights: Path) -> None:
    """The JSON has the numbers of the table and everything needed to repeat them."""
    command = ["fscil", "--dataset", "shapes", *SMALL, "--draw", "1", "--out", str(tmp_path / "out")]
    for setting in (f"weights={resnet32_weights}", f"cache={tmp_path / 'cache'}", "name=small", "seed=3"):
        command += ["--set", setting]

    result = CliRunner().invoke(app, command)

    assert result.exit_code == 0, result.output
    assert "accuracy by session" in result.output
    figures = json.loads((tmp_path / "out" / "small.json").read_text())
    assert len(figures["accuracy"]) == len(figures["seconds"]) == 6
    assert figures["average"] == pytest.approx(sum(figures["accuracy"]) / 6, abs=0.01)
    assert {"pd", "bwt", "base", "novel", "harmonic_mean", "configuration", "commit", "machine"} <= set(figures)
    assert figures["configuration"]["base"]["epochs"] == 1
    assert figures["configuration"]["base"]["seed"] == figures["seed"] == 3
    assert figures["draw"] == 1
    assert (tmp_path / "out" / "small.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("few_images")
def test_the_pretrained_network_is_measured_without_a_base_session(tmp_path: Path, resnet32_weights: Path) -> None:
    """The file is named after what was measured."""
    command = ["fscil", "--dataset", "shapes", "--backbone", "resnet32", "--method", "ncm", "--preset", "no-base"]
    for setting in ("engine=torch", "base.metric=cosine", f"weights={resnet32_weights}", f"cache={tmp_path / 'cache'}"):
        command += ["--set", setting]

    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path)])

    assert result.exit_code == 0, result.output
    configuration = json.loads((tmp_path / "ncm-resnet32-cosine-no-base.json").read_text())["configuration"]
    assert configuration["base"]["epochs"] == configuration["views"] == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--dataset", "cub200"], "give their folder"),
        (["--dataset", "cub200", "--data", "nowhere"], "nowhere"),
        (["--dataset", "birds"], "there is no data set"),
        (["--backbone", "resnet1000"], "there is no backbone"),
        (["--dataset", "shapes", "--method", "magic"], "there is no method"),
        (["--dataset", "shapes", "--set", "base.metric=manhattan"], "manhattan|cosine"),
        (["--dataset", "shapes", "--set", "speed=9"], "there is no setting 'speed'"),
    ],
)
def test_a_wrong_argument_is_a_message_and_exit_code_2(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    """No traceback for a mistake of the user."""
    result = CliRunner().invoke(app, ["fscil", *arguments, "--set", f"cache={tmp_path}"])

    assert result.exit_code == 2
    assert re.search(complaint, " ".join(result.output.split()))
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("few_images")
def test_tune_ranks_what_it_tried(tmp_path: Path, resnet32_weights: Path) -> None:
    """Each value gets a row, and the comparison can be written to a file."""
    command = ["tune", "--dataset", "shapes", *SMALL, "--try", "method=ncm,teen", "--out", str(tmp_path / "out")]
    for setting in (f"weights={resnet32_weights}", f"cache={tmp_path / 'cache'}", "sessions=2"):
        command += ["--set", setting]

    result = CliRunner().invoke(app, command)

    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "out" / "tune-protoquad.json").read_text())
    assert {tuple(trial["settings"]) for trial in written["trials"]} == {("method=ncm",), ("method=teen",)}
    assert (written["partitions"], written["base_classes"], written["sessions"]) == (1, 70, 2)


def listed_settings() -> str:
    result = CliRunner().invoke(app, ["settings"])
    assert result.exit_code == 0, result.output
    return result.output


def test_settings_are_listed_with_their_defaults() -> None:
    """Every key that `--set` takes, nested ones too, with its choices."""
    lines = listed_settings().splitlines()

    assert "base.metric=whitened  (euclidean, cosine, power-cosine, whitened)" in lines
    assert {"method=protoquad", "incremental.margins.query=1.0", "seed=0", "cache=", "partitions=1"} <= set(lines)


def test_every_setting_of_the_published_results_exists() -> None:
    """The script that repeats them uses no other key."""
    listed = {line.partition("=")[0] for line in listed_settings().splitlines()}
    used = set(re.findall(r"[\s\"]((?:base|incremental|gate|name)[\w.]*)=", REPRODUCE.read_text()))

    assert len(used) > 10
    assert used <= listed


def test_help_lists_the_benchmarks() -> None:
    """All that the README names."""
    listed = CliRunner().invoke(app, ["--help"]).output
    named = set(re.findall(r"protoquad bench ([a-z-]+)", README.read_text()))

    assert {"fscil", "tune", "cost", "load", "checkouts"} <= set(re.findall(r"│ ([a-z-]+) ", listed))
    assert named <= set(re.findall(r"│ ([a-z-]+) ", listed))


@pytest.mark.parametrize("names", [["one"], ["one", "one"], ["one", "two"]])
def test_checkouts_need_two_folders_with_sources(tmp_path: Path, names: list[str]) -> None:
    """One folder, the same one twice, and folders without sources are refused before a server starts."""
    result = CliRunner().invoke(app, ["checkouts", *(str(tmp_path / name) for name in names)])

    assert result.exit_code == 2
    assert re.search("at least two checkouts|is not a checkout of protoquad", " ".join(result.output.split()))


def test_cost_measures_each_session_in_its_own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry for each scene, in order."""
    monkeypatch.setattr(cost, "SCENES", ((1, 2, 20), (2, 1, 40)))
    monkeypatch.setenv("PROTOQUAD_ENGINE", "torch")
    result = CliRunner().invoke(app, ["cost", "--backbone", "resnet32", "--out", str(tmp_path)])

    assert result.exit_code == 0, result.output
    costs = json.loads((tmp_path / "cost.json").read_text())["costs"]
    assert [(entry["ways"], entry["past"]) for entry in costs] == [(1, 20), (2, 40)]
    assert all(entry["seconds"] > 0 for entry in costs)


def test_views_prints_what_each_number_of_them_is_worth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eleven classes ten are taught at a time; without rounds nothing is served."""
    monkeypatch.setenv("PROTOQUAD_ENGINE", "torch")
    for part in ("train", "test"):
        for look in range(11):
            folder = tmp_path / "data" / part / f"look {look}"
            folder.mkdir(parents=True)
            for number in range(5):
                Image.new("RGB", (40, 40), (20 * look, 200 - 10 * look, 10 * number)).save(folder / f"{number}.png")
    command = ["views", str(tmp_path / "data"), "--backbone", "resnet32", "--rounds", "0", "--draws", "2"]

    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])

    assert result.exit_code == 0, result.output
    figures = json.loads((tmp_path / "out" / "view-gain.json").read_text())["gain"]["data"]
    assert [(one["classes"], one["views"]) for one in figures] == [(10, views) for views in (1, 2, 3, 4, 6)]
    assert figures[0]["gain"] == 0 < figures[0]["accuracy"] <= 100
    assert not (tmp_path / "out" / "view-cost.json").exists()
