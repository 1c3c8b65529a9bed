"""The migrations make what the models describe, forwards and backwards, and say so when they have not run."""

import ast
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

import migrations
from migrations import schema
from store import base_sessions, catalogue, classes, sessions, versions, webhooks, zip_parts
from store.database import Database, now
from store.errors import SchemaMismatch
from store.models import Base, SessionEvent


def tables(database: Database) -> set[str]:
    return set(inspect(database.engine).get_table_names()) - {"alembic_version"}


def described(database: Database) -> dict[str, Any]:
    """Everything that the database itself says of its tables, in an order that does not depend on how they came."""
    inspector = inspect(database.engine)
    return {
        table: {
            "columns": [{**column, "type": str(column["type"])} for column in inspector.get_columns(table)],
            "primary key": inspector.get_pk_constraint(table),
            "foreign keys": _sorted(inspector.get_foreign_keys(table)),
            "unique": _sorted(inspector.get_unique_constraints(table)),
            "checks": _sorted(inspector.get_check_constraints(table)),
            "indexes": [
                {**index, "dialect_options": {name: str(value) for name, value in index["dialect_options"].items()}}
                for index in _sorted(inspector.get_indexes(table))
            ],
        }
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def _sorted(entries: list[Any]) -> list[Any]:
    return sorted(entries, key=lambda entry: entry["name"])


@pytest.fixture
def db(database: Database) -> Iterator[Session]:
    with database.write() as db:
        yield db


# Forwards and backwards


def test_an_empty_database_gets_every_table(empty_database: Database) -> None:
    """All that the models name, and the revision beside them."""
    schema.upgrade(empty_database)

    assert tables(empty_database) == set(Base.metadata.tables)
    assert schema.current(empty_database) == schema.head()


def test_going_back_leaves_nothing_and_going_forward_again_leaves_the_same(empty_database: Database) -> None:
    """Up, down and up: each direction undoes the other."""
    schema.upgrade(empty_database)
    first = described(empty_database)
    schema.downgrade(empty_database, "base")

    assert tables(empty_database) == set()
    assert schema.current(empty_database) is None
    schema.upgrade(empty_database)
    assert described(empty_database) == first


def test_sessions_keep_everything_through_the_step_that_gave_them_a_queue(database: Database) -> None:
    """Down and up again: rows and what hangs on them stay, and all wait for any worker."""
    with database.write() as db:
        model = catalogue.create(db, "birds", "resnet18", 1.0)
        session = sessions.enqueue(db, model, delay=0, patience=0, queue="gpu", request_id="first")
        db.add(SessionEvent(session_id=session.id, event="progress", data={"stage": "loading"}, at=now(db)))
        classes.add(db, model, "wren", shots=5, since=catalogue.UNTAUGHT, session_id=session.id)
        before = _kept(db)

    schema.downgrade(database, "0001")
    with database.read() as db:
        between = _kept(db)
    schema.upgrade(database)

    with database.read() as db:
        assert "queue" not in between[0]
        assert {**between[0], "queue": "gpu", "traceparent": None, "kind": "incremental", "task": None} == before[0]
        assert (_kept(db)[0], _kept(db)[1:]) == ({**before[0], "queue": "cpu"}, before[1:])
        assert between[1:] == before[1:]
    with database.write() as db:
        assert sessions.claim(db, "worker", lease=60, attempts=3) is not None


def test_sessions_keep_everything_through_the_step_that_gave_them_a_kind(database: Database) -> None:
    """Down and up again: sessions that refine stay; a base session stays if it is over, and is lost if it waits."""
    with database.write() as db:
        model = catalogue.create(db, "birds", "resnet18", 1.0)
        over = base_sessions.enqueue(db, model.id, {}, BytesIO(b"zip"), queue="cpu", request_id=None)
        sessions.cancel(db, model.id, over.id)
        kept = sessions.enqueue(db, model, delay=0, patience=0, request_id="first")
        base_sessions.enqueue(db, model.id, {}, BytesIO(b"zip"), queue="cpu", request_id=None)

    schema.downgrade(database, "0005")
    schema.upgrade(database)

    with database.write() as db:
        rows = sessions.page(db, model.id, before=None, limit=10)
        assert [(row.id, row.status, row.kind, row.task) for row in rows] == [
            (kept.id, "queued", "incremental", None),
            (over.id, "cancelled", "incremental", None),
        ]
        assert zip_parts.read(db, over.id, 0) is None
        assert sessions.claim(db, "worker", lease=60, attempts=3) is not None


def test_shots_keep_everything_through_the_step_that_gave_them_a_small_form(database: Database) -> None:
    """Down and up again: the image stays, and its smaller copy is made again when needed."""
    with database.write() as db:
        model = catalogue.create(db, "birds", "resnet18", 1.0)
        classes.add(db, model, "wren", shots=2, since=catalogue.UNTAUGHT)
        classes.add_shots(db, model.id, 1, [b"one", b"other"], [b"small", None])
        before = classes.shots_of(db, model.id, [1])

    schema.downgrade(database, "0002")
    schema.upgrade(database)

    assert [image.scaled for image in before] == [b"small", None]
    with database.read() as db:
        assert classes.shots_of(db, model.id, [1]) == [replace(image, scaled=None) for image in before]


def test_sessions_keep_everything_through_the_step_that_gave_them_a_trace(database: Database) -> None:
    """Down and up again: the row stays, without the trace; webhooks, which only the later schema has, are gone."""
    with database.write() as db:
        model = catalogue.create(db, "birds", "resnet18", 1.0)
        webhooks.create(db, model.id, "https://example.org/hook", webhooks.EVENTS)
        sessions.enqueue(db, model, delay=0, patience=0, traceparent=f"00-{'1' * 32}-{'2' * 16}-01")
        before = _session(db)

    schema.downgrade(database, "0005")
    schema.upgrade(database)

    with database.read() as db:
        assert before["traceparent"] == f"00-{'1' * 32}-{'2' * 16}-01"
        assert _session(db) == {**before, "traceparent": None}
        assert webhooks.everything(db, model.id) == []


def _session(db: Session) -> dict[str, Any]:
    return dict(db.execute(text("SELECT * FROM sessions")).mappings().one())


def _kept(db: Session) -> list[dict[str, Any]]:
    """The one session, class and event."""
    return [
        dict(db.execute(text(f"SELECT * FROM {table}")).mappings().one())
        for table in ("sessions", "classes", "session_events")
    ]


def test_upgrading_what_is_current_changes_nothing(database: Database) -> None:
    """So every start may call it: rows stay."""
    with database.write() as db:
        catalogue.create(db, "birds", "resnet18", 1.0)

    schema.upgrade(database)

    with database.read() as db:
        assert [model.name for model in catalogue.everything(db)] == ["birds"]


def test_a_step_that_fails_leaves_the_schema_as_it_was(empty_database: Database) -> None:
    """A table in the way stops it half way, and the half is undone."""
    with empty_database.write() as db:
        db.execute(text("CREATE TABLE versions (something INTEGER)"))

    with pytest.raises(Exception, match="already exists"):
        schema.upgrade(empty_database)

    assert tables(empty_database) == {"versions"}
    assert schema.current(empty_database) is None


def test_two_processes_may_upgrade_at_once(empty_database_url: str) -> None:
    """One does it, the others wait and find it done."""
    together = 4
    start = Barrier(together, timeout=30)

    def upgrade() -> str | None:
        database = Database(empty_database_url)  # an engine each, as processes have
        start.wait()
        schema.upgrade(database)
        found = schema.current(database)
        database.close()
        return found

    with ThreadPoolExecutor(together) as pool:
        found = [task.result(timeout=60) for task in [pool.submit(upgrade) for _ in range(together)]]

    assert found == [schema.head()] * together


# What the models say


def test_the_models_and_the_migrated_schema_agree(database: Database) -> None:
    """Autogenerate finds nothing to do."""
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        difference = compare_metadata(context, Base.metadata)

    assert difference == []


def test_the_migrated_schema_is_the_one_that_the_models_would_make(
    database: Database, empty_database: Database
) -> None:
    """Names, nullability, rules of deletion, checks and conditions of indexes too, which autogenerate passes over."""
    Base.metadata.create_all(empty_database.engine)

    assert described(database) == described(empty_database)


def test_sqlite_counts_ids_as_the_models_say(tmp_path: Path) -> None:
    """Whether an id may come back after its row is gone is visible only in the statement that made the table."""
    made, migrated = Database(f"sqlite:///{tmp_path / 'made.db'}"), Database(f"sqlite:///{tmp_path / 'migrated.db'}")
    Base.metadata.create_all(made.engine)
    schema.upgrade(migrated)

    counted = []
    for database in (made, migrated):
        with database.read() as db:
            rows = db.execute(text("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'"))
            counted.append({row.name for row in rows})
        database.close()

    assert counted[0] == counted[1] == {"models", "sessions"}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE classes SET status = 'unheard'",
        "UPDATE sessions SET status = 'unheard'",
        "UPDATE versions SET kind = 'unheard'",
        "UPDATE webhooks SET status = 'unheard'",
        "INSERT INTO deliveries (id, webhook_id, type, body, attempts, due_at, created_at)"
        " SELECT 'msg', 'wh_0', '', '', 0, created_at, created_at FROM models",
        "INSERT INTO shots (model_id, class_id, sha256, data) SELECT id, 99, '', '' FROM models",
        "INSERT INTO weights (model_id, version, data) SELECT id, 99, '' FROM models",
        "INSERT INTO session_events (session_id, event, data, at) SELECT 99, '', '{}', created_at FROM models",
    ],
)
def test_a_row_that_means_nothing_is_refused(db: Session, statement: str) -> None:
    """The database itself knows the words that a state may have, and that a thing belongs to another."""
    model = catalogue.create(db, "birds", "resnet18", 1.0)
    classes.add(db, model, "wren", shots=5, since=catalogue.UNTAUGHT)
    sessions.enqueue(db, model, delay=0, patience=0)
    webhooks.create(db, model.id, "https://example.org/hook", webhooks.EVENTS)

    with pytest.raises(IntegrityError), db.begin_nested():
        db.execute(text(statement))


@pytest.mark.parametrize("status", ["queued", "running"])
def test_a_model_has_one_session_of_a_kind_at_a_time(db: Session, status: str) -> None:
    """Two that wait, or two that run, are refused; finished ones are as many as there were."""
    one, other = (catalogue.create(db, name, "resnet18", 1.0) for name in ("birds", "cars"))
    add = text(
        "INSERT INTO sessions (model_id, status, attempt, failures, ready_at, cancel_requested, created_at)"
        " SELECT id, :status, 0, 0, created_at, false, created_at FROM models WHERE id = :id"
    )
    for model in (one, other):
        for each in (status, "succeeded", "succeeded"):
            db.execute(add, {"status": each, "id": model.id})

    with pytest.raises(IntegrityError), db.begin_nested():
        db.execute(add, {"status": status, "id": one.id})


def test_a_name_is_free_again_when_its_class_is_deleted(db: Session) -> None:
    """One living class of a name; dead ones do not count."""
    model = catalogue.create(db, "birds", "resnet18", 1.0)
    for name in ("wren", "robin"):
        classes.add(db, model, name, shots=5, since=catalogue.UNTAUGHT)
    rename = text("UPDATE classes SET name = 'wren'")

    with pytest.raises(IntegrityError), db.begin_nested():
        db.execute(rename)
    classes.erase(db, model.id, 1)
    db.execute(rename)

    assert classes.names(db, model.id) == {1: "wren", 2: "wren"}


def test_a_model_takes_everything_of_its_own_with_it(db: Session) -> None:
    """No row of any table is left behind."""
    model = catalogue.create(db, "birds", "resnet18", 1.0)
    webhooks.create(db, model.id, "https://example.org/hook", webhooks.EVENTS)  # the version makes a delivery
    session = sessions.enqueue(db, model, delay=0, patience=0)
    classes.add(db, model, "wren", shots=5, since=catalogue.UNTAUGHT, session_id=session.id)
    classes.add_shots(db, model.id, 1, [b"image"])
    classes.add_guard(db, model.id, 1, [b"image"])
    versions.add(
        db,
        model,
        versions.NewVersion(
            "incremental",
            parent=versions.get(db, model.id, 0),
            classes=1,
            temperature=1.0,
            threshold=None,
            weights=b"weights",
            session_id=session.id,
            prototypes=[versions.PrototypeRow(1, b"vector", 5, restart=True)],
            statistics=[versions.StatisticsRow(1, b"mean", b"factor")],
        ),
    )

    catalogue.delete(db, "birds")

    left = {name: db.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in Base.metadata.tables}
    assert left == dict.fromkeys(Base.metadata.tables, 0)


# Being told


def test_an_empty_database_is_told_to_migrate(empty_database: Database) -> None:
    """What it is, what is needed, and the command."""
    assert schema.current(empty_database) is None
    with pytest.raises(SchemaMismatch, match=rf"is empty, .* needs {schema.head()}; run `protoquad migrate`"):
        schema.require_current(empty_database)


def test_a_current_database_is_let_through(database: Database) -> None:
    """Nothing is raised."""
    schema.require_current(database)


@pytest.mark.parametrize("act", [schema.require_current, schema.upgrade])
def test_a_database_of_a_newer_release_is_left_alone(database: Database, act: Any) -> None:
    """This release cannot know what has changed; neither serving nor migrating may touch it."""
    with database.write() as db:
        db.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(SchemaMismatch, match=rf"schema 9999, which .* does not know; it needs {schema.head()}"):
        act(database)


# Being installed


def test_migrations_import_the_store_alone() -> None:
    """Of this project: they must run where nothing else of it can."""
    ours = {"core", "learners", "service", "workers", "protoquad", "bench"}
    folder = Path(migrations.__file__).parent
    imported = {
        name.split(".")[0]
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert not imported & ours
    assert (folder / "versions" / "__init__.py").exists(), "without it, an installed package has no versions"
