"""Checks the prototypes and statistics of an archive: their vectors, and that they fit the history of versions."""

from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from store.archive_file import require
from store.archive_history import History, WrittenRow
from store.archive_tables import MOST_HELD_OUT, ArchiveTables
from store.bank_rows import COPIES

MOST_HELD_OUT_TOGETHER = 2**24  # torch computes no quantile of more
LARGEST_NUMBER = 1e12  # in a vector: its square is still finite in single precision


def check_prototypes(
    tables: ArchiveTables, history: History, classes: Collection[int], living: Collection[int]
) -> None:
    for row in tables.rows("prototypes"):
        what = _require_written(row, "prototype", history, classes)
        if row["vector"] is None:
            rest = (row["shots"], row["restart"], row["held_out"])
            require(rest == (0, True, None), f"{what} has values although the class is deleted")
            continue
        require(row["shots"] >= 1, f"{what} was made from no images")
        _require_vector(row["vector"], tables.content.dim, what)
        if row["held_out"] is not None:
            held_out = _numbers(row["held_out"], what)
            require(len(held_out) <= MOST_HELD_OUT, f"{what} has too many held-out distances")
            require(bool((held_out >= 0).all()), f"{what} has a held-out distance below 0")
    _check_rows_of_classes(tables, history, living)


def _check_rows_of_classes(tables: ArchiveTables, history: History, living: Collection[int]) -> None:
    """All prototypes of a class together: no row appears twice, and none continues the class after its deletion."""
    active = history.lineage(tables.model["head"])
    together = 0
    columns = "class_id, version, vector IS NULL, restart, coalesce(length(held_out), 0)"
    found = tables.connection.execute(f"SELECT {columns} FROM prototypes NOT INDEXED ORDER BY class_id, version")
    for class_id, group in groupby(found, key=lambda row: row[0]):
        rows = [WrittenRow(*row) for row in group]
        _require_unique(rows, "prototype")
        deleted = [row.gone for row in rows if row.version in active]
        if deleted and not deleted[-1]:
            require(class_id in living, f"class {class_id} was deleted and the active version still knows it")
        history.require_unbroken(rows)
        together += max(row.held_out_bytes for row in rows) // 4
        require(together <= MOST_HELD_OUT_TOGETHER, "it has too many held-out distances")


def check_statistics(tables: ArchiveTables, history: History, classes: Collection[int]) -> None:
    for row in tables.rows("statistics"):
        what = _require_written(row, "statistic", history, classes)
        _require_vector(row["mean"], tables.content.dim, what)
        _require_vector(row["factor"], COPIES * tables.content.dim, what)
    ordered = "SELECT class_id, version FROM statistics NOT INDEXED ORDER BY class_id, version"
    _require_unique(tables.connection.execute(ordered), "statistic")


def _require_written(row: dict[str, Any], kind: str, history: History, classes: Collection[int]) -> str:
    what = f"the {kind} of class {row['class_id']} at version {row['version']}"
    require(row["class_id"] in classes, f"{what} belongs to a class that does not exist")
    require(row["version"] in history, f"{what} belongs to a version that does not exist")
    require(not history[row["version"]].rejected, f"{what} belongs to a version that was rejected")
    return what


def _require_unique(ordered: Iterable[Any], kind: str) -> None:
    before = None
    for class_id, version, *_ in ordered:
        require((class_id, version) != before, f"the {kind} of class {class_id} at version {version} appears twice")
        before = (class_id, version)


def _require_vector(data: bytes, count: int, what: str) -> None:
    require(len(data) == 4 * count, f"{what} has {len(data)} bytes, not {4 * count}")
    _numbers(data, what)


def _numbers(data: bytes, what: str) -> npt.NDArray[np.float32]:
    require(len(data) % 4 == 0, f"{what} has {len(data)} bytes, which is not a multiple of 4")
    numbers = np.frombuffer(data, "<f4")
    with np.errstate(invalid="ignore"):
        usable = bool((np.abs(numbers) <= LARGEST_NUMBER).all())  # false for NaN, too
    require(usable, f"{what} has numbers that are not finite, or too large")
    return numbers
