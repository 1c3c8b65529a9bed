"""Turns traces on for a process, if a collector is set and the packages for it are installed."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from tracing import spans

log = structlog.get_logger()


@contextmanager
def exporting(endpoint: str, service: str) -> Iterator[None]:
    """Within the block, spans of this process go to the collector; without an endpoint there are none.

    Without the packages a warning says so, and there are none either: a service must not fail for its traces.
    """
    if not endpoint:
        yield
        return
    try:
        from tracing.collector import sending_to
    except ImportError as error:
        log.warning(
            "traces are off: a collector is set, and the packages to reach it are missing; "
            "install them with pip install 'protoquad[otel]'",
            missing=error.name,
        )
        yield
        return
    with sending_to(endpoint, service) as tracer:
        spans.use(tracer)
        log.info("traces are sent to a collector", service=service)
        try:
            yield
        finally:
            spans.use(None)
