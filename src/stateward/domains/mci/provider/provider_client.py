"""Provider client: one driver of a connection, shared by all operations on its VMs.

Calls for single machines that arrive within a moment go out as one bulk call. Operations that wait for a state share
one listing per region and poll interval: a listing costs one call, however many VMs it shows. A VM counts as absent if
two complete listings, some time apart, do not contain it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence

from msgspec.structs import replace

from stateward import drivers
from stateward.aio.coalescer import CallCoalescer, CallWitness
from stateward.aio.supervise import wait_for_event
from stateward.domains.mci.provider.evidence import Evidence, Existence
from stateward.domains.mci.provider.presence_log import PresenceLog
from stateward.engine import Temporary, Unknown

COALESCE_S = 0.001
"""How long a full listing waits for further callers that can share it."""

POLL_MIN_S, POLL_MAX_S = 0.25, 4.0
"""Poll interval of waiting operations: the first one, and the longest while nothing changes."""

BACKOFF_MAX_S = 10.0
"""Longest pause after a provider asked for one; waiting operations have deadlines."""

ABSENT_AFTER_S = 2.0
"""Minimal time between the two complete listings that prove a machine absent."""

SILENT_AFTER_S, SILENT_LISTINGS = 90.0, 5
"""A machine counts as silent after this time and this number of listings without an answer about it."""

PARTIAL_LISTING_WEIGHT = 0.2
"""The weight of an incomplete listing that shows other machines: the provider answers, and may show this one next."""

CANNOT_ADOPT = "the driver cannot put a key on machines that others have created, nor take one off"

CLOSED = "the connection has changed, and this is repeated with the new one"

EvidencePredicate = Callable[[Evidence], bool]
EvidenceWaiter = tuple[EvidencePredicate, "asyncio.Future[Evidence]"]


class ProviderClient:
    """The driver of a connection, with bulk calls and shared listings."""

    def __init__(
        self,
        driver: drivers.Driver,
        clock: Callable[[], float],
        *,
        tick: float = POLL_MIN_S,
        serves: float | None = None,
        lane: str = "",
    ) -> None:
        self.driver, self.clock, self.lane = driver, clock, lane
        self.listing_ttl_s = serves  # how long a listing serves readers; None: the default of the reader
        self._tick = tick
        bulk = driver.caps.max_bulk
        self._creates: CallCoalescer[drivers.MachineSpec, drivers.Outcome] = CallCoalescer(driver.create, bulk)
        self._actions = {action: self._coalesce(action, bulk) for action in drivers.MachineAction}
        self._presence = PresenceLog()
        self._silent: dict[str, tuple[float, float, float]] = {}  # unanswered: since, until, weight
        self._first_observations: CallCoalescer[str, Evidence] = CallCoalescer(
            self._observe_many, driver.caps.page_size
        )
        self._waiters: dict[str, list[EvidenceWaiter]] = defaultdict(list)
        self._waiter_joined = asyncio.Event()
        self._poll_task: asyncio.Task[None] | None = None
        self._pending_listing: asyncio.Task[drivers.MachineListing] | None = None
        self._latest: drivers.MachineListing | None = None
        self._backoff_until = 0.0  # the provider asked for a pause
        self._is_closed = False

    def _coalesce(
        self, action: drivers.MachineAction, bulk: int
    ) -> CallCoalescer[drivers.MachineHandle, drivers.Outcome]:
        return CallCoalescer(lambda refs: self.driver.act(action, refs), bulk)

    async def create(self, want: drivers.MachineSpec, witness: CallWitness | None = None) -> drivers.Outcome:
        """Create a machine."""
        self._require_open()
        return await self._or_unanswered(want.key, self._creates.ask(want, witness))

    async def act(
        self, action: drivers.MachineAction, ref: drivers.MachineHandle, witness: CallWitness | None = None
    ) -> drivers.Outcome:
        """Run an action on a machine."""
        self._require_open()
        return await self._or_unanswered(ref.key, self._actions[action].ask(ref, witness))

    async def adopt(self, ref: drivers.MachineHandle, witness: CallWitness | None = None) -> drivers.Outcome:
        """Put our key on a machine that others have created."""
        self._require_open()
        if not isinstance(self.driver, drivers.MachineAdopter):
            return drivers.CallRefused(ref.key, drivers.RefusalReason.UNABLE, CANNOT_ADOPT)
        if witness is not None:
            witness.note_sent()
        outcome = await self._or_unanswered(ref.key, self.driver.adopt(ref))
        if witness is not None:
            witness.note_answer(outcome)
        return outcome

    async def release(self, ref: drivers.MachineHandle) -> drivers.Outcome:
        """Take our key off a machine, which stays as it is."""
        self._require_open()
        if not isinstance(self.driver, drivers.MachineAdopter):
            return drivers.CallRefused(ref.key, drivers.RefusalReason.UNABLE, CANNOT_ADOPT)
        return await self._or_unanswered(ref.key, self.driver.release(ref))

    async def list_unmarked(self) -> drivers.MachineListing:
        """List the machines that carry no key of ours."""
        if not isinstance(self.driver, drivers.MachineAdopter):
            return drivers.MachineListing((), complete=False, problem=CANNOT_ADOPT)
        try:
            return await self.driver.list_unmarked()
        except Exception as error:
            return drivers.MachineListing((), complete=False, problem=f"{type(error).__name__}: {error}")

    def _require_open(self, error: type[Temporary | Unknown] = Temporary) -> None:
        """Raise if the client is closed; an observation may belong to a call that the provider has accepted."""
        if self._is_closed:
            raise error(CLOSED)

    async def _or_unanswered(self, key: str, call: Awaitable[drivers.Outcome]) -> drivers.Outcome:
        try:
            return await call
        except Exception as error:  # an exception in a driver leaves the outcome unknown
            return drivers.CallUnanswered(key, f"{type(error).__name__}: {error}")

    # --- observing ---------------------------------------------------------------------------------------------------

    async def list_shared(self) -> drivers.MachineListing:
        """List all machines; callers within a moment share one call."""
        if self._pending_listing is None or self._pending_listing.done():
            self._pending_listing = asyncio.ensure_future(self._list_coalesced())
        return await asyncio.shield(self._pending_listing)

    def recent_listing(self, seconds: float) -> drivers.MachineListing | None:
        """Return the latest full listing if it is not older than that."""
        latest = self._latest
        return latest if latest is not None and self.clock() - latest.requested_at <= seconds else None

    @property
    def is_listing(self) -> bool:
        """Whether a listing is running that other callers can share."""
        return self._pending_listing is not None and not self._pending_listing.done()

    @property
    def is_answering(self) -> bool:
        """Whether the latest listing was complete; true before the first one."""
        return self._latest is None or self._latest.complete

    async def list_now(self) -> drivers.MachineListing:
        """List all machines with a call that starts now: the result is not older than the request."""
        return await self._list()

    async def _list_coalesced(self) -> drivers.MachineListing:
        await asyncio.sleep(COALESCE_S)
        return await self._list()

    async def _list(self, keys: Collection[str] | None = None) -> drivers.MachineListing:
        if self._backoff_until > self.clock():
            await asyncio.sleep(self._backoff_until - self.clock())
        listing = await self._listed(keys, self.clock())
        if keys is None and (self._latest is None or listing.requested_at >= self._latest.requested_at):
            self._latest = listing
        return listing

    async def _listed(self, keys: Collection[str] | None, asked: float) -> drivers.MachineListing:
        try:
            lag_s = self.driver.caps.listing_lag_s
            listing = replace(await self.driver.observe(keys), requested_at=asked, lag_s=lag_s)
        except Exception as error:
            return drivers.MachineListing(
                (), complete=False, problem=f"{type(error).__name__}: {error}", requested_at=asked
            )
        if listing.retry_after_s > 0.0:
            self._backoff_until = max(self._backoff_until, self.clock() + min(listing.retry_after_s, BACKOFF_MAX_S))
        return listing

    async def observe(self, key: str) -> Evidence:
        """Return evidence about one machine; callers within a moment share one call."""
        self._require_open(Unknown)
        return await self._first_observations.ask(key)

    async def observe_all(self, keys: Collection[str]) -> dict[str, Evidence]:
        """Return evidence about some machines, from one listing."""
        return self.read_listing(await self.list_shared(), keys)

    def read_listing(self, listing: drivers.MachineListing, keys: Collection[str]) -> dict[str, Evidence]:
        """Return the evidence of a listing about some machines."""
        shown = {machine.key: machine for machine in listing.machines}
        asked, lag_s = listing.requested_at, listing.lag_s
        evidence: dict[str, Evidence] = {}
        self._presence.prune(self.clock())
        if listing.complete:
            self._silent.clear()
        for key in keys:
            if key in shown:
                self._presence.note_shown(key, asked)
                self._silent.pop(key, None)
                evidence[key] = Evidence(Existence.PRESENT, shown[key], requested_at=asked, lag_s=lag_s)
            elif not listing.complete:
                evidence[key] = self._unanswered(key, listing)
            else:
                evidence[key] = self._missing(key, asked, lag_s)
        return evidence

    def _missing(self, key: str, asked: float, lag_s: float) -> Evidence:
        """Return the evidence of a complete listing that does not contain a key; it may be read several times."""
        first = self._presence.note_missing(key, asked, ABSENT_AFTER_S)
        if first is None:
            problem = "missing in one listing so far"
            return Evidence(Existence.UNKNOWN, problem=problem, requested_at=asked, lag_s=lag_s)
        return Evidence(Existence.ABSENT, requested_at=first, lag_s=lag_s)

    def _unanswered(self, key: str, listing: drivers.MachineListing) -> Evidence:
        """Return evidence without an answer; after several, over some time, the machine counts as silent."""
        trouble, asked, lag_s = listing.problem or "the listing was not complete", listing.requested_at, listing.lag_s
        first, last, evidence = self._silent.get(key, (asked, -1.0, 0.0))
        if asked > last:
            last, evidence = asked, evidence + (PARTIAL_LISTING_WEIGHT if listing.machines else 1.0)
        self._silent[key] = first, last, evidence
        if evidence < SILENT_LISTINGS or last - first < SILENT_AFTER_S:
            return Evidence(Existence.UNKNOWN, problem=trouble, requested_at=asked, lag_s=lag_s)
        silent_s = last - first
        return Evidence(Existence.UNKNOWN, problem=trouble, requested_at=asked, lag_s=lag_s, silent_s=silent_s)

    async def list_resources(self) -> drivers.ResourceListing:
        """List all resources; the result says when it was requested."""
        asked = self.clock()
        return replace(await self.driver.list_resources(), requested_at=asked)

    def read_resource_listing(self, listing: drivers.ResourceListing, keys: Collection[str]) -> dict[str, Evidence]:
        """Return the evidence of a listing of resources about some of them."""
        shown = {resource.key for resource in listing.resources}
        asked, lag_s = listing.requested_at, self.driver.caps.listing_lag_s
        evidence: dict[str, Evidence] = {}
        for key in keys:
            if key in shown:
                self._presence.note_shown(key, asked)
                evidence[key] = Evidence(Existence.PRESENT, requested_at=asked, lag_s=lag_s)
            elif listing.complete:
                evidence[key] = self._missing(key, asked, lag_s)
            else:
                evidence[key] = Evidence(Existence.UNKNOWN, problem=listing.problem, requested_at=asked, lag_s=lag_s)
        return evidence

    def store_time(self, moment: float, now: float) -> float:
        """Return a moment of this client's clock as a time of the store; `now` is the store's time, read before."""
        return now - (self.clock() - moment)

    async def wait_for(self, key: str, wanted: EvidencePredicate) -> Evidence:
        """Wait until evidence satisfies a predicate; the deadline of the caller is the limit.

        The first observation starts at once and is shared with callers of the same moment. Most actions are done by
        then. Callers that wait longer share the following listings.
        """
        evidence = await self.observe(key)
        return evidence if wanted(evidence) else await self.wait_for_next(key, wanted)

    async def wait_for_next(self, key: str, wanted: EvidencePredicate) -> Evidence:
        """Wait until evidence of one of the next listings satisfies a predicate."""
        self._require_open(Unknown)
        waiting: EvidenceWaiter = wanted, asyncio.get_running_loop().create_future()
        self._waiters[key].append(waiting)
        self._waiter_joined.set()
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.ensure_future(self._poll())
        try:
            return await waiting[1]
        finally:
            others = [waiter for waiter in self._waiters.pop(key, ()) if waiter is not waiting]
            if others:
                self._waiters[key] = others

    async def _observe_many(self, keys: Sequence[str]) -> list[Evidence]:
        evidence = self.read_listing(await self._list(keys), keys)
        return [evidence[key] for key in keys]

    async def _poll(self) -> None:
        """Poll for waiting operations until none is left; the interval grows while nothing changes."""
        pause, shown = self._tick, dict[str, object]()
        while self._waiters:
            self._waiter_joined.clear()
            await wait_for_event(self._waiter_joined, max(0.0, pause - self._tick))
            await asyncio.sleep(self._tick)
            observed = await self.observe_all(list(self._waiters))
            for key, evidence in observed.items():
                for wanted, future in self._waiters.get(key, ()):
                    if not future.done() and wanted(evidence):
                        future.set_result(evidence)
            news: dict[str, object] = {
                key: evidence.observation and evidence.observation.state for key, evidence in observed.items()
            }
            pause = self._tick if news != shown else min(POLL_MAX_S, pause * 1.5)
            shown = news
            await asyncio.sleep(0)  # waiters that are satisfied leave now

    async def close(self) -> None:
        """Stop polling and fail the waiters; the machines stay as they are.

        Operations are repeated with the client of the connection's new record.
        """
        self._is_closed = True
        if self._poll_task is not None:
            self._poll_task.cancel()
        for _, future in [waiter for waiting in self._waiters.values() for waiter in waiting]:
            if not future.done():
                future.set_exception(Unknown(CLOSED))
        await self.driver.close()
