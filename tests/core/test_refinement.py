"""A gated session: it fails in no way it can go wrong, and computes every feature once."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from core.backbones import Backbone
from core.base_session import base_session
from core.errors import Diverged
from core.guard import Measure, Verdict
from core.incremental_session import IncrementalConfig, incremental_session, teach
from core.refinement import Refinement, refine
from core.state import with_weights
from core.views import CPU, LabelledViews, Scope, features_of, trainable_part

Bits = Callable[..., dict[str, object]]
Draw = Callable[..., LabelledViews]


def promote(before: Measure, after: Measure) -> Verdict:
    return Verdict(True, "promoted by the test", before, after)


def reject(before: Measure, after: Measure) -> Verdict:
    return Verdict(False, "rejected by the test", before, after)


@pytest.mark.parametrize("rate", [1.0, 30.0, 1e6, 1e30])
def test_no_learning_rate_gets_past_the_gate_or_raises(
    world: Any, activations: Draw, gentle: IncrementalConfig, bits: Bits, rate: float
) -> None:
    """Collapsed or diverged, a session is rejected, and the new classes are served as plain means."""
    shots = activations([501, 502], 3)
    before = bits(world.state)

    refinement = refine(world.network, world.state, shots, replace(gentle, learning_rate=rate), guard=world.guard)

    assert not refinement.verdict.promoted
    assert refinement.state is refinement.provisional
    assert {501, 502} <= set(refinement.state.bank.class_ids)
    assert refinement.module is world.network.tail
    assert bits(world.state) == before


def test_a_diverged_session_says_so(world: Any, activations: Draw, gentle: IncrementalConfig) -> None:
    """Without the gate it is an error with advice, not a failure of some matrix routine."""
    with pytest.raises(Diverged, match="learning rate"):
        incremental_session(world.network, world.state, activations([501, 502], 3), replace(gentle, learning_rate=1e30))


def test_nothing_to_change_is_no_error(world: Any, activations: Draw, gentle: IncrementalConfig) -> None:
    """A fraction of zero leaves the network alone and still learns the class means."""
    shots = activations([501, 502], 3)

    state = incremental_session(world.network, world.state, shots, replace(gentle, fraction=0.0)).state

    assert {501, 502} <= set(state.bank.class_ids)


# What a publisher needs


@pytest.fixture(scope="module")
def shots(activations: Draw) -> LabelledViews:
    return activations([30, 2, 25], 4, views=3, seed=11)


@pytest.fixture(scope="module")
def quick(gentle: IncrementalConfig) -> IncrementalConfig:
    return replace(gentle, epochs=1, episodes=2)


def assert_served(refinement: Refinement, network: Backbone, shots: LabelledViews, guard: LabelledViews) -> None:
    """Module and features are those of a network that is built from the weights of the state to serve."""
    rebuilt = with_weights(network, refinement.state.weights).tail
    assert refinement.guard_features is not None
    assert all(
        torch.equal(mine, theirs)
        for mine, theirs in zip(refinement.module.state_dict().values(), rebuilt.state_dict().values(), strict=True)
    )
    assert not any(module.training for module in refinement.module.modules())
    assert torch.equal(refinement.shot_features, features_of(rebuilt, shots, CPU))
    assert torch.equal(refinement.guard_features, features_of(rebuilt, guard.centre(), CPU)[:, 0])


def test_a_promoted_session_comes_with_its_trained_module_and_features(
    world: Any, shots: LabelledViews, quick: IncrementalConfig
) -> None:
    """The publisher needs no further pass, and no network built from the weights."""
    refinement = refine(world.network, world.state, shots, quick, guard=world.guard, judge=promote)

    assert refinement.state is refinement.candidate
    assert refinement.module is not world.network.tail
    assert all(parameter.grad is None for parameter in refinement.module.parameters())
    assert_served(refinement, world.network, shots, world.guard)


def test_a_rejected_session_comes_with_the_module_and_features_of_its_parent(
    world: Any, shots: LabelledViews, quick: IncrementalConfig
) -> None:
    """What is served then is the provisional state, on the network as it was."""
    refinement = refine(world.network, world.state, shots, quick, guard=world.guard, judge=reject)

    assert refinement.state is refinement.provisional
    assert refinement.candidate is not None
    assert refinement.module is world.network.tail
    assert_served(refinement, world.network, shots, world.guard)


def test_without_guard_images_there_are_no_features_of_them(
    world: Any, shots: LabelledViews, quick: IncrementalConfig
) -> None:
    """None given and none in the set are the same."""
    for guard in (None, world.guard.select(torch.arange(0))):
        assert refine(world.network, world.state, shots, quick, guard=guard).guard_features is None


def test_the_judge_decides(world: Any, shots: LabelledViews, quick: IncrementalConfig) -> None:
    """It is given both measures, and its verdict is kept as it is."""
    seen: list[tuple[Measure, Measure]] = []

    def judge(before: Measure, after: Measure) -> Verdict:
        seen.append((before, after))
        return reject(before, after)

    refinement = refine(world.network, world.state, shots, quick, guard=world.guard, judge=judge)

    assert refinement.verdict == reject(*seen[0])
    assert len(seen) == 1


def test_it_is_a_session_and_nothing_else(
    world: Any, shots: LabelledViews, quick: IncrementalConfig, bits: Bits
) -> None:
    """Candidate and provisional state have the bits of a session and of teaching by themselves."""
    refinement = refine(world.network, world.state, shots, quick, guard=world.guard, judge=promote)

    alone = incremental_session(world.network, world.state, shots, quick)
    assert bits(refinement.candidate) == bits(alone.state)
    assert bits(refinement.provisional) == bits(teach(world.network, world.state, shots, quick))
    assert torch.equal(refinement.shot_features, alone.features)


class Counted(nn.Module):
    """A module that counts the images it computes without gradients: all but those of training."""

    images = 0

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            Counted.images += len(inputs)
        features: Tensor = self.inner(inputs)
        return features


@pytest.mark.parametrize("scope", ["tail", "all"])
def test_every_image_is_computed_once_under_either_network(
    backbone: Backbone, world: Any, activations: Draw, images: Draw, quick: IncrementalConfig, scope: Scope
) -> None:
    """Each view of each shot and the centre view of each guard image: once before training, once after it."""
    draw = activations if scope == "tail" else images
    base, guard, shots = draw([1, 2], 3), draw([1, 2], 4, seed=8), draw([8, 9], 3, views=2)
    counted = deepcopy(backbone)
    counted.tail = Counted(counted.tail)
    config = replace(quick, scope=scope, learning_rate=1e-6)
    parent = base_session(counted, base, replace(world.config, epochs=0, scope=scope)).state
    Counted.images = 0

    refinement = refine(counted, parent, shots, config, guard=guard)

    assert refinement.candidate is not None
    assert Counted.images == 2 * (6 * 2 + 8)
    assert isinstance(refinement.module, type(trainable_part(counted, scope)))
