"""A session is measured before it is promoted, and one that ruins the model is not."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.backbones import Backbone
from core.base_session import base_session
from core.classifier import Certainty, NearestClassMean, Prediction
from core.errors import NoImages, UnknownClass
from core.guard import Measure, hold_out, judge, measure
from core.incremental_session import IncrementalConfig, incremental_session, teach
from core.refinement import Refinement, refine
from core.state import LearnerState, with_weights
from core.views import CPU, LabelledViews, Scope, features_of, trainable_part

Bits = Callable[[object], dict[str, object]]
Draw = Callable[..., LabelledViews]
FUZZ = settings(max_examples=60, deadline=None, derandomize=True, database=None)
NEW = (30, 2, 25)


@pytest.fixture(scope="module")
def shots(activations: Draw) -> LabelledViews:
    return activations(NEW, 5, views=3, seed=11)


@pytest.fixture(scope="module")
def taught(world: Any, shots: LabelledViews, gentle: IncrementalConfig) -> LearnerState:
    return teach(world.network, world.state, shots, gentle)


def nearest(query: Tensor, prototypes: Tensor) -> int:
    """Which row is at the smallest angle, one by one."""
    cosines = [float(F.cosine_similarity(query, row, dim=0)) for row in prototypes]
    return cosines.index(max(cosines))


@torch.no_grad()
def embed(network: Backbone, state: LearnerState, inputs: Tensor) -> Tensor:
    return state.space.embed(network.tail(inputs))


@torch.no_grad()
def predict(world: Any) -> list[Prediction]:
    state = world.state
    return NearestClassMean(state.space, state.bank, Certainty()).predict(world.network.tail(world.test.inputs[:, 0]))


def measure_with(
    network: Backbone,
    state: LearnerState,
    *,
    guard: LabelledViews | None,
    shots: LabelledViews,
    prior_shots: float = 0.0,
    scope: Scope = "tail",
) -> Measure:
    """Measure a state on the features that the network gives."""
    part = trainable_part(network, scope)

    def features(views: LabelledViews) -> LabelledViews:
        return LabelledViews(features_of(part, views, CPU), views.labels) if len(views) else views

    return measure(
        state, guard=None if guard is None else features(guard), shots=features(shots), prior_shots=prior_shots
    )


def share(right: list[bool]) -> float:
    return pytest.approx(100 * sum(right) / len(right), abs=1e-4)


def without(shots: LabelledViews, row: int) -> LabelledViews:
    return shots.select(torch.tensor([other for other in range(len(shots)) if other != row]))


# Holding images out


@FUZZ
@given(st.lists(st.integers(-3, 3), max_size=40), st.integers(0, 4), st.integers(0, 2**32))
def test_held_out_images_are_counted_by_class(labels: list[int], per_class: int, seed: int) -> None:
    """As many as asked for, but two are left to learn from; every row is on exactly one side."""
    training, guard = hold_out(torch.tensor(labels, dtype=torch.long), per_class, seed)

    held = Counter(labels[row] for row in guard.tolist())
    assert sorted(training.tolist() + guard.tolist()) == list(range(len(labels)))
    assert {label: held[label] for label in labels} == {
        label: max(0, min(per_class, count - 2)) for label, count in Counter(labels).items()
    }


def test_a_class_of_two_images_keeps_both() -> None:
    """Measuring comes after learning."""
    training, guard = hold_out(torch.tensor([8, 5, 8, 5, 9, 5]), per_class=2)

    assert len(guard) == 1
    assert guard.item() in {1, 3, 5}
    assert len(training) == 5


def test_two_images_of_a_class_are_held_out_unless_told_otherwise() -> None:
    """Of ten, eight are learned from."""
    training, guard = hold_out(torch.zeros(10, dtype=torch.long))

    assert (len(training), len(guard)) == (8, 2)


def test_the_seed_decides_who_is_held_out() -> None:
    """The same seed the same images, another seed others."""
    labels = torch.arange(5).repeat_interleave(10)

    chosen = [hold_out(labels, seed=seed)[1].tolist() for seed in (0, 0, 1)]

    assert chosen[0] == chosen[1]
    assert chosen[0] != chosen[2]


# Measuring


def test_old_classes_are_measured_on_guard_images(world: Any, shots: LabelledViews, taught: LearnerState) -> None:
    """Nearest of all prototypes, old and new, by the centre view; recounted one by one."""
    queries = embed(world.network, taught, world.guard.inputs[:, 0])
    right = [
        taught.bank.class_ids[nearest(query, taught.bank.prototypes)] == label
        for query, label in zip(queries, world.guard.labels.tolist(), strict=True)
    ]

    measured = measure_with(world.network, taught, guard=world.guard, shots=shots)

    assert measured.old == share(right)
    assert 0 < sum(right) < len(right)


@pytest.mark.parametrize(("classes", "per_class", "prior_shots"), [(3, 5, 0.0), (20, 2, 4.0)])
def test_new_shots_are_measured_against_prototypes_made_without_them(
    world: Any, activations: Draw, gentle: IncrementalConfig, classes: int, per_class: int, prior_shots: float
) -> None:
    """Recounted by teaching everything anew without the one shot that is asked about."""
    shots = activations(range(30, 30 + classes), per_class, views=2, seed=11)
    config = replace(gentle, prior_shots=prior_shots)
    queries = embed(world.network, world.state, shots.inputs[:, 0])
    everything, right, naive = teach(world.network, world.state, shots, config), [], []
    for row, label in enumerate(shots.labels.tolist()):
        others = teach(world.network, world.state, without(shots, row), config)
        right.append(others.bank.class_ids[nearest(queries[row], others.bank.prototypes)] == label)
        naive.append(everything.bank.class_ids[nearest(queries[row], everything.bank.prototypes)] == label)

    measured = measure_with(world.network, everything, guard=None, shots=shots, prior_shots=prior_shots)

    assert measured.new == share(right)
    assert sum(right) < sum(naive)  # a shot that helps to make its prototype flatters it


@pytest.mark.parametrize("metric", ["euclidean", "power-cosine"])
def test_other_metrics_are_measured_by_their_own_distance(
    backbone: Backbone, world: Any, shots: LabelledViews, gentle: IncrementalConfig, metric: str
) -> None:
    """Euclidean or angular, leave-one-out is the same idea."""
    parent = base_session(backbone, world.training, replace(world.config, epochs=0, metric=metric)).state
    taught, right = teach(backbone, parent, shots, gentle), []
    queries = embed(backbone, parent, shots.inputs[:, 0])
    for row, label in enumerate(shots.labels.tolist()):
        bank = teach(backbone, parent, without(shots, row), gentle).bank
        far = torch.cdist(queries[row : row + 1], bank.prototypes)[0]
        best = int(far.argmin()) if metric == "euclidean" else nearest(queries[row], bank.prototypes)
        right.append(bank.class_ids[best] == label)

    measured = measure_with(backbone, taught, guard=None, shots=shots)

    assert measured.new == share(right)


def test_a_trained_candidate_is_measured_under_its_own_network(
    world: Any, shots: LabelledViews, gentle: IncrementalConfig
) -> None:
    """The prototype of a class without one of its shots is the mean of the others, seen by the new tail."""
    state = incremental_session(world.network, world.state, shots, replace(gentle, epochs=1)).state
    network = with_weights(world.network, state.weights)
    embeddings, right = embed(network, state, shots.inputs.flatten(0, 1)).unflatten(0, (15, 3)), []
    for row, label in enumerate(shots.labels.tolist()):
        prototypes = state.bank.prototypes.clone()
        others = [other for other in range(15) if shots.labels[other] == label and other != row]
        prototypes[state.bank.class_ids.index(label)] = embeddings[others].mean((0, 1))
        right.append(state.bank.class_ids[nearest(embeddings[row, 0], prototypes)] == label)

    measured = measure_with(network, state, guard=None, shots=shots)

    assert measured.new == share(right)


def test_a_single_shot_is_measured_against_its_other_views(
    world: Any, activations: Draw, gentle: IncrementalConfig
) -> None:
    """There is no other shot to make a prototype of; recounted from views 1 and 2."""
    singles = activations(range(40, 52), 1, views=3, seed=5, noise=200.0)
    state = teach(world.network, world.state, singles, gentle)
    embeddings, right = embed(world.network, state, singles.inputs.flatten(0, 1)).unflatten(0, (12, 3)), []
    for row in range(12):
        prototypes = state.bank.prototypes.clone()
        prototypes[6 + row] = (embeddings[row, 1] + embeddings[row, 2]) / 2
        right.append(nearest(embeddings[row, 0], prototypes) == 6 + row)

    measured = measure_with(world.network, state, guard=None, shots=singles)

    assert measured.new == share(right)
    assert 0 < sum(right) < 12


def test_a_single_shot_in_a_single_view_says_nothing_against_itself(
    world: Any, activations: Draw, gentle: IncrementalConfig
) -> None:
    """All that is known of the class is that image, so it is right."""
    singles = activations([40, 41], 1)

    measured = measure_with(
        world.network, teach(world.network, world.state, singles, gentle), guard=None, shots=singles
    )

    assert measured.new == 100.0


def test_without_guard_images_old_classes_are_not_measured(
    world: Any, shots: LabelledViews, taught: LearnerState
) -> None:
    """None given and none in the set are the same."""
    empty = world.guard.select(torch.arange(0))

    measured = [measure_with(world.network, taught, guard=guard, shots=shots) for guard in (None, empty)]

    assert [each.old for each in measured] == [None, None]
    assert measured[0].new is not None


def test_the_whole_network_can_be_measured(
    world: Any, images: Draw, shots: LabelledViews, gentle: IncrementalConfig
) -> None:
    """With scope `all` images stand where activations stand else, and the figures are the same."""
    raw = images(NEW, 5, views=3, seed=11)
    taught = teach(world.network, world.state, raw, replace(gentle, scope="all"))

    whole = measure_with(world.network, taught, guard=None, shots=raw, scope="all")

    assert whole == measure_with(world.network, taught, guard=None, shots=shots)


def test_what_cannot_be_measured_is_refused(world: Any, shots: LabelledViews, taught: LearnerState) -> None:
    """Shots of classes that the bank lacks, and no shots at all."""
    with pytest.raises(UnknownClass, match=r"class \d+ is not among the 6 known classes"):
        measure_with(world.network, world.state, guard=None, shots=shots)
    with pytest.raises(NoImages):
        measure_with(world.network, taught, guard=None, shots=shots.select(torch.arange(0)))


# Judging


@pytest.mark.parametrize(
    ("before", "after", "promoted"),
    [
        (Measure(80.0, 60.0), Measure(80.0, 60.0), True),
        (Measure(80.0, 60.0), Measure(79.5, 60.0), True),  # exactly the tolerance
        (Measure(80.0, 60.0), Measure(79.4, 60.0), False),
        (Measure(80.0, 60.0), Measure(90.0, 59.9), False),  # nothing may be lost on the new
        (Measure(80.0, 60.0), Measure(79.4, 99.0), False),  # and gains do not make up for losses
        (Measure(None, 60.0), Measure(None, 59.0), False),
        (Measure(None, 60.0), Measure(None, 61.0), True),
        (Measure(80.0, None), Measure(70.0, None), False),
        (Measure(None, None), Measure(None, None), True),  # nothing to measure on
        (Measure(0.0, 0.0), Measure(0.0, 0.0), True),
    ],
)
def test_a_candidate_is_promoted_unless_it_loses(before: Measure, after: Measure, promoted: bool) -> None:
    """Half a point on the old is tolerated, nothing on the new."""
    verdict = judge(before, after, tolerance=0.5)

    assert verdict.promoted is promoted
    assert (verdict.before, verdict.after) == (before, after)


def test_a_rejection_says_what_was_lost() -> None:
    """Which classes, from where to where, and what was allowed."""
    old = judge(Measure(80.0, 60.0), Measure(70.0, 60.0), tolerance=0.5)
    new = judge(Measure(80.0, 60.0), Measure(80.0, 40.0), tolerance=0.5)

    assert old.reason == "accuracy on old classes fell from 80.0 to 70.0; at most 0.5 may be lost"
    assert new.reason == "accuracy on new classes fell from 60.0 to 40.0; at most 0.0 may be lost"


@pytest.mark.parametrize(
    ("before", "after", "forgetting"), [(80.0, 70.0, 10.0), (70.0, 80.0, -10.0), (50.0, 50.0, 0.0), (None, None, None)]
)
def test_forgetting_counts_points_lost(before: float | None, after: float | None, forgetting: float | None) -> None:
    """Above zero where old classes got worse, below where they got better."""
    verdict = judge(Measure(before, None), Measure(after, None))

    assert verdict.forgetting == forgetting


# The gate, on real sessions


@pytest.fixture(scope="module")
def collapsed(world: Any, shots: LabelledViews, gentle: IncrementalConfig) -> Refinement:
    ruinous = replace(gentle, epochs=2, learning_rate=1000 * gentle.learning_rate)
    return refine(world.network, world.state, shots, ruinous, guard=world.guard)


def test_a_session_that_collapses_is_rejected(collapsed: Refinement) -> None:
    """At a thousand times the gentle rate the old classes are gone, and the gate sees it."""
    verdict = collapsed.verdict

    assert not verdict.promoted
    assert verdict.reason.startswith("accuracy on old classes fell")
    assert verdict.forgetting is not None
    assert verdict.forgetting > 50
    assert collapsed.state is collapsed.provisional


def test_a_rejected_session_leaves_the_parent_as_it_was(
    world: Any, shots: LabelledViews, gentle: IncrementalConfig, bits: Bits
) -> None:
    """Not one bit of it has changed, so it predicts as before; the new classes stand beside it, untrained."""
    before, answers = (bits(world.state), bits(world.network)), predict(world)
    ruinous = replace(gentle, epochs=1, learning_rate=1000 * gentle.learning_rate)

    refinement = refine(world.network, world.state, shots, ruinous, guard=world.guard)

    assert not refinement.verdict.promoted
    assert (bits(world.state), bits(world.network)) == before
    assert predict(world) == answers
    assert bits(refinement.state) == bits(teach(world.network, world.state, shots, ruinous))


def test_a_gentle_session_is_promoted(world: Any, shots: LabelledViews, gentle: IncrementalConfig) -> None:
    """What is served then is what the session learned; the twelve guard images here count eight points each."""
    refinement = refine(
        world.network, world.state, shots, gentle, guard=world.guard, judge=partial(judge, tolerance=20.0)
    )

    assert refinement.verdict.promoted
    assert refinement.state is refinement.candidate
    assert refinement.verdict.after.new > refinement.verdict.before.new


def test_an_unchanged_candidate_is_promoted(world: Any, shots: LabelledViews, gentle: IncrementalConfig) -> None:
    """No training, no loss: both measures are the same."""
    still = replace(gentle, epochs=0, prototype_rate=0.0, calibration=False, drift=False)

    refinement = refine(
        world.network, world.state, shots, still, guard=world.guard, judge=partial(judge, tolerance=0.0)
    )

    assert refinement.verdict.promoted
    assert refinement.verdict.before == refinement.verdict.after
    assert refinement.verdict.forgetting == 0


def test_without_a_past_there_is_nothing_to_forget(
    backbone: Backbone, activations: Draw, gentle: IncrementalConfig
) -> None:
    """The very first classes are judged by their own shots alone."""
    parent = LearnerState.untaught(backbone, "cosine", copies=3)

    refinement = refine(backbone, parent, activations([1, 2, 3], 3, noise=40.0), replace(gentle, epochs=1), guard=None)

    assert refinement.verdict.before.old is None
    assert refinement.verdict.forgetting is None
    assert refinement.verdict.promoted


def test_a_collapse_shows_on_the_candidate_alone(collapsed: Refinement, world: Any, shots: LabelledViews) -> None:
    """Before is the parent with the classes added untrained, after is the trained candidate."""
    before = measure_with(world.network, collapsed.provisional, guard=world.guard, shots=shots)
    after = measure_with(
        with_weights(world.network, collapsed.candidate.weights), collapsed.candidate, guard=world.guard, shots=shots
    )

    assert collapsed.verdict.before == before
    assert collapsed.verdict.after == after
