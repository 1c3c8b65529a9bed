"""Settings from the command line."""

import pytest

from bench.commands.run_options import RunOptions
from bench.methods import Setup
from bench.overrides import combinations, override, split_settings


def test_a_path_reaches_into_nested_settings() -> None:
    """Values are read by the type of the field they go to."""
    setup = override(
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
        ("base.speed=3", "there is no setting 'base.speed'"),
        ("base.epochs.deep=3", "single value"),
        ("base.epochs=many", "integer"),
        ("incremental.loss=magic", "magic"),
        ("method=magic", "magic"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_reason(setting: str, complaint: str) -> None:
    """The message says what was asked and what is true."""
    with pytest.raises(ValueError, match=complaint):
        override(Setup(), [setting])


def test_combinations_are_the_full_product() -> None:
    """Two settings with two values each make four."""
    assert combinations(["a=1,2", "b=x,y"]) == [["a=1", "b=x"], ["a=1", "b=y"], ["a=2", "b=x"], ["a=2", "b=y"]]


def test_settings_are_split_by_the_first_name_of_their_key() -> None:
    """Those of a run go to its options; all others, known or not, are left for the setup."""
    own, others = split_settings(["seed=3", "base.seed=4", "cache=/tmp/x", "speed=9"], RunOptions)

    assert own == ["seed=3", "cache=/tmp/x"]
    assert others == ["base.seed=4", "speed=9"]
