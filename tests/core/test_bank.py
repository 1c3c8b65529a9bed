"""The bank: what it remembers, what it refuses, and that nothing is ever changed in place."""

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor

from core.bank import ClassId, PrototypeBank
from core.calibration import Statistics, smoothed_statistics_of, statistics_of
from core.errors import DuplicateClass, UnknownClass, WrongShape
from core.space import Space, SpaceChange, Whitening

DIM = 4
CAPACITY = 3
IDS = (ClassId(61), ClassId(7), ClassId(1000), ClassId(60))  # neither from zero, nor in order, nor without gaps
NAN = float("nan")


def vectors(count: int, seed: int = 0, dim: int = DIM) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def taught(ids: tuple[ClassId, ...] = IDS, copies: int = 2) -> PrototypeBank:
    """A bank of these classes with 5, 6, 7, … shots, each with so many copies."""
    bank = PrototypeBank.empty(DIM, CAPACITY).with_classes(ids, vectors(len(ids)), range(5, 5 + len(ids)))
    for seed in range(1, copies):
        bank = bank.with_copies(vectors(len(ids), seed))
    return bank


def tensors_of(bank: PrototypeBank) -> list[Tensor]:
    """Every tensor that the bank is made of."""
    return [
        bank.shots,
        bank.initial,
        bank.copies,
        bank.held,
        bank.statistics.mean,
        bank.statistics.factor,
    ]


def same(first: PrototypeBank, second: PrototypeBank) -> bool:
    """The same classes in the same order, with the same memory."""
    pairs = zip(tensors_of(first), tensors_of(second), strict=True)
    return first.class_ids == second.class_ids and all(
        one.shape == other.shape and one.dtype == other.dtype and torch.allclose(one, other, atol=1e-6)
        for one, other in pairs
    )


# What it holds


def test_an_empty_bank_knows_its_sizes_and_no_class() -> None:
    """A bank can be made before anything is taught."""
    bank = PrototypeBank.empty(DIM, CAPACITY)

    assert (len(bank), bank.class_ids, bank.dim, bank.capacity) == (0, (), DIM, CAPACITY)
    assert bank.prototypes.shape == (0, DIM)
    assert ClassId(0) not in bank


def test_a_bank_must_keep_a_copy() -> None:
    """Without room for one copy there is no prototype."""
    with pytest.raises(ValueError, match="at least one copy"):
        PrototypeBank.empty(DIM, 0)


def test_a_new_class_has_its_first_prototype_for_all_it_remembers() -> None:
    """c0, the only copy and both means are the prototype, and there is no spread."""
    prototypes = vectors(4)

    bank = PrototypeBank.empty(DIM, CAPACITY).with_classes(IDS, prototypes, [5, 6, 7, 8])

    assert bank.class_ids == IDS
    assert bank.shots.tolist() == [5, 6, 7, 8]
    assert bank.held.tolist() == [1, 1, 1, 1]
    for kept in (bank.prototypes, bank.initial, bank.copies[:, -1], bank.statistics.mean, bank.smoothed.mean):
        assert torch.equal(prototypes, kept)
    assert not bank.copies[:, :-1].any()
    assert not bank.statistics.factor.any()
    assert not bank.smoothed.factor.any()


def test_rows_are_found_by_id_in_the_order_asked() -> None:
    """A row has nothing to do with the number of the class."""
    bank = taught()

    rows = bank.rows([ClassId(60), ClassId(61), ClassId(7)])

    assert rows == [3, 0, 1]
    assert ClassId(1000) in bank
    assert ClassId(3) not in bank


def test_every_class_gets_its_own_copy_and_keeps_its_initial_prototype() -> None:
    """A copy goes to the newest place; c0 and shots stay."""
    bank = taught(copies=1)

    later = bank.with_copies(vectors(4, seed=1))

    assert torch.equal(vectors(4, seed=1), later.prototypes)
    assert torch.equal(vectors(4), later.copies[:, -2])
    assert torch.equal(vectors(4), later.initial)
    assert later.shots.tolist() == [5, 6, 7, 8]
    assert later.held.tolist() == [2, 2, 2, 2]


def test_beyond_the_capacity_the_oldest_copy_is_dropped() -> None:
    """Five copies into room for three leave the last three, in their order."""
    bank = taught(copies=5)

    expected = torch.stack([vectors(4, seed=2), vectors(4, seed=3), vectors(4, seed=4)], dim=1)
    assert torch.equal(expected, bank.copies)
    assert bank.held.tolist() == [CAPACITY] * 4


def test_a_bank_of_one_copy_forgets_all_but_the_newest() -> None:
    """The smallest capacity works, and then nothing ever spreads."""
    bank = PrototypeBank.empty(DIM, 1).with_classes(IDS, vectors(4), [1] * 4)

    later = bank.with_copies(vectors(4, seed=1))

    assert torch.equal(vectors(4, seed=1)[:, None], later.copies)
    assert later.held.tolist() == [1] * 4
    assert not later.statistics.factor.any()


def test_classes_taught_at_different_times_hold_different_numbers_of_copies() -> None:
    """A newcomer starts with one copy, and padding never counts for it."""
    bank = taught(IDS[:2], copies=2).with_classes(IDS[2:], vectors(2, seed=9), [1, 1])

    later = bank.with_copies(vectors(4, seed=10))

    assert later.held.tolist() == [3, 3, 2, 2]
    newcomer = torch.stack([vectors(2, seed=9)[0], vectors(4, seed=10)[2]])
    assert torch.allclose(newcomer.mean(0), later.statistics.mean[2])
    assert torch.allclose(newcomer.std(0, correction=0), later.statistics.factor[2].norm(dim=0), atol=1e-6)


def test_smoothed_statistics_follow_every_copy() -> None:
    """With two copies the mean now and the mean before, which was c0, are weighted by a Gaussian of their age."""
    bank = taught(copies=2)

    now, before, weight = (vectors(4) + vectors(4, seed=1)) / 2, vectors(4), math.exp(-0.5)
    spread = (vectors(4) - vectors(4, seed=1)).abs() / 2  # of the two copies; one alone had none
    assert torch.allclose((now + weight * before) / (1 + weight), bank.smoothed.mean, atol=1e-6)
    assert torch.allclose(spread / math.sqrt(1 + weight), bank.smoothed.factor.norm(dim=1), atol=1e-6)


def test_running_statistics_are_kept_as_given() -> None:
    """A session that kept its own statistics hands them over; the smoothed ones come from the copies."""
    bank = taught()
    running = Statistics(vectors(4, seed=5), torch.stack([vectors(4, seed=6)] * CAPACITY, dim=1))

    later = bank.with_copies(vectors(4, seed=4), running)

    assert torch.equal(running.mean, later.statistics.mean)
    assert torch.equal(running.factor, later.statistics.factor)
    assert torch.equal(bank.with_copies(vectors(4, seed=4)).smoothed.mean, later.smoothed.mean)


def test_a_class_left_out_is_as_if_never_taught() -> None:
    """Unlearning leaves the bank that the other classes alone would have made."""
    expected = PrototypeBank.empty(DIM, CAPACITY).with_classes(IDS[::2], vectors(4)[::2], [5, 7])
    expected = expected.with_copies(vectors(4, seed=1)[::2])

    left = taught().without([IDS[3], IDS[1]])

    assert same(expected, left)
    assert IDS[1] not in left


def test_a_class_left_out_can_be_taught_again() -> None:
    """Its id is free once it is gone."""
    bank = taught().without([IDS[0]])

    again = bank.with_classes([IDS[0]], vectors(1, seed=8), [2])

    assert again.class_ids == (*IDS[1:], IDS[0])
    assert torch.equal(vectors(1, seed=8), again.initial[-1:])


def test_only_keeps_the_classes_asked_for_in_their_order() -> None:
    """A selection is a bank of its own, rows and all."""
    bank = taught()

    chosen = bank.only([IDS[2], IDS[0]])

    assert chosen.class_ids == (IDS[2], IDS[0])
    for mine, whole in zip(tensors_of(chosen), tensors_of(bank), strict=True):
        assert torch.equal(whole[[2, 0]], mine)


@pytest.mark.parametrize("nothing", [lambda bank: bank.without(IDS), lambda bank: bank.only([])])
def test_taking_everything_away_leaves_an_empty_bank(nothing: Callable[[PrototypeBank], PrototypeBank]) -> None:
    """An emptied bank is one that was never taught, and can be taught."""
    emptied = nothing(taught())

    assert same(PrototypeBank.empty(DIM, CAPACITY), emptied)
    assert same(taught(copies=1), emptied.with_classes(IDS, vectors(4), [5, 6, 7, 8]))


def test_nothing_added_changes_nothing() -> None:
    """No new class is a valid number of new classes, and an empty bank takes a copy of nothing."""
    bank, empty = taught(), PrototypeBank.empty(DIM, CAPACITY)

    assert same(bank, bank.with_classes([], vectors(0), []))
    assert same(empty, empty.with_copies(vectors(0)))


def test_classes_taught_one_at_a_time_equal_classes_taught_at_once() -> None:
    """How a lesson is cut does not change what is remembered, now or later."""
    single = PrototypeBank.empty(DIM, CAPACITY)
    for row, class_id in enumerate(IDS):
        single = single.with_classes([class_id], vectors(4)[row : row + 1], [5 + row])

    for seed in range(1, 5):
        single = single.with_copies(vectors(4, seed))

    assert same(taught(copies=5), single)


def test_the_order_of_teaching_does_not_matter() -> None:
    """Classes taught backwards are remembered alike, but for the order of the rows."""
    backwards = PrototypeBank.empty(DIM, CAPACITY).with_classes(IDS[::-1], vectors(4).flip(0), [8, 7, 6, 5])

    backwards = backwards.with_copies(vectors(4, seed=1).flip(0))

    assert same(taught(copies=2), backwards.only(IDS))


# What it refuses


def test_a_class_is_taught_only_once() -> None:
    """An id that is there already is refused by name."""
    with pytest.raises(DuplicateClass, match="7"):
        taught().with_classes([ClassId(3), ClassId(7)], vectors(2), [1, 1])


def test_a_class_is_given_only_once() -> None:
    """The same id twice in one lesson is refused."""
    with pytest.raises(DuplicateClass, match="given twice"):
        taught().with_classes([ClassId(3), ClassId(3)], vectors(2), [1, 1])


@pytest.mark.parametrize(
    "ask",
    [
        lambda bank: bank.rows([ClassId(7), ClassId(8)]),
        lambda bank: bank.without([ClassId(8)]),
        lambda bank: bank.only([ClassId(60), ClassId(8)]),
        lambda bank: bank.without(IDS).rows([ClassId(8)]),
    ],
)
def test_a_class_that_is_not_there_is_named(ask: Callable[[PrototypeBank], object]) -> None:
    """Whatever is asked of a class that was never taught, the answer says which."""
    bank = taught()

    with pytest.raises(UnknownClass, match="class 8 "):
        ask(bank)


@pytest.mark.parametrize(
    "wrong",
    [vectors(1), vectors(3), vectors(2, dim=DIM + 1), vectors(2)[0], vectors(2)[None], vectors(0)],
)
def test_prototypes_of_a_wrong_shape_are_refused(wrong: Tensor) -> None:
    """One row for each class, of the backbone's size, or nothing."""
    bank = taught(IDS[:2])

    with pytest.raises(WrongShape, match="are needed"):
        bank.with_classes([ClassId(3), ClassId(4)], wrong, [1, 1])
    with pytest.raises(WrongShape, match="are needed"):
        bank.with_copies(wrong)


@pytest.mark.parametrize("number", [NAN, float("inf"), -float("inf")])
def test_a_prototype_that_is_not_finite_is_refused(number: float) -> None:
    """One bad number would win or lose every comparison."""
    bank, wrong = taught(IDS[:2]), vectors(2)
    wrong[1, 2] = number

    with pytest.raises(WrongShape, match="not finite"):
        bank.with_classes([ClassId(3), ClassId(4)], wrong, [1, 1])
    with pytest.raises(WrongShape, match="not finite"):
        bank.with_copies(wrong)


@pytest.mark.parametrize("shots", [[], [1], [1, 1, 1], [1, 0], [-1, 1]])
def test_every_new_class_needs_a_count_of_shots(shots: list[int]) -> None:
    """As many counts as classes, and an image at least behind each."""
    with pytest.raises(WrongShape, match="shot counts"):
        taught().with_classes([ClassId(3), ClassId(4)], vectors(2), shots)


# Immutability


@pytest.mark.parametrize(
    "learn",
    [
        lambda bank: bank.with_classes([ClassId(3)], vectors(1, seed=9), [1]),
        lambda bank: bank.with_classes([], vectors(0), []),
        lambda bank: bank.without([IDS[1]]),
        lambda bank: bank.only([IDS[3], IDS[0]]),
        lambda bank: bank.with_copies(vectors(4, seed=9)),
    ],
)
def test_learning_returns_a_new_bank_and_leaves_the_old(learn: Callable[[PrototypeBank], PrototypeBank]) -> None:
    """Not even writing over every copy that the new bank holds reaches the old one."""
    bank = taught(copies=CAPACITY)
    ids, before = bank.class_ids, [tensor.clone() for tensor in tensors_of(bank)]

    later = learn(bank)
    later.copies.fill_(99)

    assert bank.class_ids == ids
    assert all(torch.equal(then, now) for then, now in zip(before, tensors_of(bank), strict=True))


def test_taking_every_class_is_the_bank_itself() -> None:
    """A large bank is not copied for nothing."""
    bank = taught(copies=CAPACITY)

    assert bank.without([]) is bank
    assert bank.only(IDS) is bank


def test_a_bank_does_not_hold_on_to_the_tensors_it_was_given() -> None:
    """What the caller does with its prototypes afterwards is the caller's."""
    first, second = vectors(4), vectors(4, seed=1)
    bank = PrototypeBank.empty(DIM, CAPACITY).with_classes(IDS, first, [5, 6, 7, 8]).with_copies(second)

    first.fill_(99)
    second.fill_(99)

    assert same(taught(copies=2), bank)


def test_a_bank_cannot_be_given_another_tensor() -> None:
    """Its fields are frozen."""
    bank = taught()

    with pytest.raises(FrozenInstanceError):
        bank.copies = vectors(4)[:, None]  # type: ignore[misc]


# Any sequence of lessons, against a model made of lists


@dataclass
class Known:
    """What the model remembers of one class."""

    initial: list[float]
    copies: list[list[float]]
    shots: int


numbers = st.floats(-4, 4, width=32)
points = st.lists(numbers, min_size=DIM, max_size=DIM)
ids = st.integers(-3, 12).map(lambda number: ClassId(number * 37))
FUZZ = settings(max_examples=40, stateful_step_count=12, deadline=None, derandomize=True, database=None)


class Lessons(RuleBasedStateMachine):
    """Teach, copy, unlearn, select and re-teach in any order: the bank always equals a dict of lists."""

    bank: PrototypeBank
    model: dict[ClassId, Known]
    past: list[tuple[PrototypeBank, list[Tensor]]]

    @initialize(capacity=st.integers(1, 4))
    def start(self, capacity: int) -> None:
        self.capacity = capacity
        self.bank = PrototypeBank.empty(DIM, capacity)
        self.model = {}
        self.past = []

    def become(self, bank: PrototypeBank) -> None:
        self.past.append((self.bank, [tensor.clone() for tensor in tensors_of(self.bank)]))
        self.bank = bank

    @rule(lesson=st.dictionaries(ids, st.tuples(points, st.integers(1, 30)), max_size=4))
    def teach(self, lesson: dict[ClassId, tuple[list[float], int]]) -> None:
        prototypes = torch.tensor([point for point, _ in lesson.values()]).reshape(len(lesson), DIM)
        shots = [count for _, count in lesson.values()]
        if lesson.keys() & self.model.keys():
            with pytest.raises(DuplicateClass):
                self.bank.with_classes(tuple(lesson), prototypes, shots)
            return
        self.become(self.bank.with_classes(tuple(lesson), prototypes, shots))
        self.model |= {class_id: Known(point, [point], count) for class_id, (point, count) in lesson.items()}

    @rule(data=st.data())
    def copy(self, data: st.DataObject) -> None:
        newest = [data.draw(points) for _ in self.model]
        self.become(self.bank.with_copies(torch.tensor(newest).reshape(len(newest), DIM)))
        for known, point in zip(self.model.values(), newest, strict=True):
            known.copies = [*known.copies, point][-self.capacity :]

    @rule(data=st.data())
    @precondition(lambda self: self.model)
    def unlearn(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.sampled_from(list(self.model)), max_size=2))
        self.become(self.bank.without(gone))
        self.model = {class_id: known for class_id, known in self.model.items() if class_id not in gone}

    @rule(stranger=ids)
    def ask_for_a_stranger(self, stranger: ClassId) -> None:
        assert (stranger in self.bank) == (stranger in self.model)
        if stranger not in self.model:
            with pytest.raises(UnknownClass):
                self.bank.without([*self.model, stranger])

    @rule(data=st.data())
    @precondition(lambda self: self.model)
    def select(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(list(self.model)), unique=True, min_size=1))
        self.become(self.bank.only(chosen))
        self.model = {class_id: self.model[class_id] for class_id in chosen}

    @rule(data=st.data(), point=points, count=st.integers(1, 30))
    @precondition(lambda self: self.model)
    def show_more(self, data: st.DataObject, point: list[float], count: int) -> None:
        class_id = data.draw(st.sampled_from(list(self.model)))
        self.become(self.bank.without([class_id]).with_classes([class_id], torch.tensor([point]), [count]))
        del self.model[class_id]
        self.model[class_id] = Known(point, [point], count)

    @invariant()
    def equals_the_model(self) -> None:
        assert self.bank.class_ids == tuple(self.model)
        assert self.bank.capacity == self.capacity
        for row, known in enumerate(self.model.values()):
            held = self.bank.copies[row, self.capacity - len(known.copies) :]
            assert self.bank.rows([self.bank.class_ids[row]]) == [row]
            assert held.tolist() == known.copies
            assert self.bank.prototypes[row].tolist() == known.copies[-1]
            assert self.bank.initial[row].tolist() == known.initial
            assert int(self.bank.shots[row]) == known.shots
            assert int(self.bank.held[row]) == len(known.copies) <= self.capacity

    @invariant()
    def has_the_statistics_of_its_copies(self) -> None:
        for row, known in enumerate(self.model.values()):
            factor = self.bank.statistics.factor[row].double().numpy()
            copies = np.array(known.copies, dtype=np.float64)
            assert np.allclose(copies.mean(0), self.bank.statistics.mean[row], atol=1e-5)
            assert np.allclose(np.cov(copies.T, bias=True), factor.T @ factor, atol=1e-4)

    @invariant()
    def never_changed_a_bank_of_the_past(self) -> None:
        for bank, before in self.past:
            assert all(torch.equal(then, now) for then, now in zip(before, tensors_of(bank), strict=True))


TestLessons = Lessons.TestCase
TestLessons.settings = FUZZ


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(order=st.permutations(range(4)), cuts=st.sets(st.integers(1, 3)))
def test_any_cut_and_order_of_a_lesson_gives_the_same_bank(order: list[int], cuts: set[int]) -> None:
    """Classes in any order and in any batches are remembered alike."""
    bounds = [0, *sorted(cuts), 4]
    batches = [order[start:end] for start, end in pairwise(bounds)]

    bank = PrototypeBank.empty(DIM, CAPACITY)
    for batch in batches:
        bank = bank.with_classes([IDS[row] for row in batch], vectors(4)[batch], [5 + row for row in batch])
    bank = bank.with_copies(vectors(4, seed=1)[order])

    assert same(taught(copies=2), bank.only(IDS))


def test_bytes_per_class_are_what_the_tensors_take() -> None:
    """Counted on a real bank, everything that grows with its classes but two small counters."""
    bank = PrototypeBank.empty(16, 3).with_classes([ClassId(1), ClassId(2)], torch.ones(2, 16), [5, 5])
    tensors = (
        bank.initial,
        bank.copies,
        bank.statistics.mean,
        bank.statistics.factor,
    )

    assert 2 * bank.bytes_per_class == sum(tensor.numel() * tensor.element_size() for tensor in tensors)


# In another space


def some_space(seed: int) -> Space:
    projection = torch.eye(DIM) + 0.3 * vectors(DIM, seed=seed)
    return Space("whitened", Whitening(vectors(1, seed=seed + 1)[0], projection))


def uneven() -> PrototypeBank:
    """Classes with one, two and more copies than the bank keeps."""
    bank = PrototypeBank.empty(DIM, capacity=3)
    for number in range(4):
        bank = bank.with_classes([ClassId(10 + number)], vectors(1, seed=number), [number + 1])
        bank = bank if number == 3 else bank.with_copies(vectors(number + 1, seed=20 + number))
    return bank


@pytest.mark.parametrize(
    "change",
    [
        SpaceChange(Space("whitened"), some_space(40)),
        SpaceChange(some_space(40), Space("whitened")),
        SpaceChange(some_space(40), some_space(50)),
    ],
    ids=["into a whitened space", "out of it", "from one to another"],
)
def test_a_bank_in_another_space_is_consistent(change: SpaceChange) -> None:
    """Copies move and padding stays zero, so that statistics of the moved copies are the moved statistics."""
    bank = uneven()

    moved = bank.moved(change)

    assert moved.held.tolist() == [3, 3, 2, 1]
    for row, held in enumerate(moved.held.tolist()):
        assert (moved.copies[row, : 3 - held] == 0).all()
        assert torch.allclose(change.points(bank.copies[row, 3 - held :]), moved.copies[row, 3 - held :], atol=1e-5)
    assert torch.allclose(change.points(bank.initial), moved.initial, atol=1e-5)
    plain, smoothed = statistics_of(moved.copies, moved.held), smoothed_statistics_of(moved.copies, moved.held)
    for expected, actual in ((plain, moved.statistics), (smoothed, moved.smoothed)):
        assert torch.allclose(expected.mean, actual.mean, atol=1e-4)
        one, other = (f.factor.transpose(1, 2) @ f.factor for f in (expected, actual))
        assert torch.allclose(one, other, atol=1e-4 * max(1.0, float(one.abs().max())))
    assert (moved.class_ids, moved.shots.tolist()) == (bank.class_ids, bank.shots.tolist())


def test_moving_leaves_the_bank_as_it_was() -> None:
    """Into another space; into the same one it is the bank itself."""
    bank, before = uneven(), [tensor.clone() for tensor in tensors_of(uneven())]

    bank.moved(SpaceChange(Space("whitened"), some_space(40)))
    stayed = bank.moved(SpaceChange(Space("cosine"), Space("cosine")))

    assert all(torch.equal(one, other) for one, other in zip(before, tensors_of(bank), strict=True))
    assert all(torch.equal(one, other) for one, other in zip(before, tensors_of(stayed), strict=True))


def test_the_newest_copies_alone_answer_the_same() -> None:
    """Prototypes, shots and ids stay; the history goes."""
    bank = uneven()

    light = bank.newest()

    assert torch.equal(bank.prototypes, light.prototypes)
    assert torch.equal(bank.initial, light.initial)
    assert (light.class_ids, light.shots.tolist()) == (bank.class_ids, bank.shots.tolist())
    assert (light.capacity, light.held.tolist()) == (1, [1, 1, 1, 1])
    assert (light.statistics.factor == 0).all()
    assert torch.equal(light.statistics.mean, light.prototypes)
    assert (len(bank.without(bank.class_ids).newest()), bank.capacity) == (0, 3)
