"""A database that is away or busy is an outage, a statement that can never succeed a fault: by real errors of both."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, literal, or_, select, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from store import catalogue
from store.database import Database
from store.models import Model
from store.outages import frames, is_full, is_outage, summary
from tests.postgresql_server import PostgresqlServer

SECRET = b"the bytes of an image"
ONLY_SQLITE = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
ONLY_POSTGRESQL = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)


def raised(act: Callable[[], object]) -> SQLAlchemyError:
    with pytest.raises(SQLAlchemyError) as caught:
        act()
    return caught.value


def running(database: Database, *statements: str) -> Callable[[], None]:
    """Statements in one transaction that writes."""

    def act() -> None:
        with database.write() as db:
            for statement in statements:
                db.execute(text(statement))

    return act


# Outages


@ONLY_SQLITE
def test_a_locked_file_is_an_outage(database: Database, database_url: str) -> None:
    """Whoever holds it lets go of it again."""
    impatient = create_engine(database_url, connect_args={"timeout": 0})

    def act() -> None:
        with database.write() as db, impatient.connect() as connection:
            db.execute(text("SELECT 1"))
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    assert is_outage(raised(act))
    impatient.dispose()


def test_a_file_that_cannot_be_opened_is_an_outage(tmp_path: Path) -> None:
    """Its disk may be mounted again."""
    engine = create_engine(f"sqlite:///{tmp_path / 'no such folder' / 'some.db'}")

    assert is_outage(raised(engine.connect))


@ONLY_SQLITE
def test_a_full_disk_is_an_outage_of_its_own_kind(database: Database) -> None:
    """It ends when somebody makes room."""

    def act() -> None:
        with database.write() as db:
            pages = db.execute(text("PRAGMA page_count")).scalar_one()
            db.execute(text(f"PRAGMA max_page_count = {pages}"))
            db.execute(text("CREATE TABLE large AS SELECT zeroblob(1000000) AS content"))

    error = raised(act)
    assert (is_outage(error), is_full(error)) == (True, True)


@ONLY_SQLITE
def test_a_disk_that_became_read_only_is_an_outage(database_url: str) -> None:
    """As is a server of PostgreSQL that became a standby."""
    path = database_url.removeprefix("sqlite:///")
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(f"file:{path}?mode=ro", uri=True))

    def act() -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE another (id INTEGER)")

    error = raised(act)
    assert (is_outage(error), is_full(error)) == (True, False)
    engine.dispose()


@ONLY_POSTGRESQL
@pytest.mark.parametrize(
    "statements",
    [
        ["SELECT pg_terminate_backend(pg_backend_pid())"],
        ["SET LOCAL statement_timeout = 1", "SELECT pg_sleep(60)"],
        ["SET TRANSACTION READ ONLY", "CREATE TABLE another (id INTEGER)"],
    ],
    ids=["connection lost", "took too long", "read-only"],
)
def test_a_server_that_gives_up_on_us_is_an_outage(database: Database, statements: list[str]) -> None:
    """It says so with a code, whatever the language of its texts."""
    assert is_outage(raised(running(database, *statements)))


@ONLY_POSTGRESQL
def test_a_lock_that_is_not_available_is_an_outage(database: Database, db: Session) -> None:
    """Another transaction holds it."""
    catalogue.everything(db)

    act = running(database, "SET LOCAL lock_timeout = 1", "LOCK TABLE models IN ACCESS EXCLUSIVE MODE")

    assert is_outage(raised(act))


def test_a_server_that_cannot_be_reached_is_an_outage(postgresql: PostgresqlServer) -> None:
    """Nobody listens, or not for this database: there is no code, for no statement was sent."""
    nobody = create_engine("postgresql+psycopg://user@127.0.0.1:1/none", connect_args={"connect_timeout": 5})
    wrong = create_engine(postgresql.url("no such database"))

    assert [is_outage(raised(engine.connect)) for engine in (nobody, wrong)] == [True, True]


def test_waiting_too_long_for_a_connection_is_an_outage() -> None:
    """All of them are in use."""
    assert is_outage(PoolTimeout("QueuePool limit reached"))


# Faults


@pytest.mark.parametrize(
    "statement",
    ["SELECT * FROM no_such_table", "SELEC 1", "INSERT INTO models (id) VALUES (1)", "SELECT 1 + no_such()"],
)
def test_a_statement_that_cannot_succeed_is_a_fault(database: Database, statement: str) -> None:
    """Trying again would not help."""
    error = raised(running(database, statement))

    assert (is_outage(error), is_full(error)) == (False, False)


@ONLY_SQLITE
def test_an_expression_that_is_too_large_is_a_fault(database: Database) -> None:
    """The driver calls it operational all the same."""
    too_many = or_(*(literal(number) == Model.id for number in range(2_000)))

    def act() -> None:
        with database.read() as db:
            db.execute(select(Model.id).where(too_many))

    error = raised(act)
    assert isinstance(error, OperationalError)
    assert not is_outage(error)


@pytest.mark.parametrize("place", [0, 4096], ids=["no database", "malformed"])
def test_a_file_that_is_broken_is_a_fault(tmp_path: Path, place: int) -> None:
    """It does not mend itself."""
    path = tmp_path / "some.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE some (id INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO some VALUES (?)", [(number,) for number in range(100)])
    connection.close()
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 2000)
    engine = create_engine(f"sqlite:///{path}")

    def act() -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT id FROM some").all()

    assert not is_outage(raised(act))
    engine.dispose()


@pytest.mark.parametrize("error", [ValueError("not of a database"), KeyError("missing"), TimeoutError("of something")])
def test_what_is_not_of_a_database_is_no_outage_of_it(error: Exception) -> None:
    """Whoever asks may ask about anything."""
    assert (is_outage(error), is_full(error)) == (False, False)


def test_an_error_of_the_driver_itself_is_told_apart_too() -> None:
    """Where SQLAlchemy had no hand in it."""
    assert is_outage(psycopg.errors.AdminShutdown("shutting down"))
    assert not is_outage(psycopg.errors.UndefinedTable("no such table"))
    assert not is_outage(psycopg.errors.UniqueViolation("the name is taken"))


# What is told of them


def test_what_is_told_of_an_error_holds_no_parameters(database: Database) -> None:
    """Neither its own text nor its summary nor its frames: parameters are the images that callers send."""

    def act() -> None:
        with database.write() as db:
            db.execute(text("INSERT INTO no_such_table VALUES (:image)"), {"image": SECRET})

    error = raised(act)
    told = f"{error} {summary(error)} {frames(error)}"
    assert "no_such_table" in summary(error)
    assert "\n" not in summary(error)
    assert "test_outages.py" in frames(error)
    assert SECRET.decode() not in told


@ONLY_POSTGRESQL
def test_a_transaction_that_was_given_up_on_tells_no_parameters(database_url: str) -> None:
    """The connection is lost, which is an outage."""
    waits = threading.Event()

    def act() -> None:
        with closing(Database(database_url, idle_seconds=0.05)) as impatient, impatient.write() as db:
            waits.wait(1)
            db.execute(text("SELECT :image"), {"image": SECRET.decode()})

    error = raised(act)
    assert is_outage(error)
    assert SECRET.decode() not in str(error)
