"""What was deleted is gone from the files too: from the database's and from the log beside it."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from migrations import schema
from store import catalogue, classes
from store.database import Database
from store.models import Model, VersionNumber

Until = Callable[[Callable[[], Any], str], None]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "protoquad.db"


@pytest.fixture
def opened(file: Path) -> Iterator[Database]:
    with closing(Database(f"sqlite:///{file}")) as database:
        schema.upgrade(database)
        with database.write() as db:
            catalogue.create(db, "birds", "resnet18", 1.0)
        yield database


def image(seed: int, blocks: int = 500) -> bytes:
    """Bytes of which no sixteen occur twice."""
    return b"".join(hashlib.sha256(f"{seed} {block}".encode()).digest() for block in range(blocks))


def teach(database: Database, name: str, *images: bytes) -> int:
    with database.write() as db:
        model = catalogue.get(db, "birds")
        row = classes.add(db, model, name, shots=len(images), since=VersionNumber(0), session_id=None)
        classes.add_shots(db, model.id, row.id, images[:1])
        classes.add_guard(db, model.id, row.id, images[1:])
        return row.id


def erase(database: Database, class_id: int) -> None:
    with database.write() as db:
        classes.erase(db, catalogue.get(db, "birds").id, class_id)


def found(file: Path, data: bytes) -> bool:
    """Whether any piece of an image is in any file of the database."""
    raw = b"".join(path.read_bytes() for path in sorted(file.parent.glob(f"{file.name}*")))
    return any(data[start : start + 32] in raw for start in range(0, len(data), 32))


def test_the_bytes_of_a_deleted_class_leave_every_file(opened: Database, file: Path, until: Until) -> None:
    """While the service runs, and without anybody doing anything."""
    shot, guard, kept = image(1), image(2), image(3)
    gone = teach(opened, "gone", shot, guard)
    teach(opened, "kept", kept, kept)
    assert found(file, shot)
    assert found(file, guard)

    erase(opened, gone)

    until(lambda: not found(file, shot) and not found(file, guard), "the images are gone")
    assert found(file, kept)


def test_the_bytes_of_a_deleted_shot_leave_every_file(opened: Database, file: Path, until: Until) -> None:
    """Its class and the other shots stay."""
    shot, kept = image(1), image(2)
    teach(opened, "wren", shot)
    teach(opened, "robin", kept)

    with opened.write() as db:
        model_id = catalogue.get(db, "birds").id
        classes.delete_shot(db, model_id, classes.shot_keys(db, model_id, 1)[0])

    until(lambda: not found(file, shot), "the shot is gone")
    assert found(file, kept)


def test_the_bytes_of_a_deleted_model_leave_every_file(opened: Database, file: Path, until: Until) -> None:
    """All of its classes at once."""
    shot = image(1)
    teach(opened, "gone", shot)

    with opened.write() as db:
        catalogue.delete(db, "birds")

    until(lambda: not found(file, shot), "the image is gone")


def test_a_reader_of_an_older_state_delays_it_and_holds_up_nobody(opened: Database, file: Path, until: Until) -> None:
    """It still sees what it began to read; others write meanwhile; when it ends the image goes."""
    shot = image(1)
    gone = teach(opened, "gone", shot)
    with opened.read() as db:
        assert db.execute(text("SELECT count(*) FROM shots")).scalar_one() == 1
        erase(opened, gone)
        teach(opened, "another", image(4))
        assert db.execute(text("SELECT count(*) FROM shots")).scalar_one() == 1
        assert found(file, shot)

    until(lambda: not found(file, shot), "the image is gone")


def test_closing_at_once_leaves_nothing_behind(opened: Database, file: Path) -> None:
    """Also while another process has the database open, which keeps the log in being."""
    shot = image(1)
    with closing(Database(f"sqlite:///{file}")) as other, other.read() as db:
        db.execute(text("SELECT 1"))
        gone = teach(opened, "gone", shot)
        erase(opened, gone)
        db.rollback()
        opened.close()

        assert not found(file, shot)


def test_a_failed_deletion_changes_nothing(opened: Database, file: Path) -> None:
    """The image is there as before."""
    shot = image(1)
    gone = teach(opened, "gone", shot)

    def fail() -> None:
        with opened.write() as db:
            classes.erase(db, db.get_one(Model, 1).id, gone)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert found(file, shot)
