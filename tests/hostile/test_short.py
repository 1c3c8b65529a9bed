"""Every attack in short, on a machine that is busy with other tests; `make test-hostile` carries them out at length."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.attacks import ATTACKS
from tests.hostile.judging import Besieged, Bounds

SECONDS = 0.3
SECONDS_OF_QUIET = 1.0
SCALE = 1 / 16  # so that bodies are sent whole within this time
SCALE_OF_BOMBS = 1 / 64  # one costly image in a request
BOUNDS = Bounds(livez=1.5, times_quiet=8, least_quiet=0.25)
QUICK = {"PROTOQUAD_HEAD_SECONDS": "1", "PROTOQUAD_BODY_SECONDS": "1"}


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    home: Path = tmp_path_factory.mktemp("besieged") / "home"
    service = Besieged(home, SECONDS_OF_QUIET, **QUICK)
    yield service
    service.close()


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_friendly_client_hardly_notices(besieged: Besieged, attack: str) -> None:
    """Health and small predictions are answered in time, memory is bounded, and the attacker gets refusals."""
    report = besieged.suffer(attack, SECONDS, SCALE_OF_BOMBS if ATTACKS[attack].bombs else SCALE, BOUNDS)

    assert not report.faults, str(report)
