"""Maps of versions: two axes that stay where they were."""

import pytest
import torch
from torch import Tensor

from learners.version_map import anchors, found_axes
from store.lineage import Step


def points(count: int = 12) -> Tensor:
    """Prototypes that differ most along one direction, less along another, hardly along the rest."""
    generator = torch.Generator().manual_seed(3)
    spread = torch.tensor([5.0, 2.0, *([0.1] * 14)])
    turned, _ = torch.linalg.qr(torch.randn(16, 16, generator=generator))
    return (torch.randn(count, 16, generator=generator) * spread) @ turned


def test_the_axes_are_those_along_which_the_prototypes_differ_most() -> None:
    """In that order, at right angles; they show nearly everything."""
    axes = found_axes(range(12), points(), None)

    gram = axes.basis.T @ axes.basis
    assert torch.allclose(gram, torch.eye(2), atol=1e-4)
    assert axes.explained[0] > axes.explained[1]
    assert sum(axes.explained) > 0.98
    assert torch.allclose(axes.project(points()), torch.tensor(list(axes.places.values())), atol=1e-4)


@pytest.mark.parametrize("mirrored", [1.0, -1.0])
def test_in_another_space_the_classes_stay_where_they_were(mirrored: float) -> None:
    """Axes of a space that is turned, or seen in a mirror, are turned back."""
    before = found_axes(range(12), points(), None)
    turned, _ = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(4)))
    moved = mirrored * points() @ turned
    more = torch.cat([moved, moved[:2] * 0.5])

    after = found_axes([*range(12), 20, 21], more, before)

    apart = [torch.tensor(after.places[own]) - torch.tensor(before.places[own]) for own in range(12)]
    shift = torch.stack(apart).mean(0)  # of the origin, which the new classes have moved
    assert max(float((one - shift).norm()) for one in apart) < 0.5


def test_axes_are_found_anew_for_another_network_a_third_class_or_twice_the_classes() -> None:
    """Between them every version is drawn along the same ones; versions without content are passed over."""
    steps = [Step(number, 0, number, True) for number in range(9)]
    steps += [Step(9, 9, 9, True), Step(10, 9, 10, True), Step(11, 11, 10, False), Step(12, 9, 10, True)]

    assert anchors(steps) == [2, 3, 6, 9]
    assert anchors(steps[:6]) == [2, 3]
    assert anchors(steps[:2]) == []


def test_two_points_have_one_axis() -> None:
    """Nothing is made up for the other."""
    axes = found_axes([1, 2], torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), None)

    assert axes.explained == pytest.approx((1.0, 0.0), abs=1e-5)
    assert all(abs(y) < 1e-4 for _, y in axes.places.values())
