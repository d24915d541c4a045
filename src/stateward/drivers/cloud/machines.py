"""The machines of a cloud: what a listing has found, and what a process remembers of its own calls."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from stateward.drivers import port
from stateward.drivers.cloud.errors import CloudCallFailed, outcome_of

KEY_TAG = "stateward:key"
"""The tag with the key, on everything that a driver creates where the cloud has tags."""

GONE = frozenset({port.MachineState.TERMINATING, port.MachineState.TERMINATED})
MAX_REMEMBERED = 10_000

Value = TypeVar("Value")
Keyed = TypeVar("Keyed", port.MachineSpec, port.MachineHandle)


class FoundMachines(Struct, frozen=True):
    """The machines that were listed, and the failure that makes the listing incomplete, if any."""

    machines: Sequence[port.Observation]
    failed: CloudCallFailed | None = None

    def listing(self) -> port.MachineListing:
        """Return the result as the listing of the port."""
        if self.failed is None:
            return port.MachineListing(self.machines, complete=True)
        return self.failed.listing(self.machines)

    def by_key(self) -> dict[str, port.Observation]:
        """Return the machines by their keys; a live one has priority over one that is gone, an older over a newer."""
        ranked = sorted(self.machines, key=lambda machine: (machine.state in GONE, age_rank(machine)), reverse=True)
        return {machine.key: machine for machine in ranked}

    def native_ids(self, keys: Collection[str]) -> dict[str, str | CloudCallFailed]:
        """Return the ids of the machines with some keys; the failure for those that an incomplete listing lacks."""
        failures = {} if self.failed is None else dict.fromkeys(keys, self.failed)
        return {**failures, **{key: machine.native_id for key, machine in self.by_key().items()}}


def age_rank(machine: port.Observation) -> tuple[str, str]:
    """Return the rank of a machine among those of its key: the first one is to stay."""
    return machine.details.get("created", ""), machine.native_id


def existing_outcome(machine: port.Observation) -> port.Outcome:
    """Return the outcome of a create whose key exists already."""
    if machine.state in GONE:
        text = f"the machine of this key, {machine.native_id}, is {machine.native_state}"
        return port.CallRefused(machine.key, port.RefusalReason.CONFLICT, text)
    return port.AlreadyDone(machine.key, machine.native_id)


class Remembered(dict[str, Value]):
    """What a process remembers of its own calls: the latest 10,000."""

    def __setitem__(self, name: str, value: Value) -> None:
        self.pop(name, None)
        super().__setitem__(name, value)
        if len(self) > MAX_REMEMBERED:
            del self[next(iter(self))]


class CloudMachines:
    """Creates machines and acts on them; without calls for many, each by a call of its own."""

    async def create(self, wanted: Mapping[str, port.MachineSpec]) -> Mapping[str, port.Outcome]:
        """Create machines by their keys; may raise `CloudCallFailed`, which is the outcome for all of them."""
        return await each_outcome(wanted, self._create)

    async def act(self, action: port.MachineAction, handles: Sequence[port.MachineHandle]) -> Sequence[port.Outcome]:
        """Carry out an action on machines; one outcome for each, in order."""
        return await outcomes_in_order(handles, partial(each_outcome, work=partial(self._act, action)))

    async def _create(self, machine_spec: port.MachineSpec) -> port.Outcome:
        """Create a machine; may raise `CloudCallFailed` and `BadInput`."""
        raise NotImplementedError

    async def _act(self, action: port.MachineAction, handle: port.MachineHandle) -> port.Outcome:
        """Carry out an action on a machine; may raise `CloudCallFailed`."""
        raise NotImplementedError


async def each_outcome(
    wanted: Mapping[str, Keyed], work: Callable[[Keyed], Awaitable[port.Outcome]]
) -> Mapping[str, port.Outcome]:
    """Do work for each key at the same time; returns the outcomes by key."""
    outcomes = await asyncio.gather(*(outcome_of(key, work(item)) for key, item in wanted.items()))
    return dict(zip(wanted, outcomes, strict=True))


async def outcomes_in_order(
    wanted: Sequence[Keyed], work: Callable[[Mapping[str, Keyed]], Awaitable[Mapping[str, port.Outcome]]]
) -> list[port.Outcome]:
    """Do work for what is wanted by key, of each key the first; returns the outcomes in the order of what is wanted."""
    different = {item.key: item for item in reversed(wanted)}
    try:
        outcomes = await work(different)
    except CloudCallFailed as failed:
        outcomes = {key: failed.outcome_for(key) for key in different}
    return [outcomes[item.key] for item in wanted]
