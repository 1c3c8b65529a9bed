"""One trace from a request to the version that came of it, through real processes and a real collector."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.collector import Collector, Span, collector
from tests.processes import Service, eventually

CALLER, CALLERS_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET_QUERY = "top_k=3"


@pytest.fixture(scope="module")
def traces() -> Iterator[Collector]:
    with collector() as own:
        yield own


@pytest.fixture(scope="module")
def service(traces: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The API and its worker, each a process of its own."""
    environment = {
        "PROTOQUAD_HOME": str(tmp_path_factory.mktemp("home")),
        "OTEL_EXPORTER_OTLP_ENDPOINT": traces.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",  # milliseconds
    }
    with closing(Service(environment)) as running:
        yield running


@pytest.fixture(scope="module")
def taught(service: Service, traces: Collector) -> dict[str, Span]:
    """The spans of a teaching whose caller has a trace of its own, from the request to the published version."""
    answer = service.teach("red", "red", traceparent=f"00-{CALLER}-{CALLERS_SPAN}-01")
    assert answer.status_code == 202
    service.session_over(answer.json()["session"]["id"])
    eventually(lambda: "session" in traces.trace(CALLER))
    return traces.trace(CALLER)


def test_a_teaching_is_one_trace_from_the_request_to_the_published_version(taught: dict[str, Span]) -> None:
    """Each span belongs to the one in which it happened; the session's are of the worker's process."""
    request, session = taught["POST /classes"], taught["session"]

    within_request, within_session = {"decode", "queue", "network batch"}, {"load", "embed", "train", "publish"}
    assert request.parent == CALLERS_SPAN
    assert {name: taught[name].parent for name in within_request} == dict.fromkeys(within_request, request.id)
    assert {name: taught[name].parent for name in within_session} == dict.fromkeys(within_session, session.id)
    assert taught["gate"].parent == taught["train"].id
    assert {taught[name].service for name in ("session", "gate", *within_session)} == {"protoquad-worker"}
    assert request.service == "protoquad"


def test_every_change_of_the_model_has_its_transaction(taught: dict[str, Span], traces: Collector) -> None:
    """One of the teaching, which has queued the session, and one of the session's version."""
    transactions = {span.parent: span for span in traces.named("transaction") if span.trace_id == CALLER}

    assert transactions.keys() == {taught["POST /classes"].id, taught["publish"].id}
    assert taught["session"].parent == transactions[taught["POST /classes"].id].id


def test_spans_say_what_they_are_about(taught: dict[str, Span]) -> None:
    """Route, status, model, request, session, verdict, version."""
    request, session, publish = taught["POST /classes"], taught["session"], taught["publish"]

    assert request.attributes["http.route"] == "/classes"
    assert request.attributes["http.response.status_code"] == 202
    assert request.attributes["protoquad.model"] == "default"
    assert request.attributes["protoquad.request_id"]
    assert session.attributes["protoquad.attempt"] == 1
    assert taught["decode"].attributes["protoquad.images"] == 3
    assert taught["gate"].attributes["protoquad.verdict"] == publish.attributes["protoquad.verdict"]
    assert publish.attributes["protoquad.version"] == 2
    assert taught["network batch"].links == (request.id,)
    assert not any(span.failed for span in taught.values())


def test_a_span_lies_within_the_time_of_its_parent(taught: dict[str, Span]) -> None:
    """The session begins after the request has queued it."""
    request, session = taught["POST /classes"], taught["session"]
    inner = [(request, name) for name in ("decode", "queue", "network batch")]
    inner += [(session, name) for name in ("load", "embed", "train", "publish")]

    assert all(outer.start <= taught[name].start <= taught[name].end <= outer.end for outer, name in inner)
    assert session.start > request.start


def test_log_lines_of_both_processes_have_the_trace(service: Service, taught: dict[str, Span]) -> None:
    """The request's own line, and those of the session."""
    assert taught
    lines = [line for line in service.lines if line.get("trace_id") == CALLER]

    events = {line["event"] for line in lines}
    assert {"request", "session started", "session over"} <= events


def test_a_prediction_is_decoded_waits_and_is_computed(service: Service, traces: Collector, taught: Any) -> None:
    """Without a caller's trace it has its own; the query is not in it."""
    assert taught
    service.predict("red", top_k=3)
    request = eventually(lambda: traces.named("POST /predict"))[-1]
    found = eventually(lambda: len(traces.trace(request.trace_id)) == 4 and traces.trace(request.trace_id))

    assert found.keys() == {"POST /predict", "decode", "queue", "network batch"}
    assert (request.parent, request.trace_id != CALLER) == ("", True)
    assert request.attributes["protoquad.images"] == 1
    assert found["decode"].end <= found["queue"].start <= found["queue"].end <= found["network batch"].end
    assert found["queue"].links == (found["network batch"].id,)
    assert not any(SECRET_QUERY in json.dumps(span.attributes) for span in traces.spans)


def test_a_caller_that_does_not_record_is_not_recorded(service: Service, traces: Collector) -> None:
    """Its flag says so; the log still has the trace."""
    trace_id = "1" * 32
    service.client.get("/versions", headers={"traceparent": f"00-{trace_id}-{'2' * 16}-00"})
    service.client.get("/sessions", headers={"traceparent": f"00-{'3' * 32}-{'2' * 16}-01"})
    eventually(lambda: traces.trace("3" * 32))

    assert traces.trace(trace_id) == {}
    assert any(line.get("trace_id") == trace_id for line in service.lines)


@pytest.mark.parametrize("given", ["nonsense", "00-0-0-00", f"00-{'0' * 32}-{'0' * 16}-01", "x" * 3000])
def test_a_traceparent_that_cannot_be_read_begins_a_new_trace(service: Service, traces: Collector, given: str) -> None:
    """It is no error of the request."""
    before = len(traces.named("GET /classes"))

    answer = service.client.get("/classes", headers={"traceparent": given})

    spans = eventually(lambda: traces.named("GET /classes")[before:])
    assert answer.status_code == 200
    assert spans[0].parent == ""


def test_machines_that_watch_make_no_spans(service: Service, traces: Collector) -> None:
    """They ask every few seconds."""
    service.client.get("/livez")
    service.client.get("/models")
    eventually(lambda: traces.named("GET /models"))

    assert traces.named("GET /livez") == []
