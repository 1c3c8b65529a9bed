"""What the service measures about itself, for Prometheus.

Labels are route templates, model names and states, never texts that a caller makes up. A scrape is answered even if the
database is not reachable.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import datetime

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from store import session_metrics
from store.database import Database
from store.session_metrics import SessionMetrics
from store.sessions import FINISHED, LONGEST_LEASE

STATES = ("queued", "running", *FINISHED)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

# From a prediction of a few milliseconds to a `Prefer: wait` of a minute.
_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_QUEUE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_BATCH_IMAGES = (1, 2, 4, 8, 16, 32, 64)
_SESSION_SECONDS = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)

_CACHE_SECONDS = 5.0  # several scrapers cause one query
_PATIENCE_SECONDS = 2.0  # well below the time limit of a scrape

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
            "Time to answer a request; for an event stream, to begin it.",
            ["method", "route", "status"],
            buckets=_REQUEST_SECONDS,
            registry=registry,
        )
        self.predictions = Counter(
            "protoquad_predictions", "Images classified.", ["model", "outcome"], registry=registry
        )
        self.queue_images = Gauge(
            "protoquad_queue_images", "Images that wait to be decoded or computed.", registry=registry
        )
        self.queue_delay = Histogram(
            "protoquad_queue_delay_seconds",
            "Time that an image waited for the network.",
            buckets=_QUEUE_SECONDS,
            registry=registry,
        )
        self.batch_images = Histogram(
            "protoquad_batch_images", "Images per batch.", buckets=_BATCH_IMAGES, registry=registry
        )
        self.served_version = Gauge("protoquad_served_version", "The active version.", ["model"], registry=registry)
        self.served_classes = Gauge("protoquad_served_classes", "Classes that it knows.", ["model"], registry=registry)
        self.samples = Counter(
            "protoquad_captured_samples", "Images for the inbox, stored or dropped.", ["outcome"], registry=registry
        )
        self.deliveries = Counter(
            "protoquad_webhook_deliveries", "Attempts to deliver to a webhook.", ["outcome"], registry=registry
        )
        self._models: set[str] = set()  # those that appear as a label
        if database is not None:
            registry.register(_SessionCollector(database, cache, patience, _SessionAges(clock)))

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request to this route was answered."""
        self.requests.labels(method if method in METHODS else "other", route, str(status)).observe(seconds)

    def predicted(self, model: str, *, known: int, unknown: int) -> None:
        self.predictions.labels(model, "known").inc(known)
        self.predictions.labels(model, "unknown").inc(unknown)
        self._models.add(model)  # last, because `serving` looks here before it removes labels

    def batched(self, images: int, delay: float) -> None:
        """A batch has begun; its image that waited longest waited for `delay` seconds."""
        self.batch_images.observe(images)
        self.queue_delay.observe(delay)

    def serving(self, now: Mapping[str, tuple[int, int]]) -> None:
        """Active version and number of classes of every served model; the labels of other models are removed."""
        for gone in self._models - now.keys():
            self._models.discard(gone)
            for metric in (self.served_version, self.served_classes, self.predictions):
                metric.remove_by_labels({"model": gone})
        for model, (version, classes) in now.items():
            self.served_version.labels(model).set(version)
            self.served_classes.labels(model).set(classes)
        self._models.update(now)

    def render(self) -> tuple[bytes, str]:
        """The exposition and its content type. Waits briefly for the database: call it in a thread."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


class _SessionAges:
    """How long sessions wait, also if the database's clock was set back and their times are in the future."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock  # monotonic: nobody sets it
        self._first_seen: dict[Hashable, float] = {}

    def measure(self, sessions: SessionMetrics) -> tuple[float, float]:
        """Seconds that the oldest queued session has waited, and that a running session has been without a worker."""
        moment, queued, leases = sessions.moment, sessions.queued_since, sessions.leases
        self._see([*queued, *leases.items()])
        waits = (max(_seconds_since(made, moment), self._seen_for(one)) for one, made in queued.items())
        without = (
            # A living worker renews its lease every few seconds, so the same lease is not seen for long.
            self._seen_for(lease) if lease[1] > moment + LONGEST_LEASE else _seconds_since(lease[1], moment)
            for lease in leases.items()
        )
        return max(waits, default=0.0), max(without, default=0.0)

    def _see(self, things: Sequence[Hashable]) -> None:
        moment = self._clock()
        self._first_seen = {thing: self._first_seen.get(thing, moment) for thing in things}

    def _seen_for(self, thing: Hashable) -> float:
        return self._clock() - self._first_seen[thing]


def _seconds_since(then: datetime, moment: datetime) -> float:
    return max(0.0, (moment - then).total_seconds())


class _SessionCollector(Collector):
    """Queries the database for a scrape, in a separate thread for which the scrape waits for a limited time."""

    def __init__(self, database: Database, cache: float, patience: float, ages: _SessionAges) -> None:
        self._ages = ages
        self._database = database
        self._cache = cache
        self._patience = patience
        self._lock = threading.Lock()
        self._asking: threading.Thread | None = None
        self._asked_at = float("-inf")
        self._answer: tuple[SessionMetrics, float, float] | None = None

    def collect(self) -> Iterator[Metric]:
        answer = self._current()
        yield GaugeMetricFamily("protoquad_database_up", "Whether the database answers.", float(answer is not None))
        if answer is not None:
            yield from _families(*answer)

    def _current(self) -> tuple[SessionMetrics, float, float] | None:
        with self._lock:
            fresh = time.monotonic() - self._asked_at < self._cache
            if not fresh and (self._asking is None or not self._asking.is_alive()):
                self._asking = threading.Thread(target=self._ask, name="metrics-database", daemon=True)
                self._asking.start()
            asking = self._asking
        if asking is not None:
            asking.join(self._patience)
            if asking.is_alive():  # an earlier answer is not shown as if it were true now
                return None
        return self._answer

    def _ask(self) -> None:
        try:
            with self._database.read() as db:
                found = session_metrics.measure(db, _SESSION_SECONDS)
            self._answer = (found, *self._ages.measure(found))
        except Exception as error:  # a scrape must not fail
            self._answer = None
            _log.debug("database not measured", error=type(error).__name__)
        self._asked_at = time.monotonic()


def _families(sessions: SessionMetrics, oldest_queued: float, abandoned: float) -> Iterator[Metric]:
    by_state = GaugeMetricFamily("protoquad_sessions", "Learning sessions by state.", labels=["status"])
    for state in STATES:
        by_state.add_metric([state], sessions.counts.get(state, 0))
    yield by_state
    yield GaugeMetricFamily(
        "protoquad_oldest_queued_session_seconds", "How long the oldest queued session has waited.", oldest_queued
    )
    yield GaugeMetricFamily(
        "protoquad_abandoned_session_seconds",
        "Time since the lease of a running session ended and no worker has taken it over.",
        abandoned,
    )
    took = HistogramMetricFamily(
        "protoquad_session_duration_seconds", "Time from a session's start to its end.", labels=["status"]
    )
    bounds = [*(str(float(bound)) for bound in _SESSION_SECONDS), "+Inf"]
    for one in sessions.durations:
        counts = zip(bounds, [*map(float, one.buckets), float(one.number)], strict=True)
        took.add_metric([one.status], list(counts), one.seconds)
    yield took
