"""What an archive says, checked before any of it is written: could it have been exported from a model that works?

Anybody can make an archive and seal it with a right digest, so every row is judged by its meaning: names by the rules
of the service, numbers and references by those of the tables, vectors by the backbone's size. What needs torch or an
image decoder is asked of a `Content`. Time is bounded by the file's size, memory by the limits below.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import isfinite
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sqlalchemy import Table

from store import names
from store.archive_file import Flaw, allow, shape
from store.archive_history import History, PastVersion, WrittenRow, require
from store.archive_rows import LARGEST_JSON, rows
from store.errors import UnusableName
from store.models import Base
from store.settings import Settings
from store.versions import COPIES

TABLES: dict[str, Table] = dict(Base.metadata.tables)
LEFT_BEHIND = ("sessions", "session_events", "api_keys", "idempotency_keys")

MOST_CLASSES = 1_000_000  # with those that were deleted
MOST_VERSIONS = 1_000_000
MOST_WEIGHTS = 1_000
MOST_GUARD_IMAGES = 100  # of one class; a base session holds out two
MOST_HELD_OUT = 2**16  # distances of one class
MOST_HELD_OUT_TOGETHER = 2**24  # more than that torch takes no quantile of
LARGEST_NUMBER = 1e12  # in a vector: its square is still finite in single precision
COLDEST, HOTTEST = 1e-12, 1e12
ROWS_BETWEEN_REPORTS = 50
FRAME = 64 * 1024  # bytes of a row beside its large values

KINDS = {"base", "provisional", "incremental", "rollback", "delete"}
STATUSES = {"provisional", "learned"}
VERDICTS = {None, "promoted", "rejected"}

Numbers = npt.NDArray[np.float32]
Told = Callable[[int, int], None]  # rows checked, of how many


class Content(Protocol):
    """Judges what is opaque here; each of its methods raises a `Flaw`."""

    dim: int  # numbers of an embedding
    largest_weights: int  # bytes of a set of weights

    def image(self, data: bytes) -> None:
        """It can be decoded."""

    def base(self, data: bytes | None) -> Any:
        """The weights of a base session; without data those that the backbone comes with."""

    def refined(self, data: bytes, base: Any) -> None:
        """Weights as a difference from those."""


def largest_value(settings: Settings, content: Content) -> int:
    """Bytes of the largest row that an archive may hold."""
    return max(_largest(table, settings, content) for table in ("versions", "shots", "weights", "prototypes"))


def check(connection: sqlite3.Connection, settings: Settings, content: Content, told: Told) -> None:
    """Everything in an archive with this release's tables; raises a `Flaw` for the first thing that cannot be."""
    _require_shape(connection)
    _Check(connection, settings, content, told).run()


def _require_shape(connection: sqlite3.Connection) -> None:
    expected = {name: [column.name for column in table.columns] for name, table in TABLES.items()}
    expected["alembic_version"] = ["version_num"]
    found = shape(connection)
    for table in sorted(expected.keys() ^ found.keys()):
        raise Flaw(f"it {'has a' if table in found else 'lacks the'} table {table!a}; export the model again")
    for table, columns in expected.items():
        if sorted(found[table]) != sorted(columns):
            raise Flaw(f"its table '{table}' has other columns than this release's; export the model again")
    for table in LEFT_BEHIND:
        if connection.execute(f"SELECT 1 FROM {table} NOT INDEXED LIMIT 1").fetchone():
            raise Flaw(f"it holds {table}, which stay where they are; export the model again")


def _largest(table: str, settings: Settings, content: Content) -> int:
    vector = 4 * content.dim
    return FRAME + {
        "versions": 4 * LARGEST_JSON,  # characters of up to four bytes
        "shots": 2 * settings.max_request_bytes,  # a costly image has a small form beside it
        "guard_images": settings.max_request_bytes,
        "weights": content.largest_weights,
        "prototypes": vector + 4 * MOST_HELD_OUT,
        "statistics": vector * (1 + COPIES),
    }.get(table, 0)


@dataclass(slots=True)
class _Class:
    living: bool
    waits: bool  # for a session, which learns from its stored shots
    shots: int = 0  # stored
    guard: int = 0


class _Check:
    def __init__(self, connection: sqlite3.Connection, settings: Settings, content: Content, told: Told) -> None:
        self.connection = connection
        self.settings = settings
        self.content = content
        self.told = told
        self.classes: dict[int, _Class] = {}
        self.history = History()
        self.seen = 0

    def run(self) -> None:
        self.model = self._model()
        self._classes()
        self._versions()
        self._head()
        self._images("shots")
        self._images("guard_images")
        self._require_shots()
        self._prototypes()
        self._statistics()
        self._weights()  # last: for some of them the backbone's own are loaded

    @cached_property
    def total(self) -> int:
        return sum(self._count(table) for table in TABLES)

    def _count(self, table: str) -> int:
        return int(self.connection.execute(f"SELECT count(*) FROM {table} NOT INDEXED").fetchone()[0])

    def _rows(self, table: str) -> Iterator[dict[str, Any]]:
        """The table's rows, all of them the one model's."""
        allow(self.connection, _largest(table, self.settings, self.content))
        for row in rows(self.connection, TABLES[table]):
            if row.get("model_id", self.model["id"]) != self.model["id"]:
                raise Flaw(f"its table '{table}' has rows of another model; export the model again")
            if row.get("session_id") is not None:
                raise Flaw(f"its table '{table}' refers to sessions, which stay where they are; export the model again")
            yield row
            self._count_one()

    def _count_one(self) -> None:
        self.seen += 1
        if self.seen % ROWS_BETWEEN_REPORTS == 0 or self.seen == self.total:
            self.told(self.seen, self.total)

    def _model(self) -> dict[str, Any]:
        allow(self.connection, FRAME)
        if self._count("models") != 1:
            raise Flaw(f"it holds {self._count('models')} models and must hold one; export the model again")
        (row,) = rows(self.connection, TABLES["models"])
        self._count_one()
        _require_name(names.model_name, row["name"], "the model")
        return row

    def _classes(self) -> None:
        self._require_at_most("classes", MOST_CLASSES)
        taken: set[str] = set()
        for row in self._rows("classes"):
            what = f"class {row['id']}"
            living = row["deleted_at"] is None
            _require_name(names.class_name, row["name"], what)
            require(1 <= row["id"] <= self.model["last_class"], f"{what} has a number that was never given out")
            require(row["id"] not in self.classes, f"{what} is there twice")
            require(row["status"] in STATUSES, f"{what} has the status {row['status']!a}")
            require(row["shots"] >= 1 and row["revision"] >= 1, f"{what} was never taught")
            require(row["since"] <= self.model["last_version"], f"{what} is known since a version that does not exist")
            if living:
                require(row["name"] not in taken, f"two classes are named {row['name']!a}")
                taken.add(row["name"])
                if len(taken) > self.settings.max_classes:
                    raise Flaw(f"it has more than {self.settings.max_classes} classes (PROTOQUAD_MAX_CLASSES)")
            self.classes[row["id"]] = _Class(living, living and row["status"] == "provisional")

    def _versions(self) -> None:
        self._require_at_most("versions", MOST_VERSIONS)
        for row in self._rows("versions"):
            version = PastVersion(**{column: row[column] for column in PastVersion._fields})
            what = f"version {version.number}"
            require(version.number not in self.history, f"{what} is there twice")
            require(version.number <= self.model["last_version"], f"{what} has a number that was never given out")
            require(version.kind in KINDS, f"{what} is of the kind {version.kind!a}")
            require(version.verdict in VERDICTS, f"{what} has the verdict {version.verdict!a}")
            require(not (version.kept and version.rejected), f"{what} was rejected and is kept all the same")
            require(row["classes"] <= len(self.classes), f"{what} knows more classes than there are")
            require(COLDEST <= row["temperature"] <= HOTTEST, f"{what} has the temperature {row['temperature']}")
            require(row["threshold"] is None or row["threshold"] >= 0, f"{what} has a threshold below 0")
            _require_details(row["details"], what)
            self.history.versions[version.number] = version
        self.history.require_tree()

    def _head(self) -> None:
        number = self.model["head"]
        require(number in self.history, f"the version to be served, {number}, does not exist")
        head = self.history[number]
        require(head.kept and not head.rejected, f"the version to be served, {number}, is not kept")

    def _images(self, table: str) -> None:
        for row in self._rows(table):
            owner = self.classes.get(row["class_id"])
            what = f"an image of class {row['class_id']}"
            if owner is None or not owner.living:
                raise Flaw(f"there is {what}, which does not exist; export the model again")
            if table == "shots":
                owner.shots += 1
            else:
                owner.guard += 1
            if owner.shots > self.settings.max_shots:
                raise Flaw(
                    f"class {row['class_id']} has more than {self.settings.max_shots} shots (PROTOQUAD_MAX_SHOTS)"
                )
            require(owner.guard <= MOST_GUARD_IMAGES, f"class {row['class_id']} has too many guard images")
            require(hashlib.sha256(row["data"]).hexdigest() == row["sha256"], f"{what} has another digest than it says")
            for form in {"data", "scaled"} & row.keys():
                if row[form] is not None:
                    self._image(row[form], what)

    def _image(self, data: bytes, what: str) -> None:
        most = self.settings.max_request_bytes
        if len(data) > most:
            raise Flaw(f"{what} has {len(data)} bytes, of {most} in a request (PROTOQUAD_MAX_REQUEST_BYTES)")
        try:
            self.content.image(data)
        except Flaw as flaw:
            raise Flaw(f"{what}: {flaw}") from flaw

    def _require_shots(self) -> None:
        for number, row in self.classes.items():
            require(row.shots > 0 or not row.waits, f"class {number} is to be refined and has no stored shots")

    def _weights(self) -> None:
        """One base at a time, with what was refined from it, so that no more than two sets are in memory."""
        self._require_at_most("weights", MOST_WEIGHTS)
        stored: dict[int, int] = {}
        allow(self.connection, _largest("weights", self.settings, self.content))
        found = "SELECT rowid, model_id, version, typeof(data) FROM weights NOT INDEXED ORDER BY rowid"
        for row, model_id, number, kind in self.connection.execute(found):
            require(model_id == self.model["id"] and type(model_id) is int, "there are weights of another model")
            owned = (
                type(number) is int and number in self.history and number > 0 and self.history[number].weights == number
            )
            require(owned, "there are weights of no version")
            require(number not in stored, f"the weights of version {number} are there twice")
            require(kind == "blob", f"the weights of version {number} are no bytes")
            stored[number] = row
        self._require_weights(stored)
        for base in sorted({self.history[number].base for number in stored}):
            self._judge_weights(base, stored)

    def _require_weights(self, stored: dict[int, int]) -> None:
        for version in self.history.versions.values():
            if version.kept:
                for number in {version.base, version.weights} - {0}:
                    require(number in stored, f"the weights that version {version.number} needs are missing")

    def _judge_weights(self, base: int, stored: dict[int, int]) -> None:
        if base != 0:
            require(base in stored, f"the weights of version {base} are missing")
        at = base
        try:
            weights = self.content.base(self._blob(stored[base]) if base else None)
            for number in sorted(stored):
                if self.history[number].base == base and number != base:
                    at = number
                    self.content.refined(self._blob(stored[number]), weights)
        except Flaw as flaw:
            raise Flaw(f"the weights of version {at}: {flaw}") from flaw

    def _blob(self, row: int) -> bytes:
        ((data,),) = self.connection.execute("SELECT data FROM weights NOT INDEXED WHERE rowid = ?", (row,)).fetchall()
        self._count_one()
        return bytes(data)

    def _prototypes(self) -> None:
        for row in self._rows("prototypes"):
            what = self._require_written(row, "prototype")
            if row["vector"] is None:
                rest = (row["shots"], row["restart"], row["held_out"])
                require(rest == (0, True, None), f"{what} says of a deleted class more than that it is gone")
                continue
            require(row["shots"] >= 1, f"{what} has no images behind it")
            _require_vector(row["vector"], self.content.dim, what)
            if row["held_out"] is not None:
                held_out = _numbers(row["held_out"], what)
                require(len(held_out) <= MOST_HELD_OUT, f"{what} has too many held-out distances")
                require(bool((held_out >= 0).all()), f"{what} has a held-out distance below 0")
        self._banks()

    def _banks(self) -> None:
        """The rows of each class together: none twice, none that goes on from where the class was deleted."""
        served = self.history.lineage(self.model["head"])
        together = 0
        columns = "class_id, version, vector IS NULL, restart, coalesce(length(held_out), 0)"
        found = self.connection.execute(f"SELECT {columns} FROM prototypes NOT INDEXED ORDER BY class_id, version")
        for class_id, group in groupby(found, key=lambda row: row[0]):
            rows_of_class = [WrittenRow(*row) for row in group]
            self._require_once(rows_of_class, "prototype")
            known = [row.gone for row in rows_of_class if row.version in served]
            if known and not known[-1]:
                require(self.classes[class_id].living, f"class {class_id} was deleted and is still served")
            self.history.require_unbroken(rows_of_class)
            together += max(row.held_out_bytes for row in rows_of_class) // 4
            require(together <= MOST_HELD_OUT_TOGETHER, "it has too many held-out distances")

    def _statistics(self) -> None:
        for row in self._rows("statistics"):
            what = self._require_written(row, "statistic")
            _require_vector(row["mean"], self.content.dim, what)
            _require_vector(row["factor"], COPIES * self.content.dim, what)
        ordered = "SELECT class_id, version FROM statistics NOT INDEXED ORDER BY class_id, version"
        self._require_once(self.connection.execute(ordered), "statistic")

    def _require_written(self, row: dict[str, Any], kind: str) -> str:
        what = f"the {kind} of class {row['class_id']} at version {row['version']}"
        require(row["class_id"] in self.classes, f"{what} is of a class that does not exist")
        require(row["version"] in self.history, f"{what} is of a version that does not exist")
        require(not self.history[row["version"]].rejected, f"{what} is of a version that was rejected")
        return what

    def _require_once(self, ordered: Iterable[Any], kind: str) -> None:
        before = None
        for class_id, version, *_ in ordered:
            require(
                (class_id, version) != before, f"the {kind} of class {class_id} at version {version} is there twice"
            )
            before = (class_id, version)

    def _require_at_most(self, table: str, most: int) -> None:
        require(self._count(table) <= most, f"its table '{table}' has more than {most} rows")


def _require_name(rule: Callable[[str], str], name: str, what: str) -> None:
    try:
        same = rule(name) == name
    except UnusableName as error:
        raise Flaw(f"the name of {what} cannot be used: {error}") from error
    require(same, f"the name of {what} is not written as this service would write it")


def _require_vector(data: bytes, count: int, what: str) -> None:
    require(len(data) == 4 * count, f"{what} has {len(data)} bytes, not {4 * count}")
    _numbers(data, what)


def _numbers(data: bytes, what: str) -> Numbers:
    require(len(data) % 4 == 0, f"{what} has {len(data)} bytes, which are no whole numbers of 4")
    numbers = np.frombuffer(data, "<f4")
    with np.errstate(invalid="ignore"):
        usable = bool((np.abs(numbers) <= LARGEST_NUMBER).all())  # what is not a number is not usable either
    require(usable, f"{what} has numbers that are not finite, or too large")
    return numbers


def _require_details(details: dict[str, Any], what: str) -> None:
    """Of the types that a version is answered with."""
    for key, fits in _DETAILS.items():
        require(details.get(key) is None or fits(details[key]), f"the detail '{key}' of {what} is of another type")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(number is None or _is_number(number) for number in value.values())


_DETAILS: dict[str, Callable[[Any], bool]] = {
    "accuracy": _are_numbers,
    "accuracy_before": _are_numbers,
    "unknown": _are_numbers,
    "forgetting": _is_number,
    "reason": lambda value: isinstance(value, str),
    "class": lambda value: type(value) is int,
    "without": lambda value: isinstance(value, list) and all(type(number) is int for number in value),
}
