"""Fresh sights: what providers show now of the VMs of an MCI, with as few calls as can be.

VMs that are Terminated, Failed or Suspended do not change by themselves and are not asked about. The rest costs one
listing per connection, however many VMs and readers there are: readers share a listing while it is made, and it serves
for a short time after, which a connection may set (option `fresh`). Nothing is written: to take over what is shown is
the business of the reconciling round.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.mci.connections import Clouds
from stateward.domains.mci.lifecycle import VmState
from stateward.domains.mci.model import VmSeen, VmSpec, seen_of
from stateward.drivers import Listing
from stateward.errors import StatewardError

FRESH_FOR = 1.0
"""For how many seconds a listing serves, where the connection does not say."""

SETTLED = frozenset({VmState.TERMINATED, VmState.FAILED, VmState.SUSPENDED})
NOT_LISTED, UNKNOWN = "not listed", "unknown"
"""What is shown where the provider shows nothing, or did not answer in full."""

Saved = Callable[[str, int], None]


class Known(Struct, frozen=True):
    """A VM as it is stored."""

    vm: VmSpec
    state: str
    seen: VmSeen


class _Shelf(Struct):
    """A listing, and until when it serves."""

    until: float
    listing: asyncio.Task[Listing]


class Fresh:
    """Looks at providers for readers."""

    def __init__(
        self,
        clouds: Clouds,
        saved: Saved,
        *,
        serves: float = FRESH_FOR,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._clouds, self._saved, self._serves, self._clock = clouds, saved, serves, clock
        self._shelves: dict[str, _Shelf] = {}

    async def sights(self, known: Sequence[Known]) -> list[VmSeen]:
        """Return what is seen of each VM: freshly, where that may have changed."""
        places: dict[str, list[Known]] = defaultdict(list)
        for one in known:
            places[one.vm.connection].append(one)
        fresh: dict[str, VmSeen] = {}
        for part in await asyncio.gather(*(self._at(name, vms) for name, vms in places.items())):
            fresh |= part
        return [fresh.get(one.vm.uid, one.seen) for one in known]

    async def _at(self, connection: str, known: Sequence[Known]) -> dict[str, VmSeen]:
        asked = [one for one in known if one.state not in SETTLED]
        calls, listing = await self._listing(connection) if asked else (0, None)
        self._saved(known[0].vm.provider, len(known) - calls)
        if listing is None:
            return {}
        shown = {one.key: seen_of(one) for one in listing.seen}
        silence = NOT_LISTED if listing.complete else UNKNOWN
        return {one.vm.uid: shown.get(one.vm.uid) or replace(one.seen, native_state=silence) for one in asked}

    async def _listing(self, connection: str) -> tuple[int, Listing]:
        """Return a listing, and how many calls it has cost."""
        shelf, now = self._shelves.get(connection), self._clock()
        if shelf is not None and (shelf.until > now or not shelf.listing.done()):
            return 0, await asyncio.shield(shelf.listing)
        task = asyncio.ensure_future(self._ask(connection, now))
        self._shelves[connection] = _Shelf(now + self._serves, task)
        return 1, await asyncio.shield(task)

    async def _ask(self, connection: str, now: float) -> Listing:
        try:
            cloud = await self._clouds.of(connection)
            if cloud.serves is not None:
                self._shelves[connection].until = now + cloud.serves
            return await cloud.listing()
        except StatewardError as error:  # the connection is gone, or its driver is
            return Listing((), complete=False, trouble=str(error))
