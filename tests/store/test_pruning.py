"""Pruning drops what no kept version reads, and nothing else: checked against a history kept in plain Python."""

import random
from dataclasses import dataclass, field

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store import bank_rows, catalogue, classes, pruning, versions
from store.bank_rows import COPIES, KnownClass, PrototypeRow, StatisticsRow
from store.models import Model, Prototype, Statistics, Version, Weights
from tests.store.conftest import numbers_of_lineage

STEPS = 45


@dataclass
class History:
    """The same history twice: in the database, and as what each version wrote."""

    db: Session
    model: Model
    random: random.Random
    parents: dict[int, int | None] = field(default_factory=lambda: {0: None})
    written: dict[int, list[PrototypeRow]] = field(default_factory=lambda: {0: []})
    told: dict[int, list[StatisticsRow]] = field(default_factory=lambda: {0: []})

    def expected(self, number: int, copies: int) -> list[KnownClass]:
        """The bank by its definition: walk from the version to its beginning."""
        line = []
        at: int | None = number
        while at is not None:
            line.append(at)
            at = self.parents[at]
        rows: dict[int, list[tuple[int, PrototypeRow]]] = {}
        statistics: dict[int, tuple[int, StatisticsRow]] = {}
        for version in line:
            for row in self.written[version]:
                rows.setdefault(row.class_id, []).append((version, row))
            for told in self.told[version]:
                statistics.setdefault(told.class_id, (version, told))
        bank = []
        for class_id, past in sorted(rows.items()):
            if past[0][1].vector is None:
                continue
            life = past[: next(place for place, (_, row) in enumerate(past) if row.restart) + 1]
            vectors = [row.vector or b"" for _, row in reversed(life)]
            version, told = statistics.get(class_id, (-1, None))
            newest = past[0][1]
            bank.append(
                KnownClass(
                    class_id,
                    newest.shots,
                    vectors[0] if copies > 1 else vectors[-1],
                    tuple(vectors[-copies:]),
                    newest.held_out,
                    *((told.mean, told.factor) if told and copies > 1 and version >= life[-1][0] else (None, None)),
                )
            )
        return bank

    def living(self) -> list[int]:
        return [row.class_id for row in self.expected(self.model.head, 1)]

    def kept(self) -> list[int]:
        own = select(Version.number).where(Version.model_id == self.model.id, Version.kept).order_by(Version.number)
        return list(self.db.scalars(own))

    def read(self, number: int, copies: int = COPIES, *, statistics: bool = False) -> list[KnownClass]:
        found = bank_rows.read_bank(self.db, self.model.id, number, copies=copies)
        return found if statistics else without_statistics(found)

    # What can happen

    def teach(self) -> None:
        row = classes.add(self.db, self.model, f"class {self.model.last_class}", shots=5, since=self.model.last_version)
        self._write("provisional", [self._row(row.id, restart=True)])

    def teach_again(self) -> None:
        if living := self.living():
            self._write("provisional", [self._row(self.random.choice(living), restart=True)])

    def refine(self) -> None:
        living = self.living()
        moved = [class_id for class_id in living if self.random.random() < 0.7]
        statistics = [StatisticsRow(class_id, self._bytes(), self._bytes()) for class_id in living]
        self._write("incremental", [self._row(each) for each in moved], statistics, weights=self._bytes())

    def delete(self) -> None:
        if living := self.living():
            self._write("delete", [PrototypeRow(self.random.choice(living), None, 0, restart=True)])

    def reject(self) -> None:
        self._write("incremental", [], verdict="rejected", serve=False)

    def roll_back(self) -> None:
        versions.activate(self.db, self.model, self.random.choice(self.kept()), living=range(1, 10_000))

    def _write(
        self,
        kind: str,
        rows: list[PrototypeRow],
        statistics: list[StatisticsRow] | None = None,
        **more: object,
    ) -> None:
        parent = versions.get(self.db, self.model.id, self.model.head)
        number = versions.add(
            self.db,
            self.model,
            versions.NewVersion(
                kind,
                parent=parent,
                classes=0,
                temperature=1.0,
                threshold=None,
                prototypes=rows,
                statistics=statistics or [],
                **more,  # type: ignore[arg-type]
            ),
        ).number
        self.parents[number], self.written[number], self.told[number] = parent.number, rows, statistics or []

    def _row(self, class_id: int, *, restart: bool = False) -> PrototypeRow:
        return PrototypeRow(class_id, self._bytes(), self.random.randrange(1, 9), restart, self._bytes())

    def _bytes(self) -> bytes:
        return self.random.randbytes(6)


def without_statistics(bank: list[KnownClass]) -> list[KnownClass]:
    return [KnownClass(row.class_id, row.shots, row.initial, row.copies, row.held_out) for row in bank]


def rows(db: Session, table: type[Prototype | Statistics | Weights]) -> int:
    return db.execute(select(func.count()).select_from(table)).scalar_one()


@pytest.fixture
def history(db: Session, model: Model) -> History:
    return History(db, model, random.Random(0))


@pytest.mark.parametrize("seed", range(4))
def test_every_kept_version_reads_the_same_bank_after_pruning(history: History, seed: int) -> None:
    """In any history of teaching, refining, deleting, rejecting, rolling back and pruning."""
    history.random.seed(seed)
    happenings = [history.teach, history.teach_again, history.refine, history.delete, history.reject, history.roll_back]
    for step in range(STEPS):
        history.random.choices(happenings, weights=[4, 2, 5, 1, 1, 2])[0]()
        if step % 9 == 8:
            head = history.read(history.model.head, statistics=True)
            dropped = pruning.prune(history.db, history.model, keep=3)
            assert not set(dropped) & set(history.kept())
            assert history.read(history.model.head, statistics=True) == head

    for copies in (1, 2, COPIES):
        for number in history.kept():
            expected = without_statistics(history.expected(number, copies))
            assert history.read(number, copies) == expected, f"version {number} with {copies} copies"
    assert len(history.kept()) < len(history.parents)


@pytest.mark.parametrize("seed", range(100, 102))
def test_without_pruning_every_version_reads_what_its_line_wrote(history: History, seed: int) -> None:
    """Statistics too."""
    history.random.seed(seed)
    happenings = [history.teach, history.teach_again, history.refine, history.delete, history.reject, history.roll_back]
    for _ in range(STEPS):
        history.random.choices(happenings, weights=[4, 2, 5, 1, 1, 3])[0]()

    for copies in (1, 3, COPIES):
        for number in history.kept():
            assert history.read(number, copies, statistics=True) == history.expected(number, copies)


def test_the_newest_refined_versions_are_kept_and_what_stands_on_them(history: History) -> None:
    """An older one goes together with what was taught on top of it."""
    history.teach()  # 1, on the weights of version 0
    for _ in range(3):
        history.refine()  # 2, 4, 6
        history.teach()  # 3, 5, 7

    assert pruning.prune(history.db, history.model, keep=2) == [2, 3]
    assert history.kept() == [0, 1, 4, 5, 6, 7]
    assert [versions.weights(history.db, history.model.id, number) is not None for number in (2, 4, 6)] == [
        False,
        True,
        True,
    ]


def test_what_the_head_stands_on_is_kept_whatever_its_age(history: History) -> None:
    """Also when it is older than all that would be kept."""
    history.teach()
    for _ in range(4):
        history.refine()  # 2 to 5
    versions.activate(history.db, history.model, 2, living=[1])
    history.teach()  # 6 on 2

    assert pruning.prune(history.db, history.model, keep=1) == [3, 4]
    assert history.kept() == [0, 1, 2, 5, 6]
    assert history.read(6) == without_statistics(history.expected(6, COPIES))
    assert history.read(5) == without_statistics(history.expected(5, COPIES))


def test_a_rejected_version_takes_no_ones_place(history: History) -> None:
    """It is never served, so it does not count among those that can be."""
    history.refine()  # 1
    history.refine()  # 2
    for _ in range(5):
        history.reject()

    assert pruning.prune(history.db, history.model, keep=2) == []
    assert history.kept() == [0, 1, 2]


def test_a_base_version_is_kept_for_good(history: History) -> None:
    """Others measure their weights from it."""
    history._write("base", [], weights=b"base")
    for _ in range(3):
        history.refine()
    pruning.prune(history.db, history.model, keep=1)

    assert history.kept() == [0, 1, 4]
    assert versions.weights(history.db, history.model.id, 1) == b"base"


def test_pruned_versions_stay_in_the_history(history: History) -> None:
    """What they were is known; what they held is not."""
    for _ in range(3):
        history.refine()
    pruning.prune(history.db, history.model, keep=1)

    assert [version.number for version in versions.page(history.db, history.model.id, before=None, limit=9)] == [
        3,
        2,
        1,
        0,
    ]
    assert numbers_of_lineage(history.db, history.model.id, 3) == [3, 2, 1, 0]


def test_pruning_frees_what_nothing_reads(history: History) -> None:
    """Of a long line of sessions on one class there remain the copies that the newest reads, and the first."""
    history.teach()
    class_id = history.living()[0]
    versions.activate(history.db, history.model, 1, living=[class_id])
    for _ in range(12):
        history._write("incremental", [history._row(class_id)], [StatisticsRow(class_id, b"", b"")], weights=b"weights")
    before = rows(history.db, Prototype)
    pruning.prune(history.db, history.model, keep=1)

    assert before == 13
    assert rows(history.db, Prototype) == COPIES + 1  # c₀ is version 1's own, which stands on the base and is kept
    assert rows(history.db, Weights) == 1
    assert rows(history.db, Statistics) == 2


def test_pruning_again_changes_nothing(history: History) -> None:
    """Nothing is left to drop."""
    for _ in range(3):
        history.teach()
        history.refine()
    pruning.prune(history.db, history.model, keep=1)
    left = rows(history.db, Prototype)

    assert pruning.prune(history.db, history.model, keep=1) == []
    assert rows(history.db, Prototype) == left


def test_pruning_one_model_leaves_the_others(history: History) -> None:
    """Each has its own count."""
    other = History(history.db, catalogue.create(history.db, "cars", "resnet18", 1.0), random.Random(1))
    for _ in range(3):
        for each in (history, other):
            each.teach()
            each.refine()
    pruning.prune(history.db, history.model, keep=1)

    assert other.kept() == list(other.parents)
    assert all(other.read(number, statistics=True) == other.expected(number, COPIES) for number in other.kept())
