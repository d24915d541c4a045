"""Logs: one line for each event, as text or as JSON, without secrets.

Code that logs does not have to care about secrets or ids. The formatter masks texts that look like a token, a password
in a database URL, an authorization header or a private key. A line that is logged while a handler runs carries the
operation's id.
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
from stateward.private_keys import mask_private_keys
from stateward.store.errors import DatabaseReplaced

TOKEN = re.compile(r"(\bsw_[A-Za-z0-9]+|s[ws]_[0-9a-f]{12})_[A-Za-z0-9_-]+")
HEADER = re.compile(r"\b(basic|bearer)(\s+)[A-Za-z0-9+/=._-]{8,}", re.IGNORECASE)
NAMED = re.compile(r"\boperation ([0-9a-f]{32}(?:[0-9a-f]{16})?)\b")

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
"""The attributes of every log record; further ones were added by `extra`."""

OPERATION: ContextVar[str | None] = ContextVar("operation", default=None)
"""The operation of the running handler."""


def redacted(text: str) -> str:
    """Return a text with its secrets masked; the id of a token stays."""
    return HEADER.sub(r"\1\2***", masked(TOKEN.sub(r"\1_***", mask_private_keys(text))))


@contextmanager
def log_operation(op: str) -> Iterator[None]:
    """Add an operation's id to all lines that are logged in this context."""
    before = OPERATION.set(op)
    try:
        yield
    finally:
        OPERATION.reset(before)


class JsonFormatter(logging.Formatter):
    """Formats a line as one JSON object."""

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
    """Formats a line as text: the time of the day, the level, the message."""

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
    """Return whether a record is not the repeated error of a replaced database.

    The store logs once that its file was replaced; every request and every loop fails with that error from then on.
    """
    causes = record.args if isinstance(record.args, tuple) else ()
    error = record.exc_info[1] if record.exc_info else None
    return not any(_is_about_replaced(cause) for cause in (*causes, error))


def _is_about_replaced(cause: object) -> bool:
    if isinstance(cause, BaseExceptionGroup):
        return all(map(_is_about_replaced, cause.exceptions))
    return isinstance(cause, DatabaseReplaced)


CHATTY = ("asyncio", "asyncssh", "azure", "botocore.credentials", "httpx", "uvicorn.error", "websockets")
"""The loggers that write lines of the level `info` for each start, stop, connection or request."""

FORMS = {"json": JsonFormatter, "text": TextFormatter}


def start_logging(form: Literal["text", "json"], level: str, stream: IO[str] | None = None) -> None:
    """Set up one handler for all loggers: ours, the server's, the libraries'."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(FORMS[form]())
    handler.addFilter(is_not_repeated)
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
    if root.level > logging.DEBUG:
        for chatty in CHATTY:
            logging.getLogger(chatty).setLevel(logging.WARNING)


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _operation(message: str) -> str | None:
    """Return the operation of a line: that of the running handler, or the one that the message names."""
    current = OPERATION.get()
    if current is not None:
        return current
    named = NAMED.search(message)
    return named[1] if named else None


def _cleaned(value: Any) -> Any:  # noqa: ANN401 - whatever was logged
    """Mask every text in a value; before it is encoded, because a mask must not remove quotation marks."""
    match value:
        case str():
            return redacted(value)
        case dict():
            return {redacted(str(name)): _cleaned(part) for name, part in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_cleaned(part) for part in value]
        case bool() | int() | float() | None:
            return value
        case _:
            return redacted(str(value))
