"""Controller leases: when a controller process dies, the others mark its agents as disconnected.

A controller is an object with a timer that it keeps moving forward. If the controller dies, the timer fires in another
process and ends the object. The other controllers then record the loss of its connections.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from stateward.agents.connection import ConnectionId
from stateward.domains.edge.lifecycle import CLOUDLET, LISTENER
from stateward.domains.edge.model import CONTROLLER_NS, ControllerSpec, cloudlet_status, read_spec
from stateward.engine import Denied, Engine
from stateward.engine.queries import list_all
from stateward.lifecycle import CONTROLLER
from stateward.naming import new_id
from stateward.store.errors import StoreError
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Timer

CONTROLLER_LEASE_S = 15.0
"""Seconds without a renewal after which a controller counts as dead."""


class ControllerLease:
    """This controller's lease; `on_expired` is called when it takes a new one, because its agents count as lost."""

    def __init__(
        self,
        engine: Engine,
        url: str,
        on_expired: Callable[[], Awaitable[None]],
        *,
        lease_s: float = CONTROLLER_LEASE_S,
    ) -> None:
        self._engine, self._url, self._on_expired, self._lease_s = engine, url, on_expired, lease_s
        self._has_expired = False
        self._works = False
        self.id = f"controller-{new_id()}"

    async def acquire(self, *, works: bool) -> None:
        """Take the lease; the sole user of a database ends the leases of former controllers at once."""
        self._works = works
        await self._renew()
        if await self._engine.store.is_sole_user():
            for other in await self._other_controllers():
                await self._end_controller(other.id)

    async def release(self) -> None:
        """End the lease."""
        with suppress(StoreError):
            await self._end_controller(self.id)

    async def keep_renewing(self) -> None:
        """Renew the lease three times per period, in a loop."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            with suppress(StoreError):
                await self._renew()

    async def lost_connections(self) -> list[ConnectionId]:
        """Return the connections of controllers whose lease has ended.

        The controllers are read last: one that starts meanwhile, and takes agents over, is among them.
        """
        reader = self._engine.store.reader
        namespaces = await reader.namespaces()
        cloudlets = [cloudlet for ns in namespaces async for cloudlet in list_all(reader, Selector(ns, CLOUDLET.kind))]
        alive = {self.id, *(controller.id for controller in await self._other_controllers())}
        return [lost for cloudlet in cloudlets for lost in _lost_connections(cloudlet, alive)]

    async def is_first_worker(self) -> bool:
        """Tell whether this controller is the first of those that have a worker: one of them applies the policies.

        After the death of the first one, that is another one as soon as its lease has ended.
        """
        others = [
            controller.id
            for controller in await self._other_controllers()
            if read_spec(controller, ControllerSpec).works
        ]
        return self._works and all(self.id < other for other in others)

    async def _renew(self) -> None:
        """Extend the lease by one period; a controller whose lease has expired takes a new one."""
        record = await self._engine.store.reader.object(Key(CONTROLLER_NS, self.id))
        if record is None or record.removed:
            self._has_expired = True
            spec = ControllerSpec(self._url, self._works)
            await self._engine.create(CONTROLLER_NS, self.id, LISTENER.kind, "listen", actor=CONTROLLER, spec=spec)
        now = await self._engine.store.reader.time()
        await self._engine.set_timer(
            Timer(CONTROLLER_NS, f"lapse of {self.id}", now + self._lease_s, 0, self.id, "lapse", "[]", "{}")
        )
        if self._has_expired:  # noted before, because the answer to the creation may be lost
            await self._on_expired()
            self._has_expired = False

    async def _other_controllers(self) -> list[Object]:
        controllers = list_all(self._engine.store.reader, Selector(CONTROLLER_NS, LISTENER.kind))
        return [controller async for controller in controllers if controller.id != self.id]

    async def _end_controller(self, controller: str) -> None:
        with suppress(Denied):
            await self._engine.act(CONTROLLER_NS, controller, "leave", actor=CONTROLLER)
        await self._engine.unset_timer(CONTROLLER_NS, f"lapse of {controller}")


def _lost_connections(cloudlet: Object, alive: set[str]) -> list[ConnectionId]:
    status = cloudlet_status(cloudlet)
    held = ((status.serving, status.controller), (status.heir, status.heir_controller))
    return [ConnectionId(cloudlet.key, notify) for notify, where in held if notify and where not in alive]
