"""Sends spans to a collector, over HTTP, from a thread of its own with a bounded queue.

A collector that is away costs nothing but the spans: nobody waits for it, and the log says so once. The SDK reads the
other settings of OpenTelemetry (`OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`, …) itself.
"""

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer

LONGEST_ATTRIBUTE = 500  # characters
SECONDS_TO_SEND = 3
RELEASE = "0.1.0"

log = structlog.get_logger()


@contextmanager
def sending_to(endpoint: str, service: str) -> Iterator[Tracer]:
    """A tracer of its own, not the global one: libraries that find that one add what callers have sent."""
    exporter = _Quiet(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=SECONDS_TO_SEND))
    limits = SpanLimits(max_span_attribute_length=LONGEST_ATTRIBUTE)
    provider = TracerProvider(resource=_resource(service), span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it would log every failure, some with a traceback
    try:
        yield provider.get_tracer("protoquad", RELEASE)
    finally:
        exporter.closing = True
        provider.shutdown()


def _resource(service: str) -> Resource:
    """What the environment says of this process comes first."""
    own = Resource(
        {
            "service.name": service,
            "service.version": RELEASE,
            "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        }
    )
    found = Resource.create()
    unnamed = str(found.attributes.get("service.name", "")).startswith("unknown_service")
    return found.merge(own) if unnamed else own.merge(found)


class _Quiet(SpanExporter):
    """Logs that the collector is away when it goes, and that it is back. A process that ends tries once."""

    def __init__(self, exporter: SpanExporter) -> None:
        self.closing = False
        self._exporter = exporter
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.closing and self._failing:
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        failing = result is not SpanExportResult.SUCCESS
        if failing and not self._failing:
            log.warning("the collector does not take traces; they are dropped")
        elif self._failing and not failing:
            log.info("the collector takes traces again")
        self._failing = failing
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
