"""One region of a simulated provider: what is true there, and what it answers.

Everything here happens at once, between two awaits; the way there and back, with all that can go wrong on it, is the
driver's.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heappop, heappush
from random import Random
from typing import TypeAlias

from msgspec import msgpack

from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CloudResource,
    MachineAction,
    MachineRef,
    MachineSpec,
    MachineState,
    Outcome,
    RefusalReason,
    ResourceKind,
)
from stateward.drivers.simulated.cloud_file import Row
from stateward.drivers.simulated.fault_injector import Gate
from stateward.drivers.simulated.faults import Temper, draw, span_of
from stateward.drivers.simulated.machine import (
    WAYS,
    Build,
    Machine,
    Passage,
    Verdict,
    judge,
    native_id,
    passage,
    state_at,
    with_token,
)
from stateward.drivers.simulated.resources import Shelf

Ear: TypeAlias = Callable[[str, float], None]
"""Is told the key of a machine that changes, and when it does."""

Wrong: TypeAlias = Callable[[str, str], str]
"""Says what is wrong with a size and an image; nothing if both can be had."""

MACHINE, PART, GRAVE = "machine", "part", "grave"
"""What is kept of a region."""


class Region:
    """A region: its machines, its parts, and how it behaves."""

    def __init__(self, name: str, temper: Temper, chance: Random, wrong: Wrong, number: Callable[[], int]) -> None:
        self.name = name
        self.temper = self.nature = temper  # the nature is the temper that it has by itself, without any options
        self.gate = Gate(chance)
        self.machines: dict[str, Machine] = {}
        self.graves: dict[str, int] = {}  # keys that are used up, with the numbers of their machines
        self.shelf = Shelf()
        self.ears: list[Ear] = []
        self._chance, self._wrong, self._next_number = chance, wrong, number
        self._builds: dict[Build, Build] = {}
        self._parting: list[tuple[float, str]] = []  # when each terminated machine is no longer listed
        self._changed: dict[tuple[str, str], CloudResource | None] = {}

    # --- machines ---

    def create(self, want: MachineSpec, now: float) -> Outcome:
        """Make a machine, unless its key has made one before."""
        there = self.machines.get(want.key)
        if there is not None:
            return AlreadyDone(want.key, there.native_id)
        if want.key in self.graves:
            return AlreadyDone(want.key, native_id(self.graves[want.key]))
        return self._refusal(want) or self._make(want, now)

    def _refusal(self, want: MachineSpec) -> CallRefused | None:
        wrong = self._wrong(want.spec, want.image)
        if wrong:
            return CallRefused(want.key, RefusalReason.INVALID, wrong)
        missing = self.shelf.missing(want.resources.values()) if want.resources else []
        if missing:
            return CallRefused(want.key, RefusalReason.NOT_FOUND, f"there is no {missing[0]}")
        if self._chance.random() < self.temper.refused:
            return CallRefused(want.key, RefusalReason.CAPACITY, f"{self.name} has no room for a {want.spec}")
        return None

    def _make(self, want: MachineSpec, now: float) -> CallAccepted:
        fails = self._chance.random() < self.temper.fails
        then = MachineState.FAILED if fails else MachineState.RUNNING
        machine = Machine(
            want.key,
            want.name,
            self._next_number(),
            self._share(Build(want.spec, want.image, tuple(want.resources.values()))),
            passage(None, MachineState.PENDING, then),
            now,
            now + draw(self.temper.pending, self._chance),
            trouble="it did not come up" if fails else "",
        )
        self.machines[want.key] = machine
        self._note(machine)
        return CallAccepted(want.key, machine.native_id)

    def act(self, deed: MachineAction, ref: MachineRef, now: float) -> Outcome:
        """Do something to a machine, if its state allows it."""
        machine = self.machines.get(ref.key)
        if machine is None or ref.native_id not in (None, "", machine.native_id):
            return CallRefused(ref.key, RefusalReason.NOT_FOUND, f"there is no machine {ref.native_id or ref.key}")
        if ref.token and ref.token in machine.tokens and self.temper.knows_tokens:
            return AlreadyDone(ref.key, machine.native_id)
        state = state_at(machine, now) or MachineState.PENDING
        verdict = judge(deed, state)
        if verdict is Verdict.CONFLICT:
            return CallRefused(ref.key, RefusalReason.CONFLICT, f"cannot {deed} {machine.native_id}, which is {state}")
        if verdict is Verdict.ALREADY:
            return AlreadyDone(ref.key, machine.native_id)
        self._do(machine, deed, ref.token, state, now)
        return CallAccepted(ref.key, machine.native_id)

    def _do(self, machine: Machine, deed: MachineAction, token: str, state: MachineState, now: float) -> None:
        by, then = WAYS[deed]
        relapses = self._chance.random() < self.temper.relapses
        machine.passage = passage(state, by, machine.passage.then if relapses else then)
        machine.since, machine.until = now, now + draw(span_of(self.temper, by), self._chance)
        machine.tokens = with_token(machine.tokens, token)
        machine.reboots += deed is MachineAction.REBOOT and not relapses
        self._note(machine)

    def force(self, key: str, state: MachineState, now: float, trouble: str = "") -> None:
        """Put a machine into a state behind everybody's back; it must be there."""
        machine = self.machines[key]
        machine.passage = passage(state_at(machine, now), state, state)
        machine.since = machine.until = now
        machine.trouble = trouble
        self._note(machine)

    def find(self, keys: Collection[str] | None, now: float) -> list[Machine]:
        """Return all machines, or those with some keys, as far as they are not forgotten."""
        self.bury(now)
        if keys is None:
            return list(self.machines.values())
        return [self.machines[key] for key in dict.fromkeys(keys) if key in self.machines]

    def bury(self, now: float) -> None:
        """Forget the machines that were terminated long ago; their keys stay used up."""
        while self._parting and self._parting[0][0] <= now:
            _, key = heappop(self._parting)
            machine = self.machines.get(key)
            if machine is not None and state_at(machine, now) is MachineState.TERMINATED:
                del self.machines[key]
                self.graves[key] = machine.number
                self._changed[MACHINE, key] = self._changed[GRAVE, key] = None

    # --- parts ---

    def ensure(self, part: CloudResource) -> Outcome:
        """Find a part by its key, or make it."""
        outcome = self.shelf.ensure(part, self._next_number())
        self._changed[PART, f"{part.kind}/{part.key}"] = part
        return outcome

    def remove(self, part: CloudResource, now: float) -> Outcome:
        """Remove a part that nothing stands on."""
        there = self.shelf.get(part.kind, part.key)
        outcome = self.shelf.remove(part, there is not None and self._stood_on(there.native_id, now))
        self._changed[PART, f"{part.kind}/{part.key}"] = part
        return outcome

    def lose(self, kind: ResourceKind, key: str) -> None:
        """Lose a part, whatever stands on it."""
        self._changed[PART, f"{kind}/{key}"] = self.shelf.drop(kind, key)

    def _stood_on(self, part_id: str, now: float) -> bool:
        """Tell whether any machine stands on a part; most do not even share its build."""
        builds = {id(build) for build in self._builds if part_id in build.parts}
        return bool(builds) and any(
            id(machine.build) in builds and state_at(machine, now) is not MachineState.TERMINATED
            for machine in self.machines.values()
        )

    # --- what is kept ---

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._changed)

    def changes(self) -> Iterator[Row]:
        """Yield what has changed since `settled`, as it is to be written."""
        for (sort, key), part in self._changed.items():
            yield sort, self.name, key, self._body(sort, key, part)

    def settled(self) -> None:
        """Take note that the changes are written."""
        self._changed.clear()

    def restore(self, machines: Sequence[Machine], graves: dict[str, int], parts: Sequence[CloudResource]) -> None:
        """Be as it was when all this was written."""
        for machine in machines:
            old: Passage = machine.passage
            machine.passage = passage(old.was, old.by, old.then)
            machine.build = self._share(machine.build)
            self.machines[machine.key] = machine
            self._part_with(machine)
        self.graves.update(graves)
        self.shelf = Shelf(parts)

    def _body(self, sort: str, key: str, part: CloudResource | None) -> bytes | None:
        if sort == GRAVE:
            return msgpack.encode(self.graves[key])
        found = self.machines.get(key) if part is None else self.shelf.get(part.kind, part.key)
        return None if found is None else msgpack.encode(found)

    def _share(self, build: Build) -> Build:
        return self._builds.setdefault(build, build)

    def _note(self, machine: Machine) -> None:
        """Remember that a machine changed, and tell those who listen when it does."""
        self._changed[MACHINE, machine.key] = None
        self._part_with(machine)
        for ear in self.ears:
            ear(machine.key, machine.since)
            ear(machine.key, machine.until)

    def _part_with(self, machine: Machine) -> None:
        if machine.passage.then is MachineState.TERMINATED:
            heappush(self._parting, (machine.until + self.temper.forgotten, machine.key))
