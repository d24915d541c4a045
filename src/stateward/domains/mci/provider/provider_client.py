"""ProviderClients: a connection's driver, asked in bulk for many who each care about one VM.

Whoever acts on a VM asks here; what several ask for within a moment goes out as one call. Whoever waits for a state
shares one listing per region and tick with all others who wait there: a listing is the truth, and costs one call
however many VMs it tells of. A VM counts as absent when two complete listings, some time apart, do not have it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence

from msgspec.structs import replace

from stateward.aio.coalescer import CallCoalescer, CallWitness
from stateward.aio.polling import wait_for_event
from stateward.domains.mci.provider.evidence import Evidence, Existence
from stateward.drivers import (
    CallUnanswered,
    Driver,
    MachineAction,
    MachineHandle,
    MachineListing,
    MachineSpec,
    Outcome,
    ResourceListing,
)

COALESCE_S = 0.001
"""How many seconds those are gathered who want to see everything: they come by themselves, not together."""

POLL_MIN_S, POLL_MAX_S = 0.25, 4.0
"""How many seconds pass between two listings for those who wait: the first time, and when nothing comes for long."""

BACKOFF_MAX_S = 10.0
"""For how many seconds, at most, a provider is not asked that wants to be left alone: those who wait have deadlines."""

ABSENT_AFTER_S = 2.0
"""How many seconds apart two listings must be that do not have a VM, before it counts as absent."""

SILENT_AFTER_S, SILENT_LISTINGS = 90.0, 5
"""For how many seconds, and in how many looks at least, nothing is known of a machine before it counts as silent."""

PARTIAL_LISTING_WEIGHT = 0.2
"""How much a look counts that has shown other machines: the provider answers, and may show this one in the next."""

EvidencePredicate = Callable[[Evidence], bool]
EvidenceWaiter = tuple[EvidencePredicate, "asyncio.Future[Evidence]"]


class ProviderClient:
    """A connection's driver, shared by all who ask."""

    def __init__(
        self, driver: Driver, clock: Callable[[], float], *, tick: float = POLL_MIN_S, serves: float | None = None
    ) -> None:
        self.driver, self.clock = driver, clock
        self.listing_ttl_s = serves  # for how many seconds a listing serves readers; None: as long as anywhere
        self._tick = tick
        bulk = driver.caps.max_bulk
        self._creates: CallCoalescer[MachineSpec, Outcome] = CallCoalescer(driver.create, bulk)
        self._deeds = {deed: self._gather(deed, bulk) for deed in MachineAction}
        self._missing: dict[str, float] = {}  # keys that the last complete listing did not have, and since when
        self._silent: dict[str, tuple[float, float, float]] = {}  # keys of which nothing is known: since, until, looks
        self._firsts: CallCoalescer[str, Evidence] = CallCoalescer(self._first_looks, driver.caps.page_size)
        self._watched: dict[str, list[EvidenceWaiter]] = defaultdict(list)
        self._joined = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._fresh: asyncio.Task[MachineListing] | None = None
        self._latest: MachineListing | None = None
        self._alone_until = 0.0  # the provider has asked to be left alone

    def _gather(self, deed: MachineAction, bulk: int) -> CallCoalescer[MachineHandle, Outcome]:
        return CallCoalescer(lambda refs: self.driver.act(deed, refs), bulk)

    async def create(self, want: MachineSpec, witness: CallWitness | None = None) -> Outcome:
        """Make a machine."""
        return await self._answered(want.key, self._creates.ask(want, witness))

    async def act(self, deed: MachineAction, ref: MachineHandle, witness: CallWitness | None = None) -> Outcome:
        """Do something to a machine."""
        return await self._answered(ref.key, self._deeds[deed].ask(ref, witness))

    async def _answered(self, key: str, call: Awaitable[Outcome]) -> Outcome:
        try:
            return await call
        except Exception as error:  # a driver that breaks has told nothing
            return CallUnanswered(key, f"{type(error).__name__}: {error}")

    # --- looking -----------------------------------------------------------------------------------------------------

    async def list_shared(self) -> MachineListing:
        """List everything; those who ask within a moment share one call."""
        if self._fresh is None or self._fresh.done():
            self._fresh = asyncio.ensure_future(self._list_soon())
        return await asyncio.shield(self._fresh)

    def recent_listing(self, seconds: float) -> MachineListing | None:
        """Return the latest listing of everything, whoever asked for it, if it is not older than that."""
        latest = self._latest
        return latest if latest is not None and self.clock() - latest.requested_at <= seconds else None

    @property
    def is_listing(self) -> bool:
        """Whether a listing is under way that others may share."""
        return self._fresh is not None and not self._fresh.done()

    @property
    def is_answering(self) -> bool:
        """Whether the latest listing was complete, as far as there is one."""
        return self._latest is None or self._latest.complete

    async def list_now(self) -> MachineListing:
        """List everything, beginning now: what it shows is no older than the question."""
        return await self._list()

    async def _list_soon(self) -> MachineListing:
        await asyncio.sleep(COALESCE_S)
        return await self._list()

    async def _list(self, keys: Collection[str] | None = None) -> MachineListing:
        if self._alone_until > self.clock():
            await asyncio.sleep(self._alone_until - self.clock())
        listing = await self._listed(keys, self.clock())
        if keys is None and (self._latest is None or listing.requested_at >= self._latest.requested_at):
            self._latest = listing
        return listing

    async def _listed(self, keys: Collection[str] | None, asked: float) -> MachineListing:
        try:
            listing = replace(await self.driver.observe(keys), requested_at=asked)
        except Exception as error:
            return MachineListing((), complete=False, problem=f"{type(error).__name__}: {error}", requested_at=asked)
        if listing.retry_after_s > 0.0:
            self._alone_until = max(self._alone_until, self.clock() + min(listing.retry_after_s, BACKOFF_MAX_S))
        return listing

    async def observe(self, key: str) -> Evidence:
        """Evidence at one machine; those who ask within a moment share one call."""
        return await self._firsts.ask(key)

    async def observe_all(self, keys: Collection[str]) -> dict[str, Evidence]:
        """Evidence at some machines, with one listing."""
        return self.read_listing(await self.list_shared(), keys)

    def read_listing(self, listing: MachineListing, keys: Collection[str]) -> dict[str, Evidence]:
        """Read from a listing what it tells of some machines."""
        shown = {one.key: one for one in listing.machines}
        asked = listing.requested_at
        looks: dict[str, Evidence] = {}
        if listing.complete:
            self._silent.clear()
        for key in keys:
            if key in shown:
                self._missing.pop(key, None)
                self._silent.pop(key, None)
                looks[key] = Evidence(Existence.PRESENT, shown[key], requested_at=asked)
            elif not listing.complete:
                looks[key] = self._unanswered(key, listing)
            elif (
                asked - self._missing.setdefault(key, asked) >= ABSENT_AFTER_S
            ):  # one listing may be read several times
                looks[key] = Evidence(Existence.ABSENT, requested_at=asked)
            else:
                looks[key] = Evidence(Existence.UNKNOWN, problem="missing in one listing so far", requested_at=asked)
        return looks

    def _unanswered(self, key: str, listing: MachineListing) -> Evidence:
        """Return a look that has shown nothing; after several, over some time, the machine counts as silent."""
        trouble, asked = listing.problem or "the listing was not complete", listing.requested_at
        first, last, looks = self._silent.get(key, (asked, -1.0, 0.0))
        if asked > last:
            last, looks = asked, looks + (PARTIAL_LISTING_WEIGHT if listing.machines else 1.0)
        self._silent[key] = first, last, looks
        if looks < SILENT_LISTINGS or last - first < SILENT_AFTER_S:
            return Evidence(Existence.UNKNOWN, problem=trouble, requested_at=asked)
        return Evidence(Existence.UNKNOWN, problem=trouble, requested_at=asked, silent_s=last - first)

    def read_resource_listing(self, listing: ResourceListing, keys: Collection[str]) -> dict[str, Existence]:
        """Read from a listing what it tells of some parts."""
        shown, now = {one.key for one in listing.resources}, self.clock()
        return {key: self._part_sight(key, key in shown, listing.complete, now) for key in keys}

    def _part_sight(self, key: str, shown: bool, complete: bool, now: float) -> Existence:
        if shown:
            self._missing.pop(key, None)
            return Existence.PRESENT
        long = complete and now - self._missing.setdefault(key, now) >= ABSENT_AFTER_S
        return Existence.ABSENT if long else Existence.UNKNOWN

    async def wait_for(self, key: str, wanted: EvidencePredicate) -> Evidence:
        """Wait until a look shows what is wanted; the caller's deadline is the limit.

        The first look is taken at once, for all who come in the same moment; much is done by then. Those who have to
        wait longer share the listings of all who do.
        """
        look = await self.observe(key)
        if wanted(look):
            return look
        waiting: EvidenceWaiter = wanted, asyncio.get_running_loop().create_future()
        self._watched[key].append(waiting)
        self._joined.set()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch())
        try:
            return await waiting[1]
        finally:
            self._leave(key, waiting)

    async def _first_looks(self, keys: Sequence[str]) -> list[Evidence]:
        looks = self.read_listing(await self._list(keys), keys)
        return [looks[key] for key in keys]

    def _leave(self, key: str, waiting: EvidenceWaiter) -> None:
        others = [one for one in self._watched.pop(key, ()) if one is not waiting]
        if others:
            self._watched[key] = others

    async def _watch(self) -> None:
        """List for those who wait, until nobody does; when nothing changes, less and less often."""
        pause, shown = self._tick, dict[str, object]()
        while self._watched:
            await self._rest(pause)
            looks = await self.observe_all(list(self._watched))
            for key, look in looks.items():
                for wanted, future in self._watched.get(key, ()):
                    if not future.done() and wanted(look):
                        future.set_result(look)
            news: dict[str, object] = {key: look.observation and look.observation.state for key, look in looks.items()}
            pause = self._tick if news != shown else min(POLL_MAX_S, pause * 1.5)
            shown = news
            await asyncio.sleep(0)  # those who have seen enough leave now

    async def _rest(self, pause: float) -> None:
        """Wait for the time of the next listing; those who have just come wait no longer than a tick."""
        self._joined.clear()
        await wait_for_event(self._joined, max(0.0, pause - self._tick))
        await asyncio.sleep(self._tick)

    async def close(self) -> None:
        """Stop looking, and tell so to those who wait; the machines stay as they are."""
        if self._watching is not None:
            self._watching.cancel()
        for _, future in [one for waiting in self._watched.values() for one in waiting]:
            if not future.done():
                future.set_exception(ConnectionAbortedError("the connection was closed"))
        await self.driver.close()
