"""Live status: the current states of VMs from their providers, for readers, with few provider calls.

VMs that are Terminated, Failed or Suspended do not change by themselves and are not checked. The others cost one
listing per connection, however many VMs and readers there are. Readers share a running listing. A recent listing serves
too: a few seconds old for a plain status, at most as old as the connection's option `fresh` says for a fresh status.

Drift that a listing shows is applied, as the reconciler does.

Invariant: a reader waits for a limited time, for all connections together. A connection that does not answer does not
delay the states from the others.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.mci.control.drift import apply_vm_drift
from stateward.domains.mci.lifecycle import VM, VmState
from stateward.domains.mci.model import VmSeen, seen_of, vm_of, vm_seen
from stateward.domains.mci.provider.provider_client import ProviderClient
from stateward.domains.mci.provider.provider_pool import ProviderClients
from stateward.drivers import MachineListing
from stateward.engine import Engine
from stateward.errors import StatewardError
from stateward.lifecycle import TRANSITIONAL
from stateward.store.records import Object

FRESH_LISTING_S = 1.0
"""How long a listing serves fresh status requests, unless the connection has the option."""

RECENT_LISTING_S = 10.0
"""How long a listing serves plain status requests, at least."""

PLAIN_WAIT_S, FRESH_WAIT_S = 1.0, 10.0
"""How long a plain and a fresh status request wait for providers, at most."""

SETTLED_STATES = frozenset({VmState.TERMINATED, VmState.FAILED, VmState.SUSPENDED})
NOT_LISTED, UNKNOWN = "not listed", "unknown"
"""The native state of a VM that its provider does not show, or did not answer about."""

OnCallsSaved = Callable[[str, int], None]


class LiveResult(Struct, frozen=True):
    """The states shown by VM id, and the number of changed records."""

    shown: dict[str, VmSeen]
    changed: int


class StatusQuery(Struct, frozen=True):
    """A reader's query: the store's time, the time limit, and whether a fresh status is wanted."""

    engine: Engine
    now: float
    timeout_s: float
    fresh: bool

    def needs_check(self, vm: Object) -> bool:
        """Tell whether a VM may have changed by itself.

        A VM with an operation is observed by its handler. A VM that has just changed was observed then.
        """
        if vm.state in SETTLED_STATES:
            return False
        at_rest = VM.state(vm.state).state_class is not TRANSITIONAL
        return self.fresh or (at_rest and vm.since <= self.now - RECENT_LISTING_S)


class WaitBudget:
    """The remaining time that one response may wait for providers, over all its MCIs."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._began = clock, clock()

    def remaining_s(self, *, fresh: bool) -> float:
        """Return how many seconds the response may still wait."""
        return max(0.0, self._began + (FRESH_WAIT_S if fresh else PLAIN_WAIT_S) - self._clock())


class LiveStatus:
    """Refreshes the states of VMs for readers."""

    def __init__(self, clients: ProviderClients, saved: OnCallsSaved, *, serves: float = FRESH_LISTING_S) -> None:
        self._clients, self._saved, self._serves = clients, saved, serves

    async def refresh(self, engine: Engine, vms: Sequence[Object], timeout_s: float, *, fresh: bool) -> LiveResult:
        """Compare VMs with their providers' listings and apply the drift."""
        by_connection: dict[tuple[str, str], list[Object]] = defaultdict(list)
        for vm in vms:
            by_connection[vm_of(vm).connection, vm_of(vm).lane].append(vm)
        query = StatusQuery(engine, await engine.store.reader.time(), timeout_s, fresh)
        reads = (self._refresh_connection(query, *place, known) for place, known in by_connection.items())
        results = await asyncio.gather(*reads)
        shown = {id_: seen for result in results for id_, seen in result.shown.items()}
        return LiveResult(shown, sum(result.changed for result in results))

    async def _refresh_connection(
        self, query: StatusQuery, connection: str, lane: str, known: Sequence[Object]
    ) -> LiveResult:
        asked = [vm for vm in known if query.needs_check(vm)]
        listing, calls, changed = None, 0, 0
        if asked:
            try:
                client = await self._clients.for_lane(connection, lane)
                listing, calls = await self._listing(client, query, max(vm.since for vm in asked))
                changed = 0 if listing is None else await apply_vm_drift(query.engine, client, listing, asked)
            except StatewardError:  # the connection or its driver does not exist any more, so nothing is known
                listing = None
        self._saved(vm_of(known[0]).provider, len(known) - calls)
        return LiveResult(_shown(asked, listing) if query.fresh else {}, changed)

    async def _listing(
        self, client: ProviderClient, query: StatusQuery, since: float
    ) -> tuple[MachineListing | None, int]:
        """Return a recent listing, or None if there is none in time, and the number of calls it cost.

        A listing from before the last change of a VM (`since`) proves nothing about it.
        """
        serves = self._serves if client.listing_ttl_s is None else client.listing_ttl_s
        recent = client.recent_listing(min(query.now - since, serves if query.fresh else max(serves, RECENT_LISTING_S)))
        if recent is not None:
            return recent, 0
        calls = int(not client.is_listing)
        try:
            # A provider that did not answer last time is listed again, but only a fresh status waits for it.
            async with asyncio.timeout(query.timeout_s if query.fresh or client.is_answering else 0.0):
                return await client.list_shared(), calls
        except TimeoutError:
            return None, calls


def _shown(asked: Sequence[Object], listing: MachineListing | None) -> dict[str, VmSeen]:
    """Return what a listing shows of VMs, by VM id."""
    shown = {} if listing is None else {machine.key: seen_of(machine) for machine in listing.machines}
    silence = NOT_LISTED if listing is not None and listing.complete else UNKNOWN
    return {vm.id: shown.get(vm_of(vm).uid) or replace(vm_seen(vm), native_state=silence) for vm in asked}
