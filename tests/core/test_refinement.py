"""A gated session that goes wrong in every way it can."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.errors import Diverged
from core.incremental_session import IncrementalConfig, incremental_session
from core.refinement import refine
from core.views import LabelledViews


@pytest.mark.parametrize("rate", [1.0, 30.0, 1e6, 1e30])
def test_no_learning_rate_gets_past_the_gate_or_raises(
    world: Any,
    activations: Callable[..., LabelledViews],
    gentle: IncrementalConfig,
    bits: Callable[..., dict[str, object]],
    rate: float,
) -> None:
    """Collapsed or run off to infinity, a session is rejected, and the new classes are served as plain means."""
    shots = activations([501, 502], 3)
    before = bits(world.state)

    refinement = refine(world.network, world.state, shots, replace(gentle, learning_rate=rate), guard=world.guard)

    assert not refinement.verdict.promoted
    assert refinement.state is refinement.provisional
    assert {501, 502} <= set(refinement.state.bank.class_ids)
    assert bits(world.state) == before


def test_a_diverged_session_says_so(
    world: Any, activations: Callable[..., LabelledViews], gentle: IncrementalConfig
) -> None:
    """Without the gate it is an error with advice, not a failure of some matrix routine."""
    with pytest.raises(Diverged, match="learning rate"):
        incremental_session(world.network, world.state, activations([501, 502], 3), replace(gentle, learning_rate=1e30))


def test_nothing_to_change_is_no_error(
    world: Any, activations: Callable[..., LabelledViews], gentle: IncrementalConfig
) -> None:
    """A fraction of nought leaves the network alone and still learns the class means."""
    shots = activations([501, 502], 3)

    state = incremental_session(world.network, world.state, shots, replace(gentle, fraction=0.0))

    assert {501, 502} <= set(state.bank.class_ids)
