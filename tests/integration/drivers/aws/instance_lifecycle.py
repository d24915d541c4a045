"""The lifecycle of EC2 instances, on top of moto.

moto changes states at once, forgets client tokens, and starts terminated instances. So this class replaces some methods
of moto's backend: it refuses or delays calls as EC2 does. moto still stores and describes everything.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from time import monotonic
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instances import Instance, InstanceState, Reservation
from moto.ec2.utils import filter_reservations
from msgspec import Struct

CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
MAY_STOP = ("running", "stopping", "stopped")
MAY_START = ("pending", "running", "stopped")
ENDED = ("shutting-down", "terminated")
CHANGED = list[tuple[Instance, InstanceState]]


class CloudBehaviour(Struct):
    """How long transitions take, in seconds, and the limits of calls."""

    pending: float = 0.03
    stopping: float = 0.03
    ending: float = 0.03
    hidden: float = 0.0  # how long a new machine is not shown
    remembered: float = 3600.0  # how long a terminated one still is
    page: int = 1000
    latency: float = 0.0
    calls: int | None = None  # how many are answered
    window: float = 1.0  # within this time


class InstanceLifecycle:
    """The states of the instances of one region over time."""

    def __init__(self, backend: EC2Backend, behaviour: CloudBehaviour, clock: Callable[[], float] = monotonic) -> None:
        self._backend: Any = backend
        self._behaviour = behaviour
        self._clock = clock
        self._moves: dict[str, tuple[float, str]] = {}
        self._made: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._launches: dict[str, tuple[str, Reservation]] = {}
        self.reboots: Counter[str] = Counter()
        self._kept = {name: getattr(backend, name) for name in OURS}
        for name, method in OURS.items():
            setattr(backend, name, method.__get__(self))

    def settle(self) -> None:
        """Carry out the transitions that are due."""
        now = self._clock()
        for one in self._machines():
            due, state = self._moves.get(one.id, (now + 1, ""))
            if due > now:
                continue
            del self._moves[one.id]
            if state == "terminated":
                self._end_instance(one, due)
            _become(one, state)

    def kill(self, key: str) -> None:
        """Terminate a machine without a call, as EC2 does if its host fails."""
        for one in self._machines():
            if {tag["key"]: tag["value"] for tag in one.get_tags()}.get("stateward:key") == key:
                self._moves[one.id] = (self._clock(), "terminated")
        self.settle()

    def _end_instance(self, one: Instance, when: float) -> None:
        self._ended[one.id] = inf  # moto looks for the machine while it clears up after it
        self._made.pop(one.id, None)
        one.terminate()
        self._ended[one.id] = when

    def _machines(self) -> list[Instance]:
        return [one for each in self._kept["all_reservations"]() for one in each.instances]

    def _shown(self, one: Instance) -> bool:
        now, behaviour = self._clock(), self._behaviour
        return (
            self._made.get(one.id, -inf) + behaviour.hidden
            <= now
            <= self._ended.get(one.id, now) + behaviour.remembered
        )

    def _later(self, one: Instance, state: str, seconds: float, end: str) -> None:
        _become(one, state)
        self._moves[one.id] = (self._clock() + seconds, end)

    # --- what stands in for moto's methods ---------------------------------------------------------------------------

    def all_reservations(self, filters: Any = None) -> list[Reservation]:
        """Show what can be seen by now, and still."""
        reservations: list[Reservation] = self._kept["all_reservations"]()
        for each in reservations:
            each.instances = [one for one in each.instances if self._shown(one)]
        shown = [each for each in reservations if each.instances]
        return shown if filters is None else filter_reservations(shown, filters)

    def run_instances(self, image_id: str, count: int, *args: Any, **asked: Any) -> Reservation:
        """Launch machines once for each token."""
        token, terms = (
            asked["client_token"],
            repr((image_id, count, args, sorted(asked.items(), key=lambda one: one[0]))),
        )
        if token in self._launches:
            return self._again(token, terms)
        made: Reservation = self._kept["run_instances"](image_id, count, *args, **asked)
        self._launches[token] = (terms, made)
        for one in made.instances:
            self._made[one.id] = self._clock()
            self._later(one, "pending", self._behaviour.pending, "running")
        return made

    def stop_instances(self, instance_ids: list[str]) -> CHANGED:
        """Stop machines, in a while."""
        machines = self._allowed(instance_ids, MAY_STOP, "stopped")
        return [
            (one, self._unless(one, MAY_STOP[1:], "stopping", self._behaviour.stopping, "stopped")) for one in machines
        ]

    def start_instances(self, instance_ids: list[str]) -> CHANGED:
        """Start machines, in a while."""
        machines = self._allowed(instance_ids, MAY_START, "started")
        return [
            (one, self._unless(one, MAY_START[:2], "pending", self._behaviour.pending, "running")) for one in machines
        ]

    def reboot_instances(self, instance_ids: list[str]) -> list[Instance]:
        """Reboot machines, which nobody sees."""
        machines: list[Instance] = self._backend.get_multi_instances_by_id(instance_ids)
        for one in machines:
            if one.state != "running":
                raise EC2ClientError("IncorrectState", f"The instance '{one.id}' is not in the 'running' state.")
        self.reboots.update(one.id for one in machines)
        return machines

    def terminate_instances(self, instance_ids: list[str]) -> CHANGED:
        """Terminate machines, in a while."""
        machines = self._backend.get_multi_instances_by_id(instance_ids)
        return [
            (one, self._unless(one, ENDED, "shutting-down", self._behaviour.ending, "terminated")) for one in machines
        ]

    def delete_subnet(self, subnet_id: str) -> Any:
        """Delete a subnet that no machine stands on."""
        if any(one.subnet_id == subnet_id for one in self._machines() if one.state != "terminated"):
            raise EC2ClientError("DependencyViolation", f"The subnet '{subnet_id}' has dependencies")
        return self._kept["delete_subnet"](subnet_id)

    def delete_security_group(self, name: str | None = None, group_id: str | None = None) -> None:
        """Delete a group that no machine is in."""
        for one in self._machines():
            if one.state != "terminated" and group_id in {group.id for group in one.security_groups}:
                raise EC2ClientError("DependencyViolation", f"resource {group_id} has a dependent object")
        self._kept["delete_security_group"](name, group_id)

    def _again(self, token: str, terms: str) -> Reservation:
        before, made = self._launches[token]
        if before != terms:
            raise EC2ClientError(
                "IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent."
            )
        if any(one.state in ENDED for one in made.instances):
            raise EC2ClientError("IdempotentInstanceTerminated", "The instance of this token has been terminated.")
        return made

    def _allowed(self, ids: list[str], states: tuple[str, ...], verb: str) -> list[Instance]:
        machines: list[Instance] = self._backend.get_multi_instances_by_id(ids)
        for one in machines:
            if one.state not in states:
                text = f"The instance '{one.id}' is not in a state from which it can be {verb}."
                raise EC2ClientError("IncorrectInstanceState", text)
        return machines

    def _unless(self, one: Instance, so: tuple[str, ...], state: str, seconds: float, end: str) -> InstanceState:
        before = InstanceState(one.state, one.state_code)
        if before.name not in so:
            self._later(one, state, seconds, end)
        return before


def _become(one: Instance, state: str) -> None:
    one._state.name, one._state.code = state, CODES[state]


OURS: Mapping[str, Any] = {
    method.__name__: method
    for method in (
        InstanceLifecycle.all_reservations,
        InstanceLifecycle.run_instances,
        InstanceLifecycle.stop_instances,
        InstanceLifecycle.start_instances,
        InstanceLifecycle.reboot_instances,
        InstanceLifecycle.terminate_instances,
        InstanceLifecycle.delete_subnet,
        InstanceLifecycle.delete_security_group,
    )
}
