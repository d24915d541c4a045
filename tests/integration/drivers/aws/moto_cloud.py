"""A test cloud: moto's server with the lifecycle of real instances, and with injected faults.

It runs in threads of the test's own process and listens on loopback. Its clients are real boto3 clients.
"""

import io
from collections import deque
from collections.abc import Iterable
from functools import cache
from socket import SHUT_RDWR
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any
from urllib.parse import parse_qs, urlencode

from moto import settings
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import EC2Backend, ec2_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.integration.drivers.aws.instance_lifecycle import CloudBehaviour, InstanceLifecycle
from tests.integration.drivers.aws.moto_images import use_few_images
from tests.integration.drivers.cloud_faults import Fault, FaultKind, FaultyCloud

REGION = "ap-northeast-2"
SPEC = "t3.nano"


class Handler(MotoRequestHandler):
    """Keeps connections open, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


class MotoCloud(FaultyCloud):
    """The server; `reset` gives each test an empty cloud."""

    def __init__(self) -> None:
        settings.EC2_ENABLE_INSTANCE_TYPE_VALIDATION = True
        settings.ENABLE_AMI_VALIDATION = True
        settings.ENABLE_KEYPAIR_VALIDATION = True
        use_few_images()
        self._moto = DomainDispatcherApplication(create_backend_app)
        super().__init__()
        self._over = Event()
        self.reset()
        self._server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def reset(self, behaviour: CloudBehaviour | None = None) -> None:
        """Remove everything, and set the behaviour."""
        with self._lock:
            self._over.set()
            self._over = Event()
            ec2_backends[DEFAULT_ACCOUNT_ID].reset()
            self.behaviour = behaviour or CloudBehaviour()
            self.instances = InstanceLifecycle(self.records, self.behaviour)
            self.reset_faults()
            self.known_keys: set[str] | None = None  # access keys that are let in; all, if none are named
            self._answered: deque[float] = deque()

    @property
    def records(self) -> EC2Backend:
        """What moto keeps."""
        return ec2_backends[DEFAULT_ACCOUNT_ID][REGION]

    def stop(self) -> None:
        """Stop serving."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    # --- each request ------------------------------------------------------------------------------------------------

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        asked = {name: values[0] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}
        # real time: the latency that a test has set
        sleep(self.behaviour.latency)
        with self._lock:
            over, fault = self._over, self.count_call(asked.get("Action", ""))
            refusal = None if fault else self._refusal(environ)
            answer = None if refusal or (fault and not fault.kind.is_done) else self._do(environ, asked)
        if fault:
            return self._faulty_answer(fault, environ, over, start_response)
        if refusal:
            return _error(refusal, start_response)
        assert answer is not None
        start_response(answer[0], answer[1])
        return [answer[2]]

    def _refusal(self, environ: dict[str, Any]) -> Fault | None:
        """Refuse unknown callers, and calls above the rate limit."""
        key = str(environ.get("HTTP_AUTHORIZATION", "")).partition("Credential=")[2].partition("/")[0]
        if self.known_keys is not None and key not in self.known_keys:
            return Fault(FaultKind.ERROR, code="AuthFailure", status=401, message="AWS was not able to validate it")
        now = monotonic()
        while self._answered and self._answered[0] <= now - self.behaviour.window:
            self._answered.popleft()
        if self.behaviour.calls is not None and len(self._answered) >= self.behaviour.calls:
            return Fault(FaultKind.ERROR, code="RequestLimitExceeded", status=503, message="Request limit exceeded.")
        self._answered.append(now)
        return None

    def _do(self, environ: dict[str, Any], asked: dict[str, str]) -> tuple[str, list[tuple[str, str]], bytes]:
        """Let moto do it, on a world that has moved on."""
        self.instances.settle()
        if "MaxResults" in asked:
            asked["MaxResults"] = str(min(int(asked["MaxResults"]), self.behaviour.page))
        body = urlencode(asked).encode()
        environ |= {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        head: list[Any] = []
        chunks = self._moto(environ, lambda status, headers, *_: head.extend((status, headers)))
        return head[0], head[1], b"".join(chunks)

    def _faulty_answer(
        self, fault: Fault, environ: dict[str, Any], over: Event, start_response: Any
    ) -> Iterable[bytes]:
        if fault.kind.is_answered:
            return _error(fault, start_response)
        if fault.kind is FaultKind.SILENCE:
            over.wait()
        environ["werkzeug.socket"].shutdown(SHUT_RDWR)
        raise ConnectionAbortedError(fault.kind)


def _error(fault: Fault, start_response: Any) -> list[bytes]:
    error = f"<Error><Code>{fault.code}</Code><Message>{fault.message}</Message></Error>"
    body = f"<?xml version='1.0'?><Response><Errors>{error}</Errors><RequestID>none</RequestID></Response>".encode()
    headers = [("Content-Type", "text/xml"), ("Content-Length", str(len(body))), *fault.headers]
    start_response(f"{fault.status} Error", headers)
    return [body]


@cache
def shared_cloud() -> MotoCloud:
    """Return the one cloud of this process; its threads end with it."""
    return MotoCloud()
