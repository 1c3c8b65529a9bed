"""Logs: one line for each event, as text on a terminal and as JSON elsewhere.

Much of a line is text that callers choose: paths, names, messages of exceptions. It is bounded and escaped, so that it
can neither flood the log, nor send control codes to a terminal, nor forge a line.
"""

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from store.settings import Settings

LONGEST_VALUE = 1_000  # characters: a path may be as long as the server lets a request's head be
LONGEST_TRACEBACK = 20_000
TRACEBACKS = ("exception", "stack")  # the fields that span lines

NOISY = (
    "alembic",
    "sqlalchemy",
    "uvicorn.access",
    "httpx",
    "PIL",
    "matplotlib",
    "openvino",
    "celery",
    "kombu",
    "redis",
)


def set_up(settings: Settings) -> None:
    """Send structlog's lines and those of libraries to standard error, in the same form."""
    text = sys.stderr.isatty() if settings.log_format == "auto" else settings.log_format == "text"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if text else "iso", utc=not text),
    ]
    bounded: list[Any] = [structlog.processors.format_exc_info, shorten]  # tracebacks without locals: they hold keys
    last: list[Any] = (
        [*bounded, escape, structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if text
        else [*bounded, structlog.processors.JSONRenderer()]  # which escapes by itself
    )
    structlog.configure(
        processors=[*shared, *last],  # our own lines do not pass through the logging module
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(settings.log_level),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


def shorten(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """Bound every value of a line."""
    for name, value in line.items():
        if isinstance(value, str) and len(value) > LONGEST_VALUE:
            line[name] = _shortened(value, LONGEST_TRACEBACK if name in TRACEBACKS else LONGEST_VALUE)
    return line


def _shortened(text: str, longest: int) -> str:
    """Keeps the beginning and the end, where a traceback has its cause."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}… {len(text) - 2 * half} characters …{text[-half:]}"


def escape(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """Replace control characters and direction marks by their escape sequences."""
    for name, value in line.items():
        if isinstance(value, str):
            if not value.isprintable():
                line[name] = _indented(value) if name in TRACEBACKS else _escaped(value)
        elif not isinstance(value, int | float | None):
            shown = repr(value)
            if len(shown) > LONGEST_VALUE or not shown.isprintable():
                line[name] = _escaped(_shortened(shown, LONGEST_VALUE))
    return line


def _escaped(text: str) -> str:
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _indented(traceback: str) -> str:
    """Indent a traceback, so that none of its lines looks like a line of the log."""
    return "\n".join(f"    {_escaped(line)}" for line in traceback.split("\n"))
