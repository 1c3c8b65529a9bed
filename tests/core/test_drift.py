"""Old prototypes follow the movement of the session's shots."""

import math

import pytest
import torch
from torch import Tensor

from core.drift import drift
from core.space import Metric, Space

DIM = 5


def vectors(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, DIM, generator=torch.Generator().manual_seed(seed))


def by_hand(
    prototype: list[float], before: list[list[float]], after: list[list[float]], bandwidth: float
) -> list[float]:
    """One prototype's shift: the mean movement, weighted by a Gaussian of the distance between unit vectors."""

    def unit(vector: list[float]) -> list[float]:
        return [number / math.hypot(*vector) for number in vector]

    weights = [math.exp(-0.5 * (math.dist(unit(prototype), unit(start)) / bandwidth) ** 2) for start in before]
    return [
        number
        + sum(w * (end[i] - start[i]) for w, start, end in zip(weights, before, after, strict=True)) / sum(weights)
        for i, number in enumerate(prototype)
    ]


@pytest.mark.parametrize("bandwidth", [0.3, 1.0])
def test_compensation_is_its_formula(bandwidth: float) -> None:
    """Every shot and view moves every prototype by its share."""
    prototypes, before, after = vectors(3), vectors(4, 2, seed=1), vectors(4, 2, seed=2)

    moved = prototypes + drift(prototypes, before, after, Space("cosine"), bandwidth)

    starts, ends = before.reshape(8, DIM).tolist(), after.reshape(8, DIM).tolist()
    for prototype, actual in zip(prototypes.tolist(), moved.tolist(), strict=True):
        assert by_hand(prototype, starts, ends, bandwidth) == pytest.approx(actual, abs=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "power-cosine", "whitened"])
def test_a_common_shift_of_all_shots_is_that_of_the_prototypes(metric: Metric) -> None:
    """Where everything moves by the same vector, so do the old classes, near or far."""
    prototypes, before, shift = 10 * vectors(6), vectors(3, 2, seed=1), vectors(1, seed=2)[0]

    shifts = drift(prototypes, before, before + shift, Space(metric), 1.0)

    assert torch.allclose(shift.expand(6, -1), shifts, atol=1e-5)


def test_nearer_shots_weigh_more() -> None:
    """Of two shots that move in different ways, a prototype follows the one it resembles."""
    prototypes = torch.eye(DIM)[:2]
    before = prototypes[:, None].clone()  # one shot on each prototype
    shift = torch.eye(DIM)[3:5][:, None]

    movement = drift(prototypes, before, before + shift, Space("cosine"), 0.5)

    assert movement[0, 3] > 0.9 > 0.1 > movement[0, 4] > 0
    assert movement[1, 4] > 0.9 > 0.1 > movement[1, 3] > 0


def test_a_wider_bandwidth_listens_to_shots_further_away() -> None:
    """The far shot's share grows with the bandwidth, up to one half."""
    prototypes = torch.eye(DIM)[:1]
    before = torch.eye(DIM)[:2][:, None]
    shift = torch.eye(DIM)[3:5][:, None]

    shares = [drift(prototypes, before, before + shift, Space("cosine"), width)[0, 4] for width in (0.3, 1, 1e3)]

    assert shares[0] < shares[1] < shares[2]
    assert shares[2].item() == pytest.approx(0.5, abs=1e-3)


def test_shots_that_did_not_move_move_nothing() -> None:
    """A tail that stayed is no reason to shift."""
    prototypes, before = vectors(3), vectors(4, 2, seed=1)

    shifts = drift(prototypes, before, before.clone(), Space("cosine"), 1.0)

    assert torch.equal(torch.zeros_like(prototypes), shifts)


def test_a_prototype_far_from_every_shot_follows_the_mean() -> None:
    """However narrow the bandwidth, weights sum to one and equally far shots count alike."""
    prototypes = torch.eye(DIM)[:1]
    before = -torch.eye(DIM)[:1].repeat(2, 1)[:, None]
    after = before + torch.tensor([[[0.0, 0.0, 0.0, 2.0, 0.0]], [[0.0, 0.0, 0.0, 0.0, 4.0]]])

    shifts = drift(prototypes, before, after, Space("cosine"), 1e-3)

    assert shifts[0].tolist() == pytest.approx([0, 0, 0, 1, 2], abs=1e-5)


def test_without_old_classes_there_is_nothing_to_shift() -> None:
    """The first session has no past."""
    shifts = drift(vectors(0), vectors(4, 2), vectors(4, 2, seed=1), Space("cosine"), 1.0)

    assert shifts.shape == (0, DIM)


def test_the_given_prototypes_are_left_alone() -> None:
    """They belong to a bank that others read."""
    prototypes = vectors(3)
    before = prototypes.clone()

    drift(prototypes, vectors(4, 2, seed=1), vectors(4, 2, seed=2), Space("cosine"), 1.0)

    assert torch.equal(before, prototypes)
