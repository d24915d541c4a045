"""Reconciler: compares all VMs and resources with their providers, applies drift, and reports orphan machines.

Each process with a worker runs it, and one process does the rounds over all connections: it claims each round by
compare-and-set on a record. The same process does all of them while it lives, because it remembers for how long a
machine was missing or its provider silent. Two rounds at the same time do no harm, because the engine refuses evidence
that is not newer.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from random import Random
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from stateward.aio.backoff import GrowingIntervals
from stateward.aio.supervise import repeat
from stateward.domains.mci import model
from stateward.domains.mci.control.drift import (
    OrphanSubnetFinder,
    apply_vm_drift,
    resource_drift,
    resources_by_connection,
)
from stateward.domains.mci.control.machine_claims import remove_void_claims
from stateward.domains.mci.control.orphan_machines import ListedConnection, orphans_in, owned_until
from stateward.domains.mci.control.status_rollup import STATE_OF_EVENT, rollup_event
from stateward.domains.mci.control.status_updater import MciStatusUpdater
from stateward.domains.mci.lifecycle import MCI, NAMESPACE, VM, VmState
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.provider.key_pairs import remove_ownerless_keys
from stateward.domains.mci.provider.provider_client import ProviderClient
from stateward.domains.mci.provider.provider_pool import ProviderClients
from stateward.domains.mci.shared_schemas import OrphanMachine
from stateward.drivers import MachineListing, Observation
from stateward.engine import AlreadyExists, Denied, Engine
from stateward.engine.queries import list_all
from stateward.engine.troubles import FaultIsolation
from stateward.errors import StatewardError
from stateward.lifecycle import CONTROLLER, PROVIDER, TRANSITIONAL
from stateward.naming import new_id
from stateward.store.errors import StoreError
from stateward.store.filters import Selector
from stateward.store.records import Key, Object

log = logging.getLogger("stateward.mci")

RECONCILE_INTERVAL_S = 30.0
"""Time between two rounds over all connections."""

TAKEOVER_INTERVALS = 3.0
"""After how many intervals without a round another process takes the rounds over."""

MAX_LISTINGS = 3
"""Listings of a connection per round, at most, until one is complete."""

MAX_CONCURRENT_CONNECTIONS = 8
"""Connections that one round lists concurrently."""

ROUND_RECORD = Key(model.DEPLOYMENT_NS, "round")


class RoundHolder(Struct, frozen=True):
    """The reconciler that does the rounds."""

    holder: str = ""


round_holder = model.seen_reader(RoundHolder)


class Reconciler:
    """Applies the drift of VMs and resources."""

    def __init__(
        self,
        engine: Engine,
        catalogue: Catalogue,
        clients: ProviderClients,
        chance: Random,
        saved: Callable[[str, int], None],
        *,
        every: float = RECONCILE_INTERVAL_S,
    ) -> None:
        self._engine, self._catalogue, self._clouds = engine, catalogue, clients
        self._chance, self._saved, self._every = chance, saved, every
        self._holder = new_id()  # who does the rounds, as their record has it
        self.status_updater = MciStatusUpdater(engine, chance)
        self._orphan_subnets = OrphanSubnetFinder()
        self._log_intervals = GrowingIntervals(monotonic)
        self._faults = FaultIsolation(log)

    # --- rounds ------------------------------------------------------------------------------------------------------

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Reconcile all connections from time to time until cancelled."""

        def interval_s() -> float:
            return self._every * self._chance.uniform(0.7, 1.3)

        async def run_once() -> None:
            orphans = await self.reconcile_all() if await self._claim_round() else []
            for connection, count in Counter(orphan.connection for orphan in orphans).items():
                if self._log_intervals.is_due((connection, count)):
                    log.warning(
                        "connection %s: %d machines are orphans; `stateward mci orphans` lists them", connection, count
                    )

        await repeat("reconciler of VMs", run_once, interval_s, log, transient=StoreError, sleep=sleep)

    async def _claim_round(self) -> bool:
        """Claim the round, unless it was claimed within the interval, or another process does the rounds."""
        reader, seen = self._engine.store.reader, RoundHolder(self._holder)
        record = await reader.object(ROUND_RECORD)
        try:
            if record is None:
                await self._engine.create(*ROUND_RECORD, NAMESPACE.kind, "register", actor=CONTROLLER, seen=seen)
                return True
            intervals = 0.6 if round_holder(record).holder in ("", self._holder) else TAKEOVER_INTERVALS
            if record.since > await reader.time() - self._every * intervals:
                return False
            await self._engine.act(*ROUND_RECORD, "change", actor=CONTROLLER, version=record.version, seen=seen)
        except (AlreadyExists, Denied):
            return False
        return True

    async def reconcile_all(self) -> list[OrphanMachine]:
        """Compare all VMs with their providers; returns the orphan machines."""
        records, parts = await self._read_vms(), await resources_by_connection(self._engine.store.reader)
        # A connection that does not answer must not delay the others.
        at_once = asyncio.Semaphore(MAX_CONCURRENT_CONNECTIONS)

        async def look_at(connection: model.CloudConnection) -> ListedConnection | None:
            name, unowned = connection.name, None
            async with at_once:
                with self._faults.isolate(f"look at connection {name}"):
                    unowned = await self._reconcile_connection(connection, records.get(name, {}), parts.get(name, []))
            return unowned

        looks = await asyncio.gather(*map(look_at, await self._catalogue.all_connections()))
        unowned = [look for look in looks if look is not None and look.listing.machines]
        with self._faults.isolate("removal of keys without an MCI"):
            await remove_ownerless_keys(self._engine)
        with self._faults.isolate("removal of claims without a VM"):
            await remove_void_claims(self._engine)
        await self._mark_stale_mcis(vm for known in records.values() for vm in known.values())
        records.clear()  # what follows reads all VMs again; two copies of all of them are too much
        parts.clear()
        owned = await self._owned_until({machine.key for look in unowned for machine in look.listing.machines})
        return [] if owned is None else [orphan for look in unowned for orphan in orphans_in(look, owned)]

    async def _reconcile_connection(
        self, connection: model.CloudConnection, known: dict[str, Object], parts: list[Object]
    ) -> ListedConnection | None:
        """Apply the drift of a connection; returns its machines that none of its VMs owns, if it was listed."""
        unowned: ListedConnection | None = None
        try:
            if known or (connection.enabled and connection.driver != "simulated"):
                unowned = await self._reconcile_vms(connection, known)
            if parts:
                await self._reconcile_resources(connection, parts)
        except StoreError:
            raise
        except StatewardError as error:  # another process has the cloud's file, or its driver cannot be created here
            if self._log_intervals.is_due((connection.name, str(error))):
                log.warning("connection %s: not reconciled: %s", connection.name, error)
        return unowned

    async def _all_vms(self) -> AsyncIterator[Object]:
        for ns in await self._engine.store.reader.namespaces():
            async for record in list_all(self._engine.store.reader, Selector(ns, VM.kind)):
                yield record

    async def _read_vms(self) -> dict[str, dict[str, Object]]:
        """Return all VMs, by connection and uid."""
        records: dict[str, dict[str, Object]] = defaultdict(dict)
        async for record in self._all_vms():
            with self._faults.isolate(f"reading of VM {record.id} in {record.ns}"):
                vm = model.vm_of(record)
                records[vm.connection][vm.uid] = record
        return records

    async def _owned_until(self, keys: Collection[str]) -> dict[str, float] | None:
        """Return until when machines belong to VMs, at any connection: several may lead to the same region.

        The VMs are read after the listings, because a machine created meanwhile is no orphan. None: a record could not
        be read, and any of the machines may belong to it.
        """
        if not keys:
            return {}
        owned: dict[str, float] = {}
        found_all = read_all = 0
        async for record in self._all_vms():
            found_all += 1
            with self._faults.isolate(f"reading of VM {record.id} in {record.ns}"):
                owned |= {key: until for key, until in owned_until([record]).items() if key in keys}
                read_all += 1
        return owned if read_all == found_all else None

    async def _mark_stale_mcis(self, vms: Iterable[Object]) -> None:
        """Mark MCIs whose state differs from their VMs: the process that should update them may have died."""
        states: dict[Key, list[str]] = defaultdict(list)
        for vm in vms:
            states[Key(vm.ns, vm.parent or "")].append(vm.state)
        for ns in await self._engine.store.reader.namespaces():
            async for mci in list_all(self._engine.store.reader, Selector(ns, MCI.kind)):
                rests = MCI.state(mci.state).state_class is not TRANSITIONAL
                if rests and STATE_OF_EVENT[rollup_event(states.get(mci.key, ()))] != mci.state:
                    self.status_updater.mark_dirty(mci.key)

    async def _reconcile_vms(self, connection: model.CloudConnection, known: dict[str, Object]) -> ListedConnection:
        client = await self._clouds.for_connection(connection)
        listing = await _list_repeatedly(client)
        as_of = client.store_time(listing.as_of, await self._engine.store.reader.time())
        self._saved(connection.provider, max(0, len(known) - 1))
        # The connection may lead elsewhere since the VMs were created, and that place knows nothing about them.
        there = [vm for vm in known.values() if model.vm_of(vm).lane == client.lane]
        await apply_vm_drift(self._engine, client, listing, there)
        if not listing.complete and self._log_intervals.is_due((connection.name, listing.problem)):
            log.warning("connection %s: the listing was not complete: %s", connection.name, listing.problem)
        owned = {uid for uid, vm in known.items() if vm.state != VmState.TERMINATED}
        unowned = [machine for machine in listing.machines if machine.key not in owned]
        return ListedConnection(connection, replace(listing, machines=unowned), as_of)

    async def _reconcile_resources(self, connection: model.CloudConnection, parts: list[Object]) -> None:
        client = await self._clouds.for_connection(connection)
        now = await self._engine.store.reader.time()
        until, lane = now - client.driver.caps.listing_lag_s, client.lane
        settled = [
            resource for resource in parts if resource.since <= until and model.resource_identity(resource).lane == lane
        ]
        if not settled or not client.driver.caps.has_resources:
            return
        listing = await client.list_resources()
        for part in self._orphan_subnets.find(settled, listing.resources, now):
            with suppress(Denied):  # the operation that holds the network will reshape it
                await self._engine.act(
                    *part.key, "reshape", actor=CONTROLLER, version=part.version, spec=model.network_of(part)
                )
        for part, event, missing in resource_drift(client, settled, listing, now):
            with suppress(Denied):
                seen = replace(model.resource_seen(part), missing=missing)
                await self._engine.act(*part.key, event, actor=PROVIDER, version=part.version, seen=seen)


async def _list_repeatedly(client: ProviderClient) -> MachineListing:
    """List until a listing is complete; incomplete listings count together, for a provider that loses pages answers."""
    shown: dict[str, Observation] = {}
    first = client.clock()
    for _ in range(MAX_LISTINGS):
        listing = await client.list_now()
        if listing.complete:
            return listing
        shown |= {machine.key: machine for machine in listing.machines}
    return replace(listing, machines=list(shown.values()), requested_at=first)
