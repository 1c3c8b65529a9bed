"""Samples that look alike share a group."""

import torch

from learners.likeness import groups_of


def test_what_is_near_is_one_group() -> None:
    """The largest group is the first; what is like no other has none."""
    one, other, alone = torch.eye(3, 8)
    noise = 0.01 * torch.randn(5, 8, generator=torch.Generator().manual_seed(1)).abs()

    found = groups_of([other + noise[0], one + noise[1], one + noise[2], alone, one + noise[3], other + noise[4]])

    assert found == [2, 1, 1, None, 1, 2]


def test_nothing_has_no_groups() -> None:
    """Nor does something that is no number."""
    assert groups_of([]) == []
    assert groups_of([torch.full((4,), float("nan")), torch.full((4,), float("nan"))]) == [None, None]
