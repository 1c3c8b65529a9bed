"""Spans: what a piece of work was, when it began and ended, and which other work it belongs to.

The names and attributes of spans hold no content of a request: no query, header, body, key or text of an error.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

Attribute = str | int | float | bool

_NOTHING: AbstractContextManager[None] = nullcontext()
_tracer: "Tracer | None" = None  # of this process; None: traces are off


def tracer() -> "Tracer | None":
    """None while traces are off."""
    return _tracer


def use(new: "Tracer | None") -> None:
    """Make spans with this tracer from now on; with None, make none."""
    global _tracer
    _tracer = new


def span(
    name: str, *, parent: str | None = None, **attributes: Attribute | None
) -> "AbstractContextManager[Span | None]":
    """The work within the block, as a part of what goes on around it, or of `parent`: a traceparent, as W3C writes it.

    Attributes of None are left out.
    """
    return _NOTHING if _tracer is None else _span(_tracer, name, parent, attributes)


@contextmanager
def _span(tracer: "Tracer", name: str, parent: str | None, attributes: dict[str, Attribute | None]) -> "Iterator[Span]":
    from opentelemetry.trace import SpanKind

    context, kind = (None, SpanKind.INTERNAL) if parent is None else (context_of(parent), SpanKind.CONSUMER)
    given = named(attributes)
    with tracer.start_as_current_span(
        name, context, kind, given, record_exception=False, set_status_on_exception=False
    ) as own:
        try:
            yield own
        except Exception as error:
            fail(own, error)
            raise


def annotate(**attributes: Attribute | None) -> None:
    """Add attributes to the span that this code runs in, if there is one."""
    if _tracer is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().set_attributes(named(attributes))


def named(attributes: dict[str, Attribute | None]) -> dict[str, Attribute]:
    """As they are exported: under our own name, without those that are unknown."""
    return {f"protoquad.{name}": value for name, value in attributes.items() if value is not None}


def fail(own: "Span", error: BaseException) -> None:
    """Names the kind of the error alone: its text may repeat what a caller has sent."""
    from opentelemetry.trace import StatusCode

    own.set_attribute("error.type", type(error).__name__)
    own.set_status(StatusCode.ERROR)


def context_of(traceparent: str, tracestate: str | None = None) -> "Context":
    """The context that a caller has sent, or that a row has stored; an empty one if it cannot be read."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": traceparent} | ({"tracestate": tracestate} if tracestate else {})
    return TraceContextTextMapPropagator().extract(carrier)


def traceparent() -> str | None:
    """Of the span that this code runs in, to be stored or sent; None while traces are off."""
    if _tracer is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def log_fields() -> dict[str, str]:
    """What a line of the log says about the span that it was written in; nothing while traces are off."""
    if _tracer is None:
        return {}
    from opentelemetry.trace import format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    return {"trace_id": format_trace_id(context.trace_id)} if context.is_valid else {}


class Stages:
    """Spans of which each begins where the one before ends."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> "Stages":
        return self

    def begin(self, name: str) -> None:
        self._stack.close()
        self._stack.enter_context(span(name))

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)
