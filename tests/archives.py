"""A model with a whole history, as small as one can be, and archives of it that somebody has tampered with."""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from core.bank import PrototypeBank
from core.space import Space, Whitening
from core.state import LearnerState, Weights, weights_of
from engine.pretrained import as_it_comes
from learners.blobs import to_blob
from learners.loading import base_blob, weights_blob
from migrations import schema
from store import archive, catalogue, classes, versions
from store.bank_rows import COPIES, PrototypeRow, StatisticsRow
from store.database import Database
from store.models import VersionNumber
from tests.painted import picture

BACKBONE = "resnet32"
DIM = 64


def write_without_room(path: Path) -> None:
    """To an SQLite file, as on a full disk: raises what SQLite raises then."""
    with closing(sqlite3.connect(path)) as connection:
        ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
        connection.execute(f"PRAGMA max_page_count = {max(1, pages)}")
        connection.execute("CREATE TABLE large AS SELECT zeroblob(1000000) AS content")


def fill(database: Database, name: str) -> None:
    """Versions of every kind: refined from the backbone's own weights, then from those of a base session."""
    own = as_it_comes(BACKBONE)
    tail, whole = weights_of(own, "tail"), weights_of(own, "all")
    generator = torch.Generator().manual_seed(0)
    whitening = Whitening(torch.zeros(DIM), torch.eye(DIM))
    based = LearnerState(BACKBONE, whole, Space("whitened", whitening), PrototypeBank.empty(DIM))

    def row(class_id: int, *, restart: bool = True) -> PrototypeRow:
        vector = torch.rand(DIM, generator=generator)
        return PrototypeRow(class_id, to_blob(vector), 2, restart=restart, held_out=to_blob(torch.tensor([0.1, 0.2])))

    with database.write() as db:
        model = catalogue.create(db, name, BACKBONE, 0.1)
        wren, owl, swan = (
            classes.add(db, model, each, shots=2, since=VersionNumber(1), status=status).id
            for each, status in (("wren", "provisional"), ("owl", "learned"), ("swan", "learned"))
        )
        classes.add_shots(db, model.id, wren, [picture("wren", number) for number in range(2)])
        classes.add_guard(db, model.id, owl, [picture("owl", 0)])

        def add(kind: str, **given: object) -> None:
            known = {"classes": 3, "temperature": 0.1, "threshold": 0.4, "details": {"accuracy": {"old": 90.0}}}
            parent = versions.get(db, model.id, model.head)
            versions.add(db, model, versions.NewVersion(kind, parent=parent, **{**known, **given}))  # type: ignore[arg-type]

        add("provisional", prototypes=[row(wren), row(owl), row(swan)], details={"class": wren})
        add("incremental", verdict="promoted", weights=weights_blob(_moved(based, tail), tail), prototypes=[row(owl)])
        add("base", weights=base_blob(based), prototypes=[row(wren), row(owl), row(swan)])
        add(
            "incremental",
            verdict="promoted",
            weights=weights_blob(_moved(based, whole), whole),
            prototypes=[row(owl, restart=False), row(swan, restart=False)],
            statistics=[StatisticsRow(owl, bytes(4 * DIM), bytes(4 * DIM * COPIES))],
            details={"accuracy": {"old": 90.0, "new": None}, "forgetting": -0.5, "reason": "better"},
        )
        add("incremental", verdict="rejected", details={"reason": "worse"}, serve=False)
        classes.erase(db, model.id, swan)
        add("delete", classes=2, prototypes=[PrototypeRow(swan, None, 0, restart=True)], details={"class": swan})


def _moved(state: LearnerState, base: Weights) -> LearnerState:
    """As a session leaves it: a few weights of the tail are others."""
    name = "tail.0.0.bn1.weight"
    return replace(state, weights={name: base[name] * 1.5})


def export(database: Database, name: str, path: Path) -> Path:
    with closing(Database(f"sqlite:///{path}")) as made:
        schema.upgrade(made)
    archive.write(database, name, path)
    return path


@contextmanager
def tampered(path: Path) -> Iterator[sqlite3.Connection]:
    """Change anything; afterwards the digest is right again."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield connection
        connection.execute("DROP TABLE archive")
    archive.seal(path)


def loosen(path: Path) -> None:
    """Take all types, keys and constraints out of an archive: then any value can be put anywhere."""
    with tampered(path) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        for (table,) in found.fetchall():
            columns = ", ".join(f'"{row[1]}"' for row in connection.execute(f"PRAGMA table_info({table})"))
            connection.execute(f"CREATE TABLE loose ({columns})")
            connection.execute(f"INSERT INTO loose SELECT * FROM {table} ORDER BY rowid")
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE loose RENAME TO {table}")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def export_older(archived: Path, path: Path, revision: str) -> Path:
    """The same rows in the tables of an earlier release."""
    with closing(Database(f"sqlite:///{path}")) as made:
        schema.upgrade(made, revision)
    archive.settle(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS archived", (str(archived),))
        for table in ("models", *(table.name for table in archive.TABLES)):
            columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
            connection.execute(
                f"INSERT INTO {table} SELECT {columns} FROM archived.{table} ORDER BY archived.{table}.rowid"
            )
    archive.seal(path)
    return path


def entangle(path: Path, levels: int = 16) -> None:
    """Put a ladder of pages beside the schema, each with every cell leading to the one below: it is walked for ever.

    At its foot is a row that can be read any number of times, that of an index which SQLite made by itself.
    """
    with closing(sqlite3.connect(path)) as connection:
        found = "SELECT name, tbl_name, rootpage FROM sqlite_master WHERE type = 'index' AND sql IS NULL"
        name, table, root = connection.execute(found).fetchone()
    whole = bytearray(path.read_bytes())
    size = int.from_bytes(whole[16:18], "big")
    page = len(whole) // size
    whole += _unheaded(whole[:size])
    schema_page = foot = page + 1
    texts = [text.encode() for text in ("index", name, table)]
    record = bytes([6, *(13 + 2 * len(text) for text in texts), 4, 0]) + b"".join(texts) + root.to_bytes(4, "big")
    cell = bytes([len(record), 1]) + record
    at = size - len(cell)
    leaf = bytes([13, 0, 0, 0, 1]) + at.to_bytes(2, "big") + b"\0" + at.to_bytes(2, "big")
    whole += leaf + bytes(at - len(leaf)) + cell
    for _ in range(levels):
        foot += 1
        whole += _interior(size, 0, [foot] * 100)
    whole[100:size] = _interior(size, 100, [schema_page] + [foot + 1] * 100)[100:]
    whole[28:32] = (len(whole) // size).to_bytes(4, "big")
    path.write_bytes(bytes(whole))


def _unheaded(first: bytearray) -> bytes:
    """The first page of a file as any other, which has not the file's header before its own."""
    cells = int.from_bytes(first[103:105], "big")
    header = first[100 : 100 + (12 if first[100] == 5 else 8) + 2 * cells]
    return bytes(header) + bytes(100) + bytes(first[100 + len(header) :])


def _interior(size: int, begin: int, children: list[int]) -> bytes:
    """A page of a table's tree."""
    page = bytearray(size)
    at = size
    last = children[-1].to_bytes(4, "big")
    page[begin : begin + 12] = bytes([5, 0, 0]) + (len(children) - 1).to_bytes(2, "big") + bytes(3) + last
    for cell, child in enumerate(children[:-1]):
        at -= 5
        page[at : at + 5] = child.to_bytes(4, "big") + bytes([1 + cell])
        page[begin + 12 + 2 * cell : begin + 14 + 2 * cell] = at.to_bytes(2, "big")
    page[begin + 5 : begin + 7] = at.to_bytes(2, "big")
    return bytes(page)
