"""The resources of the test cloud, over time: what Azure keeps of each, and the changes that are due later.

Every change of a long-running operation is an `ArmOperation`: it is accepted at once, ends after a while, and can be
ordered to fail.
"""

from collections.abc import Callable
from copy import deepcopy
from itertools import count
from math import inf
from time import monotonic
from typing import Any
from uuid import uuid4

from msgspec import Struct


class ArmBehaviour(Struct):
    """How long transitions take, in seconds, and the limits of calls."""

    creating: float = 0.03
    changing: float = 0.03  # start, deallocate, restart
    ending: float = 0.03
    network: float = 0.005  # until a network resource is provisioned, or gone
    hidden: float = 0.0  # how long something new is not listed
    reserved: float = 0.0  # how long an interface cannot be deleted after a refused virtual machine
    retry_after: int = 1  # what an operation under way tells its callers
    page: int = 100
    latency: float = 0.0
    calls: int | None = None  # how many are answered
    window: float = 1.0  # within this time


class ArmProblem(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message or code


class ArmRecord(Struct):
    """A resource: its body as Azure shows it, and what Azure knows beside that."""

    body: dict[str, Any]
    made: float
    power: str = ""
    failure: tuple[str, str] | None = None  # code and message of the last operation
    reserved_until: float = -inf

    @property
    def state(self) -> str:
        return str(self.body["properties"]["provisioningState"])

    @state.setter
    def state(self, state: str) -> None:
        self.body["properties"]["provisioningState"] = state


class ArmOperation(Struct):
    """A long-running operation."""

    id: str
    due: float
    finish: Callable[[], None]
    status: str = "InProgress"
    error: tuple[str, str] | None = None


class ArmRecords:
    """Resources by type and name, and the operations on them."""

    def __init__(self, behaviour: ArmBehaviour, clock: Callable[[], float] = monotonic) -> None:
        self.behaviour, self.clock = behaviour, clock
        self.operations: dict[str, ArmOperation] = {}
        self.failures: dict[str, tuple[str, str]] = {}  # verbs whose next operation fails, with code and message
        self._records: dict[str, dict[str, ArmRecord]] = {}
        self._etags = count(1)

    def of(self, kind: str) -> dict[str, ArmRecord]:
        """Return the resources of a type, such as `virtualMachines`, by name in small letters."""
        return self._records.setdefault(kind.lower(), {})

    def find(self, kind: str, name: str) -> ArmRecord:
        """Return a resource, or answer that there is none."""
        found = self.of(kind).get(name.lower())
        if found is None:
            raise ArmProblem(404, "ResourceNotFound", f"The Resource '{kind}/{name}' was not found.")
        return found

    def put(self, kind: str, name: str, native_id: str, body: dict[str, Any]) -> tuple[ArmRecord, bool]:
        """Write a resource; returns it, and whether it is new."""
        found = self.of(kind).get(name.lower())
        shown = {**deepcopy(body), "id": native_id, "name": name, "etag": f'W/"{next(self._etags)}"'}
        shown["properties"] = {**shown.get("properties", {}), "provisioningState": "Updating"}
        if found is not None:
            found.body = shown
            return found, False
        self.of(kind)[name.lower()] = made = ArmRecord(shown, self.clock())
        return made, True

    def drop(self, kind: str, name: str) -> None:
        """Forget a resource."""
        self.of(kind).pop(name.lower(), None)

    def later(self, seconds: float, finish: Callable[[], None], verb: str = "") -> ArmOperation:
        """Begin an operation; the next one of a verb may be ordered to fail."""
        operation = ArmOperation(str(uuid4()), self.clock() + seconds, finish, error=self.failures.pop(verb, None))
        self.operations[operation.id] = operation
        return operation

    def settle(self) -> None:
        """End the operations that are due, in their order."""
        while True:
            due = [one for one in self.operations.values() if one.status == "InProgress" and one.due <= self.clock()]
            if not due:
                return
            for one in sorted(due, key=lambda one: one.due):
                one.status = "Failed" if one.error else "Succeeded"
                one.finish()

    def listed(self, kind: str) -> list[ArmRecord]:
        """Return the resources of a type that a listing shows by now."""
        shown = self.clock() - self.behaviour.hidden
        return [record for _, record in sorted(self.of(kind).items()) if record.made <= shown]
