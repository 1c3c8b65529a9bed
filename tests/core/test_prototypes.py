"""From images to prototypes, and the support that few shots get from well-known classes."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from core.bank import ClassId, PrototypeBank
from core.prototypes import DAMPING, MOST_SPANNING, WELL_KNOWN, Prior, mean_prototypes, supported

DIM = 5
TEEN = 10 / 3  # prior shots that make five shots TEEN with α = 0.4


def vectors(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, DIM, generator=torch.Generator().manual_seed(seed))


def bank_of(shots: list[int]) -> PrototypeBank:
    """Classes 40, 50, 60, … with so many shots, of lengths other than one."""
    ids = [ClassId(40 + 10 * row) for row in range(len(shots))]
    return PrototypeBank.empty(DIM).with_classes(ids, 2 * vectors(len(shots), seed=3), shots)


def neighbours_guess(prototype: list[float], references: list[list[float]], sharpness: float = 16.0) -> list[float]:
    """Σ_b softmax(sharpness · cos(p, b)) · b over references at unit length."""

    def unit(vector: list[float]) -> list[float]:
        return [number / math.hypot(*vector) for number in vector]

    references = [unit(reference) for reference in references]
    scores = [
        math.exp(sharpness * sum(a * b for a, b in zip(unit(prototype), reference, strict=True)))
        for reference in references
    ]
    return [
        sum(score * reference[i] for score, reference in zip(scores, references, strict=True)) / sum(scores)
        for i in range(DIM)
    ]


def span_guess(prototype: list[float], references: list[list[float]]) -> list[float]:
    """Ridge regression of the direction on the references at unit length, by its normal equations in double."""
    units = F.normalize(torch.tensor(references, dtype=torch.double), dim=1)
    direction = F.normalize(torch.tensor(prototype, dtype=torch.double), dim=0)
    scatter = units.T @ units
    hat = scatter @ torch.linalg.inv(scatter + DAMPING * torch.eye(DIM, dtype=torch.double))
    guess: list[float] = (hat @ direction).tolist()
    return guess


# Means


def test_a_prototype_is_the_mean_over_its_shots_and_views() -> None:
    """Classes with different numbers of shots, in any order."""
    owners = [2, 0, 2, 1, 2, 0]
    embeddings = vectors(6, 3)

    prototypes = mean_prototypes(embeddings, torch.tensor(owners), 3)

    for owner in range(3):
        own = [view for shot, of in zip(embeddings.tolist(), owners, strict=True) if of == owner for view in shot]
        expected = [sum(view[i] for view in own) / len(own) for i in range(DIM)]
        assert expected == pytest.approx(prototypes[owner].tolist(), abs=1e-6)


def test_a_single_shot_in_a_single_view_is_its_own_prototype() -> None:
    """The least there can be."""
    embeddings = vectors(2, 1)

    prototypes = mean_prototypes(embeddings, torch.tensor([1, 0]), 2)

    assert torch.equal(embeddings[:, 0].flip(0), prototypes)


def test_means_let_gradients_through() -> None:
    """Every view of a class with two shots in two views gets a quarter of the slope."""
    embeddings = vectors(2, 2).requires_grad_()

    (slope,) = torch.autograd.grad(mean_prototypes(embeddings, torch.tensor([0, 0]), 1).sum(), embeddings)

    assert torch.allclose(torch.full_like(slope, 0.25), slope)


# Support


@pytest.mark.parametrize("prior", ["span", "neighbours"])
def test_support_is_its_formula(prior: Prior) -> None:
    """p ← |p| · (n · p/|p| + m · guess) / (n + m), the guess from classes of twenty shots and more only."""
    bank = bank_of([WELL_KNOWN, 5, 300, WELL_KNOWN - 1, 25])
    prototypes, shots = 3 * vectors(3), [1, 5, 12]

    better = supported(prototypes, torch.tensor(shots), bank, prior_shots=2.5, prior=prior)

    references = bank.prototypes[[0, 2, 4]].tolist()
    for prototype, n, actual in zip(prototypes.tolist(), shots, better.tolist(), strict=True):
        guess = {"span": span_guess, "neighbours": neighbours_guess}[prior](prototype, references)
        length = math.hypot(*prototype)
        expected = [
            length * (n * own / length + 2.5 * other) / (n + 2.5) for own, other in zip(prototype, guess, strict=True)
        ]
        assert expected == pytest.approx(actual, abs=1e-5)


def test_with_five_shots_support_of_neighbours_is_teen() -> None:
    """(1 − 0.4)·p + 0.4·Σ softmax(16·cos(p, b))·b for vectors of unit length, as TEEN prints it."""
    bank = bank_of([100] * 4)
    prototypes = F.normalize(vectors(3), dim=1)

    better = supported(prototypes, torch.tensor([5, 5, 5]), bank, prior_shots=TEEN, prior="neighbours")

    for prototype, actual in zip(prototypes.tolist(), better.tolist(), strict=True):
        guess = neighbours_guess(prototype, bank.prototypes.tolist())
        expected = [0.6 * own + 0.4 * other for own, other in zip(prototype, guess, strict=True)]
        assert expected == pytest.approx(actual, abs=1e-5)


def test_what_lies_in_the_span_stays_and_what_lies_beyond_fades() -> None:
    bank = PrototypeBank.empty(DIM).with_classes([ClassId(7), ClassId(9)], 3 * torch.eye(DIM)[:2], [30, 30])
    prototypes = torch.tensor([[0.6, 0.8, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]])

    inside, beyond = supported(prototypes, torch.tensor([5, 5]), bank, prior_shots=5.0)

    assert torch.allclose(inside, prototypes[0] * (5 + 5 / (1 + DAMPING)) / 10, atol=1e-6)
    assert torch.allclose(beyond, prototypes[1] / 2, atol=1e-6)


def test_noise_of_few_shots_fades() -> None:
    """Classes differ in ten of forty dimensions, images in all of them: support brings means nearer to the truth."""
    generator = torch.Generator().manual_seed(1)
    truths = torch.zeros(80, 40)
    truths[:, :10] = torch.randn(80, 10, generator=generator)
    many, few = torch.arange(60), torch.arange(60, 80)
    bank = PrototypeBank.empty(40).with_classes([ClassId(int(row)) for row in many], truths[many], [100] * 60)
    means = truths[few] + 0.5 * torch.randn(20, 40, generator=generator)

    better = supported(means, torch.full((20,), 5), bank, prior_shots=5.0)

    assert (F.cosine_similarity(better, truths[few]) > F.cosine_similarity(means, truths[few])).all()


def test_with_very_many_classes_the_ones_that_resemble_span() -> None:
    """Otherwise all of space would be spanned, and nothing could be told from it."""
    generator = torch.Generator().manual_seed(2)
    count = MOST_SPANNING + 40
    everything = torch.randn(count, DIM, generator=generator)
    bank = PrototypeBank.empty(DIM).with_classes([ClassId(row) for row in range(count)], everything, [100] * count)
    prototypes = vectors(2)

    better = supported(prototypes, torch.tensor([5, 5]), bank, prior_shots=5.0)

    for own, actual in zip(prototypes, better, strict=True):
        nearest = F.cosine_similarity(own[None], everything).topk(MOST_SPANNING).indices.tolist()
        guess = span_guess(own.tolist(), everything[nearest].tolist())
        expected = (own + own.norm() * torch.tensor(guess)) / 2
        assert torch.allclose(expected, actual, atol=1e-4)


@pytest.mark.parametrize("shots", [[], [1], [WELL_KNOWN - 1] * 3])
def test_without_well_known_classes_nothing_changes(shots: list[int]) -> None:
    """An empty bank, or one of few shots only, has no support to give."""
    prototypes = vectors(3)

    better = supported(prototypes, torch.tensor([1, 5, 9]), bank_of(shots), prior_shots=TEEN)

    assert torch.equal(prototypes, better)


def test_a_prior_worth_nothing_changes_nothing() -> None:
    """The paper has no such support, and switching it off is exact."""
    prototypes = vectors(3)

    better = supported(prototypes, torch.tensor([1, 5, 9]), bank_of([100]), prior_shots=0.0)

    assert torch.equal(prototypes, better)


def test_the_pull_fades_as_a_class_gets_more_shots() -> None:
    """The same prototype moves less with every further image behind it."""
    prototypes, shots = vectors(1).repeat(5, 1), [1, 2, 5, 50, 5000]

    better = supported(prototypes, torch.tensor(shots), bank_of([100] * 3), prior_shots=TEEN)

    moves = (better - prototypes).norm(dim=1).tolist()
    assert all(later < 0.9 * earlier for earlier, later in pairwise(moves))
    assert moves[-1] < 0.01


def test_support_comes_from_the_class_that_resembles() -> None:
    """Of two well-known classes the prototype moves to the one it is like."""
    bank = PrototypeBank.empty(DIM).with_classes([ClassId(7), ClassId(9)], torch.eye(DIM)[:2], [30, 30])
    prototypes = torch.tensor([[0.8, 0.1, 0.6, 0.0, 0.0]])

    better = supported(prototypes, torch.tensor([5]), bank, prior_shots=TEEN, prior="neighbours")

    before, after = (
        F.cosine_similarity(prototypes, torch.eye(DIM)[:2]),
        F.cosine_similarity(better, torch.eye(DIM)[:2]),
    )
    assert after[0] > before[0] + 0.05
    assert after[1] < before[1]


def test_support_comes_from_the_newest_prototypes() -> None:
    """A well-known class that has moved lends support from where it stands now."""
    old = bank_of([100])
    new = old.with_copies(vectors(1, seed=8))
    prototypes, shots = vectors(2), torch.tensor([1, 1])

    better = supported(prototypes, shots, new, prior_shots=TEEN)

    fresh = PrototypeBank.empty(DIM).with_classes([ClassId(1)], vectors(1, seed=8), [100])
    assert torch.equal(supported(prototypes, shots, fresh, prior_shots=TEEN), better)
    assert not torch.equal(supported(prototypes, shots, old, prior_shots=TEEN), better)


def test_classes_set_aside_lend_no_support() -> None:
    """As if the bank never had them."""
    prototypes, shots, bank = vectors(2), torch.tensor([5, 5]), bank_of([100, 100, 100])

    better = supported(prototypes, shots, bank, prior_shots=TEEN, besides=[ClassId(50)])

    expected = supported(prototypes, shots, bank.without([ClassId(50)]), prior_shots=TEEN)
    assert torch.equal(expected, better)
