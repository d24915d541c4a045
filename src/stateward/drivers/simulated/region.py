"""One region of a simulated provider: its machines, its resources and its answers.

Everything here is synchronous; latency and lost messages are the driver's. Machines change by time alone, so a listener
of changes sleeps until the next known time.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from random import Random
from typing import TypeAlias

from msgspec import msgpack

from stateward.drivers import port
from stateward.drivers.simulated.cloud_file import CloudRow
from stateward.drivers.simulated.faults import FaultInjector, FaultProfile, draw_seconds, transition_time
from stateward.drivers.simulated.machine import (
    ACTION_RULES,
    UNMARKED,
    ActionVerdict,
    MachineTemplate,
    SimulatedMachine,
    TimedTransition,
    judge_action,
    native_id,
    shared_transition,
    state_at,
    unmarked_key,
    with_token,
)
from stateward.drivers.simulated.resources import ResourceTable, row_key

ChangeListener: TypeAlias = Callable[[str, float], None]
"""Callback with the key of a machine that changes, and the time of the change."""

SpecCheck: TypeAlias = Callable[[str, str], str]
"""Returns what is wrong with a size and an image; empty if both exist."""

ENDED = (port.MachineState.TERMINATING, port.MachineState.TERMINATED)

MACHINE, RESOURCE, USED_KEY = "machine", "part", "grave"
"""The sorts of rows of a region, as the file has them."""


class Region:
    """A region: its machines, its resources and its fault profile."""

    def __init__(
        self, name: str, profile: FaultProfile, chance: Random, wrong: SpecCheck, number: Callable[[], int]
    ) -> None:
        self.name = name
        self.profile = self.base_profile = profile  # the base profile is the one without a driver's options
        self.fault_injector = FaultInjector(chance)
        self.machines: dict[str, SimulatedMachine] = {}
        # bounded by: what is simulated: a used key stays used, as in a cloud
        self.used_keys: dict[str, int] = {}  # keys of forgotten machines, with their numbers
        self.resources = ResourceTable()
        self.listeners: list[ChangeListener] = []
        self._chance, self._spec_problem, self._next_number = chance, wrong, number
        # bounded by: the sizes, images and parts of what is simulated
        self._builds: dict[MachineTemplate, MachineTemplate] = {}
        self._forget_queue: list[tuple[float, str]] = []  # when each terminated machine leaves the listing
        self._changed: dict[tuple[str, str], None] = {}  # sort and key of each unsaved row, in order

    # --- machines ---

    def create(self, machine_spec: port.MachineSpec, now: float) -> port.Outcome:
        """Create a machine, unless its key was used before."""
        there = self.machines.get(machine_spec.key)
        if there is not None:
            return port.AlreadyDone(machine_spec.key, there.native_id)
        if machine_spec.key in self.used_keys:
            return port.AlreadyDone(machine_spec.key, native_id(self.used_keys[machine_spec.key]))
        return self._refusal(machine_spec) or self._make(machine_spec, now)

    def _refusal(self, machine_spec: port.MachineSpec) -> port.CallRefused | None:
        wrong = self._spec_problem(machine_spec.spec, machine_spec.image)
        if wrong:
            return port.CallRefused(machine_spec.key, port.RefusalReason.INVALID, wrong)
        missing = self.resources.missing(machine_spec.resources.values()) if machine_spec.resources else []
        if missing:
            return port.CallRefused(machine_spec.key, port.RefusalReason.NOT_FOUND, f"there is no {missing[0]}")
        if self._chance.random() < self.profile.refused:
            return port.CallRefused(
                machine_spec.key, port.RefusalReason.CAPACITY, f"{self.name} has no room for a {machine_spec.spec}"
            )
        return None

    def _make(self, machine_spec: port.MachineSpec, now: float) -> port.CallAccepted:
        fails = self._chance.random() < self.profile.fails
        then = port.MachineState.FAILED if fails else port.MachineState.RUNNING
        machine = SimulatedMachine(
            machine_spec.key,
            machine_spec.name,
            self._next_number(),
            self._share(MachineTemplate(machine_spec.spec, machine_spec.image, tuple(machine_spec.resources.values()))),
            shared_transition(None, port.MachineState.PENDING, then),
            now,
            now + draw_seconds(self.profile.pending, self._chance),
            trouble="it did not come up" if fails else "",
        )
        self.machines[machine_spec.key] = machine
        self._note_change(machine)
        return port.CallAccepted(machine_spec.key, machine.native_id)

    def act(self, action: port.MachineAction, handle: port.MachineHandle, now: float) -> port.Outcome:
        """Start an action on a machine, if its state allows it."""
        machine = self.machines.get(handle.key)
        if machine is None or handle.native_id not in (None, "", machine.native_id):
            return port.CallRefused(
                handle.key, port.RefusalReason.NOT_FOUND, f"there is no machine {handle.native_id or handle.key}"
            )
        if handle.token and handle.token in machine.tokens and self.profile.knows_tokens:
            return port.AlreadyDone(handle.key, machine.native_id)
        state = state_at(machine, now) or port.MachineState.PENDING
        verdict = judge_action(action, state)
        if verdict is ActionVerdict.CONFLICT:
            return port.CallRefused(
                handle.key, port.RefusalReason.CONFLICT, f"cannot {action} {machine.native_id}, which is {state}"
            )
        if verdict is ActionVerdict.ALREADY:
            return port.AlreadyDone(handle.key, machine.native_id)
        self._do(machine, action, handle.token, state, now)
        return port.CallAccepted(handle.key, machine.native_id)

    def _do(
        self, machine: SimulatedMachine, action: port.MachineAction, token: str, state: port.MachineState, now: float
    ) -> None:
        rule = ACTION_RULES[action]
        relapses = self._chance.random() < self.profile.relapses
        machine.passage = shared_transition(state, rule.during, machine.passage.then if relapses else rule.then)
        machine.since, machine.until = now, now + draw_seconds(transition_time(self.profile, rule.during), self._chance)
        machine.tokens = with_token(machine.tokens, token)
        machine.reboots += action is port.MachineAction.REBOOT and not relapses
        self._note_change(machine)

    def force(self, key: str, state: port.MachineState, now: float, trouble: str = "") -> None:
        """Set the state of an existing machine out of band."""
        machine = self.machines[key]
        machine.passage = shared_transition(state_at(machine, now), state, state)
        machine.since = machine.until = now
        machine.trouble = trouble
        self._note_change(machine)

    def find(self, keys: Collection[str] | None, now: float) -> list[SimulatedMachine]:
        """Return all machines, or those with some keys, as far as they are not forgotten."""
        self.forget_terminated(now)
        if keys is None:
            return [machine for key, machine in self.machines.items() if not key.startswith(UNMARKED)]
        return [self.machines[key] for key in dict.fromkeys(keys) if key in self.machines]

    def unmarked(self, now: float) -> list[SimulatedMachine]:
        """Return the machines that carry no key and have not ended."""
        self.forget_terminated(now)
        return [
            machine
            for key, machine in self.machines.items()
            if key.startswith(UNMARKED) and state_at(machine, now) not in ENDED
        ]

    def adopt(self, handle: port.MachineHandle, now: float) -> port.Outcome:
        """Put a key on the machine of a native id that carries none."""
        machine = next((known for known in self.machines.values() if known.native_id == handle.native_id), None)
        if machine is None or state_at(machine, now) in ENDED:
            return port.CallRefused(handle.key, port.RefusalReason.NOT_FOUND, f"there is no machine {handle.native_id}")
        if machine.key == handle.key:
            return port.AlreadyDone(handle.key, machine.native_id)
        if not machine.key.startswith(UNMARKED):
            message = f"{machine.native_id} carries another key, {machine.key!r}"
            return port.CallRefused(handle.key, port.RefusalReason.CONFLICT, message)
        self._rekey(machine, handle.key)
        return port.CallAccepted(handle.key, machine.native_id)

    def release(self, handle: port.MachineHandle, _now: float) -> port.Outcome:
        """Take a key off the machine that carries it."""
        machine = self.machines.get(handle.key)
        if machine is None:
            return port.AlreadyDone(handle.key, handle.native_id or "")
        self._rekey(machine, unmarked_key(machine.native_id))
        return port.CallAccepted(handle.key, machine.native_id)

    def _rekey(self, machine: SimulatedMachine, key: str) -> None:
        del self.machines[machine.key]
        self._changed[MACHINE, machine.key] = None
        machine.key = key
        self.machines[key] = machine
        self._note_change(machine)

    def forget_terminated(self, now: float) -> None:
        """Remove the machines that were terminated long ago; their keys stay used."""
        while self._forget_queue and self._forget_queue[0][0] <= now:
            _, key = heappop(self._forget_queue)
            machine = self.machines.get(key)
            if machine is not None and state_at(machine, now) is port.MachineState.TERMINATED:
                del self.machines[key]
                self.used_keys[key] = machine.number
                self._changed[MACHINE, key] = self._changed[USED_KEY, key] = None

    # --- resources ---

    def ensure(self, resource: port.CloudResource) -> port.Outcome:
        """Find a resource by its key, or create it."""
        outcome = self.resources.ensure(resource, self._next_number())
        self._changed[RESOURCE, row_key(resource.kind, resource.key)] = None
        return outcome

    def remove(self, resource: port.CloudResource, now: float) -> port.Outcome:
        """Remove a resource that nothing uses."""
        key = row_key(resource.kind, resource.key)
        there = self.resources.row(key)
        outcome = self.resources.remove(resource, there is not None and self._is_in_use(there.native_id, now))
        self._changed[RESOURCE, key] = None
        return outcome

    def drop_resource(self, kind: port.ResourceKind, key: str) -> None:
        """Remove a resource out of band, even if it is used."""
        self.resources.drop(row_key(kind, key))
        self._changed[RESOURCE, row_key(kind, key)] = None

    def _is_in_use(self, part_id: str, now: float) -> bool:
        """Tell whether a machine uses a resource; the templates rule out most machines."""
        builds = {id(build) for build in self._builds if part_id in build.parts}
        return bool(builds) and any(
            id(machine.build) in builds and state_at(machine, now) is not port.MachineState.TERMINATED
            for machine in self.machines.values()
        )

    # --- saved rows ---

    @property
    def has_changes(self) -> bool:
        """Whether there are unsaved changes."""
        return bool(self._changed)

    def changes(self) -> Iterator[CloudRow]:
        """Yield the rows that changed since `mark_saved`."""
        rows: Mapping[str, Callable[[str], object]] = {
            MACHINE: self.machines.get,
            RESOURCE: self.resources.row,
            USED_KEY: self.used_keys.get,
        }
        for sort, key in self._changed:
            row = rows[sort](key)
            yield sort, self.name, key, None if row is None else msgpack.encode(row)

    def mark_saved(self) -> None:
        """Clear the changes: they are saved."""
        self._changed.clear()

    def restore(
        self, machines: Sequence[SimulatedMachine], used_keys: dict[str, int], resources: Sequence[port.CloudResource]
    ) -> None:
        """Restore the region from its saved rows."""
        for machine in machines:
            old: TimedTransition = machine.passage
            machine.passage = shared_transition(old.was, old.by, old.then)
            machine.build = self._share(machine.build)
            self.machines[machine.key] = machine
            self._schedule_forget(machine)
        self.used_keys.update(used_keys)
        self.resources = ResourceTable(resources)

    def _share(self, build: MachineTemplate) -> MachineTemplate:
        return self._builds.setdefault(build, build)

    def _note_change(self, machine: SimulatedMachine) -> None:
        """Mark a machine as changed, and tell the listeners the times of its changes."""
        self._changed[MACHINE, machine.key] = None
        self._schedule_forget(machine)
        for listener in self.listeners:
            listener(machine.key, machine.since)
            listener(machine.key, machine.until)

    def _schedule_forget(self, machine: SimulatedMachine) -> None:
        if machine.passage.then is port.MachineState.TERMINATED:
            heappush(self._forget_queue, (machine.until + self.profile.forgotten, machine.key))


MIN_SLEEP_S = 0.001
"""The shortest sleep, because a sleep may end a little early."""

Sleep = Callable[[float], Awaitable[None]]


async def watch_changes(region: Region, clock: Callable[[], float], sleep: Sleep) -> AsyncGenerator[str, None]:
    """Yield the key of each machine when it changes its state."""
    due: list[tuple[float, str]] = []
    changed = asyncio.Event()

    def on_change(key: str, when: float) -> None:
        heappush(due, (when, key))
        changed.set()

    region.listeners.append(on_change)
    try:
        while True:
            while due and due[0][0] <= clock():
                yield heappop(due)[1]
            changed.clear()
            await _wait_for_change(changed, sleep, due[0][0] - clock() if due else None)
    finally:
        region.listeners.remove(on_change)


async def _wait_for_change(changed: asyncio.Event, sleep: Sleep, seconds: float | None) -> None:
    """Wait for a change, or until the next known time of one."""
    if seconds is None:
        await changed.wait()
        return
    waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(sleep(max(seconds, MIN_SLEEP_S)))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
