"""A gated session: whatever goes wrong it serves a state, it learns only from what it may, and computes once."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from core.backbones import Backbone
from core.base_session import base_session
from core.errors import DuplicateClass, NoImages
from core.folds import folds_of
from core.guard import Measured, Verdict
from core.incremental_session import IncrementalConfig
from core.progress import Progress
from core.refinement import FEWEST_TO_TRAIN, SHRINKS, USUAL_BLENDS, Refinement, refine, teach
from core.state import LearnerState, with_weights
from core.trials import SessionImages, Trial, blended
from core.views import CPU, LabelledViews, Scope, features_of, trainable_part

Bits = Callable[..., dict[str, object]]
Draw = Callable[..., LabelledViews]


def promote(before: Measured, after: Measured) -> Verdict:
    return Verdict(True, "promoted by the test", before.accuracy, after.accuracy)


def reject(before: Measured, after: Measured) -> Verdict:
    return Verdict(False, "rejected by the test", before.accuracy, after.accuracy)


@pytest.fixture(scope="module")
def shots(activations: Draw) -> LabelledViews:
    return activations([30, 2, 25], 4, views=3, seed=11)


@pytest.fixture(scope="module")
def guarded(world: Any, shots: LabelledViews) -> SessionImages:
    return SessionImages(shots, guard=world.guard)


@pytest.fixture(scope="module")
def quick(gentle: IncrementalConfig) -> IncrementalConfig:
    return replace(gentle, epochs=1, episodes=2)


@pytest.fixture(scope="module")
def searching(quick: IncrementalConfig) -> IncrementalConfig:
    return replace(quick, search=True, refit=True, prior_shots=5.0)


# Whatever goes wrong


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("rate", [1.0, 30.0, 1e6, 1e30])
def test_no_learning_rate_gets_past_the_gate_or_raises(
    world: Any, activations: Draw, gentle: IncrementalConfig, bits: Bits, rate: float, search: bool
) -> None:
    """Collapsed or diverged, no ruined network is served; the new classes are, at least as plain means."""
    images = SessionImages(activations([501, 502], 20), guard=world.guard)
    before = bits(world.state)

    refinement = refine(world.network, world.state, images, replace(gentle, learning_rate=rate, search=search))

    assert not refinement.verdict.promoted
    assert refinement.state is refinement.provisional
    assert {501, 502} <= set(refinement.state.bank.class_ids)
    assert refinement.served.module is world.network.tail
    assert bits(world.state) == before


def test_a_diverged_session_says_so(world: Any, guarded: SessionImages, gentle: IncrementalConfig, bits: Bits) -> None:
    """The verdict has advice, there is no candidate, and what is served is the provisional state."""
    ruinous = replace(gentle, learning_rate=1e30)

    for judge in (promote, None):
        refinement = refine(world.network, world.state, guarded, ruinous, judge=judge)

        assert not refinement.verdict.promoted
        assert "its learning rate" in refinement.verdict.reason
        assert refinement.candidate is None
        assert refinement.blend == 0
        assert len(refinement.held_out.rows) == 0
        assert bits(refinement.state) == bits(teach(world.network, world.state, guarded.shots, ruinous))


def test_a_network_that_is_ruined_by_its_last_step_is_rejected_too(
    world: Any, guarded: SessionImages, gentle: IncrementalConfig
) -> None:
    """No further loss shows it, but its features do."""
    ruinous = replace(gentle, epochs=1, episodes=1, learning_rate=1e30)

    refinement = refine(world.network, world.state, guarded, ruinous)

    assert not refinement.verdict.promoted
    assert refinement.state is refinement.provisional


def test_classes_that_are_known_and_no_shots_are_refused(
    world: Any, activations: Draw, quick: IncrementalConfig
) -> None:
    """The error says which."""
    with pytest.raises(DuplicateClass, match=r"classes \[7\] are in the bank already"):
        refine(world.network, world.state, SessionImages(activations([20, 7], 2)), quick)
    with pytest.raises(NoImages, match="no image to learn from"):
        refine(world.network, world.state, SessionImages(activations([20], 1).select(torch.arange(0))), quick)


# What a publisher needs


def assert_served(refinement: Refinement, network: Backbone, images: SessionImages) -> None:
    """Module and features are those of a network that is built from the weights of the state to serve."""
    rebuilt, served = with_weights(network, refinement.state.weights).tail, refinement.served
    assert served.guard is not None
    assert images.guard is not None
    assert all(
        torch.equal(mine, theirs)
        for mine, theirs in zip(served.module.state_dict().values(), rebuilt.state_dict().values(), strict=True)
    )
    assert not any(module.training for module in served.module.modules())
    assert torch.equal(served.seen.inputs, features_of(rebuilt, images.seen, CPU))
    assert torch.equal(served.seen.labels, images.seen.labels)
    assert torch.equal(served.guard.inputs, features_of(rebuilt, images.guard.centre(), CPU))


@pytest.mark.parametrize("blend", [0.5, 1.0])
def test_a_promoted_session_comes_with_its_trained_module_and_features(
    world: Any, guarded: SessionImages, quick: IncrementalConfig, blend: float
) -> None:
    """The publisher needs no further pass, and no network built from the weights."""
    refinement = refine(world.network, world.state, guarded, replace(quick, blend=blend), judge=promote)

    assert refinement.state is refinement.candidate
    assert refinement.blend == blend
    assert refinement.served.module is not world.network.tail
    assert all(parameter.grad is None for parameter in refinement.served.module.parameters())
    assert_served(refinement, world.network, guarded)


def test_a_rejected_session_comes_with_the_module_and_features_of_its_parent(
    world: Any, guarded: SessionImages, quick: IncrementalConfig
) -> None:
    """What is served then is the provisional state, on the network as it was."""
    refinement = refine(world.network, world.state, guarded, quick, judge=reject)

    assert refinement.state is refinement.provisional
    assert refinement.candidate is not None
    assert refinement.served.module is world.network.tail
    assert_served(refinement, world.network, guarded)


def test_held_out_shots_of_a_rejected_session_are_measured_in_the_space_of_its_parent(
    world: Any, guarded: SessionImages, searching: IncrementalConfig
) -> None:
    """Their distances are those that the provisional state would give them, so that a threshold may rest on them."""
    refinement = refine(world.network, world.state, guarded, searching, judge=reject)

    state, seen = refinement.state, refinement.served.seen
    found = refinement.held_out
    whole = state.space.distances(
        state.space.embed(seen.inputs[found.rows, 0]), state.bank.prototypes, state.bank.shots
    )
    own = torch.tensor(state.bank.rows(found.labels.tolist()))
    apart = found.to_own / whole.gather(1, own[:, None])[:, 0]
    assert len(found.rows) > 3
    assert (apart > 0.99).all()  # farther than from a prototype that they are part of
    assert float(apart.median()) < 3


def test_without_guard_images_there_are_no_features_of_them(
    world: Any, shots: LabelledViews, quick: IncrementalConfig
) -> None:
    """None given and none in the set are the same."""
    for guard in (None, world.guard.select(torch.arange(0))):
        refinement = refine(world.network, world.state, SessionImages(shots, guard=guard), quick)
        assert refinement.served.guard is None
        assert refinement.verdict.before.old is None


def test_the_judge_decides(world: Any, guarded: SessionImages, quick: IncrementalConfig) -> None:
    """It is given both measures of the same images, and its verdict is kept as it is."""
    seen: list[tuple[Measured, Measured]] = []

    def judge(before: Measured, after: Measured) -> Verdict:
        seen.append((before, after))
        return reject(before, after)

    refinement = refine(world.network, world.state, guarded, replace(quick, search=True), judge=judge)

    assert refinement.verdict == reject(*seen[0])
    assert len(seen) == 1
    before, after = seen[0]
    for name in ("old_right", "new_right", "log_probability"):
        assert len(getattr(before, name)) == len(getattr(after, name)) > 0


def test_without_a_judge_everything_is_promoted(world: Any, guarded: SessionImages, quick: IncrementalConfig) -> None:
    """With both accuracies in the verdict."""
    refinement = refine(world.network, world.state, guarded, quick, judge=None)

    assert refinement.state is refinement.candidate
    assert refinement.verdict.reason == "not judged"
    assert refinement.verdict.before.old is not None


def test_provisional_is_what_teaching_gives(
    world: Any, guarded: SessionImages, searching: IncrementalConfig, bits: Bits
) -> None:
    """Bit for bit, whatever the session does besides."""
    refinement = refine(world.network, world.state, guarded, searching)

    assert bits(refinement.provisional) == bits(teach(world.network, world.state, guarded.shots, searching))


@pytest.mark.parametrize("judge", [promote, reject])
def test_nothing_that_is_given_changes(
    world: Any, activations: Draw, guarded: SessionImages, searching: IncrementalConfig, bits: Bits, judge: Any
) -> None:
    """Networks, parent and images keep their bits, modes and gradients; with replay from another start too."""
    replayed = LabelledViews(world.training.inputs[:, :1].expand(-1, 3, -1, -1, -1), world.training.labels)
    images = replace(guarded, shots=activations([30, 2, 25], 10, views=3, seed=11), replay=replayed)
    start = deepcopy(world.network)

    def everything() -> list[dict[str, object]]:
        parts = (images.shots, images.replay, images.guard)
        tensors = {f"{place}": part.inputs for place, part in enumerate(parts) if part is not None}
        return [bits(world.state), bits(world.network), bits(start), bits(tensors)]

    before = everything()

    refinement = refine(world.network, world.state, images, searching, start=start, judge=judge)

    assert refinement.candidate is not None
    assert everything() == before
    for network in (world.network, start):
        assert all(parameter.requires_grad and parameter.grad is None for parameter in network.parameters())
        assert not any(module.training for module in network.modules())


@pytest.mark.parametrize("search", [False, True])
def test_the_seed_decides_everything(
    world: Any, activations: Draw, searching: IncrementalConfig, bits: Bits, search: bool
) -> None:
    """The same seed gives the same bits whatever torch's own generator stands at; another seed other weights."""
    images = SessionImages(activations([30, 2, 25], 11, views=2, seed=11), guard=world.guard)
    states = []
    for ambient, seed in ((1, 0), (2, 0), (1, 5)):
        with torch.random.fork_rng():
            torch.manual_seed(ambient)
            config = replace(searching, search=search, seed=seed)
            refinement = refine(world.network, world.state, images, config)
            assert refinement.candidate is not None
            states.append((bits(refinement.candidate), refinement.verdict, refinement.blend, refinement.shrink))

    assert states[0] == states[1]
    assert search or states[0][0] != states[2][0]  # a search may keep the first weights, whatever the seed


# Blending


def perturbed(module: nn.Module, seed: int) -> nn.Module:
    copy, generator = deepcopy(module), torch.Generator().manual_seed(seed)
    copy.load_state_dict(
        {
            name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
            if tensor.is_floating_point()
            else tensor
            for name, tensor in module.state_dict().items()
        }
    )
    return copy


def test_blends_go_from_the_first_to_the_trained_weights(backbone: Backbone, bits: Bits) -> None:
    """Bit for bit at both ends, the mean halfway; neither end changes."""
    first, trained = backbone.tail, perturbed(backbone.tail, 1)
    before = bits(first), bits(trained)

    none, half, whole = (blended(first, trained, share) for share in (0.0, 0.5, 1.0))

    assert bits(none) == before[0]
    assert bits(whole) == before[1]
    assert (bits(first), bits(trained)) == before
    for name, tensor in half.state_dict().items():
        one, other = first.state_dict()[name], trained.state_dict()[name]
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, (one + other) / 2, rtol=1e-5, atol=1e-6)
    assert not half.training


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_what_was_not_trained_stays_at_every_blend(backbone: Backbone, bits: Bits, share: float) -> None:
    """Weights that are the same at both ends keep their bits between them."""
    assert bits(blended(backbone.tail, deepcopy(backbone.tail), share)) == bits(backbone.tail)


def test_a_blend_of_a_session_is_between_its_ends(world: Any, guarded: SessionImages, quick: IncrementalConfig) -> None:
    """Each trained weight a quarter of the way."""
    quarter, whole = (
        refine(world.network, world.state, guarded, replace(quick, blend=blend), judge=None).state.weights
        for blend in (0.25, 1.0)
    )

    moved = [name for name in whole if not torch.equal(whole[name], world.state.weights[name])]
    assert moved
    for name in moved:
        expected = 0.75 * world.state.weights[name] + 0.25 * whole[name]
        torch.testing.assert_close(quarter[name], expected, rtol=1e-4, atol=1e-7)


# What a session learns from


class Recorded(nn.Module):
    """A module that keeps the inputs it computes with gradients: those of training."""

    trained: list[Tensor] = []  # noqa: RUF012  shared with the copies that sessions make
    plain = 0  # how many images it computes otherwise

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            Recorded.trained.extend(inputs.detach().clone().contiguous())
        else:
            Recorded.plain += len(inputs)
        features: Tensor = self.inner(inputs)
        return features


@pytest.fixture
def recorded(backbone: Backbone) -> Backbone:
    network = deepcopy(backbone)
    network.tail = Recorded(network.tail)
    Recorded.trained, Recorded.plain = [], 0
    return network


def rows_trained_on(images: LabelledViews) -> set[int]:
    """Which of these images were in a training step, in any view."""
    owner = {view.contiguous().numpy().tobytes(): row for row, views in enumerate(images.inputs) for view in views}
    found = (owner.get(seen.numpy().tobytes()) for seen in Recorded.trained)
    return {row for row in found if row is not None}


@pytest.fixture
def parent(recorded: Backbone, activations: Draw, world: Any) -> LearnerState:
    state = base_session(recorded, activations([1, 2], 12, views=2), replace(world.config, epochs=0)).state
    Recorded.trained, Recorded.plain = [], 0
    return state


def test_where_blends_are_searched_the_first_turn_is_kept_out_of_training(
    recorded: Backbone, parent: LearnerState, activations: Draw, searching: IncrementalConfig
) -> None:
    """Shots of the first turn and guard images are never in a step; all others may be, and most are."""
    images = SessionImages(
        activations([8, 9], 21, views=2), activations([1, 2], 21, views=2, seed=5), activations([1, 2], 4, seed=8)
    )

    refine(recorded, parent, images, replace(searching, episodes=10))

    turns = folds_of(images.seen.labels)
    rows = rows_trained_on(images.seen)
    assert not rows & set((turns == 0).nonzero()[:, 0].tolist())
    assert len(rows) > 0.8 * int((turns != 0).sum())
    assert not rows_trained_on(images.guard)


def test_the_first_turn_has_no_part_in_training(world: Any, activations: Draw, quick: IncrementalConfig) -> None:
    """Absurd activations there leave the losses of all steps bit for bit as they are; anywhere else they do not."""
    plain = activations([30, 2, 25], 11, views=2, seed=11)
    turns = folds_of(plain.labels)
    ends = {}
    for poisoned in (None, 0, 1):
        inputs = plain.inputs.clone()
        if poisoned is not None:
            inputs[turns == poisoned] = 50.0
        steps = list[Progress]()
        refine(
            world.network,
            world.state,
            SessionImages(LabelledViews(inputs, plain.labels), guard=world.guard),
            replace(quick, search=True),
            report=steps.append,
        )
        ends[poisoned] = [step.losses for step in steps]

    assert len(ends[None]) == 2
    assert ends[None] == ends[0]
    assert ends[None] != ends[1]


def test_without_replay_no_old_image_is_trained_on(
    recorded: Backbone, parent: LearnerState, activations: Draw, quick: IncrementalConfig
) -> None:
    """Every input of every step is a view of a shot; guard images are only measured."""
    images = SessionImages(activations([8, 9], 6, views=2), guard=activations([1, 2], 4, seed=8))

    refine(recorded, parent, images, replace(quick, episodes=6))

    views = {view.contiguous().numpy().tobytes() for shot in images.shots.inputs for view in shot}
    assert len(Recorded.trained) == 6 * quick.batch
    assert all(seen.numpy().tobytes() in views for seen in Recorded.trained)
    assert rows_trained_on(images.shots) == set(range(12))
    assert not rows_trained_on(images.guard)


def test_no_shot_that_was_trained_on_is_measured_as_held_out(
    recorded: Backbone, parent: LearnerState, activations: Draw, quick: IncrementalConfig
) -> None:
    """Not without a search either: the judge would be told of a gain that is none."""
    images = SessionImages(activations([8, 9], 6, views=2), guard=activations([1, 2], 4, seed=8))

    refinement = refine(recorded, parent, images, replace(quick, episodes=6), judge=None)

    assert not rows_trained_on(images.shots) & set(refinement.held_out.rows.tolist())


@pytest.mark.parametrize("scope", ["tail", "all"])
def test_every_image_is_computed_once_under_every_network(
    recorded: Backbone, world: Any, activations: Draw, images: Draw, quick: IncrementalConfig, scope: Scope
) -> None:
    """Each view of each shot and the centre view of each guard image: once before training, once after it."""
    draw = activations if scope == "tail" else images
    base, guard, shots = draw([1, 2], 3), draw([1, 2], 4, seed=8, views=2), draw([8, 9], 3, views=2)
    config = replace(quick, scope=scope, learning_rate=1e-6)
    parent = base_session(recorded, base, replace(world.config, epochs=0, scope=scope)).state
    Recorded.plain = 0

    refinement = refine(recorded, parent, SessionImages(shots, guard=guard), config)

    assert refinement.candidate is not None
    assert Recorded.plain == 2 * (6 * 2 + 8)
    assert isinstance(refinement.served.module, type(trainable_part(recorded, scope)))


def test_a_search_computes_every_image_once_for_each_blend_it_tries(
    recorded: Backbone, parent: LearnerState, activations: Draw, searching: IncrementalConfig
) -> None:
    """Up to the first that is good enough; shrinkages and turns cost no further pass."""
    images = SessionImages(activations([8, 9], 21, views=2), guard=activations([1, 2], 8, seed=8))
    assert int((folds_of(images.shots.labels) == 0).sum()) + 16 >= FEWEST_TO_TRAIN

    refinement = refine(recorded, parent, images, searching)

    tried = USUAL_BLENDS.index(refinement.blend) + 1 if refinement.blend else len(USUAL_BLENDS)
    assert Recorded.plain == (1 + tried) * (42 * 2 + 16)


# The search


def test_too_few_held_out_images_change_no_weights_but_fit_the_space(
    backbone: Backbone, activations: Draw, searching: IncrementalConfig, bits: Bits
) -> None:
    """A gain from training could not be told from chance; the space is fitted without gradients."""
    parent = teach(backbone, LearnerState.untaught(backbone), activations([1, 2], 5, views=2), searching)
    steps = list[Progress]()

    refinement = refine(
        backbone, parent, SessionImages(activations([8, 9, 10], 5, views=2)), searching, report=steps.append
    )

    assert steps == []
    assert refinement.candidate is not None
    assert refinement.blend == 0
    assert bits(refinement.candidate.weights) == bits(parent.weights)
    assert refinement.served.module is backbone.tail
    assert refinement.candidate.space.whitening is not None
    assert parent.space.whitening is None
    assert refinement.shrink in SHRINKS
    assert refinement.candidate.scatter is not None
    assert refinement.candidate.scatter.freedom == 3 * 5 * 2 - 3
    assert sorted(refinement.held_out.rows.tolist()) == list(range(15))  # untrained, so every shot takes its turn


def test_enough_held_out_images_are_trained(world: Any, activations: Draw, searching: IncrementalConfig) -> None:
    """Guard images and the first turn of the shots together are ten."""
    counts, shots = {}, activations(range(40, 44), 4, views=2)
    for spared in (5, 6):
        steps = list[Progress]()
        guard = world.guard.select(torch.arange(spared))
        refine(world.network, world.state, SessionImages(shots, guard=guard), searching, report=steps.append)
        counts[spared + int((folds_of(shots.labels) == 0).sum())] = len(steps)

    assert counts == {9: 0, FEWEST_TO_TRAIN: 2}


@pytest.mark.parametrize(
    ("half", "quarter", "expected"), [(0.1, 0.0, 0.5), (-0.1, 0.0, 0.5), (-1.0, -0.1, 0.25), (-1.0, -1.0, 0.0)]
)
def test_without_a_base_session_half_of_the_way_is_gone_unless_images_lose_beyond_chance(
    backbone: Backbone,
    activations: Draw,
    searching: IncrementalConfig,
    monkeypatch: pytest.MonkeyPatch,
    half: float,
    quarter: float,
    expected: float,
) -> None:
    """Images gain so much on average, and differ from each other by about one."""
    luck, gains = torch.linspace(-1, 1, 20), {0.0: 0.0, 0.25: quarter, 0.5: half}

    def simulated(_session: Any, trial: Trial, *_asked: Any) -> Tensor:
        return gains[trial.blend] + float(trial.blend > 0) * luck

    monkeypatch.setattr("core.refinement._Session._evidence", simulated)
    untaught = LearnerState.untaught(backbone)
    images = SessionImages(activations(range(40, 50), 5, views=2))

    refinement = refine(backbone, untaught, images, searching, judge=None)

    assert refinement.blend == expected


def test_a_search_that_finds_no_gain_keeps_the_first_weights(
    world: Any, activations: Draw, searching: IncrementalConfig, bits: Bits
) -> None:
    """A ruinous training is blended in not at all, so the session is judged by its space alone."""
    images = SessionImages(activations([30, 2, 25], 11, views=2, seed=11), guard=world.guard)

    refinement = refine(world.network, world.state, images, replace(searching, episodes=6, learning_rate=3.0))

    assert refinement.candidate is not None
    assert refinement.blend == 0
    assert bits(with_weights(world.network, refinement.candidate.weights)) == bits(world.network)


def test_a_space_that_many_images_determine_is_not_searched_for(
    world: Any, guarded: SessionImages, searching: IncrementalConfig
) -> None:
    """It is fitted with the shrinkage of a base session, and hardly changes."""
    refinement = refine(world.network, world.state, guarded, searching)

    assert refinement.shrink == 1.0
    assert refinement.candidate is not None
    old, new = world.state.space.whitening.projection, refinement.candidate.space.whitening.projection
    assert 0 < (old - new).norm() < 0.2 * old.norm()


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "power-cosine"])
def test_other_metrics_have_no_space_to_fit(
    backbone: Backbone, world: Any, guarded: SessionImages, searching: IncrementalConfig, metric: Any
) -> None:
    """The session runs, and its space is the parent's."""
    parent = base_session(backbone, world.training, replace(world.config, epochs=0, metric=metric)).state

    refinement = refine(backbone, parent, guarded, searching)

    assert refinement.candidate is not None
    assert refinement.shrink is None
    assert refinement.candidate.space is parent.space


# Replay


@pytest.fixture(scope="module")
def replayed(activations: Draw) -> LabelledViews:
    return activations([40, 41, 42], 6, views=2, seed=3)


@pytest.fixture(scope="module")
def second(world: Any, replayed: LabelledViews, gentle: IncrementalConfig) -> tuple[LearnerState, Backbone]:
    """A learner that has had a session on the classes that are replayed."""
    state = refine(world.network, world.state, SessionImages(replayed), gentle, judge=None).state
    return state, with_weights(world.network, state.weights)


def test_replay_starts_from_the_network_it_is_given(
    world: Any,
    second: tuple[LearnerState, Backbone],
    replayed: LabelledViews,
    activations: Draw,
    quick: IncrementalConfig,
    bits: Bits,
) -> None:
    """The trained weights do not depend on what the parent's network had become: two streams end at the same."""
    state, network = second
    images = SessionImages(activations([8, 9], 6, views=2), replayed)
    steady = replace(quick, drift=False, prototype_rate=0.0, calibration=False)
    alone = replace(world.state, bank=world.state.bank.without(world.state.bank.class_ids))
    taught = teach(world.network, alone, replayed, steady)
    later = replace(state, bank=state.bank.only(replayed.class_ids), scatter=alone.scatter, space=alone.space)

    ends = [
        refine(of, parent, images, steady, start=world.network, judge=None).state
        for of, parent in ((world.network, taught), (network, later))
    ]

    assert bits(network) != bits(world.network)
    assert bits(with_weights(world.network, ends[0].weights)) == bits(with_weights(world.network, ends[1].weights))
    assert bits(with_weights(world.network, ends[0].weights)) != bits(world.network)
    assert torch.equal(ends[0].bank.prototypes, ends[1].bank.prototypes)


def test_untrained_replay_serves_the_start(
    world: Any,
    second: tuple[LearnerState, Backbone],
    replayed: LabelledViews,
    activations: Draw,
    quick: IncrementalConfig,
    bits: Bits,
) -> None:
    """Without a step the candidate is the start itself, and prototypes of what is replayed are made under it."""
    state, network = second
    images = SessionImages(activations([8, 9], 6, views=2), replayed)

    end = refine(network, state, images, replace(quick, epochs=0), start=world.network, judge=None).state

    assert bits(with_weights(network, end.weights)) == bits(world.network)
    with torch.no_grad():
        features = world.network.tail(replayed.inputs[replayed.labels == 41].flatten(0, 1))
    expected = end.space.embed(features).mean(0)
    torch.testing.assert_close(end.bank.prototypes[end.bank.class_ids.index(41)], expected, rtol=1e-3, atol=1e-4)


def test_remembered_classes_follow_to_the_start(
    world: Any,
    second: tuple[LearnerState, Backbone],
    replayed: LabelledViews,
    activations: Draw,
    quick: IncrementalConfig,
    accuracy: Callable[..., float],
) -> None:
    """Where the start is served untrained, base classes are known about as well as after the base session."""
    state, network = second
    images = SessionImages(activations([8, 9], 6, views=2), replayed)

    end = refine(network, state, images, replace(quick, epochs=0), start=world.network, judge=None).state

    known = accuracy(with_weights(network, end.weights), end, world.test)
    five_more = teach(world.network, world.state, images.seen, quick)
    assert known > accuracy(world.network, five_more, world.test) - 0.15


def test_replayed_classes_are_in_the_state_once(
    second: tuple[LearnerState, Backbone], replayed: LabelledViews, activations: Draw, quick: IncrementalConfig
) -> None:
    """Remembered classes first, with one more copy; then those with images, made anew."""
    state, network = second

    end = refine(network, state, SessionImages(activations([8, 9], 6, views=2), replayed), quick, judge=None).state

    assert end.bank.class_ids == (3, 4, 7, 11, 12, 19, 8, 9, 40, 41, 42)
    assert end.bank.held.tolist() == [3] * 6 + [1] * 5
    assert end.bank.shots.tolist() == [22] * 6 + [6] * 5


def test_a_trained_session_is_judged_on_all_shots(
    backbone: Backbone, activations: Draw, searching: IncrementalConfig
) -> None:
    """For those that it has learned from the untrained network in the new space stands in, shot by shot."""
    shots, seen = activations(range(40, 50), 5, views=2), list[Measured]()

    def watch(before: Measured, after: Measured) -> Verdict:
        seen.extend((before, after))
        return promote(before, after)

    refinement = refine(backbone, LearnerState.untaught(backbone), SessionImages(shots), searching, judge=watch)

    assert refinement.blend > 0
    assert sorted(refinement.held_out.rows.tolist()) == list(range(50))
    assert [len(one.new_right) for one in seen] == [len(one.log_probability) for one in seen] == [50, 50]
    assert len(refinement.known_distances.labels) == 50


def test_held_out_shots_of_replayed_classes_count_as_old(
    second: tuple[LearnerState, Backbone], replayed: LabelledViews, activations: Draw, searching: IncrementalConfig
) -> None:
    """So that forgetting shows without guard images; new shots are counted apart."""
    state, network = second
    seen: list[Measured] = []

    def judge(before: Measured, after: Measured) -> Verdict:
        seen.extend((before, after))
        return reject(before, after)

    images = SessionImages(activations([8, 9], 3, views=2), replayed)
    refine(network, state, images, replace(searching, fraction=0.0), judge=judge)

    for measured in seen:
        assert (len(measured.old_right), len(measured.new_right), len(measured.log_probability)) == (18, 6, 6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_it_refines_on_cuda(world: Any, guarded: SessionImages, searching: IncrementalConfig) -> None:
    """What comes back is on the CPU."""
    refinement = refine(world.network, world.state, guarded, searching, device="cuda")

    assert all(tensor.device.type == "cpu" for tensor in refinement.state.weights.values())
    assert refinement.state.bank.copies.device.type == "cpu"
