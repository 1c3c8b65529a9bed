"""What the service measures of itself, for Prometheus.

Labels are route templates, model names and states: nothing that a caller can make up. A scrape answers whatever the
database does.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from sqlalchemy import ColumnElement, Float, case, cast, extract, func, select
from sqlalchemy.orm import Session
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import CLIENT_GONE
from store import sessions
from store.database import Database, now
from store.models import SessionRow

UNMATCHED = "unmatched"
STATES = ("queued", "running", *sessions.FINISHED)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

# From a prediction of some milliseconds to a `Prefer: wait` of a minute.
_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_QUEUE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_BATCH_IMAGES = (1, 2, 4, 8, 16, 32, 64)
_SESSION_SECONDS = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)

_CACHE_SECONDS = 5.0  # several scrapers cost one query
_PATIENCE_SECONDS = 2.0  # well within a scrape's own time limit

_log = structlog.get_logger("protoquad.metrics")


class Metrics:
    """One registry per application, so that several can live in one process."""

    def __init__(
        self,
        database: Database | None = None,
        *,
        cache: float = _CACHE_SECONDS,
        patience: float = _PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Histogram(
            "protoquad_http_request_duration_seconds",
            "Time to answer a request; of an event stream, to begin it.",
            ["method", "route", "status"],
            buckets=_REQUEST_SECONDS,
            registry=registry,
        )
        self.predictions = Counter(
            "protoquad_predictions", "Pictures classified.", ["model", "outcome"], registry=registry
        )
        self.queue_images = Gauge(
            "protoquad_queue_images", "Pictures waiting to be decoded or computed.", registry=registry
        )
        self.queue_delay = Histogram(
            "protoquad_queue_delay_seconds",
            "Time that a picture waited for the network.",
            buckets=_QUEUE_SECONDS,
            registry=registry,
        )
        self.batch_images = Histogram(
            "protoquad_batch_images", "Pictures per batch.", buckets=_BATCH_IMAGES, registry=registry
        )
        self.served_version = Gauge("protoquad_served_version", "The version served.", ["model"], registry=registry)
        self.served_classes = Gauge("protoquad_served_classes", "Classes it knows.", ["model"], registry=registry)
        self._models: set[str] = set()  # those that are a label
        if database is not None:
            registry.register(_SessionCollector(database, cache, patience, _SessionAges(clock)))

    def predicted(self, model: str, *, known: int, unknown: int) -> None:
        self.predictions.labels(model, "known").inc(known)
        self.predictions.labels(model, "unknown").inc(unknown)
        self._models.add(model)  # last: whoever removes the labels looks here first

    def batched(self, images: int, delay: float) -> None:
        """A batch has begun, whose longest-waiting picture waited for `delay` seconds."""
        self.batch_images.observe(images)
        self.queue_delay.observe(delay)

    def serving(self, now: Mapping[str, tuple[int, int]]) -> None:
        """Version and number of classes of every model that is served; of others nothing is true any more."""
        for gone in self._models - now.keys():
            self._models.discard(gone)
            for metric in (self.served_version, self.served_classes, self.predictions):
                metric.remove_by_labels({"model": gone})
        for model, (version, classes) in now.items():
            self.served_version.labels(model).set(version)
            self.served_classes.labels(model).set(classes)
        self._models.update(now)

    def render(self) -> tuple[bytes, str]:
        """The exposition and its content type. May wait for the database a little: call it in a thread."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


class RequestDurations:
    """Middleware that measures how long requests take, by the template of the route that answered."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        watch = _Watch(receive, send)
        try:
            await self.app(scope, watch.receive, watch.send)
        except Exception:
            watch.status = watch.status or 500
            raise
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            labels = (method, route_template(scope), str(watch.status or CLIENT_GONE))
            self.metrics.requests.labels(*labels).observe(watch.seconds())


class _Watch:
    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._began = time.perf_counter()
        self._stopped: float | None = None
        self.status: int | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.status = self.status or CLIENT_GONE
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = self.status or message["status"]
            if _is_event_stream(message):  # it lasts as long as its reader likes, which is no latency
                self._stopped = time.perf_counter()
        await self._send(message)

    def seconds(self) -> float:
        return (self._stopped or time.perf_counter()) - self._began


def _is_event_stream(start: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in start.get("headers", ())
    )


def route_template(scope: Scope) -> str:
    """`/models/{model}/classes/{class_id}` and not the path that was asked: labels must stay few."""
    included = scope.get("fastapi", {}).get("effective_route_context")  # a router's own route lacks its prefix
    route: Any = included or scope.get("route")
    path = getattr(route, "path", None)
    if isinstance(path, str):
        return path
    fixed = {getattr(route, "path", None) for route in scope["app"].routes} if "app" in scope else set()
    return scope["path"] if scope["path"] in fixed else UNMATCHED  # /docs and the like, which leave no route


@dataclass(frozen=True)
class _Durations:
    """Sessions of one outcome."""

    status: str
    buckets: Sequence[int]  # as many sessions took at most as long as each bound
    number: int
    seconds: float


@dataclass(frozen=True)
class _Sessions:
    """What the database says of the sessions, at one moment."""

    counts: dict[str, int] = field(default_factory=dict)
    oldest_queued: float = 0.0
    abandoned: float = 0.0
    durations: Sequence[_Durations] = ()


class _SessionAges:
    """How long sessions wait, also where the database's clock was set back: then their times lie in the future."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock  # one that nobody sets
        self._first_seen: dict[Hashable, float] = {}

    def measure(self, db: Session) -> tuple[float, float]:
        """Seconds that the oldest queued session waits, and that a session is without a worker."""
        queued, leases, moment = sessions.queued_since(db), sessions.leases(db), now(db)
        self._see([*queued, *leases.items()])
        waits = (max(_seconds_since(made, moment), self._seen_for(one)) for one, made in queued.items())
        without = (
            # A worker that lives renews its lease every few seconds, so the same one is not seen for long.
            self._seen_for(lease) if lease[1] > moment + sessions.LONGEST_LEASE else _seconds_since(lease[1], moment)
            for lease in leases.items()
        )
        return max(waits, default=0.0), max(without, default=0.0)

    def _see(self, things: Sequence[Hashable]) -> None:
        moment = self._clock()
        self._first_seen = {thing: self._first_seen.get(thing, moment) for thing in things}

    def _seen_for(self, thing: Hashable) -> float:
        return self._clock() - self._first_seen[thing]


class _SessionCollector(Collector):
    """Asks the database when Prometheus asks us, in a thread of its own that a scrape waits for only so long."""

    def __init__(self, database: Database, cache: float, patience: float, ages: _SessionAges) -> None:
        self._ages = ages
        self._database = database
        self._cache = cache
        self._patience = patience
        self._lock = threading.Lock()
        self._asking: threading.Thread | None = None
        self._asked_at = float("-inf")
        self._answer: _Sessions | None = None

    def collect(self) -> Iterator[Metric]:
        answer = self._current()
        yield GaugeMetricFamily("protoquad_database_up", "Whether the database answers.", float(answer is not None))
        if answer is not None:
            yield from _families(answer)

    def _current(self) -> _Sessions | None:
        with self._lock:
            fresh = time.monotonic() - self._asked_at < self._cache
            if not fresh and (self._asking is None or not self._asking.is_alive()):
                self._asking = threading.Thread(target=self._ask, name="metrics-database", daemon=True)
                self._asking.start()
            asking = self._asking
        if asking is not None:
            asking.join(self._patience)
            if asking.is_alive():  # no answer is an answer: what was true before is not shown as true now
                return None
        return self._answer

    def _ask(self) -> None:
        try:
            with self._database.read() as db:
                self._answer = _Sessions(sessions.counts(db), *self._ages.measure(db), _durations(db))
        except Exception as error:  # a scrape must not fail, whatever a driver raises
            self._answer = None
            _log.debug("database_not_measured", error=type(error).__name__)
        self._asked_at = time.monotonic()


def _seconds_since(then: datetime, moment: datetime) -> float:
    return max(0.0, (moment - then).total_seconds())


def _durations(db: Session) -> list[_Durations]:
    took = _seconds(db)
    seconds = case((took < 0, 0.0), else_=took)  # the clock was set back meanwhile, and a sum must not fall
    within = [func.sum(case((seconds <= bound, 1), else_=0)) for bound in _SESSION_SECONDS]
    rows = db.execute(
        select(SessionRow.status, func.count(), func.sum(seconds), *within)
        .where(SessionRow.status.in_(sessions.FINISHED), SessionRow.started_at.is_not(None))
        .where(SessionRow.finished_at.is_not(None))
        .group_by(SessionRow.status)
    )
    return [_Durations(status, tuple(buckets), number, float(total)) for status, number, total, *buckets in rows]


def _seconds(db: Session) -> ColumnElement[float]:
    """How long a session took, which every database computes in a way of its own."""
    if db.get_bind().dialect.name == "sqlite":
        days = func.julianday(SessionRow.finished_at) - func.julianday(SessionRow.started_at)
        return cast(days * 86400.0, Float)
    return cast(extract("epoch", SessionRow.finished_at - SessionRow.started_at), Float)


def _families(answer: _Sessions) -> Iterator[Metric]:
    by_state = GaugeMetricFamily("protoquad_sessions", "Learning sessions by state.", labels=["status"])
    for state in STATES:
        by_state.add_metric([state], answer.counts.get(state, 0))
    yield by_state
    yield GaugeMetricFamily(
        "protoquad_oldest_queued_session_seconds", "How long the oldest queued session waits.", answer.oldest_queued
    )
    yield GaugeMetricFamily(
        "protoquad_abandoned_session_seconds",
        "How long ago the lease of a running session ended, with no worker to take it over.",
        answer.abandoned,
    )
    took = HistogramMetricFamily(
        "protoquad_session_duration_seconds", "Time from a session's start to its end.", labels=["status"]
    )
    for one in answer.durations:
        bounds = [*(str(float(bound)) for bound in _SESSION_SECONDS), "+Inf"]
        counts = zip(bounds, [*map(float, one.buckets), float(one.number)], strict=True)
        took.add_metric([one.status], list(counts), one.seconds)
    yield took
