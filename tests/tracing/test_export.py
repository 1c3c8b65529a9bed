"""Traces are off unless a collector is set, and a collector that is missing or away costs only the traces."""

import sys
import threading
import time
from typing import Any

import pytest

from service.engine_spans import watch_of_request
from tests.collector import collector
from tests.receivers import hostile_receiver
from tests.redis_server import free_port
from tracing import spans
from tracing.export import exporting


def test_without_a_collector_there_is_nothing() -> None:
    """No tracer, no trace id, and the SDK is not asked for."""
    with exporting("", "protoquad"), spans.span("work", images=1) as own:
        spans.annotate(model="birds")

        assert (own, spans.tracer(), spans.traceparent(), spans.log_fields()) == (None, None, None, {})
        assert watch_of_request(1) is None  # so the engine has nothing to call


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, lines: list[Any]) -> None:
    """The service starts all the same."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "tracing.collector", raising=False)

    with exporting("http://127.0.0.1:4318", "protoquad"):
        assert spans.tracer() is None

    assert [line["log_level"] for line in lines] == ["warning"]
    assert "protoquad[otel]" in lines[0]["event"]


def test_what_is_left_is_sent_at_the_end() -> None:
    """A process that stops loses no span."""
    with collector() as own, exporting(own.url, "protoquad"):
        with spans.span("session", attempt=1, model=None):
            parent = spans.traceparent()
            with pytest.raises(ZeroDivisionError), spans.span("train"):
                raise ZeroDivisionError("a text that a caller may have sent")
        with spans.span("later", parent=parent):
            pass
        assert spans.tracer() is not None

    found = {span.name: span for span in own.spans}
    assert found["later"].parent == found["train"].parent == found["session"].id
    assert found["session"].attributes == {"protoquad.attempt": 1}
    assert (found["train"].failed, found["train"].attributes) == (True, {"error.type": "ZeroDivisionError"})
    assert spans.tracer() is None


def test_a_collector_that_is_away_is_logged_once(monkeypatch: pytest.MonkeyPatch, lines: list[Any]) -> None:
    """However many spans it misses."""
    monkeypatch.setattr("tracing.collector.SECONDS_TO_SEND", 1)
    with exporting(f"http://127.0.0.1:{free_port()}", "protoquad"):
        for _ in range(2_000):
            with spans.span("work"):
                pass

    assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
        "the collector does not take traces; they are dropped"
    ]


def test_a_collector_that_hangs_is_waited_for_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work goes on at once; at its end a process waits for one attempt, however many spans are left."""
    monkeypatch.setattr("tracing.collector.SECONDS_TO_SEND", 1)
    began = time.monotonic()
    with hostile_receiver("silent") as away, exporting(away.url, "protoquad"):
        for _ in range(2_000):  # four requests
            with spans.span("work"):
                pass
        worked = time.monotonic() - began
    ended = time.monotonic() - began

    assert worked < 1
    assert ended < 3.5
    assert not [thread.name for thread in threading.enumerate() if "OtelBatch" in thread.name]
