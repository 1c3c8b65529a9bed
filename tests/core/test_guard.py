"""A session is measured before it is promoted, and one that ruins the model is not."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.backbones import Backbone
from core.classifier import Certainty, NearestClassMean, Prediction
from core.folds import folds_of
from core.guard import FEWEST, Measure, Measured, hold_out, judge
from core.incremental_session import IncrementalConfig
from core.refinement import Refinement, refine, teach
from core.state import LearnerState, with_weights
from core.trials import SessionImages
from core.views import LabelledViews

Bits = Callable[[object], dict[str, object]]
Draw = Callable[..., LabelledViews]
FUZZ = settings(max_examples=60, deadline=None, derandomize=True, database=None)
NEW = (30, 2, 25)


@pytest.fixture(scope="module")
def shots(activations: Draw) -> LabelledViews:
    return activations(NEW, 5, views=3, seed=11)


@pytest.fixture(scope="module")
def images_of(world: Any, shots: LabelledViews) -> SessionImages:
    return SessionImages(shots, guard=world.guard)


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


def share(right: list[bool]) -> float:
    return pytest.approx(100 * sum(right) / len(right), abs=1e-4)


def right(count: int, total: int) -> Tensor:
    """The first so many images are right."""
    return torch.arange(total) < count


def measured(gains: Tensor | None = None, *, old: Tensor | None = None, new: Tensor | None = None) -> Measured:
    """With log-probabilities that are these gains above −1; 40 images that gain nothing if none are given."""
    nothing = torch.zeros(0, dtype=torch.bool)
    gains = torch.zeros(40) if gains is None else gains
    return Measured(nothing if old is None else old, nothing if new is None else new, gains - 1)


def noise(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


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


# Judging


def test_a_clear_gain_is_promoted() -> None:
    """Most images are more probable than before; the verdict says by how much."""
    gains = 0.3 + 0.2 * noise(40)

    verdict = judge(measured(), measured(gains))

    assert verdict.promoted
    assert verdict.gain == pytest.approx(float(gains.mean()), rel=1e-4)
    assert verdict.error == pytest.approx(float(gains.std()) / 40**0.5, rel=1e-4)
    assert (
        verdict.reason == f"better by {verdict.gain:.3f} ± {verdict.error:.3f} in log-probability on 40 held-out images"
    )


@pytest.mark.parametrize("gains", [-0.3 + 0.2 * noise(40), torch.zeros(40), torch.full((40,), -0.1)])
def test_a_session_that_is_worse_or_no_better_is_rejected(gains: Tensor) -> None:
    """No gain at all is no reason to serve another network."""
    verdict = judge(measured(), measured(gains))

    assert not verdict.promoted
    assert verdict.reason.startswith("not better beyond chance: by ")


@pytest.mark.parametrize("images", [12, 60])
def test_pure_noise_is_rejected_in_six_of_ten_cases(images: int) -> None:
    """Two thousand sessions that change every image at random; within four points."""
    before, after = noise(2 * 2000 * images).view(2, 2000, images)

    rejected = sum(not judge(measured(one), measured(other)).promoted for one, other in zip(before, after, strict=True))

    assert 0.56 < rejected / 2000 < 0.64


@pytest.mark.parametrize("images", [12, 60])
def test_a_gain_of_half_a_deviation_is_mostly_promoted(images: int) -> None:
    """The gate is no coin: with a real gain it opens in nine of ten cases and more."""
    before, gains = torch.zeros(images), 0.5 + noise(500 * images).view(500, images)

    promoted = sum(judge(measured(before), measured(after)).promoted for after in gains)

    assert promoted / 500 > 0.9


def test_images_are_compared_one_by_one() -> None:
    """Images differ much more from each other than a session changes them; that does not hide a small gain."""
    before = 5 * noise(40)

    verdict = judge(measured(before), measured(before + 0.05))

    assert verdict.promoted
    assert verdict.error < 0.01


@pytest.mark.parametrize(
    ("lost", "won", "promoted"),
    [
        (0, 0, True),
        (1, 0, True),  # one image of twenty is chance
        (2, 0, False),
        (3, 1, True),  # so are three lost and one won
        (6, 2, False),
        (10, 0, False),
        (0, 10, True),
    ],
)
def test_old_classes_may_lose_what_chance_explains(lost: int, won: int, promoted: bool) -> None:
    """Of twenty images of old classes, ten of which were right; a clear gain elsewhere does not make up for it."""
    before = right(10, 20)
    after = before.clone()
    after[:lost] = False
    after[10 : 10 + won] = True

    verdict = judge(measured(old=before), measured(0.3 + 0.1 * noise(40), old=after))

    assert verdict.promoted is promoted
    assert verdict.forgetting == pytest.approx(5 * (lost - won))


def test_many_images_show_a_small_loss_beyond_the_tolerance() -> None:
    """Two points of a thousand images are beyond chance and the half point allowed; a wider tolerance allows them."""
    before, after = measured(old=right(800, 1000)), measured(0.3 + 0.1 * noise(40), old=right(780, 1000))

    strict, lenient = judge(before, after), judge(before, after, tolerance=2.0)

    assert not strict.promoted
    assert strict.reason == "accuracy on old classes fell from 80.0 to 78.0, beyond chance and 0.5 points"
    assert lenient.promoted


@pytest.mark.parametrize("images", range(FEWEST))
def test_too_few_images_tell_nothing(images: int) -> None:
    """However much they gain."""
    verdict = judge(measured(torch.zeros(images)), measured(5 + 0.1 * noise(images)))

    assert not verdict.promoted
    assert verdict.reason == f"{images} held-out images are too few to tell whether it is better"


def test_the_fewest_images_are_enough_for_a_clear_gain() -> None:
    """Four of them."""
    assert judge(measured(torch.zeros(FEWEST)), measured(5 + 0.1 * noise(FEWEST))).promoted


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_none_are_rejected(number: float) -> None:
    """One image without a probability, or all of them."""
    one = 0.3 + 0.1 * noise(40)
    one[7] = number

    assert not judge(measured(), measured(one)).promoted
    assert not judge(measured(), measured(torch.full((40,), number))).promoted


def test_accuracies_are_percentages_of_old_and_new() -> None:
    """None where there is nothing to measure on, in the verdict as well."""
    both = measured(old=right(15, 20), new=right(1, 3))

    assert (both.accuracy.old, both.accuracy.new) == (75.0, pytest.approx(100 / 3))
    assert measured().accuracy == Measure(None, None)
    assert judge(both, both).after == both.accuracy
    assert judge(measured(), measured()).after == Measure(None, None)


@pytest.mark.parametrize(
    ("before", "after", "forgetting"), [(16, 14, 10.0), (14, 16, -10.0), (10, 10, 0.0), (None, None, None)]
)
def test_forgetting_counts_points_lost(before: int | None, after: int | None, forgetting: float | None) -> None:
    """Above zero where old classes got worse, below where they got better."""
    one, other = (measured(old=None if count is None else right(count, 20)) for count in (before, after))

    verdict = judge(one, other)

    assert verdict.forgetting == (None if forgetting is None else pytest.approx(forgetting))


# The gate, on real sessions


@pytest.fixture(scope="module")
def collapsed(world: Any, images_of: SessionImages, gentle: IncrementalConfig) -> Refinement:
    ruinous = replace(gentle, epochs=2, learning_rate=1000 * gentle.learning_rate)
    return refine(world.network, world.state, images_of, ruinous)


def test_a_session_that_collapses_is_rejected(collapsed: Refinement) -> None:
    """At a thousand times the gentle rate the old classes are gone, and the gate sees it."""
    verdict = collapsed.verdict

    assert not verdict.promoted
    assert verdict.reason.startswith("accuracy on old classes fell")
    assert verdict.forgetting is not None
    assert verdict.forgetting > 40
    assert collapsed.state is collapsed.provisional


def test_a_rejected_session_leaves_the_parent_as_it_was(
    world: Any, images_of: SessionImages, gentle: IncrementalConfig, bits: Bits
) -> None:
    """Not one bit of it has changed, so it predicts as before; the new classes stand beside it, untrained."""
    before, answers = (bits(world.state), bits(world.network)), predict(world)
    ruinous = replace(gentle, epochs=1, episodes=4, learning_rate=1000 * gentle.learning_rate)

    refinement = refine(world.network, world.state, images_of, ruinous)

    assert not refinement.verdict.promoted
    assert (bits(world.state), bits(world.network)) == before
    assert predict(world) == answers
    assert bits(refinement.state) == bits(teach(world.network, world.state, images_of.shots, ruinous))


def test_old_classes_are_measured_on_guard_images(world: Any, collapsed: Refinement) -> None:
    """Nearest of all prototypes, old and new, by the centre view, before and after; recounted one by one."""
    assert collapsed.candidate is not None
    for state, measure in (
        (collapsed.provisional, collapsed.verdict.before),
        (collapsed.candidate, collapsed.verdict.after),
    ):
        queries = embed(with_weights(world.network, state.weights), state, world.guard.inputs[:, 0])
        hits = [
            state.bank.class_ids[nearest(query, state.bank.prototypes)] == label
            for query, label in zip(queries, world.guard.labels.tolist(), strict=True)
        ]
        assert measure.old == share(hits)
    assert collapsed.verdict.before != collapsed.verdict.after


@pytest.mark.parametrize(("classes", "per_class", "prior_shots"), [(3, 5, 0.0), (20, 2, 4.0)])
def test_new_shots_are_measured_against_prototypes_made_without_them(
    world: Any, activations: Draw, gentle: IncrementalConfig, classes: int, per_class: int, prior_shots: float
) -> None:
    """Recounted by teaching everything anew without the shots of the same turn."""
    shots = activations(range(30, 30 + classes), per_class, views=2, seed=11)
    config = replace(gentle, epochs=0, prior_shots=prior_shots)
    queries = embed(world.network, world.state, shots.inputs[:, 0])
    turns, hits, naive = folds_of(shots.labels), [], []
    everything = teach(world.network, world.state, shots, config)
    for row, label in enumerate(shots.labels.tolist()):
        kept = (turns != turns[row]).nonzero()[:, 0]
        others = teach(world.network, world.state, shots.select(kept), config)
        hits.append(others.bank.class_ids[nearest(queries[row], others.bank.prototypes)] == label)
        naive.append(everything.bank.class_ids[nearest(queries[row], everything.bank.prototypes)] == label)

    verdict = refine(world.network, world.state, SessionImages(shots), config).verdict

    assert verdict.before.new == share(hits)
    assert sum(hits) < sum(naive)  # a shot that helps to make its prototype flatters it


def test_an_unchanged_candidate_is_not_better(world: Any, images_of: SessionImages, gentle: IncrementalConfig) -> None:
    """No training and no fitting: both measures are the same, and nothing is gained."""
    refinement = refine(world.network, world.state, images_of, replace(gentle, epochs=0))

    assert not refinement.verdict.promoted
    assert refinement.verdict.before == refinement.verdict.after
    assert (refinement.verdict.forgetting, refinement.verdict.gain) == (0, 0)


def test_without_a_past_there_is_nothing_to_forget(
    backbone: Backbone, activations: Draw, gentle: IncrementalConfig
) -> None:
    """The very first classes are judged by their own shots alone."""
    parent = LearnerState.untaught(backbone, "whitened", copies=3)
    images = SessionImages(activations([1, 2, 3], 5, views=2))

    refinement = refine(backbone, parent, images, replace(gentle, search=True, refit=True))

    assert refinement.verdict.before.old is None
    assert refinement.verdict.forgetting is None
    assert refinement.verdict.gain is not None


def test_single_shots_cannot_be_held_out(world: Any, activations: Draw, gentle: IncrementalConfig) -> None:
    """Without guard images there is nothing to judge by, so the session is rejected."""
    refinement = refine(world.network, world.state, SessionImages(activations([40, 41], 1, views=3)), gentle)

    assert refinement.verdict.reason == "0 held-out images are too few to tell whether it is better"
    assert refinement.verdict.before == Measure(None, None)
    assert {40, 41} <= set(refinement.state.bank.class_ids)
