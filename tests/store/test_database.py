"""Transactions: what is kept, what is seen, and who waits for whom."""

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from store import catalogue
from store.database import Database, now
from store.errors import NameTaken
from store.models import ApiKey

BOUND = 30  # seconds until a test that waits has failed


def names(database: Database) -> list[str]:
    with database.read() as db:
        return [model.name for model in catalogue.everything(db)]


def test_what_is_written_is_kept_when_the_transaction_ends(database: Database) -> None:
    """And is seen from then on."""
    with database.write() as db:
        catalogue.create(db, "birds", "resnet18", 1.0)

    assert names(database) == ["birds"]


def test_nothing_is_kept_of_a_transaction_that_raises(database: Database) -> None:
    """Also what was flushed before."""

    def fail() -> None:
        with database.write() as db:
            catalogue.create(db, "birds", "resnet18", 1.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert names(database) == []


def test_reading_keeps_nothing(database: Database) -> None:
    """Whatever is done inside."""
    with database.read() as db:
        catalogue.create(db, "birds", "resnet18", 1.0)

    assert names(database) == []


def test_rows_can_be_used_after_their_transaction(database: Database) -> None:
    """A row that was read is plain data."""
    with database.write() as db:
        written = catalogue.create(db, "birds", "resnet18", 1.0)
    with database.read() as db:
        read = catalogue.get(db, "birds")

    assert (written.name, read.name, read.head) == ("birds", "birds", 0)


def test_a_reader_sees_one_moment(database: Database) -> None:
    """Two questions in one transaction are answered from the same state, whatever was written between them."""
    with database.read() as db:
        before = catalogue.everything(db)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_create, database, "birds").result(timeout=BOUND)
        after = catalogue.everything(db)

    assert before == after == []
    assert names(database) == ["birds"]


def _create(database: Database, name: str) -> None:
    with database.write() as db:
        catalogue.create(db, name, "resnet18", 1.0)


def test_a_reader_does_not_wait_for_a_writer(database: Database) -> None:
    """Predictions go on while something is being taught."""
    with database.write() as db:
        catalogue.create(db, "birds", "resnet18", 1.0)
        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(names, database).result(timeout=BOUND)

    assert seen == []


def test_writers_wait_for_each_other(database: Database) -> None:
    """Each reads a number and writes the next one: none fails and none is lost."""
    _create(database, "birds")
    writers, rounds = 4, 5
    start = Barrier(writers, timeout=BOUND)

    def count_up() -> None:
        start.wait()
        for _ in range(rounds):
            with database.write() as db:
                model = catalogue.locked(db, catalogue.get(db, "birds").id)
                model.last_class += 1

    with ThreadPoolExecutor(writers) as pool:
        for task in [pool.submit(count_up) for _ in range(writers)]:
            task.result(timeout=BOUND)

    with database.read() as db:
        assert catalogue.get(db, "birds").last_class == writers * rounds


def test_a_second_writer_of_sqlite_waits_before_it_reads(tmp_path: Path) -> None:
    """It takes the lock when it begins: what it reads cannot be outdated by the time that it writes."""
    database = Database(f"sqlite:///{tmp_path / 'new' / 'folder' / 'some.db'}")
    with database.write() as db:
        db.execute(text("CREATE TABLE counter (value INTEGER)"))
        db.execute(text("INSERT INTO counter VALUES (1)"))
    began = Event()

    def second() -> int:
        began.set()
        with database.write() as db:
            return db.execute(text("UPDATE counter SET value = value + 1 RETURNING value")).scalar_one()

    with ThreadPoolExecutor(1) as pool:
        with database.write() as db:
            db.execute(text("SELECT value FROM counter"))
            other = pool.submit(second)
            assert began.wait(BOUND)
            assert not other.done()
            db.execute(text("UPDATE counter SET value = 10"))
        assert other.result(timeout=BOUND) == 11
    database.close()


def test_a_new_file_can_be_opened_by_many_at_once(tmp_path: Path) -> None:
    """None is told that it is locked."""
    together = 8
    start = Barrier(together, timeout=BOUND)

    def open_and_close() -> str:
        database = Database(f"sqlite:///{tmp_path / 'new.db'}")
        start.wait()
        with database.write() as db:
            mode = db.execute(text("PRAGMA journal_mode")).scalar_one()
        database.close()
        return str(mode)

    with ThreadPoolExecutor(together) as pool:
        modes = [task.result(timeout=BOUND) for task in [pool.submit(open_and_close) for _ in range(together)]]

    assert modes == ["wal"] * together


def test_two_at_once_cannot_take_a_name(database: Database) -> None:
    """One of them has it, the others are told so."""
    together = 4
    start = Barrier(together, timeout=BOUND)

    def create() -> bool:
        start.wait()
        try:
            _create(database, "birds")
        except NameTaken:
            return False
        return True

    with ThreadPoolExecutor(together) as pool:
        made = [task.result(timeout=BOUND) for task in [pool.submit(create) for _ in range(together)]]

    assert sorted(made) == [False, False, False, True]


# Time


def test_the_clock_is_in_utc_and_goes_on_within_a_transaction(database: Database) -> None:
    """It is the moment of asking, not that of the transaction's start."""
    with database.write() as db:
        first, second = now(db), now(db)

    assert first.utcoffset() == second.utcoffset() == timedelta(0)
    assert first < second
    assert abs(datetime.now(UTC) - first) < timedelta(seconds=BOUND)


def test_a_time_comes_back_in_utc_wherever_it_was_written(database: Database) -> None:
    """The same moment and the same text, on either database."""
    moment = datetime(2024, 5, 17, 9, 30, 0, 250_000, tzinfo=timezone(timedelta(hours=7)))
    with database.write() as db:
        db.add(ApiKey(id="1", name="", digest="", scopes="", created_at=moment))

    with database.read() as db:
        row = db.get_one(ApiKey, "1")
    assert row.created_at.isoformat() == "2024-05-17T02:30:00.250000+00:00"
    assert row.revoked_at is None


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_whoever_falls_silent_while_writing_holds_up_nobody_for_long(database: Database) -> None:
    """A frozen machine loses its lock and its transaction; when it wakes it hears that its connection is gone."""
    with database.write() as db:
        model = catalogue.create(db, "birds", "resnet18", 1.0)
    impatient = Database(database.url, idle_seconds=1)

    def frozen() -> None:
        with closing(impatient), impatient.write() as db:
            catalogue.locked(db, model.id).renames = 7
            db.flush()
            assert ThreadPoolExecutor(1).submit(lock_and_rename).result(BOUND) == 0

    def lock_and_rename() -> int:
        with database.write() as db:
            row = catalogue.locked(db, model.id)
            seen, row.renames = row.renames, 1
            return seen

    with pytest.raises(OperationalError):
        frozen()

    with database.read() as db:
        assert catalogue.get(db, "birds").renames == 1


# Files of SQLite


@pytest.fixture
def _open_umask() -> Iterator[None]:
    """New files are everybody's, unless whoever makes them says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
def test_the_files_of_a_new_database_are_their_owners_alone(tmp_path: Path) -> None:
    """Whatever the umask: it holds every image that was taught."""
    folder = tmp_path / "home"
    with closing(Database(f"sqlite:///{folder / 'some.db'}")) as database:
        with database.write() as db:
            db.execute(text("CREATE TABLE counter (value INTEGER)"))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.iterdir()]}

    assert modes == {"home": 0o700, "some.db": 0o600, "some.db-wal": 0o600, "some.db-shm": 0o600}


def test_every_connection_overwrites_what_it_deletes(tmp_path: Path) -> None:
    """Also where SQLite was built not to."""
    with closing(Database(f"sqlite:///{tmp_path / 'some.db'}")) as database:

        @event.listens_for(database.engine, "connect", insert=True)
        def _as_most_builds_have_it(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA secure_delete = OFF")

        with database.read() as db:
            assert db.execute(text("PRAGMA secure_delete")).scalar_one() == 1


def test_a_connection_in_use_when_the_database_closes_is_closed_when_it_is_returned(database_url: str) -> None:
    """A thread that was stuck in a statement comes back after the service has stopped."""
    database, closed = Database(database_url), []
    event.listen(database.engine, "close", lambda connection, _: closed.append(connection))

    with database.read() as db:
        in_use = db.connection().connection.dbapi_connection
        database.close()
        before = list(closed)

    assert in_use not in before
    assert in_use in closed
