"""Request log: the latest requests of this process, by their ids, without secrets.

A caller who lost a response can look up what became of the request. The outcome comes from the operation; the log only
knows its id. Requests that must outlive the process are stored (`request_log_store`).
"""

import re
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from litestar.types import Scope
from msgspec import Struct
from msgspec.structs import replace

from stateward.access import Grant, Role
from stateward.domains.mci.api.before_routing import ORIGINAL_PATH
from stateward.private_keys import MASK, mask_private_keys
from stateward.store.records import Key, Operation, Status

MAX_REQUESTS = 1000
MAX_BODY_BYTES = 16_384
"""Maximal size of a logged body."""

SHOWN_HEADERS = frozenset({"content-type", "user-agent", "x-request-id", "x-credential-holder"})
SECRET_WORDS = ("password", "privatekey", "secret", "token", "credential", "passphrase")
"""Words in the names of fields whose values are masked."""

URL_WITH_PASSWORD = re.compile(r"//[^/@\s]*:[^/@\s]*@")
REQUEST_TIMEOUT_S = 900.0
"""Time limit of a request; an older request without a response was cut off with its server."""

NO_ANSWER = "the server ended before it could answer; the journal tells what the call has led to"


class RequestInfo(Struct, frozen=True):
    """A request as it arrived."""

    method: str
    url: str
    header: dict[str, str]
    body: Any


class RequestView(Struct, frozen=True, rename="camel"):
    """The outcome of a request."""

    id: str
    start_time: str
    end_time: str
    status: str
    request_info: RequestInfo
    response_data: Any
    error_response: str


class LoggedRequest(Struct, frozen=True, omit_defaults=True):
    """A logged request, without secrets and long bodies. Stored as JSON: field names must not change."""

    id: str
    method: str
    url: str
    ns: str | None
    token: str
    header: dict[str, str]
    began: float
    ended: float | None = None
    code: int = 0
    body: Any = None
    answer: Any = None
    operation: Key | None = None

    @property
    def changes(self) -> bool:
        """Whether the request changes something, in either form of control."""
        return self.method in ("POST", "PUT", "DELETE") or "/control/" in self.url.partition("?")[0]

    def visible_to(self, grant: Grant) -> bool:
        """Tell whether a caller may see the request: its own token, or an administrator of its namespace or of all."""
        if self.token == grant.token or grant.governs_all:
            return True
        return grant.role is Role.ADMIN and self.ns is not None and grant.opens(self.ns)

    def view(self, operation: Operation | None, now: float) -> RequestView:
        """Return the outcome of the request; `operation` is the operation that it has started."""
        status, ended = self._status(operation, now)
        return RequestView(
            id=self.id,
            start_time=_time(self.began),
            end_time="" if ended is None else _time(ended),
            status=status,
            request_info=RequestInfo(self.method, self.url, self.header, self.body),
            response_data=self.answer,
            error_response=self._error(operation, status),
        )

    def _error(self, operation: Operation | None, status: str) -> str:
        if self.code >= 400:
            answer = self.answer
            return str(answer.get("message") or answer.get("detail")) if isinstance(answer, dict) else str(self.code)
        if self.ended is None and status == "Error":
            return NO_ANSWER
        return "" if operation is None else operation.error or ""

    def _status(self, operation: Operation | None, now: float) -> tuple[str, float | None]:
        if self.ended is None:
            return ("Handling", None) if now < self.began + REQUEST_TIMEOUT_S else ("Error", None)
        if self.code >= 400:
            return "Error", self.ended
        if operation is None:
            return "Success", self.ended
        if operation.status in (Status.WAITING, Status.RUNNING):
            return "Handling", None
        return "Success" if operation.status is Status.SUCCEEDED else "Error", operation.ended


class RecordedBody:
    """A body as its chunks arrive; the content of one that is too long is dropped, its length is not."""

    def __init__(self) -> None:
        self._content, self._length = b"", 0

    def add(self, chunk: bytes) -> None:
        """Add a chunk."""
        self._length += len(chunk)
        self._content = self._content + chunk if self._length <= MAX_BODY_BYTES else b""

    def loggable(self) -> Any:  # noqa: ANN401 - any JSON
        """Return the body without secrets, or its length."""
        if not self._content:
            return f"({self._length} bytes)" if self._length else None
        try:
            return without_secrets(msgspec.json.decode(self._content))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return f"({self._length} bytes that are no JSON)"


class RequestLogEntry:
    """The log entry of a request, running or ended; `head` has the fields that are known when it arrives."""

    def __init__(self, head: LoggedRequest) -> None:
        self.head, self.body, self.answer = head, RecordedBody(), RecordedBody()
        self.ended: float | None = None
        self.code = 0
        self.operation: Key | None = None

    def to_logged_request(self) -> LoggedRequest:
        """Return the request without secrets."""
        return replace(
            self.head,
            ended=self.ended,
            code=self.code,
            body=self.body.loggable(),
            answer=self.answer.loggable(),
            operation=self.operation,
        )


class RequestLog:
    """Keeps the latest requests of this process."""

    def __init__(self, most: int = MAX_REQUESTS) -> None:
        self._most = most
        self._entries: OrderedDict[tuple[str, str], RequestLogEntry] = OrderedDict()  # by token and id

    def begin(self, id_: str, scope: Scope, now: float) -> RequestLogEntry:
        """Start an entry; it replaces the caller's entry of the same id, and the oldest one if there are too many.

        A request that only reads does not replace one that changes something.
        """
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        grant: Grant | None = scope.get("auth")
        pairs = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        shown = [(name, MASK if is_secret_name(name) else mask_private_keys(value)) for name, value in pairs]
        query = urlencode(shown, safe="*")
        path = mask_private_keys(scope.get(ORIGINAL_PATH) or scope["path"])  # type: ignore[arg-type]
        head = LoggedRequest(
            id_,
            str(scope.get("method", "")),
            f"{path}?{query}" if query else path,
            scope.get("path_params", {}).get("ns"),
            "" if grant is None else grant.token,
            {name: mask_private_keys(value) for name, value in headers.items() if name in SHOWN_HEADERS},
            now,
        )
        entry = RequestLogEntry(head)
        was = self._entries.get(key := (head.token, id_))
        if was is not None and was.head.changes and not head.changes:
            return entry
        self._entries.pop(key, None)
        self._entries[key] = entry
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)
        return entry

    def find(self, id_: str) -> list[LoggedRequest]:
        """Return the requests of an id, one per caller."""
        return [entry.to_logged_request() for entry in self._entries.values() if entry.head.id == id_]

    def all(self) -> list[LoggedRequest]:
        """Return all requests."""
        return [entry.to_logged_request() for entry in self._entries.values()]


def without_secrets(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return JSON with the values of secret fields masked, and private keys wherever they are."""
    match value:
        case {"name": str(name), "value": _} if is_secret_name(name):  # a setting
            return {**value, "value": MASK}
        case dict():
            masked = {name: MASK if is_secret_name(name) else without_secrets(member) for name, member in value.items()}
            return {mask_private_keys(name): member for name, member in masked.items()}
        case list():
            return [without_secrets(element) for element in value]
        case str():
            return mask_private_keys(URL_WITH_PASSWORD.sub(f"//{MASK}@", value))
        case _:
            return value


def is_secret_name(name: object) -> bool:
    """Tell whether a field or a setting of this name has a secret."""
    word = str(name).lower().replace("_", "").replace("-", "")
    return any(secret in word for secret in SECRET_WORDS)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
