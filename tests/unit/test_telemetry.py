from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections.abc import Generator

import asyncpg
import pytest
import structlog

from memory.errors import Misconfigured
from memory.telemetry import describe_error, get_logger, set_up_logging

SECRET = "the cat is called Mandarin"


class Logs(io.StringIO):
    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def logs() -> Generator[Logs]:
    root, hook = list(logging.getLogger().handlers), sys.excepthook
    written = Logs()
    set_up_logging(written)
    yield written
    structlog.reset_defaults()
    logging.getLogger().handlers, sys.excepthook = root, hook


def driver_error() -> Exception:
    return asyncpg.PostgresError.new({"C": "23505", "M": SECRET, "D": SECRET})


def test_event_is_one_json_line_with_its_bound_fields(logs: Logs):
    get_logger(did="did:plc:a").info("commit_rejected", rev="3l", reason="badSignature", seq=7)
    (event,) = logs.events()
    assert event.pop("timestamp")
    assert event == {
        "event": "commit_rejected",
        "level": "info",
        "did": "did:plc:a",
        "rev": "3l",
        "reason": "badSignature",
        "seq": 7,
    }


def test_logger_made_before_the_set_up_follows_it():
    early = get_logger()
    written = Logs()
    set_up_logging(written)
    early.info("daemon_started")
    structlog.reset_defaults()
    assert written.events()[0]["event"] == "daemon_started"


@pytest.mark.parametrize("field", ["content", "record", "q", "query", "token", "space", "uri", "text", "rkey"])
def test_unknown_field_is_dropped_and_its_name_told(logs: Logs, field: str):
    get_logger().info("search_answered", count=1, **{field: SECRET})
    (event,) = logs.events()
    assert event["fields_dropped"] == [field]
    assert "Mandarin" not in logs.getvalue()


@pytest.mark.parametrize(
    "value",
    [
        "at://did:plc:a/space/x.y.z/k",
        "x at://did:plc:a/a.b.c/k",
        ["at://did:plc:a/a.b.c/k"],
        {"a": SECRET},
        SECRET.encode(),
    ],
)
def test_uris_and_shapeless_values_do_not_pass_in_known_fields(logs: Logs, value: object):
    get_logger().info("search_answered", reason=value)
    assert "did:plc:a" not in logs.getvalue()
    assert "Mandarin" not in logs.getvalue()


def test_sentence_is_no_event(logs: Logs):
    get_logger().info(f"searched for {SECRET}")
    assert logs.events()[0]["event"] == "event_unnamed"
    assert "Mandarin" not in logs.getvalue()


def test_driver_error_is_told_by_class_sqlstate_and_place(logs: Logs):
    try:
        raise driver_error()
    except asyncpg.PostgresError:
        get_logger().exception("batch_failed")
    (event,) = logs.events()
    assert event["error"] == "asyncpg.exceptions.UniqueViolationError"
    assert event["sqlstate"] == "23505"
    assert str(event["stack"]).startswith("['tests.unit.test_telemetry:")
    assert "Mandarin" not in logs.getvalue()


def test_driver_error_given_as_a_field_tells_nothing(logs: Logs):
    get_logger().info("batch_failed", reason=driver_error())
    assert "Mandarin" not in logs.getvalue()


def test_our_own_errors_keep_their_message():
    error = Misconfigured("APPVIEW_PORT is taken.")
    assert describe_error(error)["message"] == "APPVIEW_PORT is taken."


def test_causes_and_members_of_a_group_are_told_by_class():
    try:
        try:
            raise driver_error()
        except asyncpg.PostgresError as cause:
            raise ExceptionGroup("g", [ValueError(SECRET)]) from cause
    except ExceptionGroup as group:
        told = describe_error(group)
    assert told["error"] == "ExceptionGroup < ValueError < asyncpg.exceptions.UniqueViolationError"


def test_library_records_lose_their_words(logs: Logs):
    logging.getLogger("uvicorn.error").error("while serving %s", SECRET, exc_info=driver_error())
    logging.getLogger("uvicorn.access").info("GET /?q=%s", SECRET)
    (event,) = logs.events()
    assert (event["event"], event["library"], event["level"]) == ("library_warned", "uvicorn.error", "error")
    assert event["error"] == "asyncpg.exceptions.UniqueViolationError"
    assert "Mandarin" not in logs.getvalue()


def test_exception_that_nobody_awaits_does_not_leak(logs: Logs):
    async def fail() -> None:
        raise driver_error()

    async def forget() -> None:
        task = asyncio.create_task(fail())
        await asyncio.wait([task])
        del task

    asyncio.run(forget())
    assert logs.events()[0]["library"] == "asyncio"
    assert "Mandarin" not in logs.getvalue()


def test_crash_of_the_process_is_an_event(logs: Logs):
    error = driver_error()
    sys.excepthook(type(error), error, None)
    assert logs.events()[0]["event"] == "process_crashed"
    assert "Mandarin" not in logs.getvalue()


def test_interrupt_of_the_process_is_none(logs: Logs):
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert logs.events() == []


def test_terminal_gets_lines_for_eyes():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    written = Terminal()
    set_up_logging(written)
    get_logger().info("daemon_started", port=8600)
    structlog.reset_defaults()
    assert "daemon_started" in written.getvalue()
    assert "{" not in written.getvalue()
