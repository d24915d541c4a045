"""A proxy between a client and a real cloud that loses requests and answers, and answers with errors of its own."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from threading import Event, Lock, Thread
from urllib.parse import urlsplit

from msgspec import Struct

PATIENT = 120.0
NOT_PASSED_ON = frozenset({"connection", "content-length", "transfer-encoding", "keep-alive"})


class BreakKind(StrEnum):
    """The ways in which a call is broken."""

    ERROR = "answered with an error, nothing is done"
    DONE_BUT_ERROR = "done, and answered with an error"
    LOST_ANSWER = "done, and the connection is cut"
    LOST_REQUEST = "not done, and the connection is cut"
    SILENCE = "not done, and never answered"
    LATE = "done after something else has happened"


class Break(Struct):
    """A fault of one of the next calls that fit a pattern of method and path."""

    kind: BreakKind
    call: str = ""  # a regular expression, such as `POST .*/servers`; any call, if empty
    status: int = 500
    body: str = '{"computeFault": {"code": 500, "message": "injected"}}'
    headers: tuple[tuple[str, str], ...] = ()
    times: int = 1
    skip: int = 0  # how many calls pass before
    meanwhile: Callable[[], object] | None = None  # what happens before a late call


class BreakingProxy(ThreadingHTTPServer):
    """The proxy. The host name of a request stays as it is, so the catalogue names the proxy's address."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), ProxyHandler)
        parts = urlsplit(target)
        self.target = parts.hostname or "", parts.port or 80
        self.breaks: list[Break] = []
        self.calls: Counter[str] = Counter()
        self.cut = False
        self.over = Event()
        self._lock = Lock()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that have gone away."""

    def lose(self, kind: BreakKind, call: str = "", **others: object) -> None:
        """Break one of the next calls."""
        with self._lock:
            self.breaks.append(Break(kind, call, **others))  # type: ignore[arg-type]

    def count_of(self, pattern: str) -> int:
        """Return how many calls came that fit a pattern."""
        return sum(number for call, number in self.calls.items() if re.fullmatch(pattern, call))

    def meet(self, call: str) -> Break | None:
        """Count a call, and return what breaks it."""
        with self._lock:
            self.calls[call] += 1
            if self.cut:
                return Break(BreakKind.LOST_REQUEST)
            for one in self.breaks:
                if one.times <= 0 or not re.fullmatch(one.call or ".*", call):
                    continue
                if one.skip > 0:
                    one.skip -= 1
                    continue
                one.times -= 1
                return one
        return None


class ProxyHandler(BaseHTTPRequestHandler):
    """Passes one request on, or does not."""

    server: BreakingProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        broken = self.server.meet(f"{self.command} {urlsplit(self.path).path}")
        if broken is None or broken.kind is BreakKind.LATE:
            if broken is not None and broken.meanwhile is not None:
                broken.meanwhile()
            self._pass_on(body)
            return
        if broken.kind in (BreakKind.LOST_ANSWER, BreakKind.DONE_BUT_ERROR):
            self._ask(body)
        if broken.kind in (BreakKind.ERROR, BreakKind.DONE_BUT_ERROR):
            self._answer(broken.status, [*broken.headers, ("Content-Type", "application/json")], broken.body.encode())
            return
        if broken.kind is BreakKind.SILENCE:
            self.server.over.wait(PATIENT)
        self.close_connection = True
        self.connection.shutdown(SHUT_RDWR)

    def _ask(self, body: bytes) -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection(*self.server.target, timeout=PATIENT)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in NOT_PASSED_ON:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def _pass_on(self, body: bytes) -> None:
        answer, content = self._ask(body)
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in NOT_PASSED_ON]
        self._answer(answer.status, headers, content)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815


@contextmanager
def breaking_proxy(target: str) -> Iterator[BreakingProxy]:
    """Serve a proxy before a cloud."""
    with BreakingProxy(target) as proxy:
        thread = Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.over.set()
            proxy.shutdown()
            thread.join()
