"""Upkeep: MCIs at rest follow their VMs, VMs at rest follow what their providers show, and orphans are found.

Every process with a worker does this; whoever is first tells, and what the others say then is refused and does no harm.
A round over all connections is done by one process at a time: it takes its turn by a compare-and-set on a record.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from random import Random

from msgspec import Struct

from stateward.domains.mci.catalogue import Catalogue, objects
from stateward.domains.mci.connections import Clouds
from stateward.domains.mci.evidence import drift
from stateward.domains.mci.lifecycle import MCI, NAMESPACE, VM, MciState, VmState
from stateward.domains.mci.mcis import told
from stateward.domains.mci.model import HOME, Connection, plain, seen_of, vm_of, vm_seen
from stateward.drivers import Observation
from stateward.engine import AlreadyExists, Denied, Engine
from stateward.errors import StatewardError
from stateward.lifecycle import CONTROLLER, PROVIDER, TRANSITIONAL
from stateward.store.errors import StoreError
from stateward.store.records import Key, Object
from stateward.store.selection import JournalFilter, Selector

log = logging.getLogger("stateward.mci")

SOON = 0.05
"""How many seconds news of VMs are gathered before their MCIs are looked at: thousands may come at once."""

EVERY = 30.0
"""How many seconds pass between two rounds over all connections."""

ROUND = Key(HOME, "round")
WATCHED = (VmState.RUNNING, VmState.SUSPENDED, VmState.UNDEFINED)
"""The states of VMs that their providers are asked about."""


class Orphan(Struct, frozen=True):
    """A machine of ours at a provider that no record knows."""

    connection: str
    key: str
    native_id: str
    state: str
    name: str


class Upkeep:
    """Looks after what changes without being asked to."""

    def __init__(
        self,
        engine: Engine,
        catalogue: Catalogue,
        clouds: Clouds,
        chance: Random,
        saved: Callable[[str, int], None],
        *,
        every: float = EVERY,
    ) -> None:
        self._engine, self._catalogue, self._clouds = engine, catalogue, clouds
        self._chance, self._saved, self._every = chance, saved, every
        self._restless: set[Key] = set()
        self._soon: asyncio.TimerHandle | None = None
        self._settling: set[asyncio.Task[None]] = set()

    async def follow(self) -> None:
        """Bring MCIs in step with their VMs, for as long as the process lives."""
        after = await self._engine.store.reader.last_line()
        async for line in self._engine.watch(after, JournalFilter(kind=VM.kind)):
            if line.target is not None and line.source != line.target:
                self._note(Key(line.ns, line.object.partition(".")[0]))

    def _note(self, mci: Key) -> None:
        """See to it that an MCI is looked at soon, however many of its VMs have news."""
        if not self._restless:
            self._soon = asyncio.get_running_loop().call_later(SOON, self._settle_soon)
        self._restless.add(mci)

    def _settle_soon(self) -> None:
        task = asyncio.ensure_future(self._settle_all())
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle_all(self) -> None:
        restless, self._restless = self._restless, set()
        for ns, mci in restless:
            with suppress(StatewardError):
                await self.settle(ns, mci)

    async def close(self) -> None:
        """Look at nothing any more."""
        if self._soon is not None:
            self._soon.cancel()
        for task in self._settling:
            task.cancel()
        await asyncio.gather(*self._settling, return_exceptions=True)

    async def settle(self, ns: str, mci: str) -> None:
        """Tell an MCI at rest what its VMs add up to, if it is something else."""
        found = await self._engine.store.reader.object(Key(ns, mci))
        if found is None or found.removed or found.kind != MCI.kind:
            return
        if MCI.state(found.state).state_class is TRANSITIONAL:
            return
        counts = await self._engine.store.reader.count_states(Selector(ns, VM.kind, mci))
        states = [state for (_, state), number in counts.items() for _ in range(number)]
        if any(VM.state(state).state_class is TRANSITIONAL for state in states):
            return  # more news will follow
        event = told(states)
        if _reached(event, found.state) or (not states and found.state == MciState.FAILED):
            return
        with suppress(Denied):
            await self._engine.act(ns, mci, event, actor=CONTROLLER, version=found.version)

    # --- rounds ------------------------------------------------------------------------------------------------------

    async def keep_looking(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Go round all connections from time to time, for as long as the process lives."""
        while True:
            await sleep(self._every * self._chance.uniform(0.7, 1.3))
            try:
                if await self._my_turn():
                    await self.look_around()
            except StoreError as error:
                log.warning("the look around is put off: %s", error)
            except Exception:
                log.exception("the look around has failed and will be tried again")

    async def _my_turn(self) -> bool:
        """Take the turn, if nobody has since the last one was due."""
        reader = self._engine.store.reader
        found = await reader.object(ROUND)
        try:
            if found is None:
                await self._engine.create(*ROUND, NAMESPACE.kind, "register", actor=CONTROLLER)
                return True
            if found.since > await reader.time() - self._every * 0.6:
                return False
            await self._engine.act(*ROUND, "change", actor=CONTROLLER, version=found.version)
        except (AlreadyExists, Denied):
            return False
        return True

    async def look_around(self) -> list[Orphan]:
        """Compare all VMs with what their providers show; returns machines that no record knows."""
        records = await self._records()
        strangers: list[Orphan] = []
        for connection in await self._catalogue.connections():
            known = records.get(connection.name, {})
            if known or connection.driver != "simulated":
                strangers += await self._compare(connection, known)
        await self._note_those_out_of_step(vm for known in records.values() for vm in known.values())
        if not strangers:
            return []
        newer = await self._records()  # what came while the providers were asked is no orphan
        ours = {uid for known in newer.values() for uid in known}  # several connections may lead to one place
        return [one for one in strangers if one.key not in ours]

    async def _records(self) -> dict[str, dict[str, Object]]:
        """Return all VMs, by connection and uid."""
        records: dict[str, dict[str, Object]] = defaultdict(dict)
        for ns in await self._engine.store.reader.namespaces():
            async for found in objects(self._engine.store.reader, Selector(ns, VM.kind)):
                vm = vm_of(found)
                records[vm.connection][vm.uid] = found
        return records

    async def _note_those_out_of_step(self, vms: Iterable[Object]) -> None:
        """Note MCIs that nobody has brought in step: whoever was to do it may have died."""
        states: dict[Key, list[str]] = defaultdict(list)
        for vm in vms:
            states[Key(vm.ns, vm.parent or "")].append(vm.state)
        for ns in await self._engine.store.reader.namespaces():
            async for found in objects(self._engine.store.reader, Selector(ns, MCI.kind)):
                rests = MCI.state(found.state).state_class is not TRANSITIONAL
                if rests and not _reached(told(states.get(found.key, ())), found.state):
                    self._note(found.key)

    async def _compare(self, connection: Connection, known: dict[str, Object]) -> list[Orphan]:
        cloud = await self._clouds.at(connection)
        settled = await self._engine.store.reader.time() - cloud.driver.caps.lag  # what came later may not be shown yet
        watched = [
            uid
            for uid, found in known.items()
            if found.state in WATCHED and found.op is None and found.since <= settled
        ]
        listing = await cloud.listing_anew()
        looks = cloud.read(listing, watched)
        self._saved(connection.provider, max(0, len(known) - 1))
        for uid in watched:
            event = drift(known[uid].state, looks[uid])
            shown = looks[uid].shown
            if event is not None:
                await self._tell(known[uid], event, shown)
        return [_orphan(connection, one) for one in listing.seen if one.key not in known and _lives(one)]

    async def _tell(self, found: Object, event: str, shown: Observation | None) -> None:
        with suppress(Denied):  # somebody has begun something with it: that will tell
            await self._engine.act(
                found.ns,
                found.id,
                event,
                actor=PROVIDER,
                version=found.version,
                seen=None if shown is None else plain(seen_of(shown)),
            )


def _reached(event: str, state: str) -> bool:
    wanted = {
        "all running": MciState.RUNNING,
        "all suspended": MciState.SUSPENDED,
        "all terminated": MciState.TERMINATED,
        "all failed": MciState.FAILED,
        "none can say": MciState.UNDEFINED,
        "none left": MciState.EMPTY,
        "mixed": MciState.PARTIAL,
    }[event]
    return state == wanted


def _lives(shown: Observation) -> bool:
    return shown.state not in ("terminated", "terminating")


def _orphan(connection: Connection, shown: Observation) -> Orphan:
    return Orphan(connection.name, shown.key, shown.native_id, str(shown.state), shown.name)


def calls_saved(states: Iterable[str]) -> int:
    """Return how many VMs need not be asked about: what is known of them does not change by itself."""
    return sum(state in (VmState.TERMINATED, VmState.FAILED, VmState.SUSPENDED) for state in states)


__all__ = ["Orphan", "Upkeep", "calls_saved", "vm_seen"]
