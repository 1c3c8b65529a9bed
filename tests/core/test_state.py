"""What a learner knows at one version, and a network that carries it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from core.backbones import Backbone
from core.classifier import Certainty, NearestClassMean
from core.errors import WeightsMismatch
from core.space import METRICS, Metric
from core.state import LearnerState, weights_of, with_weights

Bits = Callable[[object], dict[str, object]]
NAME = "tail.0.0.conv1.weight"


@pytest.mark.parametrize("metric", METRICS)
def test_an_untaught_learner_knows_no_class(backbone: Backbone, metric: Metric) -> None:
    """Version 0 has the backbone's own weights, an empty bank of its size, and calls everything unknown."""
    state = LearnerState.untaught(backbone, metric, copies=4)

    answers = NearestClassMean(state.space, state.bank, Certainty()).predict(torch.ones(2, 64))
    assert (state.backbone, state.space.metric, dict(state.weights)) == ("resnet32", metric, {})
    assert (len(state.bank), state.bank.dim, state.bank.capacity) == (0, 64, 4)
    assert [(answer.unknown, answer.top) for answer in answers] == [(True, ()), (True, ())]


def test_a_network_carries_the_weights_it_is_given(backbone: Backbone, bits: Bits) -> None:
    """Those and no others: everything that is not named stays the backbone's own."""
    before = bits(backbone)
    given = torch.full_like(backbone.state_dict()[NAME], 0.25)

    carrier = with_weights(backbone, {NAME: given})

    assert torch.equal(carrier.state_dict()[NAME], given)
    assert {name for name, digest in bits(carrier).items() if digest != before[name]} == {NAME}
    assert (carrier.name, carrier.dim, carrier.framing) == (backbone.name, backbone.dim, backbone.framing)


def test_the_given_backbone_is_left_alone(backbone: Backbone, bits: Bits) -> None:
    """Not even by training the copy afterwards, nor are the given weights."""
    before = bits(backbone)
    given = {NAME: torch.full_like(backbone.state_dict()[NAME], 0.25)}

    carrier = with_weights(backbone, given)
    with torch.no_grad():
        for parameter in carrier.parameters():
            parameter.add_(1)

    assert bits(backbone) == before
    assert given[NAME].unique().tolist() == [0.25]


def test_no_weights_make_a_plain_copy(backbone: Backbone, bits: Bits) -> None:
    """A version that no session has trained runs on the backbone as it was built."""
    carrier = with_weights(backbone, {})

    assert carrier is not backbone
    assert bits(carrier) == bits(backbone)
    assert not any(module.training for module in carrier.modules())


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("tail.9.weight", torch.ones(3)),
        ("0.0.conv1.weight", torch.ones(64, 32, 3, 3)),  # of the tail, but not named within the backbone
        (NAME, torch.ones(64, 32, 3)),
        (NAME, torch.ones(1)),
    ],
)
def test_strange_weights_are_refused(backbone: Backbone, bits: Bits, name: str, weight: Tensor) -> None:
    """By their name or their shape, and the backbone is left alone."""
    before = bits(backbone)

    with pytest.raises(WeightsMismatch, match=rf"not of resnet32: {name} is unknown or of another shape"):
        with_weights(backbone, {name: weight})

    assert bits(backbone) == before


@pytest.mark.parametrize("scope", ["tail", "all"])
def test_trained_weights_are_copies_under_their_names_within_the_backbone(
    backbone: Backbone, bits: Bits, scope: str
) -> None:
    """They fit back where they are from, and changing them does not change the network."""
    network = with_weights(backbone, {})
    before = bits(network)

    weights = weights_of(network, scope)
    expected = {name for name in network.state_dict() if scope == "all" or name.startswith("tail.")}
    assert set(weights) == expected
    assert bits(weights) == {name: before[name] for name in expected}

    for weight in weights.values():
        weight.zero_()
    assert bits(network) == before
