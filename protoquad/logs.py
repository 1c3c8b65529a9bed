"""Logs: one line for each thing that happened; readable on a terminal, JSON when not."""

import logging
import sys
from typing import Any

import structlog
from structlog.typing import Processor

from store.settings import Settings

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
    last: list[Any] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]  # no locals: they hold keys
        if text
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *last],  # our own lines do not take the way round by the library's records
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
