"""Episodes: who is asked, who supports, and which two negatives stand against."""

import pytest
import torch
from torch import Tensor

from core.episodes import MOST_SUPPORT, Episode, draw_episode, draw_negatives, draw_queries

VIEWS = 3
SHOTS = {0: 1, 1: 2, 2: 5, 3: 30}  # of each class
OWNERS = torch.tensor([2, 3, 0, 1, 2, 3, 1, 2, 2, 2, *[3] * 28])  # shots stand in no order
DRAWS = 60


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn_episodes(most_classes: int = 10) -> list[Episode]:
    generator = seeded()
    return [draw_episode(OWNERS, VIEWS, most_classes, generator) for _ in range(DRAWS)]


def support_of(episode: Episode, position: int) -> list[int]:
    """The support rows of one of the episode's classes."""
    rows = zip(episode.support.tolist(), episode.support_class.tolist(), strict=True)
    return [row for row, place in rows if place == position]


def shots_of(rows: list[int]) -> list[int]:
    return [row // VIEWS for row in rows]


def random_distances(queries: int, classes: int, seed: int = 0) -> Tensor:
    return torch.rand(queries, classes, generator=seeded(seed))


# Queries and support


def test_every_row_belongs_to_the_class_it_stands_for() -> None:
    """The query and the support of a class are shots of that class."""
    episodes = drawn_episodes()

    for episode in episodes:
        for position, owner in enumerate(episode.classes.tolist()):
            rows = [int(episode.query[position]), *support_of(episode, position)]
            assert {owner} == {int(OWNERS[shot]) for shot in shots_of(rows)}


def test_every_class_is_queried_once_when_there_is_room() -> None:
    """All classes of the session take part, in an order of their own."""
    episodes = drawn_episodes()

    for episode in episodes:
        assert sorted(episode.classes.tolist()) == [0, 1, 2, 3]
        assert len(episode.query) == 4
    assert len({tuple(episode.classes.tolist()) for episode in episodes}) > 1


def test_an_episode_has_at_most_so_many_classes_and_all_get_their_turn() -> None:
    """N_C of them, distinct, drawn anew each time."""
    episodes = drawn_episodes(most_classes=2)

    assert all(len(set(episode.classes.tolist())) == len(episode.query) == 2 for episode in episodes)
    assert {owner for episode in episodes for owner in episode.classes.tolist()} == {0, 1, 2, 3}


def test_the_support_is_all_other_shots_up_to_the_most() -> None:
    """N_S = k − 1: one shot supports itself, two leave one, thirty are cut."""
    episodes = drawn_episodes()

    for episode in episodes:
        sizes = {owner: len(support_of(episode, place)) for place, owner in enumerate(episode.classes.tolist())}
        assert sizes == {0: 1, 1: 1, 2: 4, 3: MOST_SUPPORT}
        assert len(episode.support) == sum(sizes.values())


def test_a_query_is_never_supported_by_its_own_shot() -> None:
    """Where a class has other shots, no view of the queried one helps to find it, and no shot counts twice."""
    episodes = drawn_episodes()

    for episode in episodes:
        for position, owner in enumerate(episode.classes.tolist()):
            shots = shots_of([int(episode.query[position]), *support_of(episode, position)])
            assert SHOTS[owner] == 1 or len(shots) == len(set(shots))


@pytest.mark.parametrize("views", [2, 3, 9])
def test_a_class_of_one_shot_is_queried_with_another_view_of_it(views: int) -> None:
    """The support never contains the query row itself, and every view gets to be asked."""
    owners, generator = torch.tensor([0, 1]), seeded()

    episodes = [draw_episode(owners, views, 10, generator) for _ in range(DRAWS)]

    for episode in episodes:
        assert episode.support_class.tolist() == [0, 1]
        assert (episode.query // views).equal(episode.support // views)
        assert (episode.query != episode.support).all()
    assert {int(row) for episode in episodes for row in episode.query} == set(range(2 * views))


def test_views_of_queries_and_support_vary() -> None:
    """A shot is not always seen in the same view."""
    episodes = drawn_episodes()

    assert {int(row) % VIEWS for episode in episodes for row in episode.query} == set(range(VIEWS))
    assert {int(row) % VIEWS for episode in episodes for row in episode.support} == set(range(VIEWS))


def test_every_shot_gets_its_turn_as_a_query() -> None:
    """Also those of a class with more shots than an episode takes."""
    owners, generator = torch.zeros(15, dtype=torch.long), seeded()

    queried = {int(draw_episode(owners, 1, 10, generator).query) for _ in range(200)}

    assert queried == set(range(15))


def test_episodes_are_determined_by_the_generator() -> None:
    """The same seed draws the same, another seed something else."""
    first, again, other = (draw_episode(OWNERS, VIEWS, 3, seeded(seed)) for seed in (5, 5, 6))

    for name in ("classes", "query", "support", "support_class"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(first.query, other.query)


# Negatives


@pytest.mark.parametrize(
    ("past", "classes"),
    [([False] * 3, 3), ([False] * 7, 7), ([True, False, False], 3), ([True] * 3 + [False] * 4, 7), ([True] * 6, 7)],
)
def test_two_negatives_are_never_the_own_class_nor_each_other(past: list[bool], classes: int) -> None:
    """For every current class, with and without a past, down to the three classes a quadruplet needs."""
    past = past + [False] * (classes - len(past))
    current = [row for row in range(classes) if not past[row]]
    own = torch.tensor(current * 50)

    negatives = draw_negatives(random_distances(len(own), classes), own, torch.tensor(past), seeded())

    assert negatives.shape == (len(own), 2)
    assert ((negatives >= 0) & (negatives < classes)).all()
    assert (negatives != own[:, None]).all()
    assert (negatives[:, 0] != negatives[:, 1]).all()


def test_the_first_negative_is_the_nearest_past_class() -> None:
    """Even where a class of this session is nearer still."""
    past = torch.tensor([True, True, True, False, False])
    distances = torch.tensor([[0.9, 0.5, 0.7, 0.0, 0.1], [0.4, 0.6, 0.8, 0.1, 0.0], [0.9, 0.8, 0.3, 0.0, 0.1]])

    negatives = draw_negatives(distances, torch.tensor([3, 4, 3]), past, seeded())

    assert negatives[:, 0].tolist() == [1, 0, 2]


def test_the_second_negative_can_be_any_other_class() -> None:
    """Past or current: all but the own and the first, each in its turn."""
    past = torch.tensor([True, True, False, False])
    own = torch.full((200,), 3)
    distances = torch.tensor([[0.5, 0.2, 0.9, 0.1]]).repeat(200, 1)

    negatives = draw_negatives(distances, own, past, seeded())

    assert set(negatives[:, 0].tolist()) == {1}
    assert set(negatives[:, 1].tolist()) == {0, 2}


def test_without_a_past_negatives_come_from_the_session() -> None:
    """Every other class of the session can be the first and the second."""
    own = torch.zeros(300, dtype=torch.long)

    negatives = draw_negatives(random_distances(300, 4), own, torch.zeros(4, dtype=torch.bool), seeded())

    assert set(negatives[:, 0].tolist()) == set(negatives[:, 1].tolist()) == {1, 2, 3}


def test_negatives_are_determined_by_the_generator() -> None:
    """The same seed draws the same, another seed something else."""
    distances, own = random_distances(50, 6), torch.arange(50) % 6
    past = torch.zeros(6, dtype=torch.bool)

    first, again, other = (draw_negatives(distances, own, past, seeded(seed)) for seed in (1, 1, 2))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_drawing_negatives_leaves_the_distances_as_they_were() -> None:
    """They go into the loss afterwards, with their gradients."""
    distances = random_distances(4, 5).requires_grad_()
    before = distances.detach().clone()

    negatives = draw_negatives(distances, torch.tensor([3, 4, 3, 4]), torch.arange(5) < 3, seeded())

    assert torch.equal(before, distances.detach())
    assert not negatives.requires_grad


# Queries where prototypes are learned


def test_every_class_is_as_likely_a_query_whatever_its_number_of_shots() -> None:
    """A class of one shot and one of thirty are asked equally often, within three standard errors."""
    owners = torch.tensor([0] * 1 + [1] * 4 + [2] * 30)

    shots, _ = draw_queries(owners, VIEWS, 9000, seeded())

    asked = owners[shots].bincount()
    assert all(abs(count - 3000) < 3 * (9000 * 2 / 9) ** 0.5 for count in asked.tolist())
    assert set(shots.tolist()) == set(range(35))


def test_queries_are_seen_in_every_view_and_there_are_as_many_as_asked_for() -> None:
    """More than there are shots too: they are drawn with replacement."""
    shots, views = draw_queries(torch.tensor([0, 1]), 3, 50, seeded())

    assert len(shots) == len(views) == 50
    assert set(views.tolist()) == {0, 1, 2}


def test_queries_are_determined_by_the_generator() -> None:
    """The same seed the same queries, another seed others."""
    owners = torch.arange(4).repeat_interleave(5)

    first, again, other = (torch.stack(draw_queries(owners, 3, 32, seeded(seed))) for seed in (0, 0, 1))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)
