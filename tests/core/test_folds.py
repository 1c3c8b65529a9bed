"""Held-out shots: each one is measured once, by a state that never saw it."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.bank import PrototypeBank
from core.classifier import calibrate
from core.fitting import FitConfig, fit
from core.folds import ENOUGH, FOLDS, HeldOut, folds_of, held_out
from core.space import Space
from core.state import LearnerState
from core.views import LabelledViews

FUZZ = settings(max_examples=60, deadline=None, derandomize=True, database=None)
DIM = 8
PLAIN = FitConfig(shrink=None, prior_shots=0.0)
UNTAUGHT = LearnerState("resnet32", {}, Space("cosine"), PrototypeBank.empty(DIM, 1))


def draw(labels: list[int], views: int = 2, seed: int = 0) -> LabelledViews:
    """Features that tell which shot and view they are of: no two are equal."""
    inputs = torch.randn(len(labels), views, DIM, generator=torch.Generator().manual_seed(seed))
    return LabelledViews(inputs, torch.tensor(labels, dtype=torch.long))


def plain_fit(features: LabelledViews) -> LearnerState:
    return fit(UNTAUGHT, features, PLAIN)


class Recorder:
    """Fits as `plain_fit` does, and keeps what it was fitted to."""

    def __init__(self, features: LabelledViews) -> None:
        self.features = features
        self.fitted: list[LabelledViews] = []

    def __call__(self, rows: Tensor) -> LearnerState:
        self.fitted.append(self.features.select(rows))
        return plain_fit(self.fitted[-1])


def rows_among(part: Tensor, whole: Tensor) -> set[int]:
    """Which rows of the whole are in the part, by their bits."""
    kept = {tuple(row.flatten().tolist()) for row in part}
    return {row for row in range(len(whole)) if tuple(whole[row].flatten().tolist()) in kept}


# Turns


@FUZZ
@given(st.lists(st.integers(-2, 4), max_size=60))
def test_turns_are_spread_over_the_shots_of_each_class(labels: list[int]) -> None:
    """A class loses about one in five in a turn and always keeps one; a single shot is never left out."""
    turns = folds_of(torch.tensor(labels, dtype=torch.long)).tolist()

    for label, count in Counter(labels).items():
        own = Counter(turn for turn, of in zip(turns, labels, strict=True) if of == label)
        if count == 1:
            assert own == {-1: 1}
        else:
            assert set(own) == set(range(min(count, FOLDS)))
            assert max(own.values()) == math.ceil(count / FOLDS)
            assert max(own.values()) < count


@pytest.mark.parametrize("labels", [[3, 9, 3, 9, 9, 7, 3, 3, 3, 3, 3], [1, 1], [2**40, 5, 5, 2**40, 8]])
def test_every_shot_of_two_or_more_is_held_out_once_and_never_fitted_to_then(labels: list[int]) -> None:
    """In some turn it is measured and missing from what was fitted; the only shot of a class never is."""
    features = draw(labels)
    recorder = Recorder(features)

    found = held_out(features, folds_of(features.labels), recorder)

    several = {row for row, label in enumerate(labels) if labels.count(label) > 1}
    assert sorted(found.rows.tolist()) == sorted(several)
    assert torch.equal(found.labels, features.labels[found.rows])
    measured = [len(labels) - len(fitted) for fitted in recorder.fitted]
    for rows, fitted in zip(found.rows.split(measured), recorder.fitted, strict=True):
        assert rows_among(fitted.inputs, features.inputs) == set(range(len(labels))) - set(rows.tolist())
        assert fitted.class_ids == features.class_ids


def test_of_many_shots_whole_turns_are_left_out() -> None:
    """Once there are enough, further turns tell little."""
    features = draw([1, 2, 3] * 90)
    recorder = Recorder(features)

    found = held_out(features, folds_of(features.labels), recorder)

    assert len(recorder.fitted) == 2
    assert len(found.rows) == 2 * 54 >= ENOUGH
    assert len(set(found.rows.tolist())) == len(found.rows)


def test_only_the_turns_asked_for_are_measured() -> None:
    """All other shots are fitted to."""
    features = draw([1, 2] * 5)
    recorder = Recorder(features)
    turns = folds_of(features.labels)

    found = held_out(features, torch.where(turns == 0, 0, -1), recorder)

    assert set(found.rows.tolist()) == set((turns == 0).nonzero()[:, 0].tolist())
    assert [len(fitted) for fitted in recorder.fitted] == [8]


def test_without_a_shot_to_spare_nothing_is_measured() -> None:
    """Everything is empty, and nothing is fitted."""
    features = draw([1, 2, 3])
    recorder = Recorder(features)

    found = held_out(features, folds_of(features.labels), recorder)

    assert (len(found.rows), len(found.right), len(found.log_probability)) == (0, 0, 0)
    assert found.right.dtype == torch.bool
    assert recorder.fitted == []


# What is measured


def one_by_one(features: LabelledViews) -> HeldOut:
    return held_out(features, folds_of(features.labels), Recorder(features))


def test_distances_are_to_every_class_made_without_the_shot() -> None:
    """Recomputed for each shot and view from the means of the shots that are not of its turn."""
    features = draw([9, 9, 9, 4, 4, 4, 6], views=3)
    turns = folds_of(features.labels)

    found = held_out(features, turns, Recorder(features))

    for place, row in enumerate(found.rows.tolist()):
        for column, class_id in enumerate((4, 6, 9)):
            chosen = (features.labels == class_id) & (turns != turns[row])
            mean = torch.nn.functional.normalize(features.inputs[chosen], dim=-1).flatten(0, 1).mean(0)
            for view in range(3):
                cosine = torch.nn.functional.cosine_similarity(features.inputs[row, view], mean, dim=0)
                assert float(found.views[place, view, column]) == pytest.approx(1 - float(cosine), abs=1e-5)


def test_a_prediction_looks_at_the_centre_view() -> None:
    """Right is who is nearest to his own class by view 0, and its distance is that of view 0."""
    found = one_by_one(draw([9, 9, 9, 4, 4, 4, 6, 6]))

    for place, label in enumerate(found.labels.tolist()):
        column = (4, 6, 9).index(label)
        nearest = min(range(3), key=lambda k: float(found.views[place, 0, k]))
        assert bool(found.right[place]) is (nearest == column)
        assert found.to_own[place] == found.views[place, 0, column]
    assert 0 < int(found.right.sum()) < len(found.right)


def test_classes_stand_in_the_same_column_in_every_turn() -> None:
    """Whatever the order of the classes in a state."""
    features = draw([9, 9, 4, 4, 6, 6])
    remembered = UNTAUGHT.bank.with_classes([20, 5], torch.eye(DIM)[:2], [1, 1])

    def fit_remembered(rows: Tensor) -> LearnerState:
        return fit(LearnerState("resnet32", {}, Space("cosine"), remembered), features.select(rows), PLAIN)

    found = held_out(features, folds_of(features.labels), fit_remembered)

    columns = {label: set(found.own[found.labels == label].tolist()) for label in (4, 6, 9)}
    assert columns == {4: {0}, 6: {2}, 9: {3}}  # of 4, 5, 6, 9, 20
    assert found.distances.shape == (6, 5)


def test_the_log_probability_is_the_mean_over_views() -> None:
    """At the temperature that fits the centre views best; written out."""
    found = one_by_one(draw([9, 9, 9, 4, 4, 4, 6, 6], views=3))
    temperature = calibrate(found.distances, found.own).temperature

    for place, value in enumerate(found.log_probability.tolist()):
        expected = 0.0
        for row in found.views[place].tolist():
            total = sum(math.exp(-distance / temperature) for distance in row)
            expected += (-row[int(found.own[place])] / temperature - math.log(total)) / 3
        assert value == pytest.approx(expected, abs=1e-4)
