"""A collector of traces on this machine: takes what an exporter of OpenTelemetry posts, and decodes it."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Span:
    """One span as it was sent."""

    service: str
    name: str
    trace_id: str
    id: str
    parent: str
    start: int
    end: int
    attributes: dict[str, Any]
    links: tuple[str, ...]  # ids of spans
    failed: bool


@dataclass
class Collector:
    url: str
    spans: list[Span] = field(default_factory=list)

    def named(self, name: str) -> list[Span]:
        return [span for span in list(self.spans) if span.name == name]

    def trace(self, trace_id: str) -> dict[str, Span]:
        """The spans of a trace by name; the last of several."""
        return {span.name: span for span in list(self.spans) if span.trace_id == trace_id}


@contextmanager
def collector() -> Iterator[Collector]:
    """On a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            own.spans.extend(_decoded(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    own = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield own
    server.shutdown()
    server.server_close()


def _decoded(body: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _attributes(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for one in scope.spans:
                yield Span(
                    service,
                    one.name,
                    one.trace_id.hex(),
                    one.span_id.hex(),
                    one.parent_span_id.hex(),
                    one.start_time_unix_nano,
                    one.end_time_unix_nano,
                    _attributes(one.attributes),
                    tuple(link.span_id.hex() for link in one.links),
                    one.status.code == 2,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
