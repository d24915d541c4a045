"""A test cloud: a small Azure Resource Manager with the lifecycles of its resources, and with injected faults.

It runs in threads of the test's own process and listens on loopback. Its clients are Azure's own libraries. It was
written from those libraries and their documentation: Azure itself may differ.
"""

import json
import re
from collections import deque
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from sys import exception
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.integration.drivers.azure.arm_machines import MACHINES, OWN_IMAGE, ArmMachines, find_images, listed_sizes
from tests.integration.drivers.azure.arm_networks import GROUPS, KEYS, NETWORKS, ArmNetworks
from tests.integration.drivers.azure.arm_records import ArmBehaviour, ArmOperation, ArmProblem, ArmRecord, ArmRecords
from tests.integration.drivers.cloud_faults import Fault, FaultKind, FaultyCloud

LOCATION, GROUP = "koreacentral", "farm"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
SCOPE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers"
SUBNET = f"{SCOPE}/Microsoft.Network/virtualNetworks/given/subnets/given"
"""The subnet of machines that name none; it is there before Stateward comes."""

IN_GROUP = re.compile(r"/resourceGroups/([^/]+)/providers/(Microsoft\.\w+)/(\w+)(?:/([^/]+))?(?:/(\w+))?(?:/([^/]+))?")
IMAGES = re.compile(
    r"/providers/Microsoft.Compute/locations/(\w+)/publishers/([^/]+)/artifacttypes/vmimage"
    r"/offers/([^/]+)/skus/([^/]+)/versions(?:/([^/]+))?"
)
OPERATIONS = re.compile(r"/providers/Microsoft\.\w+/locations/\w+/(operations|operationResults)/([^/]+)")


class ArmReply(NamedTuple):
    """An answer: status, body and headers."""

    status: int
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()


class ArmRequest(NamedTuple):
    """A request, taken apart."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def action(self) -> str:
        """What is asked for, as faults and counts name it."""
        if found := IN_GROUP.search(self.path):
            _, _, kind, name, child, _ = found.groups()
            method = "LIST" if self.method == "GET" and not name else self.method
            return f"{method} {kind}" + (f"/{child}" if child else "")
        if self.path.endswith(f"/{MACHINES}"):
            return f"LIST {MACHINES}/statuses"
        return f"{self.method} {self.path.rpartition('/')[2]}" if "/skus" in self.path[-5:] else self.method + " other"


class QuietServer(ThreadingHTTPServer):
    """A server whose threads end with the process, and that says nothing of clients that hang up."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what is our own fault only."""
        if not isinstance(exception(), ConnectionError):
            super().handle_error(request, client_address)


class ArmCloud(FaultyCloud):
    """The server; `reset` gives each test a resource group with one network, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self._over = Event()
        self.reset()
        self._server = QuietServer(("127.0.0.1", 0), _handler(self))
        Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def reset(self, behaviour: ArmBehaviour | None = None) -> None:
        """Remove everything, and set the behaviour."""
        with self._lock:
            self._over.set()
            self._over = Event()
            self.behaviour = behaviour or ArmBehaviour()
            self.records = ArmRecords(self.behaviour)
            self.machines, self.networks = ArmMachines(self.records), ArmNetworks(self.records)
            self.reset_faults()
            self.known_clients: set[str] | None = None  # clients that are let in; all, if none are named
            self._answered: deque[float] = deque()
            network = SUBNET.rpartition("/subnets/")[0]
            subnet = {"name": "given", "properties": {"addressPrefix": "10.9.0.0/24"}}
            space = {"addressSpace": {"addressPrefixes": ["10.9.0.0/16"]}, "subnets": [subnet]}
            self.networks.put(NETWORKS, "given", network, {"location": LOCATION, "properties": space})
            self.records.of(NETWORKS)["given"].state = "Succeeded"

    def names(self, kind: str) -> list[str]:
        """Return the names of the resources of a type, without what was there before."""
        with self._lock:
            self.records.settle()
            return sorted(name for name in self.records.of(kind) if name != "given")

    # --- each request ------------------------------------------------------------------------------------------------

    def meet(self, request: ArmRequest) -> tuple[ArmReply, Fault | None, Event]:
        """Answer a request, or say how it fails."""
        # real time: the latency that a test has set
        sleep(self.behaviour.latency)
        with self._lock:
            fault = self.count_call(request.action)
            reply = ArmReply(500)
            try:
                if fault is None:
                    self._let_in(request)
                if fault is None or fault.kind.is_done:
                    self.records.settle()
                    reply = self._route(request)
            except ArmProblem as problem:
                after = (("Retry-After", "1"),) if problem.status == 429 else ()
                reply = _error(problem.status, problem.code, problem.message, after)
            if fault is not None and fault.kind.is_answered:
                reply = _error(fault.status, fault.code, fault.message, fault.headers)
            return reply, fault, self._over

    def _let_in(self, request: ArmRequest) -> None:
        """Refuse unknown callers, and calls above the rate limit."""
        client = request.headers.get("authorization", "").removeprefix("Bearer simulated-")
        if not client or (self.known_clients is not None and client not in self.known_clients):
            raise ArmProblem(401, "InvalidAuthenticationToken", "The access token is invalid.")
        now = monotonic()
        while self._answered and self._answered[0] <= now - self.behaviour.window:
            self._answered.popleft()
        if self.behaviour.calls is not None and len(self._answered) >= self.behaviour.calls:
            raise ArmProblem(429, "TooManyRequests", "The request is being throttled.")
        self._answered.append(now)

    def _route(self, request: ArmRequest) -> ArmReply:
        if not request.path.startswith(f"/subscriptions/{SUBSCRIPTION}/"):
            raise ArmProblem(404, "SubscriptionNotFound", "The subscription could not be found.")
        if found := OPERATIONS.search(request.path):
            return self._operation(found[1], found[2])
        if found := IMAGES.search(request.path):
            return _image(*found.groups())
        if request.path.endswith("/providers/Microsoft.Compute/skus"):
            return self._page(request, listed_sizes(LOCATION))
        if request.path.endswith(f"/providers/Microsoft.Compute/{MACHINES}"):
            return self._page(request, [self._with_statuses(one) for one in self.records.listed(MACHINES)])
        found = IN_GROUP.search(request.path)
        if found is None:
            raise ArmProblem(404, "InvalidResourceType", request.path)
        group, _, kind, name, child, child_name = found.groups()
        if group.lower() != GROUP:
            raise ArmProblem(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")
        if not name:
            return self._page(request, [_shown_in_list(one) for one in self.records.listed(kind)])
        if child and child_name:
            return self._child(request, kind, name, child, child_name)
        if child:
            return self._accepted(202, None, self.machines.act(name, child))
        return self._resource(request, kind, name)

    def _resource(self, request: ArmRequest, kind: str, name: str) -> ArmReply:
        exists = name.lower() in self.records.of(kind)
        match request.method:
            case "GET" if kind == "images":
                if name != OWN_IMAGE:
                    raise ArmProblem(404, "ResourceNotFound", f"The Resource '{name}' was not found.")
                return ArmReply(200, {"name": name, "location": LOCATION, "properties": {}})
            case "GET":
                found = self.records.find(kind, name)
                return ArmReply(200, self._with_statuses(found) if "instanceView" in str(request.query) else found.body)
            case "PUT" if exists and request.headers.get("if-none-match") == "*":
                raise ArmProblem(412, "PreconditionFailed", f"The resource {name} exists.")
            case "PUT" if kind == MACHINES:
                record, is_new, operation = self.machines.put(name, request.path, request.body)
                return self._accepted(201 if is_new else 200, record.body, operation)
            case "PUT":
                record, is_new, operation = self.networks.put(kind, name, request.path, request.body)
                return self._accepted(201 if is_new else 200, record.body, operation)
            case "PATCH":
                record = self.records.find(kind, name)
                record.body["tags"] = request.body["tags"]
                return ArmReply(200, record.body)
            case "DELETE" if not exists:
                return ArmReply(204)
            case "DELETE" if kind == MACHINES:
                return self._accepted(202, None, self.machines.delete(name))
            case "DELETE":
                operation = self.networks.delete(kind, name)
                return ArmReply(200) if kind == KEYS else self._accepted(202, None, operation)
        raise ArmProblem(405, "MethodNotAllowed", request.method)

    def _child(self, request: ArmRequest, kind: str, name: str, child: str, child_name: str) -> ArmReply:
        if kind == GROUPS and request.method == "PUT":
            rule, operation = self.networks.put_rule(name, child_name, request.body)
            return self._accepted(201, rule, operation)
        if kind == GROUPS and request.method == "DELETE":
            removed = self.networks.delete_rule(name, child_name)
            return ArmReply(204) if removed is None else self._accepted(202, None, removed)
        if kind == GROUPS and request.method == "GET":
            return ArmReply(200, self.networks.find_rule(name, child_name))
        if kind != NETWORKS or child != "subnets":
            raise ArmProblem(404, "InvalidResourceType", child)
        if request.method == "PUT":
            subnet, is_new, operation = self.networks.put_subnet(name, child_name, request.body)
            return self._accepted(201 if is_new else 200, subnet, operation)
        if request.method == "DELETE":
            removal = self.networks.delete_subnet(name, child_name)
            return ArmReply(204) if removal is None else self._accepted(202, None, removal)
        return ArmReply(200, self.networks.find_subnet(name, child_name))

    # --- answers -----------------------------------------------------------------------------------------------------

    def _with_statuses(self, record: ArmRecord) -> dict[str, Any]:
        shown = _shown_in_list(record)
        view = {"statuses": self.machines.statuses(record)}
        return {**shown, "properties": {**shown["properties"], "instanceView": view}}

    def _accepted(self, status: int, body: Any, operation: ArmOperation) -> ArmReply:
        base = f"{self.url}/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/{LOCATION}"
        headers = (
            ("Azure-AsyncOperation", f"{base}/operations/{operation.id}"),
            ("Location", f"{base}/operationResults/{operation.id}"),
            ("Retry-After", str(self.behaviour.retry_after)),
        )
        return ArmReply(status, body, headers)

    def _operation(self, form: str, native_id: str) -> ArmReply:
        operation = self.records.operations.get(native_id)
        if operation is None:
            raise ArmProblem(404, "NotFound", native_id)
        if form == "operationResults":
            return ArmReply(202 if operation.status == "InProgress" else 200)
        error = dict(zip(("code", "message"), operation.error or (), strict=False))
        body = {"name": operation.id, "status": operation.status}
        return ArmReply(200, body | ({"error": error} if operation.status == "Failed" else {}))

    def _page(self, request: ArmRequest, found: list[dict[str, Any]]) -> ArmReply:
        start = int(request.query.get("$skiptoken", "0"))
        end = start + self.behaviour.page
        body: dict[str, Any] = {"value": found[start:end]}
        if end < len(found):
            others = {name: value for name, value in request.query.items() if name != "$skiptoken"}
            body["nextLink"] = f"{self.url}{request.path}?{urlencode({**others, '$skiptoken': end})}"
        return ArmReply(200, body)


def _shown_in_list(record: ArmRecord) -> dict[str, Any]:
    """Return a resource as listings show it: with the resource group of its id in capitals."""
    native_id = record.body["id"].replace(f"/resourceGroups/{GROUP}/", f"/resourceGroups/{GROUP.upper()}/")
    return {**record.body, "id": native_id}


def _image(location: str, publisher: str, offer: str, sku: str, version: str | None) -> ArmReply:
    found = [one for one in find_images(publisher, offer, sku, location) if version in (None, one["name"])]
    if version is not None and not found:
        raise ArmProblem(404, "NotFound", f"Artifact: VMImage was not found: {publisher}:{offer}:{sku}:{version}")
    return ArmReply(200, found if version is None else found[0])


def _error(status: int, code: str, message: str, headers: tuple[tuple[str, str], ...] = ()) -> ArmReply:
    return ArmReply(status, {"error": {"code": code, "message": message}}, headers)


def _handler(cloud: ArmCloud) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Keeps connections open, and logs nothing."""

        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for each answer

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Say nothing."""

        def answer(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = ArmRequest(self.command, parts.path, query, headers, json.loads(body or b"{}"))
            reply, fault, over = cloud.meet(request)
            if fault is not None and fault.kind not in (FaultKind.ERROR, FaultKind.DONE_BUT_ERROR):
                if fault.kind is FaultKind.SILENCE:
                    over.wait()
                self.close_connection = True
                self.connection.shutdown(SHUT_RDWR)
                return
            self.send(reply)

        def send(self, reply: ArmReply) -> None:
            body = b"" if reply.body is None else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in (("Content-Type", "application/json"), *reply.headers):
                self.send_header(name, value)
            if reply.status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    for method in ("GET", "PUT", "POST", "DELETE", "PATCH"):
        setattr(Handler, f"do_{method}", Handler.answer)
    return Handler


@cache
def shared_cloud() -> ArmCloud:
    """Return the one cloud of this process; its threads end with it."""
    return ArmCloud()
