"""A space fitted to classes with images and to remembered ones: what is remembered keeps its place in it."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from core.bank import PrototypeBank
from core.errors import DuplicateClass
from core.fitting import CENTRED, FitConfig, can_fit, fit, in_fitted_space, in_space, scatter_with, with_classes
from core.scatter import Scatter, fit_space, pooled, scatter_of
from core.space import METRICS, Metric, Space, class_means, power_normalised
from core.state import LearnerState
from core.views import LabelledViews

DIM = 16
PLAIN = FitConfig(shrink=1.0, prior_shots=0.0)


def draw(class_ids: list[int], per_class: int = 5, views: int = 3, seed: int = 0) -> LabelledViews:
    """Features around a centre for each class, which depends on its id only."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.stack([torch.randn(DIM, generator=torch.Generator().manual_seed(i)) for i in class_ids])
    common = torch.rand(DIM, generator=torch.Generator().manual_seed(99))
    noise = torch.randn(len(class_ids), per_class, views, DIM, generator=generator) * torch.logspace(0, -1, DIM)
    inputs = (2 * common + centres[:, None, None] + 0.4 * noise).flatten(0, 1)
    return LabelledViews(inputs, torch.tensor(class_ids).repeat_interleave(per_class))


def untaught(metric: Metric = "whitened") -> LearnerState:
    return LearnerState("resnet32", {}, Space(metric), PrototypeBank.empty(DIM, 3))


def means(state: LearnerState, features: LabelledViews) -> Tensor:
    return class_means(state.space.embed(features.inputs), features.labels)[0]


# The first fit


@pytest.mark.parametrize("shrink", [0.3, 1.0, 10.0])
def test_with_nothing_remembered_the_space_is_that_of_a_base_session_up_to_its_origin(shrink: float) -> None:
    """The projection is the same; the origin is a part of the way to the mean of the class means."""
    features = draw([5, 3, 8])

    state = fit(untaught(), features, replace(PLAIN, shrink=shrink))

    base = fit_space("whitened", features.inputs, features.labels, shrink=shrink)
    assert state.space.whitening is not None
    assert base.whitening is not None
    assert torch.allclose(base.whitening.projection, state.space.whitening.projection, atol=1e-4)
    assert torch.allclose(3 / (3 + CENTRED) * base.whitening.origin, state.space.whitening.origin, atol=1e-6)


def test_classes_with_images_become_the_means_of_their_features() -> None:
    """In ascending order behind the remembered ones, with their numbers of shots, in the new space."""
    state = fit(untaught(), draw([5, 3, 8]), PLAIN)

    assert state.bank.class_ids == (3, 5, 8)
    assert state.bank.shots.tolist() == [5, 5, 5]
    assert torch.allclose(means(state, draw([5, 3, 8])), state.bank.prototypes, atol=1e-5)


def test_the_state_remembers_the_scatter_of_all_its_classes() -> None:
    """So that the next fit needs no image."""
    features = draw([5, 3, 8])

    state = fit(untaught(), features, PLAIN)

    expected = scatter_of(features.inputs, features.labels)
    assert state.scatter is not None
    assert state.scatter.freedom == expected.freedom == 45 - 3
    assert torch.allclose(expected.factor.T @ expected.factor, state.scatter.factor.T @ state.scatter.factor, atol=1e-4)


# Fitting again


def test_classes_taught_in_turn_end_where_classes_taught_at_once_do() -> None:
    """Space, prototypes and scatter of three sessions without any old image, to rounding."""
    everything = draw([1, 2, 3, 4, 5, 6])
    state = untaught()

    for pair in ([1, 2], [3, 4], [5, 6]):
        rows = torch.isin(everything.labels, torch.tensor(pair)).nonzero()[:, 0]
        state = fit(state, everything.select(rows), PLAIN)

    at_once = fit(untaught(), everything, PLAIN)
    assert state.bank.class_ids == at_once.bank.class_ids
    assert torch.allclose(at_once.space.whitening.projection, state.space.whitening.projection, atol=1e-4)
    assert torch.allclose(at_once.space.whitening.origin, state.space.whitening.origin, atol=1e-4)
    assert torch.allclose(at_once.bank.prototypes, state.bank.prototypes, atol=1e-4)


def test_remembered_classes_are_where_their_own_features_would_be() -> None:
    """Their prototypes move as if their images were embedded anew, so each stays nearest to its own."""
    old, new = draw([1, 2, 3, 4]), draw([10, 11, 12], seed=1)
    parent = fit(untaught(), old, PLAIN)

    state = fit(parent, new, PLAIN)

    assert not torch.allclose(parent.space.whitening.projection, state.space.whitening.projection, atol=1e-3)
    anew = means(state, old)
    assert torch.allclose(anew, state.bank.prototypes[:4], atol=1e-4)
    assert state.space.distances(anew, state.bank.prototypes).argmin(1).tolist() == [0, 1, 2, 3]


def test_the_origin_counts_every_class_once() -> None:
    """Remembered or with images, however many shots it has."""
    old, new = draw([1, 2, 3], per_class=9), draw([10, 11], per_class=2, seed=1)

    state = fit(fit(untaught(), old, PLAIN), new, PLAIN)

    centres = torch.cat([class_means(power_normalised(part.inputs), part.labels)[0] for part in (old, new)])
    assert torch.allclose(centres.sum(0) / (5 + CENTRED), state.space.whitening.origin, atol=1e-4)


def test_a_shrink_of_none_leaves_space_scatter_and_old_prototypes_alone() -> None:
    """Bit for bit; only the new classes are added."""
    parent = fit(untaught(), draw([1, 2, 3]), PLAIN)

    state = fit(parent, draw([10, 11]), replace(PLAIN, shrink=None))

    assert state.space is parent.space
    assert state.scatter is parent.scatter
    assert torch.equal(parent.bank.prototypes, state.bank.prototypes[:3])
    assert torch.allclose(means(state, draw([10, 11])), state.bank.prototypes[3:], atol=1e-5)


def test_fitting_leaves_what_it_was_given() -> None:
    """Bank, scatter, space and features, bit for bit."""
    parent, features = fit(untaught(), draw([1, 2, 3]), PLAIN), draw([10, 11])
    given = [parent.bank.copies, parent.bank.initial, parent.scatter.factor, parent.space.whitening.projection]
    before = [tensor.clone() for tensor in (*given, features.inputs)]

    fit(parent, features, replace(PLAIN, prior_shots=5.0))

    assert all(torch.equal(one, other) for one, other in zip(before, (*given, features.inputs), strict=True))
    assert parent.bank.class_ids == (1, 2, 3)


def test_a_fitted_space_takes_remembered_and_new_scatter_together() -> None:
    """Whitened by the sum of both."""
    parent, features = fit(untaught(), draw([1, 2, 3]), PLAIN), draw([10, 11])

    state = in_fitted_space(parent, features, PLAIN)

    both = pooled([parent.scatter, scatter_of(features.inputs, features.labels)], DIM)
    assert torch.allclose(both.factor.T @ both.factor, state.scatter.factor.T @ state.scatter.factor, atol=1e-4)
    assert state.bank.class_ids == (1, 2, 3)


def test_the_same_space_is_no_change() -> None:
    """The bank is the very same, not a copy that rounding has touched."""
    state = fit(untaught(), draw([1, 2, 3]), PLAIN)

    assert in_space(state, state.space).bank is state.bank


def test_a_prior_needs_well_known_classes() -> None:
    """Few shots are pulled towards the span of classes with many, and not elsewhere without them."""
    features = draw([10, 11], per_class=2)
    known = {count: fit(untaught(), draw([1, 2, 3], per_class=count), PLAIN) for count in (5, 30)}

    pulled = {
        count: torch.equal(
            with_classes(parent, features, PLAIN).bank.prototypes,
            with_classes(parent, features, replace(PLAIN, prior_shots=5.0)).bank.prototypes,
        )
        for count, parent in known.items()
    }

    assert pulled == {5: True, 30: False}


def test_a_class_that_is_remembered_is_not_added_again() -> None:
    """Whoever replays its images takes it out of the bank first."""
    with pytest.raises(DuplicateClass):
        fit(fit(untaught(), draw([1, 2, 3]), PLAIN), draw([3, 4]), PLAIN)


# Whether there is anything to fit


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (draw([1, 2]), True),
        (draw([1, 2], per_class=1), True),  # views of one image differ
        (draw([1, 2], views=1), True),  # images of one class differ
        (draw([1, 2], per_class=1, views=1), False),  # nothing differs within a class
        (draw([1]), False),  # one class alone
    ],
)
def test_the_first_classes_can_be_fitted_when_two_of_them_differ_within(
    features: LabelledViews, expected: bool
) -> None:
    """Two classes, and images that differ within one."""
    assert can_fit(untaught(), features) is expected


@pytest.mark.parametrize("metric", METRICS)
def test_only_the_whitened_metric_is_fitted(metric: Metric) -> None:
    """The others have nothing to fit."""
    assert can_fit(untaught(metric), draw([1, 2])) is (metric == "whitened")


def test_one_class_more_can_be_fitted_to_remembered_ones() -> None:
    """Together they are two."""
    parent = with_classes(untaught(), draw([1]), PLAIN)

    assert can_fit(parent, draw([2]))


def test_a_space_of_an_earlier_release_stays() -> None:
    """What it was whitened by is not known; with a scatter, even an empty one, it is."""
    parent = fit(untaught(), draw([1, 2]), PLAIN)

    assert can_fit(parent, draw([3]))
    assert can_fit(replace(parent, scatter=Scatter(torch.zeros(0, DIM), 0)), draw([3]))
    assert not can_fit(replace(parent, scatter=None), draw([3]))


def test_where_nothing_is_remembered_an_earlier_space_does_not_bind() -> None:
    """All classes of an earlier release are replayed: their images are at hand, so it is a first fit."""
    parent = fit(untaught(), draw([1, 2]), PLAIN)
    emptied = replace(parent, scatter=None, bank=parent.bank.without([1, 2]))

    state = fit(emptied, draw([1, 2, 3]), PLAIN)

    first = fit(untaught(), draw([1, 2, 3]), PLAIN)
    assert can_fit(emptied, draw([1, 2, 3]))
    assert torch.equal(first.space.whitening.projection, state.space.whitening.projection)
    assert torch.equal(first.bank.prototypes, state.bank.prototypes)


def test_a_scatter_that_is_known_already_gives_the_same_state() -> None:
    """Space, prototypes and scatter are bit for bit what they are without it."""
    remembered, features = fit(untaught(), draw([5, 3]), PLAIN), draw([8, 9])

    given = fit(remembered, features, FitConfig(shrink=3.0), scatter_with(remembered, features))

    found = fit(remembered, features, FitConfig(shrink=3.0))
    assert torch.equal(given.bank.prototypes, found.bank.prototypes)
    assert given.scatter is not None
    assert found.scatter is not None
    assert torch.equal(given.scatter.factor, found.scatter.factor)
