"""Settings from the command line."""

import pytest

from bench.methods import Setup
from bench.overrides import combinations, overridden


def test_a_path_reaches_into_nested_settings() -> None:
    """Values are read by the type of the field they go to."""
    setup = overridden(
        Setup(),
        ["incremental.margins.query=0.7", "incremental.drift=false", "base.epochs=3"],
    )

    assert setup.incremental.margins.query == 0.7
    assert setup.incremental.drift is False
    assert setup.base.epochs == 3


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("base.epochs", "key=value"),
        ("base.speed=3", "names nothing"),
        ("base.epochs.deep=3", "too deep"),
        ("base.epochs=many", "integer"),
        ("incremental.loss=magic", "magic"),
        ("method=magic", "magic"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_reason(setting: str, complaint: str) -> None:
    """The message says what was asked and what is true."""
    with pytest.raises(ValueError, match=complaint):
        overridden(Setup(), [setting])


def test_combinations_are_the_full_product() -> None:
    """Two settings with two values each make four."""
    assert combinations(["a=1,2", "b=x,y"]) == [["a=1", "b=x"], ["a=1", "b=y"], ["a=2", "b=x"], ["a=2", "b=y"]]
