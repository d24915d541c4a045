"""The steward: what follows from what has happened, beside the users' wishes.

Instances that have come to rest are noted with their apps, idle clusters are freed, and apps are deployed by demand.
Everything is checked again inside the transaction, so any number of stewards may be at it at once.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from stateward.domains.edge.lifecycle import APP, APPINST, AUTOPROV, CLOUDLET, CLUSTERINST, AppInstState
from stateward.domains.edge.lookups import NOT_PRESENT, cluster_of, is_online
from stateward.domains.edge.model import AUTO, AppSpec, AutoprovSpec, marks_of, spec_of
from stateward.domains.edge.policy.app_members import app_marks
from stateward.domains.edge.policy.cluster_release import idle_again, release, retire
from stateward.domains.edge.policy.demand import planned
from stateward.domains.edge.service import EdgeCaller, Service
from stateward.engine import Denied
from stateward.engine.troubles import FaultIsolation
from stateward.store.errors import StoreError
from stateward.store.filters import Page, Selector
from stateward.store.records import JournalEntry, Key, Object

log = logging.getLogger("stateward.edge")

EVERY = 30.0
"""How many seconds pass between two looks at all apps that have a policy."""

PAGE = 500

AT_REST = (AppInstState.NOT_PRESENT, AppInstState.READY, AppInstState.CREATE_ERROR)
BY_DEMAND = EdgeCaller(who="autoprov")


class PolicyController:
    """Looks after apps and clusters."""

    def __init__(self, service: Service, *, every: float = EVERY) -> None:
        self._service, self._every = service, every
        self._reader = service.engine.store.reader
        self._faults = FaultIsolation(log)

    async def news(self, lines: Sequence[JournalEntry]) -> None:
        """Take note of instances that have come to rest."""
        for key in dict.fromkeys(
            Key(one.ns, one.object) for one in lines if one.kind == APPINST.kind and one.target in AT_REST
        ):
            with self._faults.isolate(f"release of {key.id} in {key.ns}"):
                await self.release(key)
        for key in [Key(one.ns, one.object) for one in lines if one.kind == CLUSTERINST.kind and one.event == "undone"]:
            with self._faults.isolate(f"release of {key.id} in {key.ns}"):
                await self._service.engine.store.transact(partial(idle_again, key=key))

    async def release(self, key: Key) -> None:
        """Take note of where an AppInst is now."""
        found = await self._reader.object(key)
        if found is not None:
            cluster = cluster_of(found)
            await self._service.engine.store.transact(lambda tx: release(tx, key.ns, key.id, cluster))

    async def keep_house(self) -> None:
        """Look at everything once, for what was missed while nobody was there; then at the policies, for ever."""
        await self._retire_absent()
        while True:
            with suppress(StoreError):
                await self._look_everywhere()
            await asyncio.sleep(self._every)

    async def _retire_absent(self) -> None:
        """Remove the records of instances that do not exist: earlier versions kept them."""
        for ns in await self._reader.namespaces():
            for kind in (CLUSTERINST.kind, APPINST.kind):
                absent = Selector(ns, kind, states=(NOT_PRESENT,))
                while found := await self._reader.list_objects(absent, Page(limit=PAGE)):
                    keys = [one.key for one in found]
                    await self._service.engine.store.transact(partial(retire, keys=keys))

    async def _look_everywhere(self) -> None:
        for ns in await self._reader.namespaces():
            for app in await self._service.all(ns, APP.kind):
                with self._faults.isolate(f"look at {app.id} in {ns}"):
                    await self._look_at_app(ns, app)

    async def _look_at_app(self, ns: str, app: Object) -> None:
        keys = [Key(ns, member) for member in app_marks(app).members]
        found = await self._reader.objects(keys)
        for key in keys:
            one = found.get(key)
            if one is None or one.state == NOT_PRESENT or key.id in app_marks(app).leaving:
                await self.release(key)
        await self.provide(ns, app)

    async def _missing(self, ns: str, app: Object) -> set[str]:
        """Return the instances of an app that are not there, as their agents say."""
        found = await self._reader.objects([Key(ns, member) for member in app_marks(app).members])
        return {one.id for one in found.values() if marks_of(one).missing}

    async def provide(self, ns: str, app: Object) -> None:
        """Deploy an app where it is wanted, and remove it where it is not."""
        name = app.id.partition(".")[2]
        policy_name = spec_of(app, AppSpec).autoprov
        found = await self._reader.object(Key(ns, f"{AUTOPROV.kind.partition('.')[2]}.{policy_name}"))
        if not policy_name or found is None or found.removed:
            return
        policy = spec_of(found, AutoprovSpec)
        online = {one.id for one in await self._service.all(ns, CLOUDLET.kind) if is_online(one)}
        plan = planned(policy, app_marks(app), online, await self._missing(ns, app))
        for cloudlet in plan.deploy:
            with suppress(Denied):
                await self._service.create_app(ns, cloudlet, f"{AUTO}-{name}"[:63], name, BY_DEMAND)
        for member in plan.remove:
            with suppress(Denied):
                await self._service.delete(ns, member, APPINST.kind, BY_DEMAND)
