"""Requests to one server over HTTP.

A request whose connection breaks may have taken effect. So only a request that is safe to repeat is repeated: reading,
setting, deleting, and a request with an idempotency key. A request that the rate limit refused had no effect; it is
repeated after the time that the server names. Every problem becomes an error with an exit code.
"""

import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import msgspec

from stateward.client.errors import TOO_MANY, AnswerUnreadable, NotOurs, RequestFailed, Unreachable, api_error_of
from stateward.client.target import Secret
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
BROKEN = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout)

Params = Mapping[str, str | int | list[str] | None]
NOTHING: Mapping[str, Any] = {}


def idempotency_headers() -> dict[str, str]:
    """Return the headers of a request with a new idempotency key: it may be sent again if its connection breaks."""
    return {IDEMPOTENCY_HEADER: uuid4().hex}


class HttpConnection:
    """A connection to one server, with one token."""

    def __init__(
        self,
        url: str,
        token: Secret,
        transport: httpx.BaseTransport | None = None,
        *,
        timeout: float = 30.0,
        direct: bool = False,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url, self.token, self.direct = url, token, direct
        self.pause = pause
        headers = {"Authorization": f"Bearer {token.text}"} if token.text else {}
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            transport=transport,
            timeout=timeout,
            trust_env=not direct,
            # Loading certificates takes longer than a call without. Those of the system and of SSL_CERT_FILE count.
            verify=ssl.create_default_context() if url.startswith("https:") else False,
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

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
    ) -> T:
        """Send a request and return its response as the expected type; raises if the server reports a problem."""
        given = {name: value for name, value in params.items() if value is not None}
        content = None if body is None else msgspec.json.encode(body)
        kind = {} if content is None else {"Content-Type": "application/json"}
        request = self._http.build_request(
            method, base + path, params=given or None, content=content, headers={**headers, **kind}
        )
        response = self._patiently(request)
        return self._decoded(response, answer)

    def text(self, path: UrlPath) -> str:
        """Read something that is text and no JSON; raises if the server reports a problem."""
        response = self._patiently(self._http.build_request("GET", BASE + path))
        if not response.is_success:
            raise self._problem(response)
        return response.text

    @contextmanager
    def stream_lines(self, path: UrlPath, last: str | None, patience: float | None) -> Iterator[Iterator[str]]:
        """Open a stream of events and yield its lines; it fails after `patience` seconds of silence."""
        timeout = httpx.Timeout(30, read=patience)
        headers = {"Accept": "text/event-stream", **({} if last is None else {"Last-Event-ID": last})}
        try:
            with self._http.stream("GET", BASE + path, headers=headers, timeout=timeout) as found:
                if not found.is_success:
                    found.read()
                    raise self._problem(found)
                yield found.iter_lines()
        except httpx.TransportError as error:
            raise self._lost(error) from error

    def _patiently(self, request: httpx.Request) -> httpx.Response:
        for _ in range(PATIENCE):
            response = self._repeatedly(request)
            if response.status_code != TOO_MANY:
                return response
            self.pause(_seconds(response.headers.get("Retry-After")))
        return response

    def _repeatedly(self, request: httpx.Request) -> httpx.Response:
        pauses = PAUSES if request.method in REPEATABLE or IDEMPOTENCY_HEADER in request.headers else ()
        for pause in (*pauses, None):
            try:
                return self._http.send(request)
            except httpx.TransportError as error:
                if pause is None or not isinstance(error, BROKEN):
                    raise self._lost(error) from error
                self.pause(pause)
        raise AssertionError("the last try returns or raises")

    def _decoded(self, response: httpx.Response, answer: type[T]) -> T:
        if not response.is_success:
            raise self._problem(response)
        try:
            return msgspec.json.decode(response.content or b"null", type=answer)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            if response.request.method != "GET":
                raise AnswerUnreadable(self.url, response.status_code, str(error)) from error
            raise NotOurs(self.url, response.status_code, str(error)) from error

    def _problem(self, response: httpx.Response) -> RequestFailed:
        try:
            body = msgspec.json.decode(response.content)
        except msgspec.DecodeError:
            body = None
        problem = api_error_of(response.status_code, body, response.headers.get("Retry-After"))
        return problem or NotOurs(self.url, response.status_code, response.reason_phrase or "no reason given")

    def _lost(self, error: httpx.TransportError) -> Unreachable:
        why = "it takes too long" if isinstance(error, httpx.TimeoutException) else str(error) or type(error).__name__
        return Unreachable(self.url, why)


def _seconds(retry_after: str | None) -> float:
    try:
        return min(max(float(retry_after or 1), 0.05), LONGEST_PAUSE)
    except ValueError:
        return 1.0
