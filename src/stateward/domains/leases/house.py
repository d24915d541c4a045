"""The wing of the leases: their kinds with guards and handlers, and their routes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from uuid import uuid4

from stateward.domains.leases import actions, changing, healing
from stateward.domains.leases.api import routes
from stateward.domains.leases.books import HostBooks
from stateward.domains.leases.guard import LeaseGuard
from stateward.domains.leases.hostguard import host_guard
from stateward.domains.leases.hosts import Hosts
from stateward.domains.leases.lifecycle import EVENT, HOST, LEASE, NOTICE, PROPERTY, RESERVATION
from stateward.domains.leases.notices import deliver
from stateward.domains.leases.policy import filters_of
from stateward.domains.leases.pools import Pools
from stateward.domains.leases.resources import Instances, Mcis, PhysicalHosts, Resource, Resources
from stateward.domains.leases.resting import come_to_rest
from stateward.domains.leases.service import Caller, Leases
from stateward.domains.leases.settings import Settings
from stateward.domains.leases.times import ASKED
from stateward.domains.leases.workshop import Workshop
from stateward.domains.wing import Site, Wing
from stateward.engine import Denied, Engine, Handler, Job, Kind, Temporary
from stateward.store.errors import StoreError

Work = Callable[[Workshop, Job], Awaitable[object]]

WORK: dict[str, Work] = {
    "create": actions.create,
    "start": actions.start,
    "end": actions.end,
    "delete": actions.delete,
    "update": changing.update,
    "heal": healing.heal,
}
PREFIX = "leases"


class LeasesWing(Wing):
    """Leases in a process; `more` are further types of resources."""

    def __init__(
        self,
        site: Site,
        settings: Settings | None = None,
        more: Sequence[Resource] = (),
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._site = site
        self._new_id = new_id
        self._settings = settings or Settings()
        self._resources = Resources([PhysicalHosts(), Instances(), Mcis(site.templates), *more])
        self._shop: Workshop | None = None
        guard = LeaseGuard(self._resources, notifies=bool(self._settings.check_url))
        handlers = {name: Handler(self._handler(work)) for name, work in WORK.items()}
        kinds = [
            Kind(
                LEASE, handlers, guard=guard, lock_set=guard.company, on_end=come_to_rest, cancels=False, general=True
            ),
            Kind(RESERVATION),
            Kind(EVENT),
            Kind(HOST, guard=host_guard, general=True),
            Kind(PROPERTY, general=True),
            Kind(NOTICE, {"deliver": Handler(self._handler(deliver))}),
        ]
        super().__init__(kinds, routes(lambda: self.leases, lambda: self.hosts))

    def attach(self, engine: Engine) -> None:
        """Get to know the engine."""
        self._shop = Workshop(
            engine,
            HostBooks(engine.store, self._site.chance),
            Pools(engine.store.reader),
            self._resources,
            filters_of(self._settings),
        )

    @property
    def leases(self) -> Leases:
        """The leases, for whoever asks for them."""
        return Leases(_there(self._shop), self._settings.before_end, self._new_id)

    @property
    def hosts(self) -> Hosts:
        """The hosts, for whoever asks for them."""
        return Hosts(_there(self._shop).engine, self._settings.cleaning)

    def _handler(self, work: Work) -> Callable[[Job], Awaitable[object]]:
        async def run(job: Job) -> object:
            return await work(_there(self._shop), job)

        return run

    async def show(self, engine: Engine) -> None:  # noqa: ARG002 - it was attached before
        """Reserve a host of a small pool for a minute, again and again."""
        caller = Caller("demo", "the demo's user")
        for number in range(4):
            with suppress(Denied):
                await self.hosts.register(caller, {"name": f"rack-{number}", "vcpus": 16, "memory_mb": 65536})
        while True:
            with suppress(Denied, StoreError, TimeoutError):
                await self._show_one(caller)
            await asyncio.sleep(20.0)

    async def _show_one(self, caller: Caller) -> None:
        for old in await self.leases.list(caller.ns):
            if old.object.state in ("TERMINATED", "ERROR"):
                await self.leases.delete(caller, old.object.id)
        now = await self.leases.engine.store.reader.time()
        end = datetime.fromtimestamp(now + 120, UTC).strftime(ASKED)
        wish = {"resource_type": PhysicalHosts.name, "min": 1, "max": 1}
        await self.leases.create(caller, {"name": f"until {end}", "end_date": end, "reservations": [wish]})


def wing(site: Site) -> LeasesWing:
    """Furnish the leases."""
    return LeasesWing(site, site.settings.get(PREFIX))


def _there(shop: Workshop | None) -> Workshop:
    if shop is None:
        raise Temporary("the engine is not known yet", after=0.1)
    return shop
