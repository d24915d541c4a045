"""Fresh sights: what providers show of the VMs that a reader asks about, with as few calls as can be.

VMs that are Terminated, Failed or Suspended do not change by themselves and are not asked about. The rest costs one
listing per connection, however many VMs and readers there are. A listing that is at hand serves, whoever asked for it:
for a plain status, one that is a few seconds old; for a fresh one, one that is at most as old as the connection says
(option `fresh`). Readers share a listing while it is made.

What a listing shows counts: VMs at rest that are something else are changed to it, as the regular rounds do.

Invariant: a reader waits for a bounded time only, for all connections together. A connection that does not answer does
not hold up what is known of the others.
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
"""For how many seconds a listing serves those who ask for a fresh status, where the connection does not say."""

RECENT_LISTING_S = 10.0
"""For how many seconds at least a listing serves those who ask for a plain status."""

PLAIN_WAIT_S, FRESH_WAIT_S = 1.0, 10.0
"""For how many seconds the answer to a plain status, and to a fresh one, waits for providers at most."""

SETTLED_STATES = frozenset({VmState.TERMINATED, VmState.FAILED, VmState.SUSPENDED})
NOT_LISTED, UNKNOWN = "not listed", "unknown"
"""What is shown where the provider shows nothing, or did not answer in full."""

OnCallsSaved = Callable[[str, int], None]


class LiveResult(Struct, frozen=True):
    """What a look at VMs has brought: what is shown of each, by its id, and how many records have changed by it."""

    shown: dict[str, VmSeen]
    changed: int


class StatusQuery(Struct, frozen=True):
    """What a reader wants to see, at what time of the store, and for how many seconds it waits at most."""

    engine: Engine
    now: float
    timeout_s: float
    fresh: bool

    def needs_check(self, vm: Object) -> bool:
        """Tell whether a VM may have changed by itself.

        VMs that are worked on are looked at by whoever does. One that has just changed was seen just then.
        """
        if vm.state in SETTLED_STATES:
            return False
        at_rest = VM.state(vm.state).state_class is not TRANSITIONAL
        return self.fresh or (at_rest and vm.since <= self.now - RECENT_LISTING_S)


class WaitBudget:
    """What is left of the time that one answer may wait for providers, however many MCIs it is about."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._began = clock, clock()

    def remaining_s(self, *, fresh: bool) -> float:
        """Return for how many seconds the answer may still wait."""
        return max(0.0, self._began + (FRESH_WAIT_S if fresh else PLAIN_WAIT_S) - self._clock())


class LiveStatus:
    """Looks at providers for readers."""

    def __init__(self, clients: ProviderClients, saved: OnCallsSaved, *, serves: float = FRESH_LISTING_S) -> None:
        self._clouds, self._saved, self._serves = clients, saved, serves

    async def refresh(self, engine: Engine, vms: Sequence[Object], patience: float, *, fresh: bool) -> LiveResult:
        """Compare VMs with what their providers show."""
        places: dict[str, list[Object]] = defaultdict(list)
        for one in vms:
            places[vm_of(one).connection].append(one)
        look = StatusQuery(engine, await engine.store.reader.time(), patience, fresh)
        found = await asyncio.gather(*(self._refresh_connection(look, name, known) for name, known in places.items()))
        shown = {id_: seen for one in found for id_, seen in one.shown.items()}
        return LiveResult(shown, sum(one.changed for one in found))

    async def _refresh_connection(self, look: StatusQuery, connection: str, known: Sequence[Object]) -> LiveResult:
        asked = [one for one in known if look.needs_check(one)]
        listing, calls, changed = None, 0, 0
        if asked:
            try:
                client = await self._clouds.by_name(connection)
                listing, calls = await self._listing(client, look, max(one.since for one in asked))
                changed = 0 if listing is None else await apply_vm_drift(look.engine, client, listing, asked)
            except StatewardError:  # the connection is gone, or its driver is: nothing is known of it
                listing = None
        self._saved(vm_of(known[0]).provider, len(known) - calls)
        return LiveResult(_shown(asked, listing) if look.fresh else {}, changed)

    async def _listing(
        self, client: ProviderClient, look: StatusQuery, since: float
    ) -> tuple[MachineListing | None, int]:
        """Return a listing that is new enough, if there is one in time, and how many calls it has cost.

        One from before the last change of a VM (`since`) tells nothing of it.
        """
        serves = self._serves if client.listing_ttl_s is None else client.listing_ttl_s
        recent = client.recent_listing(min(look.now - since, serves if look.fresh else max(serves, RECENT_LISTING_S)))
        if recent is not None:
            return recent, 0
        calls = int(not client.is_listing)
        try:
            # A provider that did not answer last time is asked again, but only who wants to know it waits for that.
            async with asyncio.timeout(look.timeout_s if look.fresh or client.is_answering else 0.0):
                return await client.list_shared(), calls
        except TimeoutError:
            return None, calls


def _shown(asked: Sequence[Object], listing: MachineListing | None) -> dict[str, VmSeen]:
    """Return what a listing shows of VMs, by their ids."""
    shown = {} if listing is None else {one.key: seen_of(one) for one in listing.machines}
    silence = NOT_LISTED if listing is not None and listing.complete else UNKNOWN
    return {one.id: shown.get(vm_of(one).uid) or replace(vm_seen(one), native_state=silence) for one in asked}
