"""A model goes into one file and comes out of it as it was, and a file that is anything else is refused."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from migrations import schema
from store import api_keys, archive, catalogue, classes, session_metrics, sessions, versions
from store.archive_file import opened
from store.bank_rows import COPIES, PrototypeRow, StatisticsRow
from store.database import Database
from store.errors import NameTaken, NotThere, UnusableArchive
from store.models import (
    Base,
    ClassRow,
    GuardImage,
    IdempotencyKey,
    Prototype,
    SessionRow,
    Shot,
    Statistics,
    Version,
    VersionNumber,
    Weights,
)
from store.settings import Settings
from tests.archives import write_without_room

OWNED: tuple[type[Base], ...] = (ClassRow, Version, Shot, GuardImage, Weights, Prototype, Statistics)
SHOTS = [bytes([number]) * 3000 for number in range(20)]  # more than are copied at once
WEIGHTS = bytes(range(256)) * 40

DIM = 64
ONE = b"\0\0\x80?"  # in single precision

Exported = Callable[..., Path]


class Anything:
    """Takes any bytes for images and weights: what is in them is another test's."""

    dim = DIM
    largest_weights = 2**20

    def image(self, data: bytes) -> None: ...

    def base(self, data: bytes | None) -> None: ...

    def refined(self, data: bytes, base: None) -> None: ...


def check(path: Path, **limits: int) -> None:
    archive.check(path, Settings(**limits), Anything())


@pytest.fixture
def birds(database: Database) -> Database:
    """Two models that know things; `birds` has rows in every table and a class that waits for its session."""
    with database.write() as db:
        fill(db, "bees")
        fill(db, "birds")
        api_keys.create(db, "camera", ["predict"])
    return database


def fill(db: Session, name: str) -> None:
    model = catalogue.create(db, name, "resnet18", 0.25)
    parent = versions.get(db, model.id, 0)
    session = sessions.enqueue(db, model, delay=0, patience=0)
    deleted = classes.add(db, model, "swan", shots=1, since=VersionNumber(1))
    wren = classes.add(db, model, "wren é", shots=20, since=VersionNumber(1), session_id=session.id)
    owl = classes.add(db, model, "owl", shots=90, since=VersionNumber(1), status="learned")
    classes.erase(db, model.id, deleted.id)
    classes.add_shots(db, model.id, wren.id, SHOTS)
    classes.add_guard(db, model.id, owl.id, [name.encode(), b"owl 2"])
    model.renames = 3
    first = versions.add(
        db,
        model,
        versions.NewVersion(
            "base",
            parent=parent,
            classes=2,
            temperature=1 / 3,
            threshold=None,
            weights=WEIGHTS,
            details={"accuracy": {"old": 87.5, "new": None}, "word": "é"},
            prototypes=[
                PrototypeRow(wren.id, b"\0\1\2\3" * 64, 20, restart=True, held_out=ONE),
                PrototypeRow(deleted.id, None, 0, restart=True),
            ],
            statistics=[StatisticsRow(owl.id, ONE * DIM, ONE * DIM * COPIES)],
        ),
    )
    versions.add(
        db,
        model,
        versions.NewVersion(
            "incremental",
            parent=first,
            classes=2,
            temperature=0.1,
            threshold=0.7000000000000001,
            weights=b"difference",
            verdict="promoted",
            session_id=session.id,
            prototypes=[PrototypeRow(owl.id, b"owl!" * 64, 90, restart=False)],
        ),
    )


@pytest.fixture
def empty(tmp_path: Path) -> Callable[[], Path]:
    """Makes SQLite files with this release's tables and no rows."""
    migrated = tmp_path / "migrated"
    with closing(Database(f"sqlite:///{migrated}")) as made:
        schema.upgrade(made)
    archive.settle(migrated)

    def make(name: str = "archive") -> Path:
        (tmp_path / "out").mkdir(exist_ok=True)
        return Path(shutil.copyfile(migrated, tmp_path / "out" / name))

    return make


@pytest.fixture
def exported(birds: Database, empty: Callable[[], Path]) -> Exported:
    def write(model: str = "birds", **options: Any) -> Path:
        path = empty()
        archive.write(birds, model, path, **options)
        return path

    return write


@pytest.fixture
def elsewhere(empty: Callable[[str], Path]) -> Iterator[Database]:
    with closing(Database(f"sqlite:///{empty('elsewhere')}")) as other:
        yield other


def content(database: Database, name: str) -> dict[str, Any]:
    """Everything of a model, but for what is numbered anew and what stays behind."""
    with database.read() as db:
        model = catalogue.get(db, name)
        found: dict[str, Any] = {
            table.__tablename__: [
                _values(row, {"model_id", "session_id"} | ({"id"} if table in (Shot, GuardImage) else set()))
                for row in db.scalars(
                    select(table).where(table.model_id == model.id).order_by(*table.__table__.primary_key)
                )
            ]
            for table in OWNED
        }
        return found | {"model": _values(model, {"id", "name"})}


def _values(row: Base, besides: set[str]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__table__.columns.keys() if name not in besides}  # noqa: SIM118


def rows(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


# There and back


def test_a_model_arrives_as_it_was(birds: Database, exported: Exported, elsewhere: Database) -> None:
    """Every row and every byte, in the same order, with the numbers that classes and versions are known by."""
    before = content(birds, "birds")

    archive.read(exported(), elsewhere, "birds")

    assert content(elsewhere, "birds") == before
    assert [len(before[table.__tablename__]) for table in OWNED] == [3, 3, 20, 2, 2, 3, 1]


def test_a_model_can_come_back_beside_itself(birds: Database, exported: Exported) -> None:
    """Under another name it gets ids of its own, and the first is left as it is."""
    before = content(birds, "birds")

    model = archive.read(exported(), birds, "copy")

    assert content(birds, "copy") == content(birds, "birds") == before
    with birds.read() as db:
        assert model.id not in {catalogue.get(db, "birds").id, catalogue.get(db, "bees").id}


def test_an_archive_of_an_archive_is_the_same(exported: Exported, elsewhere: Database, empty: Any) -> None:
    """Nothing is lost on the way however often a model travels: the digests agree but for ids of databases."""
    first = exported()
    archive.read(first, elsewhere, "birds")
    second = empty("again")

    archive.write(elsewhere, "birds", second)

    for table in ("classes", "versions", "shots", "guard_images", "weights", "prototypes", "statistics"):
        assert rows(second, f"SELECT * FROM {table} ORDER BY rowid") == rows(first, f"SELECT * FROM {table}")


def test_a_model_that_knows_nothing_travels_too(database: Database, empty: Callable[[], Path]) -> None:
    """It has a version 0 and no other row."""
    path = empty()
    with database.write() as db:
        catalogue.create(db, "blank", "resnet18", 0.5)
    archive.write(database, "blank", path)

    archive.read(path, database, "copy")

    assert content(database, "copy") == content(database, "blank")
    assert len(content(database, "copy")["versions"]) == 1


def test_a_copy_goes_on_learning_by_itself(exported: Exported, elsewhere: Database) -> None:
    """The next class and the next version get the numbers that they would have got where it came from."""
    archive.read(exported(), elsewhere, "birds")

    with elsewhere.write() as db:
        model = catalogue.locked(db, catalogue.get(db, "birds").id)
        row = classes.add(db, model, "lark", shots=1, since=VersionNumber(3))
        classes.add_shots(db, model.id, row.id, [b"lark"])
        parent = versions.get(db, model.id, model.head)
        version = versions.add(
            db, model, versions.NewVersion("provisional", parent=parent, classes=3, temperature=1.0, threshold=None)
        )
        assert (row.id, version.number) == (4, 3)


# What is in the file


def test_nothing_but_the_model_is_in_the_file(exported: Exported) -> None:
    """No other model, no key, no session, and no trace of a session in a class or version."""
    path = exported()

    counts = {
        table: rows(path, f"SELECT count(*) FROM {table}")[0][0]
        for table in ("models", "sessions", "session_events", "api_keys", "idempotency_keys")
    }
    assert counts == {"models": 1, "sessions": 0, "session_events": 0, "api_keys": 0, "idempotency_keys": 0}
    assert rows(path, "SELECT session_id FROM classes UNION SELECT session_id FROM versions") == [(None,)]
    assert b"bees" not in path.read_bytes()


def test_an_archive_is_one_plain_file(exported: Exported) -> None:
    """No log lies beside it, and opening it makes none."""
    path = exported()

    assert rows(path, "PRAGMA journal_mode") == [("delete",)]
    assert [file.name for file in path.parent.iterdir()] == ["archive"]


def test_images_keep_their_order_in_the_file(exported: Exported) -> None:
    """Their ids are new, and still tell which came first."""
    path = exported()

    assert rows(path, "SELECT data FROM shots ORDER BY id") == [(shot,) for shot in SHOTS]
    assert rows(path, "SELECT data FROM guard_images ORDER BY id") == [(b"birds",), (b"owl 2",)]


def test_an_archive_says_what_is_in_it(exported: Exported) -> None:
    """The model's name, and the schema by which an older release's archive is known."""
    label = archive.label(exported())

    assert (label.model, label.backbone, label.revision) == ("birds", "resnet18", schema.head())


def test_reading_leaves_the_file_alone(exported: Exported, elsewhere: Database) -> None:
    """Not a byte of it changes, so it may lie where nobody may write."""
    path = exported()
    before = path.read_bytes()

    check(path)
    archive.read(path, elsewhere, "birds")

    assert path.read_bytes() == before
    assert not list(path.parent.glob("archive?*"))


def test_an_archive_shows_one_moment(birds: Database, exported: Exported) -> None:
    """What is taught while it is written is not in it, not even in part."""
    before = content(birds, "birds")
    steps: list[int] = []

    def taught_meanwhile(copied: int, _: int) -> None:
        if not steps:
            with birds.write() as db:
                model = catalogue.locked(db, catalogue.get(db, "birds").id)
                row = classes.add(db, model, "late", shots=1, since=VersionNumber(3))
                classes.add_shots(db, model.id, row.id, [b"late"])
                classes.erase(db, model.id, 3)
        steps.append(copied)

    path = exported(progress=taught_meanwhile)

    archive.read(path, birds, "copy")
    assert content(birds, "copy") == before
    assert content(birds, "birds") != before


def test_images_are_copied_a_few_at_a_time(exported: Exported, elsewhere: Database) -> None:
    """Both ways, and each step is reported: all of them at once might not fit in memory."""
    out: list[tuple[int, int]] = []
    back: list[tuple[int, int]] = []

    path = exported(progress=lambda *step: out.append(step))
    archive.read(path, elsewhere, "birds", lambda *step: back.append(step))

    total = 3 + 3 + 20 + 2 + 2 + 3 + 1
    copied = [count for count, _ in out]
    assert out == back
    assert copied == [3, 6, 14, 22, 26, 28, 29, 30, 33, 34]
    assert {of for _, of in out} == {total}


# What happens on arrival


def test_a_provisional_class_gets_a_session(exported: Exported, elsewhere: Database) -> None:
    """The one it waited for stayed behind."""
    model = archive.read(exported(), elsewhere, "birds")

    with elsewhere.read() as db:
        (session,) = db.scalars(select(SessionRow))
        assert (session.model_id, session.status) == (model.id, "queued")
        assert {row.name: row.session_id for row in db.scalars(select(ClassRow))} == {
            "swan": None,
            "wren é": session.id,
            "owl": None,
        }


def test_without_a_provisional_class_no_session_is_made(
    birds: Database, exported: Exported, elsewhere: Database
) -> None:
    """A deleted class waits for nothing, provisional or not."""
    with birds.write() as db:
        classes.mark_learned(db, catalogue.get(db, "birds").id, [2])

    archive.read(exported(), elsewhere, "birds")

    with elsewhere.read() as db:
        assert session_metrics.counts(db) == {}


def test_a_name_that_is_taken_is_refused(birds: Database, exported: Exported) -> None:
    """The sentence says how to give another."""
    path = exported()

    with pytest.raises(NameTaken, match="there is a model named 'bees' already; give this one another name with --mo"):
        archive.read(path, birds, "bees")


def test_an_interrupted_import_leaves_nothing(exported: Exported, elsewhere: Database) -> None:
    """All of it arrives or none."""

    def stop(copied: int, _: int) -> None:
        if copied > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive.read(exported(), elsewhere, "birds", stop)

    with elsewhere.read() as db:
        assert catalogue.everything(db) == []
        assert db.scalars(select(Shot)).all() == []


def test_a_model_that_is_not_there_cannot_be_written(exported: Exported) -> None:
    """The sentence names those that are."""
    with pytest.raises(NotThere, match="there is no model named 'ants'; there are 'bees', 'birds'"):
        exported("ants")


# What is refused


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An archive: how it was damaged does not depend on the database that it came from."""
    folder = tmp_path_factory.mktemp("archive")
    for name in ("home", "archive"):
        with closing(Database(f"sqlite:///{folder / name}")) as made:
            schema.upgrade(made)
    with closing(Database(f"sqlite:///{folder / 'home'}")) as home:
        with home.write() as db:
            fill(db, "birds")
        archive.write(home, "birds", folder / "archive")
    return (folder / "archive").read_bytes()


@pytest.fixture
def sound(written: bytes, tmp_path: Path) -> Path:
    (tmp_path / "sound").write_bytes(written)
    check(tmp_path / "sound")  # as it is there is nothing wrong with it
    return tmp_path / "sound"


def test_what_is_no_archive_is_refused(tmp_path: Path, empty: Callable[[], Path]) -> None:
    """Nothing, a folder, a text, and a database of this very release that is a home's and not an archive."""
    (tmp_path / "text").write_text("a model, honestly")
    home = empty()

    with pytest.raises(UnusableArchive, match="nowhere cannot be read: No such file"):
        archive.label(tmp_path / "nowhere")
    with pytest.raises(UnusableArchive, match="cannot be read: Is a directory"):
        archive.label(tmp_path)
    with pytest.raises(UnusableArchive, match="text is not an archive; `protoquad export` makes one"):
        archive.label(tmp_path / "text")
    with pytest.raises(UnusableArchive, match="is a database but not an archive"):
        archive.label(home)


def test_a_full_disk_is_no_flaw_of_the_archive(sound: Path, tmp_path: Path) -> None:
    """What is written while it is read may find no room; the archive is as good as before."""
    with pytest.raises(sqlite3.OperationalError, match="disk is full"), opened(sound):
        write_without_room(tmp_path / "copy")


@pytest.mark.parametrize("what", [SHOTS[7], WEIGHTS[:2000], b"owl!" * 64, b"wren"], ids=lambda what: repr(what[:4]))
def test_a_changed_byte_is_noticed(sound: Path, what: bytes) -> None:
    """Wherever it is: in an image, in weights, in a prototype, in a name."""
    whole = sound.read_bytes()
    at = whole.index(what) + len(what) // 2
    sound.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])

    with pytest.raises(UnusableArchive, match=r"is damaged \(.*\); export the model again"):
        check(sound)


@pytest.mark.parametrize("share", [0.0005, 0.3, 0.7, 0.99])
def test_an_archive_that_ends_too_early_is_noticed(sound: Path, share: float) -> None:
    """A copy that broke off is no archive."""
    whole = sound.read_bytes()
    sound.write_bytes(whole[: max(20, int(share * len(whole)))])

    with pytest.raises(UnusableArchive, match="is damaged"):
        check(sound)


def test_a_row_that_was_taken_out_is_noticed(sound: Path) -> None:
    """The file is sound as a database, and still not what was written."""
    with closing(sqlite3.connect(sound)) as connection:
        connection.execute("DELETE FROM shots WHERE id = 5")
        connection.commit()

    with pytest.raises(UnusableArchive, match="its content is not what was written"):
        check(sound)


def test_a_later_format_is_refused(sound: Path) -> None:
    """Whoever changes the format counts it up, and this release does not guess."""
    with closing(sqlite3.connect(sound)) as connection:
        connection.execute("UPDATE archive SET format = 2")
        connection.commit()

    with pytest.raises(UnusableArchive, match="its format is '2', this release reads 1"):
        check(sound)


def test_every_table_of_a_model_is_copied_or_left_behind_on_purpose() -> None:
    """Whoever adds a table decides here whether it travels."""
    stays = {
        "models",
        "sessions",
        "session_events",
        "api_keys",
        "measurements",
        "samples",
        "webhooks",
        "deliveries",
        "zip_parts",
        IdempotencyKey.__tablename__,
    }

    assert {table.name for table in archive.TABLES} | stays == set(Base.metadata.tables)
    assert {table.name for table in archive.TABLES} == {table.__tablename__ for table in OWNED}
