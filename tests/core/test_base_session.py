"""The base session learns its classes, and changes nothing that it was given."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from core.backbones import Backbone
from core.base_session import BaseConfig, base_session
from core.errors import NoImages, SessionCancelled
from core.progress import Progress
from core.space import METRICS, Metric
from core.state import LearnerState, with_weights
from core.views import LabelledViews, Scope, trainable_part

Bits = Callable[[object], dict[str, object]]
Draw = Callable[..., LabelledViews]


@pytest.fixture(scope="module")
def few(activations: Draw) -> LabelledViews:
    """Three classes of four images: two batches of six."""
    return activations([5, 8, 9], 4, views=2)


@pytest.fixture(scope="module")
def short(world: Any) -> BaseConfig:
    return replace(world.config, epochs=2, batch=6)


def floating(state: LearnerState) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in state.weights.items() if tensor.is_floating_point()}


def test_it_learns_to_tell_held_out_images_apart(
    backbone: Backbone, world: Any, accuracy: Callable[..., float]
) -> None:
    """Far above chance, and above the untrained network."""
    untrained = base_session(backbone, world.training, replace(world.config, epochs=0)).state

    before = accuracy(backbone, untrained, world.test)
    after = accuracy(world.network, world.state, world.test)

    assert after > 4 / 6
    assert after > before + 0.1


def test_prototypes_are_means_over_images_and_views_under_the_trained_network(world: Any) -> None:
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

    state = base_session(backbone, few, short).state

    assert bits(backbone) == before
    assert not any(module.training for module in backbone.modules())
    assert bits(with_weights(backbone, state.weights)) != before


def test_the_given_images_are_left_alone(backbone: Backbone, few: LabelledViews, short: BaseConfig, bits: Bits) -> None:
    """They are read, never written."""
    before = bits({"inputs": few.inputs, "labels": few.labels})

    base_session(backbone, few, short)

    assert bits({"inputs": few.inputs, "labels": few.labels}) == before


def test_only_the_tail_is_trained(backbone: Backbone, few: LabelledViews, short: BaseConfig, bits: Bits) -> None:
    """The state names every tensor of the tail and none of the trunk."""
    state = base_session(backbone, few, replace(short, scope="tail")).state

    tail = {name for name in backbone.state_dict() if name.startswith("tail.")}
    original = bits(backbone)
    assert set(state.weights) == tail
    assert all(digest != original[name] for name, digest in bits(state.weights).items())


def test_the_whole_network_can_be_trained(backbone: Backbone, images: Draw, short: BaseConfig, bits: Bits) -> None:
    """With scope `all` the session takes the images themselves and moves the trunk too."""
    state = base_session(backbone, images([5, 8], 3), replace(short, scope="all", epochs=1)).state

    original = bits(backbone)
    moved = {name for name, digest in bits(state.weights).items() if digest != original[name]}
    assert set(state.weights) == set(original)
    assert {name.split(".")[0] for name in moved} == {"trunk", "tail"}


def test_no_epochs_keep_the_weights(backbone: Backbone, few: LabelledViews, short: BaseConfig) -> None:
    """The state carries none, so the backbone's own are used; the classes are there all the same."""
    state = base_session(backbone, few, replace(short, epochs=0)).state

    assert dict(state.weights) == {}
    assert state.bank.class_ids == (5, 8, 9)


def test_the_blend_walks_from_the_given_weights_to_the_trained_ones(
    backbone: Backbone, few: LabelledViews, short: BaseConfig
) -> None:
    """0 is the start, 1 is the end of training, and a quarter is a quarter of the way."""
    start, quarter, end = (
        floating(base_session(backbone, few, replace(short, blend=blend)).state) for blend in (0.0, 0.25, 1.0)
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
    untrained = base_session(backbone, few, replace(short, epochs=0)).state

    unblended = base_session(backbone, few, replace(short, blend=0.0)).state

    assert torch.equal(unblended.bank.prototypes, untrained.bank.prototypes)


def test_the_seed_decides_everything(backbone: Backbone, few: LabelledViews, short: BaseConfig, bits: Bits) -> None:
    """The same seed gives the same bits whatever torch's own generator stands at; another seed gives others."""
    states = []
    for ambient, seed in ((1, 0), (2, 0), (1, 5)):
        with torch.random.fork_rng():
            torch.manual_seed(ambient)
            states.append(bits(base_session(backbone, few, replace(short, seed=seed)).state))

    assert states[0] == states[1]
    assert states[0] != states[2]


def test_the_order_of_class_ids_is_all_that_training_sees_of_them(
    backbone: Backbone, few: LabelledViews, short: BaseConfig, bits: Bits
) -> None:
    """Classes 5, 8, 9 are learned exactly as classes 0, 1, 2 would be."""
    renumbered = LabelledViews(few.inputs, few.owners)

    given, plain = (base_session(backbone, views, short).state for views in (few, renumbered))

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
    """Seven images in batches of six are one step, and all seven make the prototypes."""
    seven, steps = few.select(torch.arange(7)), list[Progress]()

    state = base_session(backbone, seven, replace(short, epochs=1), report=steps.append).state

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

    state = base_session(backbone, activations([42], 3), short, report=steps.append).state

    own = bits(backbone)
    assert state.bank.class_ids == (42,)
    assert steps == []
    assert all(own[name] == digest for name, digest in bits(state.weights).items())


def test_one_image_alone_is_enough(backbone: Backbone, activations: Draw, short: BaseConfig) -> None:
    """Its embedding is the prototype."""
    single = activations([42], 1)

    state = base_session(backbone, single, short).state

    with torch.no_grad():
        expected = state.space.embed(backbone.tail(single.inputs[:, 0]))
    torch.testing.assert_close(state.bank.prototypes, expected)


def test_two_images_of_two_classes_are_enough(backbone: Backbone, activations: Draw, short: BaseConfig) -> None:
    """The least that there is to train on."""
    state = base_session(backbone, activations([1, 2], 1), short).state

    assert state.bank.shots.tolist() == [1, 1]
    assert state.bank.prototypes.isfinite().all()


def test_nothing_to_learn_from_is_refused(backbone: Backbone, few: LabelledViews, short: BaseConfig) -> None:
    """A base session needs an image."""
    with pytest.raises(NoImages, match="no image to learn from"):
        base_session(backbone, few.select(torch.arange(0)), short)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_tells_the_classes_apart(
    backbone: Backbone, world: Any, accuracy: Callable[..., float], metric: Metric
) -> None:
    """Even without training, better than twice by chance; only `whitened` is fitted."""
    state = base_session(backbone, world.training, replace(world.config, epochs=0, metric=metric)).state

    assert accuracy(backbone, state, world.test) > 2 / 6
    assert (state.space.metric, state.space.whitening is not None) == (metric, metric == "whitened")


@pytest.mark.parametrize("scope", ["tail", "all"])
def test_the_trained_module_comes_with_the_state(
    backbone: Backbone, activations: Draw, images: Draw, short: BaseConfig, bits: Bits, scope: Scope
) -> None:
    """It carries the state's weights, ready to predict: a caller need not build a network from them."""
    views = (activations if scope == "tail" else images)([5, 8], 3)

    outcome = base_session(backbone, views, replace(short, scope=scope, epochs=1))

    rebuilt = trainable_part(with_weights(backbone, outcome.state.weights), scope)
    assert bits(outcome.module) == bits(rebuilt)
    assert not any(module.training for module in outcome.module.modules())
    assert all(parameter.grad is None for parameter in outcome.module.parameters())


def test_without_epochs_the_module_is_a_copy_of_the_given_one(
    backbone: Backbone, few: LabelledViews, short: BaseConfig, bits: Bits
) -> None:
    """Changing it does not change the backbone."""
    outcome = base_session(backbone, few, replace(short, epochs=0))

    assert bits(outcome.module) == bits(backbone.tail)
    assert outcome.module is not backbone.tail


def test_from_scratch_trains_everything_and_keeps_all_of_it(backbone: Backbone, images: Draw, bits: Bits) -> None:
    """The preset for a backbone without pretrained weights."""
    config = BaseConfig.from_scratch(epochs=1)

    state = base_session(backbone, images([5, 8], 3), config).state

    original = bits(backbone)
    assert (config.epochs, config.scope, config.blend) == (1, "all", 1.0)
    assert bits(state.weights)["trunk.1.0.weight"] != original["trunk.1.0.weight"]
    assert BaseConfig.from_scratch().epochs > 1


def test_a_pretrained_backbone_starts_at_its_class_means(backbone: Backbone, world: Any, activations: Draw) -> None:
    """Its first loss is far below that of guessing, where a head that starts at random is above it."""
    network, first = with_weights(backbone, world.state.weights), {}
    clear = activations(world.state.bank.class_ids, 12, noise=20.0)
    config = replace(world.config, epochs=1, batch=len(clear), smoothing=0.0, seed=1)  # another head

    for pretrained in (True, False):
        network.pretrained, steps = pretrained, list[Progress]()
        base_session(network, clear, config, report=steps.append)
        first[pretrained] = steps[0].losses["cross-entropy"]

    guessing = float(torch.tensor(6.0).log())
    assert first[True] < 0.5 * guessing
    assert first[False] > guessing


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_it_trains_on_cuda(backbone: Backbone, world: Any, accuracy: Callable[..., float]) -> None:
    """The result is on the CPU and as good as that of training on the CPU."""
    outcome = base_session(backbone, world.training, world.config, device="cuda")

    state = outcome.state
    tensors = [*state.weights.values(), *outcome.module.parameters()]
    assert all(tensor.device.type == "cpu" for tensor in tensors)
    assert accuracy(with_weights(backbone, state.weights), state, world.test) > 4 / 6
