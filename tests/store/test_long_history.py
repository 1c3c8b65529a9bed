"""A history that forks thousands of times: each version answers what its own line wrote, at a short one's cost."""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import event, insert
from sqlalchemy.orm import Session

from store import bank_rows, catalogue, classes, lineage, pruning, versions
from store.bank_rows import COPIES, KnownClass, PrototypeRow, StatisticsRow
from store.database import now
from store.models import Model, Prototype, Statistics, Version
from tests.store.conftest import numbers_of_lineage

CLASSES = 12
FEW, MANY = 16, 1_600  # forks
SIZE = 40  # versions of a tree that chance grew


@dataclass
class Tree:
    """A history in plain Python, by its definition: what each version wrote, and on which version it stands."""

    parents: dict[int, int] = field(default_factory=dict)
    written: dict[int, list[PrototypeRow]] = field(default_factory=dict)
    statistics: dict[int, list[StatisticsRow]] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)

    def add(
        self, parent: int, rows: list[PrototypeRow], statistics: list[StatisticsRow] | None = None, reject: bool = False
    ) -> int:
        number = len(self.parents) + 1
        self.parents[number], self.written[number], self.statistics[number] = parent, rows, statistics or []
        if reject:
            self.rejected.add(number)
        return number

    def line(self, number: int) -> list[int]:
        found = [number]
        while found[-1] != 0:
            found.append(self.parents[found[-1]])
        return found

    def rows(self, number: int) -> dict[int, list[tuple[int, PrototypeRow]]]:
        """What the line wrote of each class, newest first."""
        found: dict[int, list[tuple[int, PrototypeRow]]] = {}
        for version in self.line(number):
            for row in self.written.get(version, []):
                found.setdefault(row.class_id, []).append((version, row))
        return found

    def remembered(self, number: int, copies: int) -> list[KnownClass]:
        line = self.line(number)
        bank = []
        for class_id, past in sorted(self.rows(number).items()):
            newest = past[0][1]
            if newest.vector is None:
                continue
            beginning = next(place for place, (_, row) in enumerate(past) if row.restart)
            vectors = [row.vector or b"" for _, row in reversed(past[: beginning + 1])]
            mean = factor = None
            for version in line[: line.index(past[beginning][0]) + 1] if copies > 1 else []:
                for told in self.statistics.get(version, []):
                    if told.class_id == class_id and mean is None:
                        mean, factor = told.mean, told.factor
            initial = vectors[0] if copies > 1 else vectors[-1]
            own = tuple(vectors[-copies:])
            bank.append(KnownClass(class_id, newest.shots, initial, own, newest.held_out, mean, factor))
        return bank

    def changes(self, since: int, number: int) -> dict[int, PrototypeRow] | None:
        if since not in self.line(number):
            return None
        return {c: past[0][1] for c, past in self.rows(number).items() if past[0][0] > since}


def stored(db: Session, name: str, tree: Tree) -> Model:
    """The same history in the database, written row by row: teaching so often would take minutes."""
    model = catalogue.create(db, name, "resnet18", 1.0)
    for number in range(CLASSES):
        classes.add(db, model, f"class {number + 1}", shots=5, since=catalogue.UNTAUGHT)
    same: dict[str, Any] = {"model_id": model.id, "base": 0, "weights": 0, "classes": CLASSES, "temperature": 1.0}
    same |= {"threshold": None, "details": {}, "created_at": now(db)}
    rows = []
    for number, parent in tree.parents.items():
        rejected = number in tree.rejected
        own = {"kind": "incremental" if rejected else "provisional", "verdict": "rejected" if rejected else None}
        rows.append({**same, **own, "number": number, "parent": parent, "kept": not rejected})
    db.execute(insert(Version), rows)
    for table, written in ((Prototype, tree.written), (Statistics, tree.statistics)):
        values = [
            {"model_id": model.id, "version": number, **row.__dict__}
            for number, all_of_it in written.items()
            for row in all_of_it
        ]
        if values:
            db.execute(insert(table), values)
    model.last_version = model.head = max(tree.parents)  # type: ignore[assignment]
    db.flush()
    return model


def forked(forks: int) -> Tree:
    """Teach, teach, activate the older of both, teach, teach …: half of the versions are left behind."""
    tree, on = Tree(), 0
    for turn in range(forks):
        taught = tree.add(on, [_row(turn % CLASSES + 1, f"taught {turn}", restart=turn % 7 == 0 or turn < CLASSES)])
        tree.add(taught, [_row((turn + 1) % CLASSES + 1, f"left behind {turn}", restart=True)])
        on = taught
    tree.add(on, [_row(1, "newest", restart=False)])
    return tree


def _row(class_id: int, text: str, *, restart: bool) -> PrototypeRow:
    return PrototypeRow(class_id, text.encode(), len(text), restart, text.encode()[::-1])


def grown(chance: random.Random, size: int) -> Tree:
    """Any tree at all: long lines, bushes, rejected versions, classes that are deleted and taught again."""
    tree = Tree()
    for number in range(1, size + 1):
        parent = chance.choice([number - 1, number - 1, max(0, number - 2), chance.randrange(number)])
        while parent in tree.rejected:
            parent = tree.parents[parent]
        if chance.random() < 0.15:
            tree.add(parent, [], reject=True)
            continue
        known = tree.rows(parent)
        rows, told = [], []
        for class_id in chance.sample(range(1, CLASSES + 1), chance.randrange(4)):
            living = class_id in known and known[class_id][0][1].vector is not None
            if living and chance.random() < 0.2:
                rows.append(PrototypeRow(class_id, None, 0, restart=True))
                continue
            restart = not living or chance.random() < 0.3
            rows.append(_row(class_id, f"{class_id} at {number}", restart=restart))
            if chance.random() < 0.5:
                told.append(StatisticsRow(class_id, f"mean {number}".encode(), f"factor {number}".encode()))
        tree.add(parent, rows, told)
    return tree


@contextmanager
def statements(db: Session) -> Iterator[list[tuple[str, int]]]:
    """Text and number of parameters of what is sent to the database meanwhile."""
    sent: list[tuple[str, int]] = []

    def heard(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        sent.append((statement, len(parameters)))

    event.listen(db.get_bind(), "before_cursor_execute", heard)
    try:
        yield sent
    finally:
        event.remove(db.get_bind(), "before_cursor_execute", heard)


def agrees(
    db: Session, model: Model, tree: Tree, number: int, *, near: int, asked: Iterable[int] = range(1, CLASSES + 1)
) -> None:
    """Everything that can be asked of a version, against its definition; single prototypes of these classes."""
    assert numbers_of_lineage(db, model.id, number) == tree.line(number)
    for copies in (1, 2, COPIES):
        found = bank_rows.read_bank(db, model.id, number, copies=copies)
        assert found == tree.remembered(number, copies), f"version {number}, {copies} copies"
    bank = {row.class_id: row for row in tree.remembered(number, 1)}
    assert bank_rows.class_ids(db, model.id, number) == list(bank)
    for class_id in asked:
        row = bank_rows.prototype(db, model.id, number, class_id)
        assert (row and row.vector) == (bank[class_id].copies[-1] if class_id in bank else None)
    assert lineage.descends(db, model.id, number, near) == (near in tree.line(number))
    changed = bank_rows.changes(db, model.id, near, number)
    assert (changed if changed is None else {row.class_id: row for row in changed}) == tree.changes(near, number)


@pytest.mark.parametrize("seed", range(4))
def test_every_version_of_any_tree_is_what_its_line_wrote(db: Session, seed: int) -> None:
    """Whatever was rejected, deleted, learned anew or left behind on the way, and whichever version is asked about."""
    chance = random.Random(seed)
    tree = grown(chance, SIZE)
    model = stored(db, "tree", tree)
    stored(db, "other", grown(chance, SIZE))

    for number in range(SIZE + 1):
        asked = chance.sample(range(1, CLASSES + 1), 3)
        agrees(db, model, tree, number, near=chance.randrange(SIZE + 1), asked=asked)


def test_a_history_of_many_forks_is_read_as_any_other(db: Session) -> None:
    """Beyond the thousand at which SQLite once refused the statement: the newest, the oldest and what was left."""
    tree = forked(MANY)
    model = stored(db, "forked", tree)

    newest = model.last_version
    for number in (0, 1, 2, MANY, MANY + 1, newest - 1, newest):
        agrees(db, model, tree, number, near=max(0, number - 7))
    agrees(db, model, tree, newest, near=1)


def test_a_history_of_many_forks_can_be_worked_on(db: Session) -> None:
    """Taught on top of, rolled back in and pruned."""
    model = stored(db, "forked", forked(MANY))
    before = bank_rows.read_bank(db, model.id, model.head, copies=COPIES)
    refined = [_refine(db, model) for _ in range(4)]

    dropped = pruning.prune(db, model, keep=2)
    assert dropped == refined[:2]
    assert bank_rows.read_bank(db, model.id, 2 * MANY + 1, copies=COPIES) == before
    assert {row.copies for row in bank_rows.read_bank(db, model.id, model.head)} == {(b"refined",)}
    assert versions.activate(db, model, 1, living=range(1, CLASSES + 1)).number == 1
    assert bank_rows.class_ids(db, model.id, model.head) == [1]


def _refine(db: Session, model: Model) -> int:
    return versions.add(
        db,
        model,
        versions.NewVersion(
            "incremental",
            parent=versions.get(db, model.id, model.head),
            classes=CLASSES,
            temperature=1.0,
            threshold=None,
            weights=b"weights",
            prototypes=[PrototypeRow(class_id, b"refined", 5, restart=False) for class_id in range(1, CLASSES + 1)],
            statistics=[StatisticsRow(class_id, b"mean", b"factor") for class_id in range(1, CLASSES + 1)],
        ),
    ).number


def steps(db: Session, model: Model) -> dict[str, Callable[[], object]]:
    """What the service and its workers do with a history."""
    head = model.head

    def work() -> None:
        _refine(db, model)
        pruning.prune(db, model, keep=1)

    return {
        "activate": lambda: versions.activate(db, model, head, living=range(1, CLASSES + 1)),
        "load": lambda: bank_rows.read_bank(db, model.id, head),
        "begin a session": lambda: bank_rows.read_bank(db, model.id, head, copies=COPIES),
        "refresh": lambda: bank_rows.changes(db, model.id, versions.get(db, model.id, head).parent or 0, head),
        "descend": lambda: lineage.descends(db, model.id, head, head - 2),
        "refine and prune": work,
    }


def test_statements_do_not_grow_with_the_history(db: Session) -> None:
    """The same text with as many parameters, for a short history and for a long one."""
    sent: dict[int, dict[str, list[tuple[str, int]]]] = {}
    for forks in (FEW, MANY):
        model = stored(db, f"{forks} forks", forked(forks))
        sent[forks] = {}
        for name, step in steps(db, model).items():
            with statements(db) as heard:
                step()
            sent[forks][name] = heard

    assert sent[MANY] == sent[FEW]


@pytest.mark.parametrize("parent", [2, 3, 4, 2**31 - 1])
def test_a_parent_that_is_no_older_ends_the_line(db: Session, parent: int) -> None:
    """Such a row can only come from a foreign archive; nobody walks in a circle for ever."""
    tree = Tree()
    for on in (0, 1, 2, 3):
        tree.add(on, [_row(on + 1, f"class {on + 1}", restart=True)])
    tree.parents[2] = parent
    model = stored(db, "foreign", tree)

    assert numbers_of_lineage(db, model.id, 4) == [4, 3, 2]
    assert bank_rows.class_ids(db, model.id, 4) == [2, 3, 4]
    assert not lineage.descends(db, model.id, 4, 1)
    assert bank_rows.changes(db, model.id, 1, 4) is None


def test_any_number_of_classes_can_be_settled_at_once(db: Session) -> None:
    """More than a statement can carry parameters on either database."""
    model = stored(db, "many classes", forked(1))

    classes.mark_learned(db, model.id, range(1, 70_000))

    assert classes.waiting(db, model.id) == []
