"""Checks an archive before any of it is imported: could it have been exported from a model that works?

Anyone can make an archive and seal it with a correct digest, so the meaning of every row is checked: names by the rules
of the service, numbers and references by the rules of the tables, vectors by the backbone's size. A `Content` checks
what needs torch or an image decoder. The time is bounded by the file's size, the memory by the limits below.
"""

import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from store import names
from store.archive_bank_checks import check_prototypes, check_statistics
from store.archive_file import Flaw, require
from store.archive_history import History, PastVersion
from store.archive_tables import ArchiveTables, Content, require_tables
from store.archive_weight_checks import check_weights
from store.errors import UnusableName
from store.row_progress import Progress
from store.settings import Settings

MOST_CLASSES = 1_000_000  # including deleted ones
MOST_VERSIONS = 1_000_000
MOST_GUARD_IMAGES = 100  # of one class; a base session holds out two
LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 1e-12, 1e12

KINDS = {"base", "provisional", "incremental", "rollback", "delete"}
STATUSES = {"provisional", "learned"}
VERDICTS = {None, "promoted", "rejected"}


def check(connection: sqlite3.Connection, settings: Settings, content: Content, progress: Progress) -> None:
    """Check everything in an archive with this release's tables; raises a `Flaw` for the first fault."""
    require_tables(connection)
    tables = ArchiveTables(connection, settings, content, progress)
    require_name(names.model_name, tables.model["name"], "the model")
    classes = _check_classes(tables)
    history = _check_versions(tables, len(classes))
    _check_head(tables, history)
    for table in ("shots", "guard_images"):
        _check_images(tables, classes, table)
    for number, row in classes.items():
        require(row.shots > 0 or not row.waiting, f"class {number} is to be refined and has no stored shots")
    living = {number for number, row in classes.items() if row.living}
    check_prototypes(tables, history, classes.keys(), living)
    check_statistics(tables, history, classes.keys())
    check_weights(tables, history)  # last, because it may load the weights of the backbone


@dataclass(slots=True)
class _Class:
    living: bool
    waiting: bool  # for a session, which learns from its stored shots
    shots: int = 0  # stored
    guard_images: int = 0


def _check_classes(tables: ArchiveTables) -> dict[int, _Class]:
    tables.require_at_most(MOST_CLASSES, "classes")
    model, most = tables.model, tables.settings.max_classes
    classes: dict[int, _Class] = {}
    taken: set[str] = set()
    for row in tables.rows("classes"):
        what = f"class {row['id']}"
        living = row["deleted_at"] is None
        require_name(names.class_name, row["name"], what)
        require(1 <= row["id"] <= model["last_class"], f"{what} has a number beyond the model's last one")
        require(row["id"] not in classes, f"{what} appears twice")
        require(row["status"] in STATUSES, f"{what} has the status {row['status']!a}")
        require(row["shots"] >= 1 and row["revision"] >= 1, f"{what} was never taught")
        require(row["since"] <= model["last_version"], f"{what} is known since a version that does not exist")
        if living:
            require(row["name"] not in taken, f"two classes are named {row['name']!a}")
            taken.add(row["name"])
            if len(taken) > most:
                raise Flaw(f"it has more than {most} classes (PROTOQUAD_MAX_CLASSES)")
        classes[row["id"]] = _Class(living, living and row["status"] == "provisional")
    return classes


def _check_versions(tables: ArchiveTables, classes: int) -> History:
    tables.require_at_most(MOST_VERSIONS, "versions")
    history = History()
    for row in tables.rows("versions"):
        version = PastVersion(**{column: row[column] for column in PastVersion._fields})
        what = f"version {version.number}"
        require(version.number not in history, f"{what} appears twice")
        require(version.number <= tables.model["last_version"], f"{what} has a number beyond the model's last one")
        require(version.kind in KINDS, f"{what} has the kind {version.kind!a}")
        require(version.verdict in VERDICTS, f"{what} has the verdict {version.verdict!a}")
        require(not (version.kept and version.rejected), f"{what} was rejected and is still kept")
        require(row["classes"] <= classes, f"{what} knows more classes than there are")
        temperature = row["temperature"]
        require(LOWEST_TEMPERATURE <= temperature <= HIGHEST_TEMPERATURE, f"{what} has the temperature {temperature}")
        require(row["threshold"] is None or row["threshold"] >= 0, f"{what} has a threshold below 0")
        _require_details(row["details"], what)
        history[version.number] = version
    history.require_tree()
    return history


def _check_head(tables: ArchiveTables, history: History) -> None:
    number = tables.model["head"]
    require(number in history, f"its active version, {number}, does not exist")
    require(history[number].kept and not history[number].rejected, f"its active version, {number}, is not kept")


def _check_images(tables: ArchiveTables, classes: dict[int, _Class], table: str) -> None:
    most_shots = tables.settings.max_shots
    for row in tables.rows(table):
        number = row["class_id"]
        what = f"an image of class {number}"
        owner = classes.get(number)
        if owner is None or not owner.living:
            raise Flaw(f"it contains {what}, which does not exist; export the model again")
        if table == "shots":
            owner.shots += 1
        else:
            owner.guard_images += 1
        if owner.shots > most_shots:
            raise Flaw(f"class {number} has more than {most_shots} shots (PROTOQUAD_MAX_SHOTS)")
        require(owner.guard_images <= MOST_GUARD_IMAGES, f"class {number} has too many guard images")
        require(hashlib.sha256(row["data"]).hexdigest() == row["sha256"], f"the digest of {what} is wrong")
        for column in {"data", "scaled"} & row.keys():
            if row[column] is not None:
                _check_image(tables, row[column], what)


def _check_image(tables: ArchiveTables, data: bytes, what: str) -> None:
    most = tables.settings.max_request_bytes
    if len(data) > most:
        raise Flaw(f"{what} has {len(data)} bytes; the most is {most} (PROTOQUAD_MAX_REQUEST_BYTES)")
    try:
        tables.content.image(data)
    except Flaw as flaw:
        raise Flaw(f"{what}: {flaw}") from flaw


def require_name(rule: Callable[[str], str], name: str, what: str) -> None:
    try:
        same = rule(name) == name
    except UnusableName as error:
        raise Flaw(f"the name of {what} cannot be used: {error}") from error
    require(same, f"the name of {what} is not written as this service would write it")


def _require_details(details: dict[str, Any], what: str) -> None:
    """The details must have the types that an answer about a version promises."""
    for key, fits in _DETAILS.items():
        require(details.get(key) is None or fits(details[key]), f"the detail '{key}' of {what} has another type")


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
