"""Sessions: joined while they wait, claimed by one worker at a time, fenced by attempt, ended once."""

import time
from datetime import datetime, timedelta

import pytest
from sqlalchemy.orm import Session

from store import catalogue, session_metrics, sessions
from store.database import now
from store.errors import Conflict, LeaseLost, NotThere
from store.models import Model, SessionId, SessionRow

BOUND = 20  # seconds until a test that waits has failed
LONG = 600.0
OVER = -1.0  # a lease that has run out when it is given


@pytest.fixture
def other(db: Session) -> Model:
    return catalogue.create(db, "cars", "resnet18", 1.0)


def enqueue(db: Session, model: Model, *, delay: float = 0, patience: float = 0) -> SessionRow:
    return sessions.enqueue(db, model, delay=delay, patience=patience)


def claim(db: Session, owner: str = "worker", *, lease: float = LONG, attempts: int = 3) -> SessionRow | None:
    return sessions.claim(db, owner, lease=lease, attempts=attempts)


def claim_from(
    db: Session, *queues: str, lease: float = LONG, session_id: SessionId | None = None
) -> SessionRow | None:
    return sessions.claim(db, "worker", lease=lease, attempts=3, queues=queues, session_id=session_id)


def claimed(db: Session, owner: str = "worker", *, lease: float = LONG) -> SessionRow:
    row = claim(db, owner, lease=lease)
    assert row is not None
    return row


def story(db: Session, row: SessionRow) -> list[str]:
    return [event.event for event in sessions.events(db, row.id)]


def seconds(later: datetime, earlier: datetime) -> float:
    return (later - earlier).total_seconds()


# Waiting


def test_a_queued_session_waits_for_its_delay(db: Session, model: Model) -> None:
    """Nobody gets it before."""
    row = sessions.enqueue(db, model, delay=LONG, patience=LONG, request_id="request 1")

    assert (row.status, row.attempt, row.failures, row.request_id) == ("queued", 0, 0, "request 1")
    assert seconds(row.ready_at, row.created_at) == LONG
    assert claim(db) is None
    assert story(db, row) == ["queued"]


def test_a_burst_of_teaching_becomes_one_session(db: Session, model: Model, other: Model) -> None:
    """Whoever comes joins the one that waits, which keeps its first request; another model has its own."""
    first = sessions.enqueue(db, model, delay=1, patience=9, request_id="first")
    second = sessions.enqueue(db, model, delay=1, patience=9, request_id="second")

    assert first is second
    assert first.request_id == "first"
    assert enqueue(db, other).id != first.id
    assert story(db, first) == ["queued"]


def test_each_joining_puts_the_start_off(db: Session, model: Model) -> None:
    """By the delay, from the moment of joining."""
    enqueue(db, model, delay=0, patience=LONG)
    before = now(db)
    row = enqueue(db, model, delay=60, patience=LONG)

    assert 60 <= seconds(row.ready_at, before) < 60 + BOUND


def test_patience_bounds_how_far_the_start_is_put_off(db: Session, model: Model) -> None:
    """Counted from the first; it starts in the end, however fast the teaching goes on."""
    enqueue(db, model, delay=2, patience=20)
    row = enqueue(db, model, delay=LONG, patience=20)

    assert seconds(row.ready_at, row.created_at) == 20


@pytest.mark.parametrize(("delay", "patience"), [(0, 0), (1, LONG), (LONG, 1)])
def test_joining_never_brings_the_start_forward(db: Session, model: Model, delay: float, patience: float) -> None:
    """Whoever was told a time may rely on it."""
    planned = enqueue(db, model, delay=60, patience=LONG).ready_at

    assert enqueue(db, model, delay=delay, patience=patience).ready_at >= planned


def test_what_is_taught_during_a_session_waits_for_the_next(db: Session, model: Model) -> None:
    """A session that runs is not joined: it has already read its images."""
    enqueue(db, model)
    running = claimed(db)
    later = enqueue(db, model)

    assert later.id != running.id
    assert (running.status, later.status) == ("running", "queued")


# Claiming


def test_a_claimed_session_runs_under_a_lease(db: Session, model: Model) -> None:
    """It has an owner, an end of its lease and the number of its attempt."""
    enqueue(db, model)
    before = now(db)
    row = claimed(db, "worker 1", lease=30)

    assert (row.status, row.owner, row.attempt, row.failures) == ("running", "worker 1", 1, 0)
    assert row.started_at is not None
    assert row.lease_until is not None
    assert 30 <= seconds(row.lease_until, before) < 30 + BOUND
    assert [(event.event, event.data) for event in sessions.events(db, row.id)] == [
        ("queued", {}),
        ("running", {"attempt": 1}),
    ]


def test_with_nothing_to_do_nothing_is_claimed(db: Session, model: Model) -> None:
    """Nor what somebody else has, nor what has ended."""
    assert claim(db) is None
    enqueue(db, model)
    row = claimed(db)
    assert claim(db) is None
    sessions.finish(db, row.id, 1, "succeeded")
    assert claim(db) is None


def test_the_oldest_session_goes_first(db: Session, model: Model, other: Model) -> None:
    """By when it was made, whichever model it belongs to; models run in parallel."""
    made = [enqueue(db, other).id, enqueue(db, model).id]

    assert [claimed(db, name).id for name in ("worker 1", "worker 2")] == made


def test_one_that_is_not_ready_holds_up_no_other(db: Session, model: Model, other: Model) -> None:
    """The oldest that may run is taken."""
    enqueue(db, model, delay=LONG)
    ready = enqueue(db, other)

    assert claimed(db).id == ready.id
    assert claim(db) is None


def test_a_model_runs_one_session_at_a_time(db: Session, model: Model) -> None:
    """The next starts when it has ended."""
    enqueue(db, model)
    first = claimed(db)
    second = enqueue(db, model)
    assert claim(db, "another") is None

    sessions.finish(db, first.id, 1, "succeeded")

    assert claimed(db, "another").id == second.id


def test_a_certain_session_can_be_claimed(db: Session, model: Model, other: Model) -> None:
    """If it may run at all; otherwise nothing is taken in its place."""
    late, wanted = enqueue(db, model, delay=LONG), enqueue(db, other)

    assert sessions.claim(db, "worker", lease=LONG, attempts=3, session_id=late.id) is None
    assert sessions.claim(db, "worker", lease=LONG, attempts=3, session_id=wanted.id) is wanted


# Queues


def test_a_session_waits_for_the_workers_of_its_queue(db: Session, model: Model, other: Model) -> None:
    """Those of another queue leave it alone; one that reads both takes the oldest first."""
    wanted = sessions.enqueue(db, model, delay=0, patience=0, queue="gpu")
    anywhere = enqueue(db, other)

    assert (wanted.queue, anywhere.queue) == ("gpu", "cpu")
    assert claim_from(db, "gpu") is wanted
    assert claim_from(db, "gpu") is None
    assert claim_from(db, "gpu", "cpu") is anywhere


def test_a_session_that_is_asked_for_by_name_stays_in_its_queue(db: Session, model: Model) -> None:
    """A message that went astray does not bring it to a worker that cannot run it."""
    row = sessions.enqueue(db, model, delay=0, patience=0, queue="gpu")

    assert claim_from(db, "cpu", session_id=row.id) is None
    assert claim_from(db, "gpu", session_id=row.id) is row


def test_a_session_that_lost_its_worker_stays_in_its_queue(db: Session, model: Model) -> None:
    """Whoever takes it over must be able to run it too."""
    sessions.enqueue(db, model, delay=0, patience=0, queue="gpu")
    row = claim_from(db, "gpu", lease=OVER)

    assert claim_from(db, "cpu") is None
    assert claim_from(db, "gpu") is row


def test_whoever_joins_a_session_joins_its_queue(db: Session, model: Model) -> None:
    """It was announced there."""
    row = sessions.enqueue(db, model, delay=0, patience=0, queue="gpu")

    assert sessions.enqueue(db, model, delay=0, patience=0, queue="cpu") is row
    assert row.queue == "gpu"


# Losing a worker


def test_a_session_whose_lease_ran_out_is_taken_over(db: Session, model: Model) -> None:
    """As a new attempt, ahead of whatever the model has queued since; the lost one is counted."""
    enqueue(db, model)
    lost = claimed(db, "lost", lease=OVER)
    started = lost.started_at
    enqueue(db, model)
    row = claimed(db, "next")

    assert row.id == lost.id
    assert (row.owner, row.attempt, row.failures) == ("next", 2, 1)
    assert row.error == "worker lost was lost in attempt 1"
    assert row.started_at == started


def test_a_lost_worker_is_too_late_for_anything(db: Session, model: Model) -> None:
    """Its attempt is outdated: it can neither renew, report, finish, fail nor release."""
    enqueue(db, model)
    old = claimed(db, lease=OVER)
    row = claimed(db, "next")

    for act in (
        lambda: sessions.renew(db, old.id, 1, LONG),
        lambda: sessions.record_progress(db, old.id, 1, {"step": 1}),
        lambda: sessions.finish(db, old.id, 1, "succeeded", version=1),
        lambda: sessions.record_failure(db, old.id, 1, "error", attempts=1),
        lambda: sessions.release(db, old.id, 1),
        lambda: sessions.fenced(db, old.id, 1),
    ):
        with pytest.raises(LeaseLost, match="attempt 1 no longer holds"):
            act()
    assert (row.status, row.owner, row.attempt, row.version, row.progress) == ("running", "next", 2, None, None)
    assert sessions.fenced(db, row.id, 2) is row


def test_a_worker_whose_lease_ran_out_unnoticed_may_go_on(db: Session, model: Model) -> None:
    """Nobody has taken it over: nothing is lost by letting it."""
    enqueue(db, model)
    row = claimed(db, lease=OVER)
    sessions.renew(db, row.id, 1, LONG)

    assert claim(db, "another") is None
    sessions.finish(db, row.id, 1, "succeeded")
    assert row.failures == 0


def test_a_session_that_loses_all_its_workers_has_failed(db: Session, model: Model) -> None:
    """After as many as are allowed; then the model's next one may run."""
    enqueue(db, model)
    row = claimed(db, "worker 1", lease=OVER)
    assert claimed(db, "worker 2", lease=OVER) is row
    following = enqueue(db, model)
    assert claim(db, "worker 3", attempts=2) is None

    assert (row.status, row.failures, row.attempt) == ("failed", 2, 2)
    assert row.error == "worker worker 2 was lost in attempt 2"
    assert row.finished_at is not None
    assert story(db, row) == ["queued", "running", "running", "failed"]
    assert claimed(db).id == following.id


def test_renewing_extends_the_lease(db: Session, model: Model) -> None:
    """From now on, and answers that nobody asked it to stop."""
    enqueue(db, model)
    row = claimed(db, lease=OVER)

    assert sessions.renew(db, row.id, 1, LONG) is False
    assert row.lease_until is not None
    assert seconds(row.lease_until, now(db)) > LONG - BOUND


def test_a_released_session_is_free_at_once_and_not_counted(db: Session, model: Model) -> None:
    """A worker that shuts down has not failed, however often; nor does a newer session overtake."""
    enqueue(db, model)
    row = claimed(db)
    enqueue(db, model)
    for attempt in range(1, 5):
        sessions.release(db, row.id, attempt)
        assert claimed(db, f"worker {attempt}") is row

    assert (row.attempt, row.failures, row.error) == (5, 0, None)
    assert story(db, row)[:4] == ["queued", "running", "released", "running"]


def test_a_session_can_be_given_back_for_later(db: Session, model: Model) -> None:
    """Nobody gets it before; neither does a newer session of the model overtake."""
    enqueue(db, model)
    row = claimed(db)
    sessions.release(db, row.id, 1, delay=60)
    enqueue(db, model)

    assert row.lease_until is not None
    assert 60 - BOUND < seconds(row.lease_until, now(db)) <= 60
    assert (claim(db), row.status, row.owner, row.failures) == (None, "running", None, 0)


def test_who_gave_a_session_back_cannot_hold_on_to_it(db: Session, model: Model) -> None:
    """A lease that is renewed at the same moment would keep everybody else from it."""
    enqueue(db, model)
    row = claimed(db)
    sessions.release(db, row.id, 1)

    with pytest.raises(LeaseLost):
        sessions.renew(db, row.id, 1, LONG)
    assert claimed(db, "another") is row


def test_a_session_of_a_deleted_model_can_be_written_by_nobody(db: Session, model: Model) -> None:
    """Neither then nor when another model's sessions begin: its id never comes back."""
    enqueue(db, model)
    row = claimed(db)
    lost = row.id
    catalogue.delete(db, "birds")
    db.expunge(row)
    enqueue(db, catalogue.create(db, "birds", "resnet18", 1.0))
    assert claimed(db).id != lost

    with pytest.raises(LeaseLost):
        sessions.finish(db, lost, 1, "succeeded")


# A clock that is set back


def set_clock_back(db: Session, row: SessionRow, by: timedelta = timedelta(days=1)) -> None:
    """As seen from the row, whose times then lie in the future: a server's clock cannot be moved for a test."""
    for name in ("created_at", "ready_at", "started_at", "lease_until"):
        before = getattr(row, name)
        setattr(row, name, before and before + by)
    db.flush()


@pytest.mark.parametrize("by", [timedelta(minutes=1), timedelta(days=1), timedelta(days=3650)])
def test_a_session_that_was_queued_in_the_future_is_ready(db: Session, model: Model, by: timedelta) -> None:
    """Its delay is over by any clock; waiting for that day would hold up all that the model is taught."""
    row = enqueue(db, model, delay=LONG, patience=LONG)
    assert claim(db) is None
    set_clock_back(db, row, by)

    assert claim(db) is row


def test_teaching_joins_a_session_that_was_queued_in_the_future(db: Session, model: Model) -> None:
    """And does not put it off any further."""
    row = enqueue(db, model, delay=2, patience=20)
    set_clock_back(db, row)

    assert enqueue(db, model, delay=2, patience=20) is row
    assert claim(db) is row


def test_a_session_whose_lease_ends_too_far_in_the_future_is_taken_over(db: Session, model: Model) -> None:
    """Its worker was lost before the clock was set back; whoever it was, it cannot write any more."""
    enqueue(db, model)
    lost = claimed(db, "lost", lease=30)
    set_clock_back(db, lost)
    row = claimed(db, "next", lease=30)

    assert (row.id, row.owner, row.attempt, row.failures) == (lost.id, "next", 2, 1)
    assert row.lease_until is not None
    assert seconds(row.lease_until, now(db)) <= 30
    with pytest.raises(LeaseLost):
        sessions.renew(db, lost.id, 1, 30)


def test_a_worker_that_lives_keeps_its_session_when_the_clock_is_set_back(db: Session, model: Model) -> None:
    """It renews its lease by the new clock."""
    enqueue(db, model)
    row = claimed(db, "living", lease=30)
    set_clock_back(db, row)
    sessions.renew(db, row.id, 1, 30)

    assert claim(db, "another", lease=30) is None


@pytest.mark.parametrize(("theirs", "ours"), [(30.0, 30.0), (LONG - BOUND, 0.4), (3 * LONG, LONG)])
def test_the_lease_of_a_worker_with_other_settings_is_believed(
    db: Session, model: Model, theirs: float, ours: float
) -> None:
    """Only one that nobody would ask for is not."""
    enqueue(db, model)
    claimed(db, "theirs", lease=theirs)

    assert claim(db, "ours", lease=ours) is None


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_sessions_go_on_when_this_machines_clock_is_set_back(
    db: Session, model: Model, other: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded database has no other: what waits is run, what was lost is taken over, and both end."""
    enqueue(db, model)
    lost = claimed(db, "lost", lease=30)
    waits = enqueue(db, other, delay=2, patience=20)
    yesterday = time.time() - 86400
    monkeypatch.setattr("store.database.time.time", lambda: yesterday)

    assert [claimed(db, "next", lease=30).id for _ in range(2)] == [lost.id, waits.id]
    for row in (lost, waits):
        sessions.finish(db, row.id, row.attempt, "succeeded")
    assert enqueue(db, model, delay=0).created_at < lost.created_at
    assert claim(db, lease=30) is not None


# Ending


def test_a_session_ends_with_its_outcome(db: Session, model: Model) -> None:
    """What is told of it is what is known of it."""
    enqueue(db, model)
    row = claimed(db)
    sessions.finish(db, row.id, 1, "succeeded", verdict="promoted", reason="it is better", version=4)

    assert (row.status, row.verdict, row.reason, row.version, row.error) == (
        "succeeded",
        "promoted",
        "it is better",
        4,
        None,
    )
    assert row.lease_until is None
    assert row.finished_at is not None
    last = sessions.events(db, row.id)[-1]
    assert (last.event, last.data) == (
        "succeeded",
        {"verdict": "promoted", "reason": "it is better", "version": 4},
    )


def test_a_session_ends_once(db: Session, model: Model) -> None:
    """Even for the attempt that ended it."""
    enqueue(db, model)
    row = claimed(db)
    sessions.finish(db, row.id, 1, "succeeded")

    with pytest.raises(LeaseLost):
        sessions.finish(db, row.id, 1, "failed")
    assert row.status == "succeeded"


def test_a_session_that_fails_is_tried_again(db: Session, model: Model) -> None:
    """At once, by whoever comes, as often as is allowed."""
    enqueue(db, model)
    row = claimed(db)

    assert sessions.record_failure(db, row.id, 1, "out of memory", attempts=2) is False
    assert (row.status, row.owner, row.failures, row.error) == ("running", None, 1, "out of memory")
    assert claimed(db, "next") is row
    assert row.failures == 1, "a failure that was reported is not also a lost worker"
    assert sessions.record_failure(db, row.id, 2, "out of memory again", attempts=2) is True
    assert (row.status, row.failures, row.error) == ("failed", 2, "out of memory again")
    assert story(db, row) == ["queued", "running", "retry", "running", "failed"]


def test_progress_is_kept_and_told(db: Session, model: Model) -> None:
    """The newest with the session, all of it as events."""
    enqueue(db, model)
    row = claimed(db)
    for step in (1, 2):
        sessions.record_progress(db, row.id, 1, {"step": step, "of": 2})

    assert row.progress == {"step": 2, "of": 2}
    assert [event.data for event in sessions.events(db, row.id) if event.event == "progress"] == [
        {"step": 1, "of": 2},
        {"step": 2, "of": 2},
    ]


# Cancelling


def test_a_queued_session_is_cancelled_at_once(db: Session, model: Model) -> None:
    """Nobody claims it, and what is taught afterwards gets a new one."""
    row = enqueue(db, model)
    sessions.cancel(db, model.id, row.id)

    assert (row.status, row.cancel_requested) == ("cancelled", True)
    assert row.finished_at is not None
    assert claim(db) is None
    assert enqueue(db, model).id != row.id


def test_a_running_session_is_asked_to_stop(db: Session, model: Model) -> None:
    """Its worker learns of it when it renews, and ends it."""
    enqueue(db, model)
    row = claimed(db)
    assert sessions.cancel(db, model.id, row.id).status == "running"

    assert sessions.renew(db, row.id, 1, LONG) is True
    sessions.finish(db, row.id, 1, "cancelled")
    assert row.status == "cancelled"


def test_who_takes_over_a_cancelled_session_learns_of_it(db: Session, model: Model) -> None:
    """The wish outlives the worker that it was addressed to."""
    enqueue(db, model)
    row = claimed(db, lease=OVER)
    sessions.cancel(db, model.id, row.id)

    assert claimed(db, "next").cancel_requested


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_a_finished_session_cannot_be_cancelled(db: Session, model: Model, status: str) -> None:
    """It is too late, and the refusal says what became of it."""
    enqueue(db, model)
    row = claimed(db)
    sessions.finish(db, row.id, 1, status)

    with pytest.raises(Conflict, match=f"session {row.id} has {status} already"):
        sessions.cancel(db, model.id, row.id)
    assert not row.cancel_requested


def test_a_session_of_another_model_cannot_be_cancelled(db: Session, model: Model, other: Model) -> None:
    """For this model it does not exist."""
    row = enqueue(db, other)

    with pytest.raises(NotThere):
        sessions.cancel(db, model.id, row.id)
    assert row.status == "queued"


# Looking


@pytest.mark.parametrize("session_id", [-(2**63), -1, 0, 10**6, 2**63 - 1, 2**63, 10**30])
def test_any_number_that_is_no_session_is_not_there(db: Session, model: Model, session_id: int) -> None:
    """Also one that no column could hold."""
    enqueue(db, model)

    with pytest.raises(NotThere, match=f"no session {session_id};"):
        sessions.get(db, model.id, session_id)


def test_a_session_is_found_only_in_its_own_model(db: Session, model: Model, other: Model) -> None:
    """Ids are shared between models, sight is not."""
    row = enqueue(db, model)

    assert sessions.get(db, model.id, row.id) is row
    with pytest.raises(NotThere):
        sessions.get(db, other.id, row.id)


def test_pages_follow_each_other_by_the_last_id_seen(db: Session, model: Model, other: Model) -> None:
    """Newest first, of this model alone."""
    made = []
    for _ in range(5):
        made.append(enqueue(db, model).id)
        sessions.cancel(db, model.id, made[-1])
        sessions.cancel(db, other.id, enqueue(db, other).id)
    first = sessions.page(db, model.id, before=None, limit=3)
    second = sessions.page(db, model.id, before=first[-1].id, limit=3)

    assert [row.id for row in first + second] == made[::-1]
    assert sessions.page(db, model.id, before=made[0], limit=3) == []


def test_events_go_on_after_the_last_one_seen(db: Session, model: Model, other: Model) -> None:
    """Of this session alone, in order."""
    row = enqueue(db, model)
    (seen,) = sessions.events(db, row.id)
    enqueue(db, other)
    claimed(db)
    sessions.record_progress(db, row.id, 1, {"step": 1})

    assert [event.event for event in sessions.events(db, row.id, after=seen.id)] == ["running", "progress"]


def test_sessions_are_counted_by_state(db: Session, model: Model, other: Model) -> None:
    """With the times since when they wait."""
    before = session_metrics.measure(db, [])
    first = enqueue(db, model, delay=LONG)
    second = enqueue(db, other, delay=LONG)
    both = session_metrics.measure(db, [])
    sessions.cancel(db, model.id, first.id)
    one = session_metrics.measure(db, [])

    assert (before.counts, before.queued_since) == ({}, {})
    assert both.counts == {"queued": 2}
    assert both.queued_since == {first.id: first.created_at, second.id: second.created_at}
    assert one.counts == {"queued": 1, "cancelled": 1}
    assert one.queued_since == {second.id: second.created_at}


def test_only_the_events_of_the_newest_sessions_are_kept(db: Session, model: Model, other: Model) -> None:
    """The others keep their outcome; another model's sessions count for themselves."""
    elsewhere = enqueue(db, other)
    sessions.cancel(db, other.id, elsewhere.id)

    ended = []
    for _ in range(sessions.KEPT_EVENTS + 2):
        ended.append(enqueue(db, model))
        sessions.cancel(db, model.id, ended[-1].id)

    kept = ["queued", "cancelled"]
    assert [story(db, row) for row in ended] == [["queued"]] * 2 + [kept] * sessions.KEPT_EVENTS
    assert story(db, elsewhere) == kept
    assert sessions.get(db, model.id, ended[0].id).status == "cancelled"
