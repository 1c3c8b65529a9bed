"""Every loss against the paper's formula, written out in plain Python."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from core.losses import (
    LOSS_KINDS,
    LossKind,
    Margins,
    Quadruplets,
    consistency_loss,
    contrastive_loss,
    correlation_loss,
    embedding_loss,
    prototypical_cross_entropy,
    prototypical_quadruplet_loss,
    quadruplet_loss,
    session_loss,
    triplet_loss,
)

MARGINS = Margins(query=0.6, negatives=0.3)
TO_CLASSES = [[0.2, 0.9, 1.3, 1.1], [1.2, 0.7, 0.4, 1.4], [0.8, 1.0, 0.5, 0.9]]
OWN = [0, 2, 3]
TO_NEGATIVE = [0.9, 1.2, 0.5]
BETWEEN_NEGATIVES = [0.6, 1.1, 0.7]


def quadruplets(to_classes: Tensor | None = None) -> Quadruplets:
    """Three queries over four classes: some hinges are open and some shut, for every α used here."""
    return Quadruplets(
        torch.tensor(TO_CLASSES) if to_classes is None else to_classes,
        torch.tensor(OWN),
        torch.tensor(TO_NEGATIVE),
        torch.tensor(BETWEEN_NEGATIVES),
    )


def g_by_hand(query: int, k: int, margins: Margins) -> float:
    """Eq. 2 for one query and one class."""
    to_class = TO_CLASSES[query][k]
    first = max(0.0, to_class - TO_NEGATIVE[query] + margins.query)
    second = max(0.0, to_class - BETWEEN_NEGATIVES[query] + margins.negatives)
    return first + second


def surprise(scores: list[float], own: int) -> float:
    """−log of the softmax of the scores at `own`."""
    return -math.log(math.exp(scores[own]) / sum(math.exp(score) for score in scores))


def pq_by_hand(margins: Margins) -> float:
    """Eq. 3 and 4: the mean over queries of −log softmax_k(−g)."""
    return sum(surprise([-g_by_hand(q, k, margins) for k in range(4)], own) for q, own in enumerate(OWN)) / 3


def quadruplet_by_hand(margins: Margins) -> float:
    return sum(g_by_hand(q, own, margins) for q, own in enumerate(OWN)) / 3


def cosine_of_tanh(first: Tensor, second: Tensor) -> float:
    one = [math.tanh(number) for number in first.tolist()]
    other = [math.tanh(number) for number in second.tolist()]
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / (math.hypot(*one) * math.hypot(*other))


def random_prototypes(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


# The losses of a session


def test_g_is_both_hinges_of_equation_two() -> None:
    """g(q, k) adds the hinge on the negative and the hinge on the two negatives, for every class."""
    g = embedding_loss(quadruplets(), MARGINS)

    expected = [[g_by_hand(q, k, MARGINS) for k in range(4)] for q in range(3)]
    assert expected == [pytest.approx(row, abs=1e-6) for row in g.tolist()]


def test_g_is_never_negative_and_reaches_zero() -> None:
    """The hinge gives g the codomain [0, ∞)."""
    g = embedding_loss(quadruplets(), Margins(query=0.1, negatives=0.1))

    assert g.min() == 0
    assert g.max() > 0


def test_the_prototypical_quadruplet_loss_is_that_of_the_paper() -> None:
    """L_PQ is −log softmax_k(−g) at the query's own class, over all classes."""
    loss = prototypical_quadruplet_loss(quadruplets(), MARGINS)

    assert pq_by_hand(MARGINS) == pytest.approx(loss.item(), abs=1e-6)


def test_the_default_margins_are_those_of_the_paper() -> None:
    """α = (1.0, 0.5)."""
    margins = Margins()

    assert (margins.query, margins.negatives) == (1.0, 0.5)


@pytest.mark.parametrize("other", [Margins(0.9, 0.3), Margins(0.6, 0.6)])
def test_margins_change_the_prototypical_quadruplet_loss_and_its_gradient(other: Margins) -> None:
    """Neither α cancels in the softmax, which both would without the hinge."""
    distances = torch.tensor(TO_CLASSES, requires_grad=True)

    loss = prototypical_quadruplet_loss(quadruplets(distances), MARGINS)
    changed = prototypical_quadruplet_loss(quadruplets(distances), other)
    (slope,) = torch.autograd.grad(loss, distances)
    (changed_slope,) = torch.autograd.grad(changed, distances)

    assert abs(loss.item() - changed.item()) > 0.01
    assert (slope - changed_slope).abs().max() > 0.01


def test_descending_the_prototypical_quadruplet_loss_brings_the_query_to_its_class() -> None:
    """The slope pulls at the own class's distance and pushes at those of the others."""
    distances = torch.tensor(TO_CLASSES, requires_grad=True)

    (slope,) = torch.autograd.grad(prototypical_quadruplet_loss(quadruplets(distances), Margins()), distances)

    own = torch.zeros(3, 4, dtype=torch.bool)
    own[range(3), OWN] = True
    assert (slope[own] > 0).all()
    assert (slope[~own] < 0).all()


def test_the_contrastive_loss_is_its_formula() -> None:
    """d(own)² + [α1 − d(negative)]₊², averaged."""
    loss = contrastive_loss(quadruplets(), MARGINS)

    expected = sum(TO_CLASSES[q][own] ** 2 + max(0, 0.6 - TO_NEGATIVE[q]) ** 2 for q, own in enumerate(OWN)) / 3
    assert expected == pytest.approx(loss.item(), abs=1e-6)


def test_the_triplet_loss_is_its_formula() -> None:
    """[d(own) − d(negative) + α1]₊, averaged."""
    loss = triplet_loss(quadruplets(), MARGINS)

    expected = sum(max(0, TO_CLASSES[q][own] - TO_NEGATIVE[q] + 0.6) for q, own in enumerate(OWN)) / 3
    assert expected == pytest.approx(loss.item(), abs=1e-6)


def test_the_quadruplet_loss_is_g_at_the_own_class() -> None:
    """Both hinges at the query's own class, averaged, without a softmax."""
    loss = quadruplet_loss(quadruplets(), MARGINS)

    assert quadruplet_by_hand(MARGINS) == pytest.approx(loss.item(), abs=1e-6)


@pytest.mark.parametrize("sharpness", [1.0, 16.0])
def test_the_prototypical_cross_entropy_is_its_formula(sharpness: float) -> None:
    """−log softmax_k(−τ·d²) at the own class, averaged."""
    loss = prototypical_cross_entropy(quadruplets(), sharpness)

    expected = sum(surprise([-sharpness * d * d for d in TO_CLASSES[q]], own) for q, own in enumerate(OWN)) / 3
    assert expected == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_smoothing_gives_a_share_of_the_label_to_every_class(smoothing: float) -> None:
    """(1 − s) of it to the own class, and s divided among all; in the default loss too."""
    loss = prototypical_cross_entropy(quadruplets(), 4.0, smoothing)
    whole = session_loss("cross-entropy-quadruplet", quadruplets(), MARGINS, 4.0, smoothing)

    expected = 0.0
    for q, own in enumerate(OWN):
        scores = [-4.0 * d * d for d in TO_CLASSES[q]]
        everything = sum(surprise(scores, k) for k in range(len(scores))) / len(scores)
        expected += ((1 - smoothing) * surprise(scores, own) + smoothing * everything) / 3
    assert expected == pytest.approx(loss.item(), rel=1e-5)
    assert expected + 0.5 * quadruplet_by_hand(MARGINS) == pytest.approx(whole.item(), rel=1e-5)


def test_the_cross_entropy_quadruplet_is_the_sum_of_its_two() -> None:
    """The default loss adds half of the hinged quadruplet to the cross-entropy of −τ·d²."""
    loss = session_loss("cross-entropy-quadruplet", quadruplets(), MARGINS, sharpness=4.0)

    entropy = sum(surprise([-4.0 * d * d for d in TO_CLASSES[q]], own) for q, own in enumerate(OWN)) / 3
    assert entropy + 0.5 * quadruplet_by_hand(MARGINS) == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("contrastive", contrastive_loss),
        ("triplet", triplet_loss),
        ("quadruplet", quadruplet_loss),
        ("prototypical-quadruplet", prototypical_quadruplet_loss),
    ],
)
def test_a_session_descends_the_loss_it_names(
    kind: LossKind, function: Callable[[Quadruplets, Margins], Tensor]
) -> None:
    """Each name of the ablation stands for its own loss."""
    loss = session_loss(kind, quadruplets(), MARGINS)

    assert function(quadruplets(), MARGINS).item() == loss.item()


def test_no_two_losses_are_the_same() -> None:
    """As many values as names."""
    values = {session_loss(kind, quadruplets(), MARGINS).item() for kind in LOSS_KINDS}

    assert len(LOSS_KINDS) == len(values)


# The losses that move old prototypes


@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_correlation_loss_is_a_mean_over_pairs(count: int) -> None:
    """L_COR averages σ(cos(tanh c_i, tanh c_j)) over all i ≠ j."""
    prototypes = random_prototypes(count)

    loss = correlation_loss(prototypes)

    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    terms = [1 / (1 + math.exp(-cosine_of_tanh(prototypes[i], prototypes[j]))) for i, j in pairs]
    assert sum(terms) / len(terms) == pytest.approx(loss.item(), abs=1e-6)


@pytest.mark.parametrize("count", [0, 1])
def test_without_a_pair_there_is_no_correlation(count: int) -> None:
    """One class alone correlates with nothing, and nothing divides by zero."""
    loss = correlation_loss(random_prototypes(count))

    assert loss.item() == 0


def test_descending_the_correlation_loss_separates_prototypes() -> None:
    """Prototypes that crowd around one direction have a smaller mean cosine after a step."""
    crowd = (torch.ones(4, 6) + 0.5 * random_prototypes(4)).requires_grad_()
    pairs = [(i, j) for i in range(4) for j in range(i)]

    (slope,) = torch.autograd.grad(correlation_loss(crowd), crowd)
    moved = (crowd - slope).detach()

    before = sum(cosine_of_tanh(crowd[i], crowd[j]) for i, j in pairs)
    after = sum(cosine_of_tanh(moved[i], moved[j]) for i, j in pairs)
    assert after < before - 0.01


def test_the_consistency_loss_is_a_mean_over_classes() -> None:
    """L_CS averages 1 − cos(tanh c_i, tanh c0_i)."""
    prototypes, initial = random_prototypes(4), random_prototypes(4, seed=1)

    loss = consistency_loss(prototypes, initial)

    terms = [1 - cosine_of_tanh(now, then) for now, then in zip(prototypes, initial, strict=True)]
    assert sum(terms) / 4 == pytest.approx(loss.item(), abs=1e-6)


def test_prototypes_that_have_not_moved_are_consistent() -> None:
    """At c0 the loss is zero."""
    prototypes = random_prototypes(4)

    loss = consistency_loss(prototypes, prototypes.clone())

    assert loss.item() == pytest.approx(0, abs=1e-6)


def test_descending_the_consistency_loss_pulls_towards_the_initial_prototypes() -> None:
    """A step raises every class's cosine to its c0: with the paper's printed sign it would fall."""
    prototypes, initial = random_prototypes(4).requires_grad_(), random_prototypes(4, seed=1)

    (slope,) = torch.autograd.grad(consistency_loss(prototypes, initial), prototypes)
    moved = (prototypes - slope).detach()

    before = [cosine_of_tanh(now, then) for now, then in zip(prototypes, initial, strict=True)]
    after = [cosine_of_tanh(now, then) for now, then in zip(moved, initial, strict=True)]
    assert all(later > earlier for earlier, later in zip(before, after, strict=True))
