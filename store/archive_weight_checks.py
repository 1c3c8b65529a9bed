"""Checks the weights of an archive: one base at a time with what was refined from it, so that memory holds two sets."""

from store.archive_file import Flaw, require
from store.archive_history import History
from store.archive_tables import ArchiveTables

MOST_WEIGHTS = 1_000


def check_weights(tables: ArchiveTables, history: History) -> None:
    tables.require_at_most(MOST_WEIGHTS, "weights")
    tables.allow_rows_of("weights")
    stored = _stored_weights(tables, history)
    for version in history.values():
        if version.kept:
            for number in {version.base, version.weights} - {0}:
                require(number in stored, f"the weights that version {version.number} needs are missing")
    for base in sorted({history[number].base for number in stored}):
        _check_base(tables, history, base, stored)


def _stored_weights(tables: ArchiveTables, history: History) -> dict[int, int]:
    """For each version that has weights, their row id."""
    stored: dict[int, int] = {}
    found = "SELECT rowid, model_id, version, typeof(data) FROM weights NOT INDEXED ORDER BY rowid"
    for row, model_id, number, kind in tables.connection.execute(found):
        require(model_id == tables.model["id"] and type(model_id) is int, "it has weights of another model")
        owned = type(number) is int and number in history and number > 0 and history[number].weights == number
        require(owned, "it has weights that belong to no version")
        require(number not in stored, f"the weights of version {number} appear twice")
        require(kind == "blob", f"the weights of version {number} are not bytes")
        stored[number] = row
    return stored


def _check_base(tables: ArchiveTables, history: History, base: int, stored: dict[int, int]) -> None:
    if base != 0:
        require(base in stored, f"the weights of version {base} are missing")
    at = base
    try:
        weights = tables.content.base(_read_blob(tables, stored[base]) if base else None)
        for number in sorted(stored):
            if history[number].base == base and number != base:
                at = number
                tables.content.refined(_read_blob(tables, stored[number]), weights)
    except Flaw as flaw:
        raise Flaw(f"the weights of version {at}: {flaw}") from flaw


def _read_blob(tables: ArchiveTables, row: int) -> bytes:
    ((data,),) = tables.connection.execute("SELECT data FROM weights NOT INDEXED WHERE rowid = ?", (row,)).fetchall()
    tables.row_done()
    return bytes(data)
