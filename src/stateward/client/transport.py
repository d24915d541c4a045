"""HTTP over sockets, with the standard library alone.

A command starts for one or two requests. Importing a full HTTP library takes 0.13 s, several times as long as they do.
This is the part of it that commands need: one connection that is kept open, proxies of the environment, HTTPS with the
system's certificates, streams of lines. Requests may be sent by another transport, such as the one in this process.
"""

import http.client
import os
import select
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    import ssl

BrokenConnection = (OSError, http.client.HTTPException)
"""What a transport raises if there is no response; `TimeoutError`, which is an OSError, if it takes too long."""


class HttpRequest(Struct, frozen=True):
    """A request; `target` is the path and the query. The server may take `patience` seconds (None: as usual)."""

    method: str
    target: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    patience: float | None = None


class HttpResponse(Struct, frozen=True):
    """A response; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    reason: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the server did what was asked."""
        return 200 <= self.status < 300


class Transport(Protocol):
    """Sends requests to one server."""

    def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request and return the response to it."""

    def stream(
        self, request: HttpRequest, patience: float | None
    ) -> AbstractContextManager[tuple[HttpResponse, Iterator[str]]]:
        """Send a request and yield the head of its response, and the lines as they come."""

    def close(self) -> None:
        """Close the connection."""


class SocketTransport:
    """A connection to the server at an address; `direct` is without a proxy."""

    def __init__(self, url: str, *, timeout: float, direct: bool) -> None:
        self._url, self._timeout = urlsplit(url), timeout
        self._proxy = None if direct else _proxy_of(url)
        self._kept: http.client.HTTPConnection | None = None

    def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request, over the connection of the last one if that is still open."""
        if self._kept is not None and _has_ended(self._kept):
            self.close()
        self._kept = connection = self._kept or self._connection(self._timeout)
        try:
            connection.timeout = request.patience or self._timeout
            if connection.sock is not None:
                connection.sock.settimeout(connection.timeout)
            response = self._sent(connection, request)
            return HttpResponse(response.status, _lower(response), response.read(), response.reason)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def stream(self, request: HttpRequest, patience: float | None) -> Iterator[tuple[HttpResponse, Iterator[str]]]:
        """Open a connection of its own for a stream, which fails after `patience` seconds of silence."""
        connection = self._connection(self._timeout)
        try:
            response = self._sent(connection, request)
            if connection.sock is not None:
                connection.sock.settimeout(patience)
            head = HttpResponse(
                response.status, _lower(response), b"" if response.status < 300 else response.read(), response.reason
            )
            yield head, (line.decode("utf-8", "replace").rstrip("\r\n") for line in response)
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection that was kept."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _sent(self, connection: http.client.HTTPConnection, request: HttpRequest) -> http.client.HTTPResponse:
        target, headers = f"{self._url.path}{request.target}", dict(request.headers)
        if self._proxy is not None and self._url.scheme == "http":
            target = f"http://{self._url.netloc}{target}"
            headers |= _proxy_headers(self._proxy)
        connection.request(request.method, target, request.body, headers)
        return connection.getresponse()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        to = self._url if self._proxy is None else urlsplit(self._proxy)
        default = 443 if to.scheme == "https" else 80
        host, port = to.hostname or "", to.port or default
        if self._url.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=timeout)
        secure = http.client.HTTPSConnection(host, port, timeout=timeout, context=_certificates())
        if self._proxy is not None:
            secure.set_tunnel(self._url.hostname or "", self._url.port or 443, _proxy_headers(self._proxy))
        return secure


def _certificates() -> "ssl.SSLContext":
    """Return the certificates of the system, or of SSL_CERT_FILE; loading them takes longer than most commands."""
    import ssl

    return ssl.create_default_context()


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """Whether the server closed a connection that was kept: then there is something to read, the end."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _lower(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for an address."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _proxy_headers(proxy: str) -> dict[str, str]:
    parts = urlsplit(proxy)
    if not parts.username:
        return {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(login.encode()).decode()}"}
