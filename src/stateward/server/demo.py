"""The demo: a small fleet on simulated clouds, and a user who never leaves it alone.

It moves the kinds of those domains that do not show themselves. The objects are made when the server first starts with
the demo, in a namespace of their own, and live on from then on. The user suspends, resumes, reboots and repairs them, a
few times a second; timers start and end the leases; and a controller keeps the wholes in step with their parts.
Everything goes the way that a real user's requests go.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from random import Random

from msgspec import Struct

from stateward.domains.registry import lifecycle_of
from stateward.engine import Accepted, AlreadyExists, Denied, Engine
from stateward.lifecycle import CONTROLLER, FORCE, NO_FACTS, TRANSITIONAL, USER
from stateward.store.errors import StoreError
from stateward.store.records import Key, Object, Timer
from stateward.store.selection import Selector

log = logging.getLogger("stateward.demo")

NS = "demo"
WHO = "the demo's user"
PAUSE = 0.4
"""How many seconds pass between two things that the user does, about."""

LEASE_WAITS, LEASE_LASTS = 8.0, 20.0


class Member(Struct, frozen=True):
    """An object of the fleet: how it is born, and whose part it is."""

    kind: str
    id: str
    born: tuple[str, ...] = ("create",)
    parent: str | None = None
    provider: str = ""
    region: str = ""
    queue: str | None = None


class Habit(Struct, frozen=True):
    """What is done to objects of a kind in one of these states: one of these events, by whom, with what facts."""

    states: tuple[str, ...]
    events: tuple[str, ...]
    actor: str = USER
    facts: frozenset[str] = NO_FACTS


FLEET = (
    #      kind                id             born                    parent       provider    region
    Member("mci.mci",          "shop"),
    Member("mci.vm",           "shop-web-1",  ("create",),            "shop",      "aws",      "ap-northeast-2"),
    Member("mci.vm",           "shop-web-2",  ("create",),            "shop",      "aws",      "eu-north-1"),
    Member("mci.vm",           "shop-db",     ("create",),            "shop",      "gcp",      "europe-west4"),
    Member("mci.mci",          "lab"),
    Member("mci.vm",           "lab-1",       ("create",),            "lab",       "azure",    "westeurope"),
    Member("mci.vm",           "lab-2",       ("create",),            "lab",       "azure",    "westeurope"),
    Member("ovc.vm",           "ledger",      ("define", "deploy"),   None,        "ovc",      "node-1"),
    Member("ovc.disk",         "ledger-data", ("define", "assign"),   "ledger",    "ovc",      "node-1", "ledger"),
    Member("ovc.disk",         "ledger-logs", ("define", "create"),   "ledger",    "ovc",      "node-1", "ledger"),
    Member("ovc.vm",           "builder",     ("define", "deploy"),   None,        "ovc",      "node-2"),
    Member("leases.lease",     "gpu-night"),
    Member("leases.lease",     "gpu-day"),
    Member("edge.cloudlet",    "oslo",        ("create",),            None,        "edge",     "oslo"),
    Member("edge.clusterinst", "oslo-k8s",    ("create",),            "oslo",      "edge",     "oslo"),
    Member("systems.system",   "billing"),
    Member("systems.service",  "billing-api", ("define",),            "billing"),
    Member("systems.service",  "billing-jobs", ("define",),           "billing"),
)  # fmt: skip

HABITS: dict[str, tuple[Habit, ...]] = {
    "mci.mci": (),
    "mci.vm": (
        Habit(("Running",), ("suspend", "reboot")),
        Habit(("Suspended",), ("resume",)),
        Habit(("Failed", "Undefined"), ("resume",), facts=frozenset({FORCE})),
    ),
    "ovc.vm": (
        Habit(("RUNNING",), ("pause", "stop", "reboot")),
        Habit(("PAUSED",), ("resume",)),
        Habit(("HALTED",), ("start",)),
        Habit(("VIRTUAL", "ERROR"), ("deploy",)),
    ),
    "ovc.disk": (
        Habit(("ASSIGNED",), ("detach",)),
        Habit(("CREATED",), ("attach",)),
        Habit(("MODELED", "ERROR"), ("create",)),
    ),
    "leases.lease": (Habit(("PENDING", "ACTIVE"), ("update",)), Habit(("TERMINATED", "ERROR"), ("delete",))),
    "edge.cloudlet": (Habit(("Ready",), ("upgrade",)), Habit(("Offline",), ("create",))),
    "edge.clusterinst": (Habit(("Ready", "UpdateError"), ("update",)), Habit(("NotPresent",), ("create",))),
    "systems.system": (Habit(("failed",), ("retry",)),),
    "systems.service": (
        Habit(("stable",), ("updating", "scaling", "degraded"), CONTROLLER),
        Habit(("pending", "updating", "scaling", "degraded", "failed"), ("stable",), CONTROLLER),
    ),
}

SUMS = {
    "Running": "all running",
    "Suspended": "all suspended",
    "Terminated": "all terminated",
    "Failed": "all failed",
    "Undefined": "none can say",
}
"""What an MCI is told when all of its VMs are in one state."""


class Demo:
    """Makes the fleet and keeps it alive."""

    def __init__(
        self,
        engine: Engine,
        chance: Random,
        *,
        kinds: Collection[str] | None = None,
        pause: float = PAUSE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engine, self._chance, self._pause, self._sleep = engine, chance, pause, sleep
        self._fleet = [member for member in FLEET if kinds is None or member.kind in kinds]

    async def run(self) -> None:
        """Live, until cancelled; a store that is away for a while is waited for."""
        while self._fleet:
            try:
                await self.make_fleet()
                while True:
                    await self.act_once()
                    await self._sleep(self._chance.uniform(0.5, 1.5) * self._pause)
            except StoreError as error:
                log.warning("the demo waits for the store: %s", error)
                await self._sleep(5.0)

    async def make_fleet(self) -> None:
        """Make what is not there yet."""
        for member in self._fleet:
            found = await self._found(member)
            if found is None or found.removed:
                await self._bear(member)

    async def act_once(self) -> None:
        """Do one thing to one object, if there is something to be done."""
        member = self._chance.choice(self._fleet)
        found = await self._found(member)
        with suppress(Denied):  # somebody else was faster: that is what the fleet is for
            if found is None or found.removed:
                await self._bear(member)
            elif member.kind == "mci.mci":
                await self._command(found)
            else:
                await self._indulge(found)

    async def _found(self, member: Member) -> Object | None:
        return await self._engine.store.reader.object(Key(NS, member.id))

    # --- being born --------------------------------------------------------------------------------------------------

    async def _bear(self, member: Member) -> None:
        first, *rest = member.born
        spec = {"provider": member.provider, "region": member.region} if member.provider else {}
        actor = CONTROLLER if member.kind == "systems.service" else USER
        with suppress(AlreadyExists):
            made = await self._engine.create(
                NS,
                member.id,
                member.kind,
                first,
                spec=spec,
                labels={"fleet": "demo", **spec},
                parent=member.parent,
                queue=member.queue,
                actor=actor,
                who=WHO,
            )
            for action in rest:
                await self._engine.act(NS, member.id, action, who=WHO)
            if member.kind == "leases.lease":
                await self._set_timers(made)

    async def _set_timers(self, made: Accepted) -> None:
        start = made.object.created + LEASE_WAITS * self._chance.uniform(0.5, 1.5)
        end = start + LEASE_LASTS * self._chance.uniform(0.5, 1.5)
        for event, due in (("start", start), ("end", end)):
            await self._engine.set_timer(
                Timer(NS, f"{event} of {made.object.id}", due, 0, made.object.id, event, "[]", "{}")
            )

    # --- living ------------------------------------------------------------------------------------------------------

    async def _indulge(self, found: Object) -> None:
        """Do to an object what its habits say about the state that it is in."""
        for habit in HABITS[found.kind]:
            if found.state in habit.states:
                event = self._chance.choice(habit.events)
                await self._engine.act(NS, found.id, event, actor=habit.actor, facts=habit.facts, who=WHO)
                return

    async def _command(self, found: Object) -> None:
        """Bring an MCI in step with its VMs; or let it do something with all of them."""
        counts = await self._engine.store.reader.count_states(Selector(NS, "mci.vm", found.id))
        states = {state for _, state in counts}
        if lifecycle_of(found.kind).state(found.state).state_class is TRANSITIONAL:
            return
        told = SUMS.get(next(iter(states)), "mixed") if len(states) == 1 else "mixed"
        if SUMS.get(found.state, "mixed") != told:
            await self._engine.act(NS, found.id, told, actor=CONTROLLER, who=WHO)
        elif self._chance.random() < 0.3:
            await self._all(found, "resume" if "Suspended" in states else "suspend")

    async def _all(self, found: Object, action: str) -> None:
        whole = self._engine.request(NS, found.id, action, who=WHO)
        each = self._engine.request(NS, "", action, who=WHO)
        await self._engine.group(whole, Selector(NS, "mci.vm", found.id), each)
