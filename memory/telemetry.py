"""Logs: events named `noun_verbed` with a few known fields, one JSON object a line, or for eyes on a terminal.

Record text, queries, tokens and Space URIs must never get here, so nothing is let through that is not known to be
harmless: fields by a list, exceptions by their class, SQLSTATE and place (a driver's message quotes what it was given,
so only our own errors keep theirs), and of what libraries log only that they did.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from memory.errors import MemoryAppviewError

SAFE_FIELDS: Final = frozenset(
    """
    did repo handle host source relay collection library port path wanted setting statement migration model dimensions
    command code
    event level timestamp reason effect kind state status stage signal error message sqlstate stack fields_dropped
    seq rev cursor count frames events commits records repos rows bytes attempts connections seconds lag_seconds
    """.split()
)
MAX_VALUE_CHARS: Final = 500
MAX_STACK_FRAMES: Final = 12
_EVENT: Final = re.compile(r"[a-z0-9]+(_[a-z0-9]+)+")


def get_logger(**fields: object) -> FilteringBoundLogger:
    """A logger with those fields bound. It follows `set_up_logging` even when it was made before."""
    return cast("FilteringBoundLogger", structlog.get_logger(**fields))


def set_up_logging(stream: IO[str] = sys.stderr, *, level: int = logging.INFO) -> None:
    """Sends our events from `level` on, libraries' records and the crash of the process to that stream.

    All by the rules above.
    """
    renderer: Processor = structlog.processors.JSONRenderer(sort_keys=False)
    if stream.isatty():
        renderer = structlog.dev.ConsoleRenderer(sort_keys=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _describe_exception,
            _keep_safe_fields,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(cast("Any", stream)),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_LibraryRecords(logging.WARNING)]
    sys.excepthook = _log_crash


def describe_error(error: BaseException) -> dict[str, object]:
    """What of an exception may be told: class, place, and the SQLSTATE if it has one."""
    told: dict[str, object] = {"error": " < ".join(_classes(error)), "stack": _places(error.__traceback__)}
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(sqlstate, str):
        told["sqlstate"] = sqlstate
    if isinstance(error, MemoryAppviewError):
        told["message"] = error.message
    return told


def _classes(error: BaseException) -> Iterator[str]:
    """Its class and those of what it was raised from, or of a group's members."""
    yield f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    if isinstance(error, BaseExceptionGroup):
        for member in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _classes(member)
    if error.__cause__ is not None:
        yield from _classes(error.__cause__)


def _places(traceback: TracebackType | None) -> list[str]:
    places: list[str] = []
    while traceback is not None:
        places.append(f"{traceback.tb_frame.f_globals.get('__name__')}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return places[-MAX_STACK_FRAMES:]


def _describe_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    given = event.pop("exc_info", None)
    error = given if isinstance(given, BaseException) else sys.exception() if given else None
    return event if error is None else {**event, **describe_error(error)}


def _keep_safe_fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    kept = {name: _safe_value(value) for name, value in event.items() if name in SAFE_FIELDS}
    if len(kept) < len(event):
        kept["fields_dropped"] = sorted(event.keys() - kept.keys())
    if not _EVENT.fullmatch(str(event.get("event"))):
        kept["event"] = "event_unnamed"  # a sentence, into which anything might have been formatted
    return kept


def _safe_value(value: object) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case datetime():
            return value.isoformat()
        case list() | tuple():
            return [_safe_value(item) for item in cast("list[object]", value)]
        case str() | Path():
            text = str(value)
            return "[uri]" if "at://" in text else text[:MAX_VALUE_CHARS]
        case _:
            return f"[{type(value).__name__}]"


class _LibraryRecords(logging.Handler):
    """Turns what libraries log by `logging` into an event without their words."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        get_logger(library=record.name).log(record.levelno, "library_warned", exc_info=error)


def _log_crash(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        get_logger().critical("process_crashed", exc_info=error.with_traceback(traceback))
