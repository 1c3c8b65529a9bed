"""The benchmarks of swaps and of many classes, in small: real servers, real requests, few of them."""

from pathlib import Path

import pytest

from bench.load import scale, swaps
from bench.load.driving import Measured
from bench.load.home import make_home

BACKBONE = "resnet32"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that needs no preparing."""
    monkeypatch.setenv("PROTOQUAD_ENGINE", "torch")
    monkeypatch.setenv("PROTOQUAD_LOG_FORMAT", "json")


def measured(answers: int, p99: float) -> Measured:
    return Measured(answers, 0, 1.0, (1.0, 2.0, p99, p99), None)


def test_versions_are_swapped_under_load(tmp_path: Path) -> None:
    """Every answer is checked; every swap is answered; memory is read before and after."""
    told: list[str] = []
    length = swaps.Length(rounds=1, swaps=4, predictions=60, seconds=2.0, settle=1.0)

    found = swaps.run_swaps(BACKBONE, tmp_path, make_home, length, told.append)

    assert found.wrong == 0, found
    assert found.answers >= length.predictions
    assert len(found.swaps) >= 2
    assert all(megabytes > 50 for megabytes in found.megabytes)
    assert any("swaps meanwhile" in line for line in told)


def test_many_classes_are_loaded_asked_and_added_to(tmp_path: Path) -> None:
    length = scale.Length(classes=(40, 300), seconds=1.5, warm=0.3, rounds=1, taught_at=300)

    found = scale.run_scale(BACKBONE, tmp_path, make_home, length, lambda _: None)

    assert found.wrong() == 0, found
    assert set(found.ratios()) == {"throughput 300", "teaching"}
    assert 7 < found.rows <= 10
    assert len(found.teaching) == scale.TEACHINGS
    assert set(found.loading) == {40, 300}


def test_ratios_are_of_what_was_measured_in_the_same_run() -> None:
    scaled = scale.Scaled(
        loads={100: [measured(100, 9.0)] * 3, 10_000: [measured(90, 9.0)] * 3}, teaching=[*[10.0] * 19, 40.0], five=4.0
    )
    swapped = swaps.Swapped([measured(5, 10.0)], [measured(5, 15.0)], [1.0], 10, 0, (500.0, 505.0))

    assert scaled.ratios() == {"throughput 10000": 0.9, "teaching": 10.0}
    assert swapped.ratios() == {"p99": 1.5, "growth": 0.01}
