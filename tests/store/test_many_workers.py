"""Many workers on one table: each session runs once, one of a model at a time."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, Lock
from time import monotonic

from sqlalchemy.orm import Session

from store import catalogue, session_metrics, sessions
from store.database import Database
from store.errors import Conflict
from store.models import Model, SessionRow

BOUND = 20  # seconds until a test that waits has failed
LONG = 600.0
OVER = -1.0  # a lease that has run out when it is given


def enqueue(db: Session, model: Model) -> SessionRow:
    return sessions.enqueue(db, model, delay=0, patience=0)


def claim(db: Session, owner: str = "worker", *, lease: float = LONG) -> SessionRow | None:
    return sessions.claim(db, owner, lease=lease, attempts=3)


def test_many_workers_share_the_sessions_of_several_models(database: Database) -> None:
    """Eight workers and forty sessions of five models: each runs once, and one of a model at a time."""
    workers, models, each = 8, 5, 8
    with database.write() as db:
        made = [catalogue.create(db, f"model {number}", "resnet18", 1.0) for number in range(models)]
        for model in made:
            enqueue(db, model)
    start, guard, bound = Barrier(workers, timeout=BOUND), Lock(), monotonic() + BOUND
    running: Counter[int] = Counter()
    done: Counter[int] = Counter()
    overlaps: list[int] = []

    def work(name: str) -> None:
        start.wait()
        while sum(done.values()) < models * each and monotonic() < bound:
            with database.write() as db:
                row = claim(db, name)
            if row is None:
                continue
            with guard:
                running[row.model_id] += 1
                if running[row.model_id] > 1:
                    overlaps.append(row.id)
                done[row.id] += 1
            with database.write() as db:
                model = catalogue.locked(db, row.model_id)
                with guard:  # before the end is visible, or the next could begin first
                    running[row.model_id] -= 1
                sessions.finish(db, row.id, row.attempt, "succeeded")
                if len(sessions.page(db, model.id, before=None, limit=each)) < each:
                    enqueue(db, model)

    with ThreadPoolExecutor(workers) as pool:
        for task in [pool.submit(work, f"worker {number}") for number in range(workers)]:
            task.result(timeout=BOUND)

    with database.read() as db:
        assert session_metrics.counts(db) == {"succeeded": models * each}
        ended = [row for model in made for row in sessions.page(db, model.id, before=None, limit=99)]
    assert overlaps == []
    assert sorted(done.values()) == [1] * (models * each)
    assert {(row.attempt, row.failures) for row in ended} == {(1, 0)}


def test_an_abandoned_session_is_taken_over_by_one(database: Database) -> None:
    """However many come for it at once."""
    workers = 6
    with database.write() as db:
        enqueue(db, catalogue.create(db, "birds", "resnet18", 1.0))
        assert claim(db, "lost", lease=OVER)
    start = Barrier(workers, timeout=BOUND)

    def take_over(name: str) -> int | None:
        start.wait()
        with database.write() as db:
            row = claim(db, name)
            return row and row.attempt

    with ThreadPoolExecutor(workers) as pool:
        tasks = [pool.submit(take_over, f"worker {number}") for number in range(workers)]
        attempts = [task.result(timeout=BOUND) for task in tasks]

    assert [attempt for attempt in attempts if attempt] == [2]


def test_a_session_can_be_cancelled_while_its_model_is_taught(database: Database) -> None:
    """Neither waits for what the other holds, in any order of the two."""
    rounds = 20
    with database.write() as db:
        model_id = catalogue.create(db, "birds", "resnet18", 1.0).id
    start, bound = Barrier(2, timeout=BOUND), monotonic() + BOUND
    taught: list[int] = []

    def teach() -> None:
        start.wait()
        for _ in range(rounds):
            with database.write() as db:
                taught.append(enqueue(db, catalogue.locked(db, model_id)).id)

    def cancel() -> None:
        start.wait()
        while len(taught) < rounds and monotonic() < bound:
            with database.read() as db:
                newest = sessions.page(db, model_id, before=None, limit=1)
            with database.write() as db, suppress(Conflict):
                for row in newest:
                    sessions.cancel(db, model_id, row.id)

    with ThreadPoolExecutor(2) as pool:
        for task in [pool.submit(teach), pool.submit(cancel)]:
            task.result(timeout=BOUND)

    with database.read() as db:
        assert sum(session_metrics.counts(db).values()) == len(set(taught))


def test_teaching_and_claiming_at_once_loses_nothing(database: Database) -> None:
    """Each joining finds a session that has not begun, or makes one: none joins one that is running already."""
    rounds = 20
    with database.write() as db:
        model_id = catalogue.create(db, "birds", "resnet18", 1.0).id
    start, bound = Barrier(2, timeout=BOUND), monotonic() + BOUND
    joined: list[int] = []

    def teach() -> None:
        start.wait()
        for _ in range(rounds):
            with database.write() as db:
                row = enqueue(db, catalogue.locked(db, model_id))
                assert row.status == "queued"
                joined.append(row.id)

    def work() -> None:
        start.wait()
        while len(joined) < rounds and monotonic() < bound:
            with database.write() as db:
                row = claim(db)
                if row is not None:
                    sessions.finish(db, row.id, row.attempt, "succeeded")

    with ThreadPoolExecutor(2) as pool:
        for task in [pool.submit(teach), pool.submit(work)]:
            task.result(timeout=BOUND)

    with database.read() as db:
        counts = session_metrics.counts(db)
    assert sum(counts.values()) == len(set(joined))
    assert counts.get("queued", 0) <= 1
    assert set(counts) <= {"queued", "succeeded"}
