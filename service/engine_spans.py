"""Spans of what the engine does for a request: decoding, the wait for the network, and the batches of the network."""

import time
from collections.abc import Callable, Sequence

from opentelemetry import context as contexts
from opentelemetry.trace import Link, Tracer, get_current_span

from engine.watching import Watch
from tracing.spans import named, tracer


class RequestWatch:
    """Made within the request, whose span its own spans belong to."""

    def __init__(self, tracer: Tracer, images: int) -> None:
        self.context = contexts.get_current()
        self.link = Link(get_current_span().get_span_context())
        self.has_waited = False
        self.waits_since = time.time_ns()
        self._tracer = tracer
        self._images = images

    def decoded(self) -> None:
        began, self.waits_since = self.waits_since, time.time_ns()
        attributes = named({"images": self._images})
        self._tracer.start_span("decode", self.context, attributes=attributes, start_time=began).end(self.waits_since)


def watch_of_request(images: int) -> RequestWatch | None:
    """None while traces are off."""
    current = tracer()
    return None if current is None else RequestWatch(current, images)


def watch_batch(watches: Sequence[Watch | None]) -> Callable[[], None]:
    """A span of a batch: it belongs to the first of its requests, and is linked with all of them."""
    current = tracer()
    requests = list(dict.fromkeys(one for one in watches if isinstance(one, RequestWatch)))
    if current is None or not requests:
        return lambda: None
    links = [one.link for one in requests]
    attributes = named({"images": len(watches), "requests": len(requests)})
    batch = current.start_span("network batch", requests[0].context, attributes=attributes, links=links)
    moment, link = time.time_ns(), Link(batch.get_span_context())
    for one in requests:
        if not one.has_waited:
            one.has_waited = True
            current.start_span("queue", one.context, links=[link], start_time=one.waits_since).end(moment)
    return batch.end
