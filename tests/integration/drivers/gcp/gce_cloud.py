"""A test cloud: Compute Engine's REST API over HTTP, with the lifecycle of its instances, and with injected faults.

It runs in threads of the test's own process and listens on loopback. Its clients are those of Google's own library. It
was written from that library and from the published reference: no real cloud was asked.
"""

import json
from base64 import urlsafe_b64decode
from collections import deque
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.integration.drivers.cloud_faults import Fault, FaultKind, FaultyCloud
from tests.integration.drivers.gcp.gce_requests import GceError, read_request
from tests.integration.drivers.gcp.gce_resource_world import GceResourceWorld
from tests.integration.drivers.gcp.gce_world import GceBehaviour


class GceServer(ThreadingHTTPServer):
    """Takes the connections of many threads at once, and does not wait for them in the end."""

    daemon_threads = True
    request_queue_size = 256


class GceCloud(FaultyCloud):
    """The server; `reset` gives each test an empty cloud."""

    def __init__(self) -> None:
        super().__init__()
        self._over = Event()
        self._server = GceServer(("127.0.0.1", 0), _handler_of(self))
        self.reset()
        Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def reset(self, behaviour: GceBehaviour | None = None) -> None:
        """Remove everything, and set the behaviour."""
        with self._lock:
            self._over.set()
            self._over = Event()
            self.behaviour = behaviour or GceBehaviour()
            self.world = GceResourceWorld(self.behaviour, self.url)
            self.reset_faults()
            self.callers: set[str] = set()
            self.known_accounts: set[str] | None = None  # e-mail addresses that are let in; all, if none are named
            self._answered: deque[float] = deque()

    # --- each request ------------------------------------------------------------------------------------------------

    def serve(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        """Answer one request, or do not."""
        address, caller = urlsplit(handler.path), _caller(handler.headers.get("Authorization", ""))
        # real time: the latency that a test has set
        sleep(self.behaviour.latency)
        fault, answer = None, {}
        with self._lock:
            over = self._over
            try:
                request = read_request(handler.command, address.path, dict(parse_qsl(address.query)), body)
                self.callers.add(caller)
                fault = self.count_call(request.action)
                self._refuse(caller, fault)
                status, answer = 200, {} if fault and not fault.kind.is_done else self.world.answer(request)
            except GceError as error:
                status, answer = error.status, error.body()
        if fault is None:
            _send(handler, status, answer)
        elif fault.kind.is_answered:
            _send(handler, fault.status, GceError(fault.status, fault.code, fault.message).body(), fault.headers)
        else:
            self._cut(handler, over if fault.kind is FaultKind.SILENCE else None)

    def _refuse(self, caller: str, fault: Fault | None) -> None:
        """Refuse unknown callers, and calls above the rate limit."""
        if fault is not None:
            return
        if self.known_accounts is not None and caller not in self.known_accounts:
            raise GceError(401, "authError", "Request had invalid authentication credentials.")
        now = monotonic()
        while self._answered and self._answered[0] <= now - self.behaviour.window:
            self._answered.popleft()
        if self.behaviour.calls is not None and len(self._answered) >= self.behaviour.calls:
            raise GceError(403, "rateLimitExceeded", "Rate Limit Exceeded")
        self._answered.append(now)

    def _cut(self, handler: BaseHTTPRequestHandler, over: Event | None) -> None:
        if over is not None:
            over.wait()
        handler.close_connection = True
        handler.connection.shutdown(SHUT_RDWR)


def _handler_of(cloud: GceCloud) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Keeps connections open, and logs nothing."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            cloud.serve(self, json.loads(content or b"{}"))

        do_POST = do_DELETE = do_PATCH = do_GET  # noqa: N815 - the names of the base class

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Say nothing."""

    return Handler


def _send(
    handler: BaseHTTPRequestHandler, status: int, answer: dict[str, Any], headers: tuple[tuple[str, str], ...] = ()
) -> None:
    content = json.dumps(answer).encode()
    handler.send_response(status)
    for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(content))), *headers):
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)


def _caller(authorization: str) -> str:
    """Return the account that a self-signed token names; its signature is not checked."""
    token = authorization.removeprefix("Bearer ")
    if token.count(".") != 2:
        return ""
    payload = token.split(".")[1]
    return str(json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["iss"])


@cache
def shared_cloud() -> GceCloud:
    """Return the one cloud of this process; its threads end with it."""
    return GceCloud()
