"""A world of leases: users, hosts that fail, plug-ins that fail and hang, processes that are killed, stopped, cut off.

No commit ever shows a lease with reservations and events that do not fit its status, a host that is booked or handed
over twice, or a lease with other hosts than those that are booked for it. When the faults are over, all objects come to
rest, every lease can be deleted, and no booking is left.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from stateward.domains.leases.bookings import Demand
from stateward.domains.leases.lifecycle import HOST, LEASE
from stateward.domains.leases.model import HostSeen, ReservationSpec, read_host, read_lease
from stateward.domains.leases.resources import ReservationTask
from stateward.domains.leases.runtime import LeasesRuntime
from stateward.domains.leases.service import LeaseCaller
from stateward.domains.leases.wire_values import format_time
from stateward.engine import Denied, Engine, Permanent, Request, Temporary
from stateward.errors import StatewardError
from stateward.lifecycle import TRANSITIONAL
from stateward.plugin.runtime import ProcessContext
from stateward.store.errors import StoreError
from stateward.store.filters import Page, Selector
from stateward.store.records import Object
from stateward.store.sqlite import SqliteStore
from stateward.testing import faulty_store
from stateward.testing.faulty_store import CommitRecord, FaultRates
from stateward.testing.simulated_process import SimulatedProcess
from stateward.testing.virtual_loop import LoopParty, Stuck, VirtualLoop
from tests.integration.domains.leases.checked_store import Forbidden, check, check_bookings

EPOCH = 1_900_000_000.0
NS = "n"
ME = LeaseCaller(who="somebody", ns=NS)
HOSTS = [f"h{number}" for number in range(3)]
TROUBLE, REST = 200.0, 4000.0


class Gadgets:
    """Resources that take their time, fail now and then, and sometimes hang."""

    name = "test:gadget"

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.calm = False

    def read_details(self, given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        return {}

    def demand(self, details: Mapping[str, Any]) -> Demand | None:
        return None

    async def check(self, ns: str, spec: ReservationSpec) -> None:
        return

    async def start_requests(self, task: ReservationTask) -> Sequence[Request]:
        return ()

    async def end_requests(self, task: ReservationTask) -> Sequence[Request]:
        return ()

    async def start(self, task: ReservationTask) -> None:
        await self._behave()

    async def end(self, task: ReservationTask) -> None:
        await self._behave()

    async def _behave(self) -> None:
        if self.calm:
            return
        await asyncio.sleep(self._chance.expovariate(2.0))
        roll = self._chance.random()
        if roll < 0.05:
            await asyncio.sleep(300.0)
        if roll < 0.2:
            raise Temporary("not now")
        if roll < 0.3:
            raise Permanent("never")


class LeaseProcess(SimulatedProcess):
    """A process with leases."""

    def __init__(self, world: "LeaseWorld", name: str) -> None:
        chance = world.chance(name)
        super().__init__(
            name, world.loop, world.store, [], world.faults, chance, world.new_id, world.committed,
            lambda: world.former, world.lease,
        )  # fmt: skip
        self.plugin = LeasesRuntime(ProcessContext(Path(), random=chance), more=[world.gadgets], new_id=world.new_id)
        self._kinds = self.plugin.kinds

    async def _live(self) -> None:
        while self.engine is None:
            engine = Engine(
                self.store, self._kinds, works=self.works, slots=max(self.slots, 3), lease_s=self.lease,
                process=self.name, new_id=self._new_id, chance=self._chance,
            )  # fmt: skip
            self.plugin.bind_engine(engine)
            try:
                await engine.__aenter__()
                self.engine = engine
            except StoreError:
                await asyncio.sleep(0.5)


class Outcome(Struct, frozen=True):
    """What became of a world."""

    wrong: str | None
    events: list[str]
    commits: int
    statuses: frozenset[str]


class LeaseWorld:
    """Everything that there is in one run; one seed gives one run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = VirtualLoop()
        self.store = SqliteStore(":memory:", inline=True, clock=lambda: EPOCH + self.loop.time())
        self.faults = FaultRates()
        self.lease = 5.0
        self.gadgets = Gadgets(self.chance("gadgets"))
        self.former: dict[str, Object] = {}
        self.new_id = map("id{}".format, count(1)).__next__
        self.processes: list[LeaseProcess] = []
        self._last: dict[str, Object] = {}
        self._events: list[str] = []
        self._wrong: str | None = None
        self._commits = 0
        self._statuses: set[str] = set()
        self._names = map("p{}".format, count(1)).__next__

    def chance(self, what: str) -> Random:
        """Return a source of chance of its own."""
        return Random(f"{self.seed}/{what}")

    def note(self, what: str) -> None:
        """Note what happens."""
        self._events.append(f"{self.loop.time():9.3f} {what}")

    def committed(self, party: LoopParty, function: str, record: CommitRecord) -> None:
        """Look at everything that a commit has written."""
        for changes in record.changes:
            self._commits += 1
            for line in changes.journal:
                self.note(f"{party.name}: {line.object} {line.event} {line.target or ''} {line.reason or ''}")
            for found in changes.objects:
                self._look(found)
            self._require(lambda: check_bookings(self._last.values()))

    def _look(self, found: Object) -> None:
        if found.id in self._last:
            self.former[found.id] = self._last[found.id]
        self._last[found.id] = found
        if found.kind == LEASE.kind:
            self._statuses.add(found.state)
        self._require(lambda: check(found))

    def _require(self, holds: Callable[[], None]) -> None:
        try:
            holds()
        except Forbidden as forbidden:
            self._wrong = self._wrong or str(forbidden)
            self.note(f"WRONG: {forbidden}")

    def add_process(self) -> None:
        """Start another process."""
        process = LeaseProcess(self, self._names())
        if not any(one.works and one.up for one in self.processes):
            process.works = True
        self.processes.append(process)
        process.start()

    @property
    def up(self) -> list[LeaseProcess]:
        """The processes that can be asked for something."""
        return [one for one in self.processes if one.up]

    # --- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Live, and say what became of it."""
        asyncio.set_event_loop(None)
        try:
            self.loop.run_until_complete(self._live())
        except (Stuck, TimeoutError) as error:
            self._wrong = self._wrong or f"{type(error).__name__}: {error}"
        finally:
            self._end()
        return Outcome(self._wrong, self._events, self._commits, frozenset(self._statuses))

    async def _live(self) -> None:
        await self.store.open()
        for _ in range(3):
            self.add_process()
        await asyncio.sleep(3.0)
        await self._register()
        users, chaos = asyncio.ensure_future(self._users()), asyncio.ensure_future(self._chaos())
        await asyncio.sleep(TROUBLE)
        users.cancel()
        chaos.cancel()
        self._calm_down()
        async with asyncio.timeout(REST):
            while not self.up:
                await asyncio.sleep(1.0)
            await self._come_to_rest()
            await self._clear_up()

    async def _register(self) -> None:
        for name in HOSTS:
            while True:
                try:
                    await self.up[0].plugin.hosts.register(
                        ME, {"name": name, "vcpus": 8, "memory_mb": 8, "local_gb": 8}
                    )
                    break
                except (StatewardError, StoreError, IndexError) as error:
                    if isinstance(error, Denied):
                        break
                    await asyncio.sleep(0.5)

    def _calm_down(self) -> None:
        self.gadgets.calm = True
        for process in self.processes:
            process.link.faults = faulty_store.NO_FAULTS
            process.link.cut_until = 0.0
            if process.stopped and not process.dead:
                process.go_on()
        self.add_process()
        self.processes[-1].works = True
        self.processes[-1].link.faults = faulty_store.NO_FAULTS

    async def _objects(self, kind: str) -> list[Object]:
        return await self.store.reader.list_objects(Selector(NS, kind=kind), Page(None, 1000))

    async def _come_to_rest(self) -> None:
        """Wait until no lease is in transition, and none has anything before it."""
        while True:
            leases = await self._objects(LEASE.kind)
            now = EPOCH + self.loop.time()
            moving = [one for one in leases if LEASE.state(one.state).state_class is TRANSITIONAL]
            ahead = [
                one for one in leases if one.state in ("PENDING", "ACTIVE") and read_lease(one).spec.end < now - 60
            ]
            late = [one for one in leases if one.state == "PENDING" and read_lease(one).spec.start < now - 60]
            if not (moving or ahead or late):
                return
            await asyncio.sleep(5.0)

    async def _clear_up(self) -> None:
        """Delete every lease; nothing of it is left on the hosts."""
        while leases := await self._objects(LEASE.kind):
            for one in leases:
                if one.state != "DELETING":
                    await self._try(partial(self.up[-1].plugin.leases.delete, ME, one.id))
            await asyncio.sleep(5.0)
        for one in await self._objects(HOST.kind):
            seen = read_host(one).seen
            if (seen.bookings, seen.held) != (HostSeen().bookings, HostSeen().held):
                self._wrong = self._wrong or f"{one.id} still says {seen}"

    async def _try(self, what: Callable[[], Any]) -> None:
        try:
            await what()
        except (StatewardError, StoreError, TimeoutError) as error:
            self.note(f"user: {type(error).__name__}: {error}")

    def _end(self) -> None:
        for process in self.processes:
            process.link.over = True
            self.loop.resume(process)
        self.loop.forgive()
        for _ in range(200):
            tasks = [one for one in asyncio.all_tasks(self.loop) if not one.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0.01))
        self.loop.run_until_complete(self.store.close())
        self.loop.close()

    # --- users and bad luck ------------------------------------------------------------------------------------------

    async def _users(self) -> None:
        chance = self.chance("users")
        wishes = (
            (self._create, 40),
            (self._update, 20),
            (self._delete, 12),
            (self._recover, 8),
            (self._fail, 10),
            (self._cure, 10),
        )
        kinds, weights = [wish for wish, _ in wishes], [weight for _, weight in wishes]
        while True:
            await asyncio.sleep(chance.expovariate(1.0))
            if self.up:
                process = chance.choice(self.up)
                process.spawn(self._try(chance.choices(kinds, weights)[0](process, chance)))

    def _create(self, process: LeaseProcess, chance: Random) -> Callable[[], Any]:
        now = EPOCH + self.loop.time()
        start = now + chance.choice((0.0, chance.random() * 20, chance.random() * 120))
        end = start + chance.choice((0.0, chance.random() * 60, chance.random() * 100))
        given = {
            "name": "lease",
            "start_date": format_time(start),
            "end_date": format_time(end),
            "reservations": [self._wish(chance) for _ in range(chance.choice((1, 1, 2, 3)))],
        }
        return lambda: process.plugin.leases.create(ME, given)

    def _wish(self, chance: Random) -> dict[str, Any]:
        match chance.randrange(4):
            case 0:
                return {"resource_type": Gadgets.name}
            case 1:
                size = {"vcpus": 2, "memory_mb": 1, "disk_gb": 1}
                return {"resource_type": "virtual:instance", **size, "amount": chance.randint(1, 4)}
            case _:
                return {"resource_type": "physical:host", "min": 1, "max": chance.randint(1, 2)}

    def _some(self, chance: Random, kind: str) -> str:
        names = sorted(name for name, one in self._last.items() if one.kind == kind and not one.removed)
        return chance.choice(names) if names else "nobody"

    def _update(self, process: LeaseProcess, chance: Random) -> Callable[[], Any]:
        name, now = self._some(chance, LEASE.kind), EPOCH + self.loop.time()
        found = self._last.get(name)
        given: dict[str, Any] = {"name": f"lease {chance.randrange(100)}"}
        match chance.randrange(4):
            case 0:
                given = {"end_date": "now"}
            case 1:
                given["end_date"] = format_time(now + chance.random() * 150)
            case 2 if found is not None:
                reservations = [one for one in read_lease(found).spec.reservations if "min" in one.details]
                given["reservations"] = [{"id": one.id, "min": 1, "max": chance.randint(1, 3)} for one in reservations]
        return lambda: process.plugin.leases.update(ME, name, given)

    def _delete(self, process: LeaseProcess, chance: Random) -> Callable[[], Any]:
        name = self._some(chance, LEASE.kind)
        return lambda: process.plugin.leases.delete(ME, name)

    def _recover(self, process: LeaseProcess, chance: Random) -> Callable[[], Any]:
        broken = sorted(name for name, one in self._last.items() if one.kind == LEASE.kind and one.state == "ERROR")
        name = chance.choice(broken) if broken else "nobody"
        return lambda: process.plugin.leases.recover(ME, name)

    def _fail(self, process: LeaseProcess, chance: Random) -> Callable[[], Any]:
        name = chance.choice(HOSTS)
        return lambda: process.plugin.hosts.fail(ME, name)

    def _cure(self, process: LeaseProcess, chance: Random) -> Callable[[], Any]:
        name = chance.choice(HOSTS)
        return lambda: process.plugin.hosts.recover(ME, name)

    async def _chaos(self) -> None:
        chance = self.chance("chaos")
        while True:
            await asyncio.sleep(chance.expovariate(1 / 8.0))
            if not self.up:
                continue
            process, blow = chance.choice(self.up), chance.randrange(4)
            self.note(f"chaos: {('kill', 'stop', 'cut', 'leave')[blow]} {process.name}")
            if blow == 0:
                process.kill()
            elif blow == 1:
                process.stop()
                self.loop.call_later(chance.random() * 12, process.go_on)
            elif blow == 2:
                process.link.cut_until = self.loop.time() + chance.random() * 12
                process.link.silent = chance.random() < 0.5
            else:
                process.leave()
            if sum(not one.dead for one in self.processes) < 3:
                self.loop.call_later(chance.random() * 6, self.add_process)


def simulate(seed: int) -> Outcome:
    """Run one world."""
    return LeaseWorld(seed).run()
