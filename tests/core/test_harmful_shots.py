"""Which shots do harm: those without which more of their siblings would be recognised."""

import torch

from core.harmful_shots import harmful_shots
from core.space import Space

SPACE = Space("euclidean")


def test_a_shot_of_something_else_does_harm() -> None:
    """Three shots near each other, and one on the far side of another class: it draws the class away from them."""
    shots = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [40.0, 0.0]])
    other = torch.tensor([[6.0, 0.0]])

    found = harmful_shots(SPACE, shots, SPACE.distances(shots, other)[:, 0])

    assert found == [False, False, False, True]


def test_no_shot_of_a_good_class_does_harm() -> None:
    """Whichever is left out, the others are recognised as before."""
    shots = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))

    assert harmful_shots(SPACE, shots, torch.full((8,), 100.0)) == [False] * 8


def test_two_shots_are_too_few_to_tell() -> None:
    """One would have to be the class, one to be measured, and one to be doubted."""
    assert harmful_shots(SPACE, torch.zeros(2, 3), torch.ones(2)) is None
