"""Requests to a container engine over a Unix socket, or over TCP with TLS.

A hung engine must not hang its caller, and a lost answer must not look like a no. So every call has a deadline; every
failure without an answer is `EngineUnavailable`, which says whether the request may have been sent; and every answer
that is no success is `EngineRefused`, with a reason for programs.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit

import anyio
import msgspec

from stateward.containers.errors import EngineRefusal, EngineRefused, EngineUnavailable
from stateward.errors import BadInput

if TYPE_CHECKING:
    import httpx  # its import takes 0.2 s of every start, and most deployments have no engine

CALL_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
MAX_CONNECTIONS, MAX_IDLE_CONNECTIONS = 1000, 16
"""A stream of output takes a connection for as long as its container runs, so many are allowed."""
NEWEST_API = (1, 44)
"""The newest version of the API that this client asks for; older engines get their own."""

MAX_MESSAGE = 500
ADDRESS_MEANS = "unix:///PATH, or tcp://HOST:PORT with TLS unless the host is this one"

PODMAN_API = "/v4.0.0/libpod"
"""The prefix of the calls that only Podman has."""
PODMAN_HEADER = "Libpod-Api-Version"
PIECE_BYTES = 1 << 16

CONNECTION_ERRORS = (OSError, anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError)

T = TypeVar("T")


class RequestParts(TypedDict, total=False):
    """What a request may have besides its method and path."""

    params: Mapping[str, str | Sequence[str]]
    json: object
    content: bytes | AsyncIterator[bytes]
    headers: Mapping[str, str]


class EngineTls(msgspec.Struct, frozen=True):
    """The files of a TLS connection: the authority that signed the engine's certificate, and our own certificate."""

    ca_file: str
    cert_file: str = ""
    key_file: str = ""


class ErrorJson(msgspec.Struct, frozen=True):
    """An engine's refusal; Podman adds a cause."""

    message: str | None = None
    cause: str | None = None


_ERROR_DECODER = msgspec.json.Decoder(ErrorJson)

_REASONS: tuple[tuple[str, EngineRefusal], ...] = (
    ("no space left", EngineRefusal.OUT_OF_DISK),
    ("disk quota exceeded", EngineRefusal.OUT_OF_DISK),
    ("layer not known", EngineRefusal.DAMAGED),
    ("container not known", EngineRefusal.DAMAGED),  # in Podman's storage
    ("container with given id already exists", EngineRefusal.DAMAGED),
    ("runc start ", EngineRefusal.DAMAGED),  # Podman believes that it has not begun
    ("crun start ", EngineRefusal.DAMAGED),
    ("no such image", EngineRefusal.IMAGE_MISSING),
    ("image not known", EngineRefusal.IMAGE_MISSING),
    ("manifest unknown", EngineRefusal.IMAGE_MISSING),
    ("unauthorized", EngineRefusal.UNAUTHORIZED),
    ("authentication required", EngineRefusal.UNAUTHORIZED),
    ("access denied", EngineRefusal.UNAUTHORIZED),
    ("no basic auth credentials", EngineRefusal.UNAUTHORIZED),
    ("overlaps with other", EngineRefusal.CONFLICT),  # a subnet
    ("already used on the host", EngineRefusal.CONFLICT),
    ("port is already allocated", EngineRefusal.PORT_TAKEN),
    ("address already in use", EngineRefusal.PORT_TAKEN),
    ("is already in use by", EngineRefusal.NAME_TAKEN),
    ("name is already in use", EngineRefusal.NAME_TAKEN),
    ("already used", EngineRefusal.NAME_TAKEN),
    ("already exists", EngineRefusal.NAME_TAKEN),
    ("has active endpoints", EngineRefusal.IN_USE),
    ("is being used", EngineRefusal.IN_USE),
    ("image is in use", EngineRefusal.IN_USE),
    ("is using its referenced image", EngineRefusal.IN_USE),
    ("volume is in use", EngineRefusal.IN_USE),
    ("state improper", EngineRefusal.CONFLICT),
    ("is not paused", EngineRefusal.CONFLICT),
    ("executable file not found", EngineRefusal.INVALID),
    ("command that was not found", EngineRefusal.INVALID),
    ("no command", EngineRefusal.INVALID),
    ("invalid", EngineRefusal.INVALID),
)
"""Words in engines' messages and what they mean, the more special ones first. The status alone says too little: Podman
answers most refusals with 500."""

_BY_STATUS = {
    400: EngineRefusal.INVALID,
    401: EngineRefusal.UNAUTHORIZED,
    403: EngineRefusal.UNAUTHORIZED,
    404: EngineRefusal.NOT_FOUND,
    409: EngineRefusal.CONFLICT,
}


def refusal_reason(status: int, message: str) -> EngineRefusal:
    """Return the reason for a refusal, from the status and the engine's message."""
    words = message.lower()
    for part, reason in _REASONS:
        if part in words:
            return reason
    return _BY_STATUS.get(status, EngineRefusal.FAILED)


def refusal(call: str, status: int, content: bytes) -> EngineRefused:
    """Return the error for an answer that is no success."""
    try:
        problem = _ERROR_DECODER.decode(content)
        message = problem.message or problem.cause or f"status {status}"
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = content.decode(errors="replace").strip() or f"status {status}"
    return EngineRefused(refusal_reason(status, message), call, message[:MAX_MESSAGE])


class EngineTransport:
    """Connections to one engine."""

    def __init__(self, address: str, tls: EngineTls | None = None, timeout_s: float = CALL_TIMEOUT_S) -> None:
        import httpx

        self._timeout_s = timeout_s
        self._connections = _http_transport(address, tls)
        self._client = httpx.AsyncClient(
            transport=self._connections,
            base_url=_base_url(address, tls),
            timeout=httpx.Timeout(None, connect=min(timeout_s, CONNECT_TIMEOUT_S), pool=timeout_s),
            trust_env=False,
        )
        self.is_podman = False
        self._prefix = ""
        self._closed = asyncio.Event()

    async def negotiate(self, timeout_s: float | None = None) -> str:
        """Ask the engine for its version, once, and return the prefix of all paths."""
        if not self._prefix:
            response = await self._send("ping", "GET", "/_ping", timeout_s)
            if not response.is_success:
                raise refusal("ping", response.status_code, response.content)
            self.is_podman = PODMAN_HEADER in response.headers
            self._prefix = _version_prefix(response.headers.get("Api-Version", ""))
        return self._prefix

    async def call(
        self, call: str, method: str, path: str, timeout_s: float | None = None, **request: Unpack[RequestParts]
    ) -> "httpx.Response":
        """Send a request and return the answer, which is a success or 304; `call` names it in errors."""
        prefix = await self.negotiate(timeout_s)
        path = path if path.startswith(PODMAN_API) else prefix + path
        response = await self._send(call, method, path, timeout_s, **request)
        if response.is_success or response.status_code == HTTPStatus.NOT_MODIFIED:
            return response
        raise refusal(call, response.status_code, response.content)

    async def read(
        self,
        decoder: msgspec.json.Decoder[T],
        call: str,
        path: str,
        method: str = "GET",
        **request: Unpack[RequestParts],
    ) -> T:
        """Send a request and return its decoded answer."""
        return self.decode(decoder, call, (await self.call(call, method, path, **request)).content)

    def decode(self, decoder: msgspec.json.Decoder[T], call: str, content: bytes) -> T:
        """Return a decoded answer; one that cannot be read is none."""
        try:
            return decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineUnavailable(call, f"its answer cannot be read ({error})", sent=True) from error

    @asynccontextmanager
    async def stream(
        self, call: str, method: str, path: str, timeout_s: float | None = None, **request: Unpack[RequestParts]
    ) -> "AsyncIterator[httpx.Response]":
        """Send a request and give the answer while it arrives; the deadline is for its beginning."""
        message = self._client.build_request(method, await self.negotiate() + path, **request)
        async with self._open(call):
            with _unanswered(call):
                async with asyncio.timeout(timeout_s or self._timeout_s):
                    response = await self._client.send(message, stream=True)
        try:
            if not response.is_success and response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
                with _unanswered(call):
                    async with asyncio.timeout(self._timeout_s):
                        content = await response.aread()
                raise refusal(call, response.status_code, content)
            yield response
        finally:
            await response.aclose()

    async def _send(
        self, call: str, method: str, path: str, timeout_s: float | None, **request: Unpack[RequestParts]
    ) -> "httpx.Response":
        try:
            async with self._open(call):
                with _unanswered(call):
                    async with asyncio.timeout(timeout_s or self._timeout_s):
                        return await self._client.request(method, path, **request)
        except EngineUnavailable:
            self._prefix = ""  # it may be another version that answers next
            raise

    async def close(self) -> None:
        """Close the connections; calls under way end without an answer."""
        self._closed.set()
        await self._client.aclose()

    @asynccontextmanager
    async def _open(self, call: str) -> AsyncIterator[None]:
        """Refuse calls after the close; a call that it has overtaken closes the connection that it opened since."""
        if self._closed.is_set():
            raise EngineUnavailable(call, "the client is closed", sent=False)
        try:
            yield
        finally:
            if self._closed.is_set():
                await self._connections.aclose()


async def read_pieces(call: str, response: "httpx.Response", silence_s: float | None = None) -> AsyncGenerator[bytes]:
    """Yield the bytes of an answer as they arrive, also after a change of protocol; raises `EngineUnavailable`.

    With `silence_s`, an engine that sends nothing for that long has not answered.
    """
    upgraded = (
        response.extensions.get("network_stream") if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS else None
    )
    async with aclosing(_read_raw(response) if upgraded is None else _read_upgraded(upgraded)) as pieces:
        while True:
            with _unanswered(call):
                async with asyncio.timeout(silence_s):
                    piece = await anext(pieces, None)
            if piece is None:
                return
            yield piece


async def _read_raw(response: "httpx.Response") -> AsyncGenerator[bytes]:
    async for piece in response.aiter_raw():
        yield piece


async def _read_upgraded(stream: Any) -> AsyncGenerator[bytes]:  # noqa: ANN401 - httpcore's stream, which httpx hides
    while piece := await stream.read(PIECE_BYTES):
        yield piece


@contextmanager
def _unanswered(call: str) -> Iterator[None]:
    """Turn failures of a connection into `EngineUnavailable`."""
    import httpx

    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:  # the engine cannot have got it
        raise EngineUnavailable(call, _problem(error), sent=False) from error
    except TimeoutError as error:
        raise EngineUnavailable(call, "it took too long", sent=True) from error
    except (httpx.HTTPError, httpx.StreamError, *CONNECTION_ERRORS) as error:
        raise EngineUnavailable(call, _problem(error), sent=True) from error


def _problem(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _version_prefix(version: str) -> str:
    """Return the prefix of paths for an engine's newest version of the API, or for ours if that is older."""
    numbers = version.split(".")
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
        return ""  # the engine's own choice
    major, minor = min(NEWEST_API, (int(numbers[0]), int(numbers[1])))
    return f"/v{major}.{minor}"


def _base_url(address: str, tls: EngineTls | None) -> str:
    parts = urlsplit(address)
    return f"{'https' if tls else 'http'}://{parts.netloc}" if parts.scheme == "tcp" else "http://engine"


def _http_transport(address: str, tls: EngineTls | None) -> "httpx.AsyncHTTPTransport":
    """Return the transport for an address; raises `BadInput`. Whoever reaches an engine owns its host."""
    import httpx

    try:
        parts = urlsplit(address)
        has_port = bool(parts.scheme == "tcp" and parts.hostname and parts.port and not parts.path)
    except ValueError:
        raise BadInput("engine", address, ADDRESS_MEANS) from None
    limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_IDLE_CONNECTIONS)
    trusts_nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if parts.scheme == "unix" and parts.path and not parts.netloc and tls is None:
        return httpx.AsyncHTTPTransport(uds=parts.path, limits=limits, verify=trusts_nobody)
    if not has_port or (tls is None and not _is_loopback(parts.hostname or "")):
        raise BadInput("engine", address, ADDRESS_MEANS)
    keep_alive = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]  # a stream of events may be silent for days
    verify = _tls_context(tls) if tls else trusts_nobody
    return httpx.AsyncHTTPTransport(limits=limits, verify=verify, socket_options=keep_alive)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls_context(tls: EngineTls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
    except OSError as error:  # of which ssl.SSLError is one
        raise BadInput("tls", tls.ca_file, f"files with certificates and a key ({type(error).__name__})") from error
    return context
