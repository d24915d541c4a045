"""Logs: one line per event, as text for a terminal or as JSON for a machine, and never a secret in it.

Whoever writes a line does not have to think of secrets or of ids: what looks like one of our tokens, a password in a
database URL or an authorization header is masked in the last step before the line is written; and a line written while
an operation is worked on carries the operation's id.
"""

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Any, Literal

import msgspec

from stateward.config import masked
from stateward.store.errors import DatabaseReplaced

TOKEN = re.compile(r"(\bsw_[A-Za-z0-9]+|sw_[0-9a-f]{12})_[A-Za-z0-9_-]+")
HEADER = re.compile(r"\b(basic|bearer)(\s+)[A-Za-z0-9+/=._-]{8,}", re.IGNORECASE)
NAMED = re.compile(r"\boperation ([0-9a-f]{32}(?:[0-9a-f]{16})?)\b")

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
"""What every record has; anything else was added by whoever wrote the line."""

OPERATION: ContextVar[str | None] = ContextVar("operation", default=None)
"""The operation that is being worked on here."""


def redacted(text: str) -> str:
    """Return a text without secrets; of a token, the part stays that finds its record."""
    return HEADER.sub(r"\1\2***", masked(TOKEN.sub(r"\1_***", text)))


@contextmanager
def log_operation(op: str) -> Iterator[None]:
    """Let every line that is written meanwhile carry an operation's id."""
    before = OPERATION.set(op)
    try:
        yield
    finally:
        OPERATION.reset(before)


class JsonFormatter(logging.Formatter):
    """A line as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        message = record.getMessage()
        line: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
        }
        if (op := _operation(message)) is not None:
            line["op"] = op
        line |= {name: value for name, value in vars(record).items() if name not in STANDARD}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(_cleaned(line), enc_hook=str).decode()


class TextFormatter(logging.Formatter):
    """A line for a person: the time of the day, the level, what happened."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the traceback after it if there is one."""
        message = record.getMessage()
        op = _operation(message)
        about = f" [{op}]" if op is not None and op not in message else ""
        text = f"{_time(record):%H:%M:%S} {record.levelname.lower():<7} {message}{about}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return redacted(text)


def is_not_repeated(record: logging.LogRecord) -> bool:
    """Tell whether a record says something new.

    The store logs once that its file was replaced. Every request and every loop meets that error from then on.
    """
    causes = record.args if isinstance(record.args, tuple) else ()
    error = record.exc_info[1] if record.exc_info else None
    return not any(_is_about_replaced(one) for one in (*causes, error))


def _is_about_replaced(cause: object) -> bool:
    if isinstance(cause, BaseExceptionGroup):
        return all(map(_is_about_replaced, cause.exceptions))
    return isinstance(cause, DatabaseReplaced)


FORMS = {"json": JsonFormatter, "text": TextFormatter}


def start_logging(form: Literal["text", "json"], level: str, stream: IO[str] | None = None) -> None:
    """Send everybody's lines one way: ours, the server's, the libraries'."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(FORMS[form]())
    handler.addFilter(is_not_repeated)
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
    if root.level > logging.DEBUG:
        for chatty in ("uvicorn.error", "asyncio"):  # a line for each start, stop and connection
            logging.getLogger(chatty).setLevel(logging.WARNING)


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _operation(message: str) -> str | None:
    """Return the operation that a line is about: the one being worked on, or the one that it names."""
    current = OPERATION.get()
    if current is not None:
        return current
    named = NAMED.search(message)
    return named[1] if named else None


def _cleaned(value: Any) -> Any:  # noqa: ANN401 - whatever was logged
    """Redact every text in a value; before it is encoded, because a mask must not eat quotation marks."""
    match value:
        case str():
            return redacted(value)
        case dict():
            return {redacted(str(name)): _cleaned(one) for name, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_cleaned(one) for one in value]
        case bool() | int() | float() | None:
            return value
        case _:
            return redacted(str(value))
