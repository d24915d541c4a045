"""The world behind the simulated Compute Engine: what exists in it, and how its states change with time.

The state of an instance is a timeline: a listing can show it as it was a moment ago, as real listings do. Every change
is an operation that takes time, and a request id returns the operation that it began.
"""

from collections import Counter
from collections.abc import Callable
from itertools import count
from time import monotonic
from typing import Any
from uuid import UUID

from msgspec import Struct

from tests.integration.drivers.gcp.gce_requests import GceError, GceRequest, invalid, not_found

PROJECT, REGION, ZONE = "acme-lab", "europe-west4", "europe-west4-a"
SPEC, ARM_SPEC = "e2-micro", "t2a-standard-1"
IMAGE, FAMILY, ARM_IMAGE = "hill-26-v20261101", "hill-26", "dune-26-arm64-v20261101"
IMAGE_PROJECTS = {
    PROJECT: {IMAGE: FAMILY, ARM_IMAGE: "dune-26"},
    "debian-cloud": {"debian-12-bookworm-v20261101": "debian-12"},
}
TIMESTAMP = "2026-11-17T00:00:00.000-00:00"


class GceBehaviour(Struct):
    """How long transitions take, in seconds, and the limits of calls."""

    step: float = 0.01  # each of PROVISIONING and STAGING
    suspending: float = 0.03
    stopping: float = 0.03
    operation: float = 0.02  # on a network, a firewall rule, the project
    lag: float = 0.0  # how old a listing of instances is
    page: int = 500
    latency: float = 0.0
    calls: int | None = None  # how many are answered
    window: float = 1.0  # within this time
    insert_failures: tuple[str, ...] = ()  # codes with which the next operations that create machines fail
    warning: str = ""  # a code in every listing of instances


class SimulatedOperation(Struct):
    """An operation, which ends at a time, well or with a code."""

    name: str
    verb: str
    target: str
    scope: dict[str, str]
    begun: float
    due: float
    code: str = ""
    request_id: str = ""

    def view(self, now: float) -> dict[str, Any]:
        """Return it as it is shown."""
        status = "DONE" if now >= self.due else "RUNNING" if now > (self.begun + self.due) / 2 else "PENDING"
        shown: dict[str, Any] = {
            "kind": "compute#operation",
            "id": str(abs(hash(self.name)) % 10**18),
            "name": self.name,
            "operationType": self.verb,
            "targetLink": self.target,
            "status": status,
            "progress": 100 if status == "DONE" else 0,
            "insertTime": TIMESTAMP,
            "user": "test@acme-lab.example",
            **self.scope,
        }
        if self.request_id:
            shown["clientOperationId"] = self.request_id
        if self.code and status == "DONE":
            shown["error"] = {"errors": [{"code": self.code, "message": f"injected {self.code}"}]}
        return shown


class SimulatedInstance:
    """An instance: its body, and its states over time; None means that it is gone."""

    def __init__(self, body: dict[str, Any], timeline: list[tuple[float, str | None]]) -> None:
        self.body, self.timeline = body, timeline
        self.born = timeline[0][0]
        self.resets = 0

    def status(self, now: float) -> str | None:
        """Return its state at a time."""
        return next((state for due, state in reversed(self.timeline) if due <= now), None)

    def is_moving(self, now: float) -> bool:
        """Tell whether it is on its way to another state."""
        return self.timeline[-1][0] > now

    def move(self, now: float, *steps: tuple[float, str | None]) -> float:
        """Go through some states, each after so many seconds; returns when it has arrived."""
        self.timeline = [one for one in self.timeline if one[0] <= now]
        for seconds, state in steps:
            now += seconds
            self.timeline.append((now, state))
        return now

    def view(self, now: float) -> dict[str, Any]:
        """Return it as it is shown at a time."""
        return {**self.body, "status": self.status(now)}


class GceWorld:
    """Instances and operations; `GceResourceWorld` adds what they stand on."""

    def __init__(self, behaviour: GceBehaviour, url: str, clock: Callable[[], float] = monotonic) -> None:
        self.behaviour, self.clock = behaviour, clock
        self.base = f"{url}/compute/v1/projects/{PROJECT}"
        self.instances: list[SimulatedInstance] = []
        self.operations: dict[str, SimulatedOperation] = {}
        self.by_request: dict[str, SimulatedOperation] = {}
        self._numbers = count(1)

    # --- for tests ---------------------------------------------------------------------------------------------------

    def find(self, key: str) -> SimulatedInstance:
        """Return the machine of a key."""
        return next(one for one in self.living() if one.body["labels"].get("stateward-key") == key)

    def living(self) -> list[SimulatedInstance]:
        """Return the instances that exist now."""
        return [one for one in self.instances if one.status(self.clock()) is not None]

    def kill(self, key: str) -> None:
        """Delete a machine without a call."""
        self.find(key).move(self.clock(), (0.0, None))

    def stop(self, key: str) -> None:
        """Stop a machine without a call, as its own guest does."""
        self.find(key).move(self.clock(), (0.0, "TERMINATED"))

    @property
    def resets(self) -> Counter[str]:
        """How often each instance was reset, by name."""
        return Counter({one.body["name"]: one.resets for one in self.instances})

    # --- operations --------------------------------------------------------------------------------------------------

    def begin(
        self, request: GceRequest, target: str, scope: dict[str, str], seconds: float, code: str = ""
    ) -> dict[str, Any]:
        """Begin an operation, and return it."""
        now, verb = self.clock(), request.action.rpartition(".")[2]
        request_id = request.query.get("requestId", "")
        made = SimulatedOperation(
            f"operation-{next(self._numbers)}", verb, target, scope, now, now + seconds, code, request_id
        )
        self.operations[made.name] = made
        if request_id:
            self.by_request[request_id] = made
        return made.view(now)

    def repeated(self, request: GceRequest) -> dict[str, Any] | None:
        """Return the operation that a request id began before."""
        request_id = request.query.get("requestId", "")
        if request_id:
            try:
                UUID(request_id)
            except ValueError:
                raise invalid("requestId", f"'{request_id}'. It must be a UUID.") from None
        found = self.by_request.get(request_id)
        return None if found is None else found.view(self.clock())

    def operation(self, request: GceRequest) -> dict[str, Any]:
        """Show an operation."""
        if request.name not in self.operations:
            raise not_found(f"operations/{request.name}")
        return self.operations[request.name].view(self.clock())

    # --- instances ---------------------------------------------------------------------------------------------------

    def zone_scope(self) -> dict[str, str]:
        """Return the field of an operation in the zone."""
        return {"zone": f"{self.base}/zones/{ZONE}"}

    def insert(self, request: GceRequest, body: dict[str, Any]) -> dict[str, Any]:
        """Create an instance, in a while."""
        now, step, name = self.clock(), self.behaviour.step, body["name"]
        if any(one.body["name"] == name for one in self.living()):
            raise GceError(409, "alreadyExists", f"The resource '{name}' already exists")
        failure, self.behaviour.insert_failures = self.behaviour.insert_failures[:1], self.behaviour.insert_failures[1:]
        end: list[tuple[float, str | None]] = [(step, None)] if failure else [(step, "STAGING"), (step, "RUNNING")]
        made = SimulatedInstance(body, [(now, "PROVISIONING")])
        due = made.move(now, *end)
        self.instances.append(made)
        return self.begin(request, body["selfLink"], self.zone_scope(), due - now, *failure)

    def get(self, request: GceRequest) -> dict[str, Any]:
        """Show an instance as it is now: only listings are late."""
        return self._named(request.name).view(self.clock())

    def listed(self) -> list[dict[str, Any]]:
        """Return all instances as listings show them."""
        then = self.clock() - self.behaviour.lag
        return [one.view(then) for one in self.instances if one.born <= then and one.status(then) is not None]

    def act(self, request: GceRequest) -> dict[str, Any]:
        """Carry out an action on an instance, in a while."""
        one, now, behaviour = self._named(request.name), self.clock(), self.behaviour
        verb, status = request.action.rpartition(".")[2], one.status(now)
        if one.is_moving(now) and (verb != "delete" or status == "STOPPING"):
            raise GceError(400, "resourceNotReady", f"The resource '{request.name}' is not ready")
        up = [(0.0, "PROVISIONING"), (behaviour.step, "STAGING"), (behaviour.step, "RUNNING")]
        moves: dict[str, tuple[set[str] | None, list[Any]]] = {
            "suspend": ({"RUNNING"}, [(0.0, "SUSPENDING"), (behaviour.suspending, "SUSPENDED")]),
            "resume": ({"SUSPENDED"}, up),
            "start": ({"TERMINATED", "RUNNING"}, [] if status == "RUNNING" else up),
            "stop": ({"RUNNING", "TERMINATED"}, [(0.0, "STOPPING"), (behaviour.stopping, "TERMINATED")]),
            "reset": ({"RUNNING"}, []),
            "delete": (None, [(0.0, "STOPPING"), (behaviour.stopping, None)]),
        }
        possible, steps = moves[verb]
        if possible is not None and status not in possible:
            raise GceError(400, "invalid", f"Instance '{request.name}' is in state {status}: it cannot {verb}.")
        one.resets += verb == "reset"
        if verb in ("suspend", "stop"):
            one.body["lastSuspendedTimestamp" if verb == "suspend" else "lastStopTimestamp"] = TIMESTAMP
        due = one.move(now, *steps)
        return self.begin(request, one.body["selfLink"], self.zone_scope(), max(due - now, behaviour.step))

    def _named(self, name: str) -> SimulatedInstance:
        found = next((one for one in self.living() if one.body["name"] == name), None)
        if found is None:
            raise not_found(f"projects/{PROJECT}/zones/{ZONE}/instances/{name}")
        return found
