"""The base session learns its classes, and changes nothing that it was given."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from core.backbones import Backbone
from core.base_session import BaseConfig, base_session
from core.classifier import Certainty, NearestClassMean
from core.errors import NoImages, SessionCancelled
from core.progress import Progress
from core.space import METRICS, Metric
from core.state import LearnerState, with_weights
from core.views import LabelledViews

Bits = Callable[[object], dict[str, object]]
Draw = Callable[..., LabelledViews]


@pytest.fixture(scope="module")
def few(activations: Draw) -> LabelledViews:
    """Three classes of four pictures: two batches of six."""
    return activations([5, 8, 9], 4, views=2)


@pytest.fixture(scope="module")
def short(world: Any) -> BaseConfig:
    return replace(world.config, epochs=2, batch=6)


def floating(state: LearnerState) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in state.weights.items() if tensor.is_floating_point()}


def test_it_learns_to_tell_held_out_pictures_apart(
    backbone: Backbone, world: Any, accuracy: Callable[..., float]
) -> None:
    """Far above chance, and above the untrained network."""
    untrained = base_session(backbone, world.training, replace(world.config, epochs=0))

    before = accuracy(backbone, untrained, world.test)
    after = accuracy(world.network, world.state, world.test)

    assert after > 4 / 6
    assert after > before + 0.1


def test_prototypes_are_means_over_pictures_and_views_under_the_trained_network(world: Any) -> None:
    """Recomputed class by class; the first prototype is also c0, and the only copy."""
    bank, space = world.state.bank, world.state.space
    for class_id in world.training.class_ids:
        views = world.training.inputs[world.training.labels == class_id].flatten(0, 1)
        with torch.no_grad():
            expected = space.embed(world.network.tail(views)).mean(0)

        row = bank.class_ids.index(class_id)
        torch.testing.assert_close(bank.prototypes[row], expected, rtol=1e-3, atol=1e-4)
        assert torch.equal(bank.initial[row], bank.prototypes[row])
    assert bank.held.tolist() == [1] * 6
    assert bank.shots.tolist() == [22] * 6
    assert bank.capacity == world.config.copies


def test_the_given_backbone_is_left_alone(
    backbone: Backbone, few: LabelledViews, short: BaseConfig, bits: Bits
) -> None:
    """Bit for bit, and still in evaluation mode, whatever the session trains."""
    before = bits(backbone)

    state = base_session(backbone, few, short)

    assert bits(backbone) == before
    assert not any(module.training for module in backbone.modules())
    assert bits(with_weights(backbone, state.weights)) != before


def test_the_given_pictures_are_left_alone(
    backbone: Backbone, few: LabelledViews, short: BaseConfig, bits: Bits
) -> None:
    """They are read, never written."""
    before = bits({"inputs": few.inputs, "labels": few.labels})

    base_session(backbone, few, short)

    assert bits({"inputs": few.inputs, "labels": few.labels}) == before


def test_only_the_tail_is_trained(backbone: Backbone, few: LabelledViews, short: BaseConfig, bits: Bits) -> None:
    """The state names every tensor of the tail and none of the trunk."""
    state = base_session(backbone, few, replace(short, scope="tail"))

    tail = {name for name in backbone.state_dict() if name.startswith("tail.")}
    original = bits(backbone)
    assert set(state.weights) == tail
    assert all(digest != original[name] for name, digest in bits(state.weights).items())


def test_the_whole_network_can_be_trained(backbone: Backbone, pictures: Draw, short: BaseConfig, bits: Bits) -> None:
    """With scope `all` the session takes the pictures themselves and moves the trunk too."""
    state = base_session(backbone, pictures([5, 8], 3), replace(short, scope="all", epochs=1))

    original = bits(backbone)
    moved = {name for name, digest in bits(state.weights).items() if digest != original[name]}
    assert set(state.weights) == set(original)
    assert {name.split(".")[0] for name in moved} == {"trunk", "tail"}


def test_no_epochs_keep_the_weights(backbone: Backbone, few: LabelledViews, short: BaseConfig) -> None:
    """The state carries none, so the backbone's own are used; the classes are there all the same."""
    state = base_session(backbone, few, replace(short, epochs=0))

    assert dict(state.weights) == {}
    assert state.bank.class_ids == (5, 8, 9)


def test_the_blend_walks_from_the_given_weights_to_the_trained_ones(
    backbone: Backbone, few: LabelledViews, short: BaseConfig
) -> None:
    """0 is the start, 1 is the end of training, and a quarter is a quarter of the way."""
    start, quarter, end = (
        floating(base_session(backbone, few, replace(short, blend=blend))) for blend in (0.0, 0.25, 1.0)
    )

    own = backbone.state_dict()
    assert all(torch.equal(tensor, own[name]) for name, tensor in start.items())
    assert all(not torch.equal(tensor, own[name]) for name, tensor in end.items())
    for name, tensor in quarter.items():
        torch.testing.assert_close(tensor, 0.75 * own[name] + 0.25 * end[name], rtol=1e-4, atol=1e-6)


def test_no_blend_gives_the_prototypes_of_no_training(
    backbone: Backbone, few: LabelledViews, short: BaseConfig
) -> None:
    """The prototypes are taken after blending, not before."""
    untrained = base_session(backbone, few, replace(short, epochs=0))

    unblended = base_session(backbone, few, replace(short, blend=0.0))

    assert torch.equal(unblended.bank.prototypes, untrained.bank.prototypes)


def test_the_seed_decides_everything(backbone: Backbone, few: LabelledViews, short: BaseConfig, bits: Bits) -> None:
    """The same seed gives the same bits whatever torch's own generator stands at; another seed gives others."""
    states = []
    for ambient, seed in ((1, 0), (2, 0), (1, 5)):
        with torch.random.fork_rng():
            torch.manual_seed(ambient)
            states.append(bits(base_session(backbone, few, replace(short, seed=seed))))

    assert states[0] == states[1]
    assert states[0] != states[2]


def test_the_order_of_class_ids_is_all_that_training_sees_of_them(
    backbone: Backbone, few: LabelledViews, short: BaseConfig, bits: Bits
) -> None:
    """Classes 5, 8, 9 are learned exactly as classes 0, 1, 2 would be."""
    renumbered = LabelledViews(few.inputs, few.owners)

    given, plain = (base_session(backbone, views, short) for views in (few, renumbered))

    assert (given.bank.class_ids, plain.bank.class_ids) == ((5, 8, 9), (0, 1, 2))
    assert bits(given.weights) == bits(plain.weights)
    assert torch.equal(given.bank.prototypes, plain.bank.prototypes)


def test_every_step_is_reported(backbone: Backbone, few: LabelledViews, short: BaseConfig) -> None:
    """Epoch, step and loss, from the first to the last."""
    seen: list[Progress] = []

    base_session(backbone, few, short, report=seen.append)

    assert [(step.epoch, step.episode) for step in seen] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert {(step.epochs, step.episodes) for step in seen} == {(2, 2)}
    assert [step.fraction for step in seen] == [0.25, 0.5, 0.75, 1.0]
    assert all(set(step.losses) == {"cross-entropy"} and step.losses["cross-entropy"] > 0 for step in seen)


def test_the_loss_falls(backbone: Backbone, world: Any) -> None:
    """Over three epochs, from first to last."""
    losses: dict[int, list[float]] = {1: [], 2: [], 3: []}

    base_session(
        backbone,
        world.training,
        world.config,
        report=lambda step: losses[step.epoch].append(step.losses["cross-entropy"]),
    )

    first, last = (sum(losses[epoch]) / len(losses[epoch]) for epoch in (1, 3))
    assert last < 0.8 * first


def test_a_last_batch_of_one_is_left_out(backbone: Backbone, few: LabelledViews, short: BaseConfig) -> None:
    """Seven pictures in batches of six are one step, and all seven make the prototypes."""
    seven, steps = few.select(torch.arange(7)), list[Progress]()

    state = base_session(backbone, seven, replace(short, epochs=1), report=steps.append)

    assert [(step.episode, step.episodes) for step in steps] == [(1, 1)]
    assert state.bank.shots.tolist() == [4, 3]


def test_a_session_can_be_cancelled_between_steps(
    backbone: Backbone, few: LabelledViews, short: BaseConfig, bits: Bits
) -> None:
    """The error of the callback comes through, no further step is taken, the backbone is as it was."""
    before, seen = bits(backbone), list[Progress]()

    def cancel(step: Progress) -> None:
        seen.append(step)
        if len(seen) == 3:
            raise SessionCancelled("enough")

    with pytest.raises(SessionCancelled, match="enough"):
        base_session(backbone, few, short, report=cancel)

    assert len(seen) == 3
    assert bits(backbone) == before
    assert not any(module.training for module in backbone.modules())


def test_one_class_alone_needs_no_training(
    backbone: Backbone, activations: Draw, short: BaseConfig, bits: Bits
) -> None:
    """There is nothing to tell it from: it gets its prototype, the network stays."""
    steps: list[Progress] = []

    state = base_session(backbone, activations([42], 3), short, report=steps.append)

    own = bits(backbone)
    assert state.bank.class_ids == (42,)
    assert steps == []
    assert all(own[name] == digest for name, digest in bits(state.weights).items())


def test_one_picture_alone_is_enough(backbone: Backbone, activations: Draw, short: BaseConfig) -> None:
    """Its embedding is the prototype."""
    single = activations([42], 1)

    state = base_session(backbone, single, short)

    with torch.no_grad():
        expected = state.space.embed(backbone.tail(single.inputs[:, 0]))
    torch.testing.assert_close(state.bank.prototypes, expected)


def test_two_pictures_of_two_classes_are_enough(backbone: Backbone, activations: Draw, short: BaseConfig) -> None:
    """The least that there is to train on."""
    state = base_session(backbone, activations([1, 2], 1), short)

    assert state.bank.shots.tolist() == [1, 1]
    assert state.bank.prototypes.isfinite().all()


def test_nothing_to_learn_from_is_refused(backbone: Backbone, few: LabelledViews, short: BaseConfig) -> None:
    """A base session needs a picture."""
    with pytest.raises(NoImages, match="no picture to learn from"):
        base_session(backbone, few.select(torch.arange(0)), short)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_tells_the_classes_apart(
    backbone: Backbone, world: Any, accuracy: Callable[..., float], metric: Metric
) -> None:
    """Even without training, better than twice by chance; only `whitened` is fitted."""
    state = base_session(backbone, world.training, replace(world.config, epochs=0, metric=metric))

    assert accuracy(backbone, state, world.test) > 2 / 6
    assert (state.space.metric, state.space.whitening is not None) == (metric, metric == "whitened")


def test_guard_pictures_calibrate_the_certainty(world: Any) -> None:
    """About 95 % of them are known, at a temperature of their own."""
    guard = world.guard
    with torch.no_grad():
        features = world.network.tail(guard.inputs[:, 0])

    distances = NearestClassMean(world.state.space, world.state.bank, Certainty()).distances(features)
    nearest = distances.min(1).values

    widened = float(nearest.quantile(0.95)) * (1 + 1 / len(nearest))
    assert world.state.certainty.threshold == pytest.approx(widened, rel=1e-4)
    assert world.state.certainty.temperature != Certainty().temperature


def test_without_guard_pictures_nothing_is_unknown(backbone: Backbone, few: LabelledViews, short: BaseConfig) -> None:
    """There is nothing to calibrate on, so the plain certainty stays; an empty guard is no guard."""
    without = base_session(backbone, few, replace(short, epochs=0))
    empty = base_session(backbone, few, replace(short, epochs=0), guard=few.select(torch.arange(0)))

    assert without.certainty == empty.certainty == Certainty()


def test_guard_pictures_are_not_learned_from(
    backbone: Backbone, few: LabelledViews, activations: Draw, short: BaseConfig, bits: Bits
) -> None:
    """They change the certainty and not one bit of anything else."""
    plain = base_session(backbone, few, short)

    guarded = base_session(backbone, few, short, guard=activations([5, 8, 9], 2, seed=3))

    assert bits(replace(guarded, certainty=plain.certainty)) == bits(plain)
    assert guarded.certainty != plain.certainty


def test_from_scratch_trains_everything_and_keeps_all_of_it(backbone: Backbone, pictures: Draw, bits: Bits) -> None:
    """The preset for a backbone without pretrained weights."""
    config = BaseConfig.from_scratch(epochs=1)

    state = base_session(backbone, pictures([5, 8], 3), config)

    original = bits(backbone)
    assert (config.epochs, config.scope, config.blend) == (1, "all", 1.0)
    assert bits(state.weights)["trunk.1.0.weight"] != original["trunk.1.0.weight"]
    assert BaseConfig.from_scratch().epochs > 1


def test_a_pretrained_backbone_starts_at_its_class_means(backbone: Backbone, world: Any) -> None:
    """Its first loss is far below that of guessing, where a head that starts at random is above it."""
    network, first = with_weights(backbone, world.state.weights), {}
    config = replace(world.config, epochs=1, batch=len(world.training), smoothing=0.0, seed=1)  # another head

    for pretrained in (True, False):
        network.pretrained, steps = pretrained, list[Progress]()
        base_session(network, world.training, config, report=steps.append)
        first[pretrained] = steps[0].losses["cross-entropy"]

    guessing = float(torch.tensor(6.0).log())
    assert first[True] < 0.5 * guessing
    assert first[False] > guessing


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_it_trains_on_cuda(backbone: Backbone, world: Any, accuracy: Callable[..., float]) -> None:
    """What comes back is on the CPU and as good as what the CPU learns."""
    state = base_session(backbone, world.training, world.config, guard=world.guard, device="cuda")

    assert all(tensor.device.type == "cpu" for tensor in state.weights.values())
    assert accuracy(with_weights(backbone, state.weights), state, world.test) > 4 / 6
