"""Requests to one server over HTTP.

A request whose connection breaks may have taken effect. So only a request that is safe to repeat is repeated: reading,
setting, deleting, and a request with an idempotency key. A request that the rate limit refused had no effect; it is
repeated after the time that the server names. Every problem becomes an error with an exit code.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from stateward.client import errors
from stateward.client.target import Secret
from stateward.client.transport import BrokenConnection, HttpRequest, HttpResponse, SocketTransport, Transport
from stateward.client.url_paths import UrlPath, url_path
from stateward.naming import IDEMPOTENCY_HEADER

T = TypeVar("T")

BASE = url_path("api", "v1")
REPEATABLE = frozenset({"GET", "PUT", "DELETE"})
PAUSES = (0.1, 0.4)
"""Seconds before each further try of a request whose connection broke."""

PATIENCE = 10
"""Tries of a request that the rate limit refuses."""

LONGEST_PAUSE = 5.0

Params = Mapping[str, str | int | list[str] | None]
NOTHING: Mapping[str, Any] = {}
PAGE_SIZE = 1_000


def idempotency_headers() -> dict[str, str]:
    """Return the headers of a request with a new idempotency key: it may be sent again if its connection breaks."""
    return {IDEMPOTENCY_HEADER: os.urandom(16).hex()}


class HttpConnection:
    """A connection to one server, with one token."""

    def __init__(
        self,
        url: str,
        token: Secret,
        transport: Transport | None = None,
        *,
        timeout: float = 30.0,
        direct: bool = False,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url, self.token, self.direct = url, token, direct
        self.pause = pause
        self._has_answered = False
        self._transport = transport or SocketTransport(url, timeout=timeout, direct=direct)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def call(
        self,
        answer: type[T],
        method: str,
        path: UrlPath,
        *,
        params: Params = NOTHING,
        body: object = None,
        headers: Mapping[str, str] = NOTHING,
        base: UrlPath = BASE,
        patience: float | None = None,
    ) -> T:
        """Send a request and return its response as the expected type; raises if the server reports a problem.

        `patience` is how many seconds the server may take, where that is longer than usual.
        """
        given = {name: value for name, value in params.items() if value is not None}
        content = None if body is None else msgspec.json.encode(body)
        kind = {} if content is None else {"Content-Type": "application/json"}
        query = f"?{urlencode(given, doseq=True)}" if given else ""
        request = replace(
            self._request(method, f"{base}{path}{query}", {**headers, **kind}, content), patience=patience
        )
        return self._decoded(request, self._patiently(request), answer)

    def call_pages(
        self, page_type: type[list[T]], path: UrlPath, cursor: Callable[[T], str], params: Params = NOTHING
    ) -> list[T]:
        """Return a whole list that is read page by page; `cursor` returns the `after` of the page behind an item.

        A server that doesn't know pages of a list answers all of it.
        """
        items, after = list[T](), None
        while True:
            page = self.call(page_type, "GET", path, params={**params, "limit": PAGE_SIZE, "after": after})
            if page and cursor(page[-1]) == after:  # from such a server, again
                return items
            items += page
            if len(page) != PAGE_SIZE:
                return items
            after = cursor(page[-1])

    def upload(
        self,
        answer: type[T],
        path: UrlPath,
        form: Mapping[str, str],
        file: tuple[str, bytes],
        params: Params = NOTHING,
        base: UrlPath = BASE,
    ) -> T:
        """Send a form with one file (`file`: its name and content), and return the response as the expected type."""
        given = {name: value for name, value in params.items() if value is not None}
        boundary = os.urandom(16).hex()
        parts = [
            f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode() for name, value in form.items()
        ]
        head = f'Content-Disposition: form-data; name="file"; filename="{_quoted(file[0])}"\r\n'
        parts.append(head.encode() + b"Content-Type: application/octet-stream\r\n\r\n" + file[1])
        body = (
            b"".join(f"--{boundary}\r\n".encode() + part + b"\r\n" for part in parts) + f"--{boundary}--\r\n".encode()
        )
        query = f"?{urlencode(given, doseq=True)}" if given else ""
        kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        request = self._request("POST", f"{base}{path}{query}", kind, body)
        return self._decoded(request, self._patiently(request), answer)

    def text(self, path: UrlPath) -> str:
        """Read something that is text and no JSON; raises if the server reports a problem."""
        response = self._patiently(self._request("GET", BASE + path))
        if not response.is_success:
            raise self._problem(response)
        return response.body.decode("utf-8", "replace")

    @contextmanager
    def stream_lines(self, path: UrlPath, last: str | None, patience: float | None) -> Iterator[Iterator[str]]:
        """Open a stream of events and yield its lines; it fails after `patience` seconds of silence."""
        headers = {"Accept": "text/event-stream", **({} if last is None else {"Last-Event-ID": last})}
        try:
            with self._transport.stream(self._request("GET", BASE + path, headers), patience) as (response, lines):
                if not response.is_success:
                    raise self._problem(response)
                yield lines
        except BrokenConnection as error:
            raise self._lost(error) from error

    def _request(
        self, method: str, target: str, headers: Mapping[str, str] = NOTHING, body: bytes | None = None
    ) -> HttpRequest:
        token = {"Authorization": f"Bearer {self.token.text}"} if self.token.text else {}
        return HttpRequest(method, target, {**headers, **token}, body)

    def _patiently(self, request: HttpRequest) -> HttpResponse:
        for _ in range(PATIENCE):
            response = self._repeatedly(request)
            if response.status != errors.TOO_MANY:
                return response
            self.pause(_seconds(response.headers.get("retry-after")))
        return response

    def _repeatedly(self, request: HttpRequest) -> HttpResponse:
        pauses = PAUSES if request.method in REPEATABLE or IDEMPOTENCY_HEADER in request.headers else ()
        for pause in (*pauses, None):
            try:
                response = self._transport.send(request)
                self._has_answered = True
                return response
            except BrokenConnection as error:
                is_absent = (
                    errors.is_refused(error) and not self._has_answered
                )  # it does not run, and does not restart either
                if pause is None or is_absent or isinstance(error, TimeoutError):
                    raise self._lost(error) from error
                self.pause(pause)
        raise AssertionError("the last try returns or raises")

    def _decoded(self, request: HttpRequest, response: HttpResponse, answer: type[T]) -> T:
        if not response.is_success:
            raise self._problem(response)
        try:
            return msgspec.json.decode(response.body or b"null", type=answer)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            if request.method != "GET":
                raise errors.AnswerUnreadable(self.url, response.status, str(error)) from error
            raise errors.NotOurs(self.url, response.status, str(error)) from error

    def _problem(self, response: HttpResponse) -> errors.RequestFailed:
        try:
            body = msgspec.json.decode(response.body)
        except msgspec.DecodeError:
            body = None
        problem = errors.api_error_of(response.status, body, response.headers.get("retry-after"))
        return problem or errors.NotOurs(self.url, response.status, response.reason or "no reason given")

    def _lost(self, error: Exception) -> errors.Unreachable:
        if errors.is_refused(error):
            return errors.ServerAbsent(self.url)
        why = "it takes too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return errors.Unreachable(self.url, why)


def _seconds(retry_after: str | None) -> float:
    try:
        return min(max(float(retry_after or 1), 0.05), LONGEST_PAUSE)
    except ValueError:
        return 1.0


def _quoted(name: str) -> str:
    """Return the name of a file for the header of a form's part."""
    return name.replace("\\", "_").replace('"', "_").replace("\r", "_").replace("\n", "_")
