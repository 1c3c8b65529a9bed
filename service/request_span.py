"""The span of a request: from its head to the end of its answer, within the trace of the caller if it names one."""

import time
from collections.abc import Mapping
from typing import Any

import structlog
from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode, Tracer, format_trace_id, set_span_in_context
from starlette.types import Scope

from tracing.spans import context_of, named

# Machines ask for these every few seconds.
QUIET = frozenset({"/livez", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"})
MODEL = "protoquad.model"
"""In the scope of a request: the model that it acts on."""
_HEADERS = frozenset({b"traceparent", b"tracestate"})


class RequestSpan:
    """Begins when it is made. Everything that the request does until `end` belongs to it."""

    def __init__(self, tracer: Tracer, scope: Scope, notes: dict[str, Any]) -> None:
        self._scope, self._notes = scope, notes
        self._method = str(scope["method"])
        attributes = {"http.request.method": self._method, "url.path": str(scope["path"])}
        parent = _parent(scope)
        self._span = tracer.start_span(self._method, parent, SpanKind.SERVER, attributes)
        self._token = contexts.attach(set_span_in_context(self._span, parent))
        trace_id = format_trace_id(self._span.get_span_context().trace_id)
        notes["trace_id"] = trace_id  # of the last line, and of all before it
        structlog.contextvars.bind_contextvars(trace_id=trace_id)

    def end(self, route: str, status: int, stream_began: float | None) -> None:
        """`stream_began`: of an event stream, which lasts as long as its reader likes, by time.perf_counter."""
        self._span.update_name(f"{self._method} {route}")
        self._span.set_attributes({"http.route": route, "http.response.status_code": status, **self._facts()})
        if status >= 500:
            self._span.set_status(StatusCode.ERROR)
        contexts.detach(self._token)
        ago = 0.0 if stream_began is None else time.perf_counter() - stream_began
        self._span.end(time.time_ns() - int(ago * 1e9))

    def _facts(self) -> Mapping[str, Any]:
        """What the log says of the request too."""
        noted = {name: self._notes.get(name) for name in ("key", "version", "images", "views")}
        model = self._scope.get(MODEL) or self._notes.get("model")
        return named({"model": model, "request_id": self._scope["state"]["request_id"], **noted})


def request_span(tracer: Tracer, scope: Scope, notes: dict[str, Any]) -> RequestSpan | None:
    """None for those that nobody would look for."""
    return None if scope["path"] in QUIET else RequestSpan(tracer, scope, notes)


def _parent(scope: Scope) -> Context | None:
    """The span of the caller, if it has sent one that can be read."""
    found = {name: value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS}
    given = found.get(b"traceparent")
    return None if given is None else context_of(given, found.get(b"tracestate"))
