"""The driver of a simulated region: the way there and back, and all that can go wrong on it."""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from typing import Protocol, TypeVar

from stateward.drivers.port import (
    CallRefused,
    CallThrottled,
    CallUnanswered,
    Capabilities,
    CloudResource,
    CommandFailed,
    Idempotency,
    Inconclusive,
    MachineAction,
    MachineListing,
    MachineRef,
    MachineSpec,
    MachineState,
    Meter,
    Observation,
    Outcome,
    ProviderRegion,
    RefusalReason,
    ResourceListing,
    Suspension,
    TransientFailure,
)
from stateward.drivers.simulated.cloud import SimulatedCloud
from stateward.drivers.simulated.faults import Fate, Span, Temper, draw, tempered
from stateward.drivers.simulated.hints import hints
from stateward.drivers.simulated.machine import Machine, state_at
from stateward.drivers.simulated.states import NATIVE, PLAIN, shown

BY_STOPPING = frozenset({"aws", "azure", "alibaba", "ncp"})
"""Providers whose machines are suspended by stopping them."""


MISSING = "a page of the listing is missing"


class Keyed(Protocol):
    """Something that is asked for by its key."""

    @property
    def key(self) -> str:
        """The key."""


T = TypeVar("T", bound=Keyed)


class SimulatedDriver:
    """A region of a simulated cloud; the options of its place change the region's temper, until it is closed."""

    def __init__(self, place: ProviderRegion, cloud: SimulatedCloud, meter: Meter = lambda _: None) -> None:
        self._provider = place.provider
        self._cloud = cloud
        self._region = cloud.region(place)
        self._made = tempered(self._region.nature, place.options) if place.options else None
        if self._made is not None:
            self._region.temper = self._made
        self._meter = meter
        self._words = NATIVE.get(place.provider, PLAIN)
        self._able: tuple[Temper, Capabilities] | None = None

    @property
    def caps(self) -> Capabilities:
        """What can be done there; the portions follow the region's temper, and are asked for with every VM."""
        temper = self._region.temper
        if self._able is None or self._able[0] is not temper:
            self._able = temper, self._capabilities(temper)
        return self._able[1]

    def _capabilities(self, temper: Temper) -> Capabilities:
        return Capabilities(
            Suspension.BY_STOPPING if self._provider in BY_STOPPING else Suspension.NATIVE,
            Idempotency.TOKEN,
            max_bulk=temper.bulk,
            page_size=temper.page,
            listing_lag_s=temper.late[1] if isinstance(temper.late, tuple) else temper.late,
            calls_a_second=temper.calls_a_second,
            has_events=True,
            runs_commands=True,
            lists_reboot_tokens=temper.knows_tokens,
        )

    def register(self, spec: str, image: str) -> None:
        """Take a size and an image by name."""
        self._cloud.learn(self._provider, spec, image)

    async def check(self, spec: str, image: str) -> CallRefused | Inconclusive | None:
        """Look into the catalogue, which is at hand unless the region is dead."""
        self._meter("check")
        await self._wait(self._region.temper.latency)
        if self._region.temper.dead:
            return TransientFailure("", "the region does not answer")
        wrong = self._cloud.wrong(self._provider, spec, image)
        return CallRefused("", RefusalReason.INVALID, wrong) if wrong else None

    async def ensure(self, part: CloudResource) -> Outcome:
        """Find a part by its key, or make it."""
        (outcome,) = await self._call("ensure", [part], lambda one, _: self._region.ensure(one))
        return outcome

    async def remove(self, part: CloudResource) -> Outcome:
        """Remove a part that nothing stands on."""
        (outcome,) = await self._call("remove", [part], self._region.remove)
        return outcome

    async def list_resources(self) -> ResourceListing:
        """List parts; they are few, and always shown as they are."""
        self._meter("list parts")
        await self._wait(self._region.temper.latency)
        fate, _ = self._region.gate.fate(self._region.temper, self._arrive())
        if fate in (Fate.DONE, Fate.DUPLICATED):
            return ResourceListing(self._region.shelf.all(), complete=True)
        return ResourceListing((), complete=False, problem=f"{MISSING}: {fate.name.lower().replace('_', ' ')}")

    async def create(self, wants: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Make machines, in portions."""
        return await self._in_portions("create", wants, self._region.create)

    async def act(self, deed: MachineAction, refs: Sequence[MachineRef]) -> Sequence[Outcome]:
        """Do something to machines, in portions."""
        return await self._in_portions(deed.value, refs, lambda ref, now: self._region.act(deed, ref, now))

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List machines as they were a while ago, where the truth is late."""
        if keys is not None and not keys:
            return MachineListing([], complete=True)
        found = self._region.find(keys, self._arrive())
        try:
            self._cloud.keep(self._region)
        except sqlite3.Error as error:  # what came late must not be seen and then forgotten
            return MachineListing([], complete=False, problem=str(error))
        return await self._pages(found)

    async def run(self, ref: MachineRef, command: str, user: str, seconds: float) -> str:
        """Pretend to run a command: what comes back is the command itself; `exit 3` and `false` fail as they would."""
        self._meter("run")
        took = draw(self._region.temper.latency, self._cloud.chance)
        late = took > seconds or self._region.temper.dead
        await self._cloud.sleep(seconds if late else took)
        if late:
            raise TimeoutError(f"{user}@{ref.key} did not answer within {seconds:g} s")
        now = self._arrive()
        if not any(state_at(one, now) is MachineState.RUNNING for one in self._region.find([ref.key], now)):
            raise ConnectionRefusedError(f"nobody listens at {ref.key}")
        status = _status(command)
        if status:
            raise CommandFailed(status, "")
        return f"{command}\n"

    async def watch(self) -> AsyncGenerator[str, None]:
        """Yield the keys of machines when they change, as far as the hints are not lost."""
        async with aclosing(hints(self._region, self._cloud.clock, self._cloud.sleep)) as heard:
            async for key in heard:
                if self._cloud.chance.random() >= self._region.temper.hint_lost:
                    yield key

    async def close(self) -> None:
        """Take the options back, unless somebody has set others since; the cloud is closed by whoever opened it."""
        if self._made is not None and self._region.temper is self._made:
            self._region.temper = self._region.nature

    # --- the way there and back ---

    async def _in_portions(self, call: str, items: Sequence[T], do: Callable[[T, float], Outcome]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while len(outcomes) < len(items):
            portion = items[len(outcomes) : len(outcomes) + self._region.temper.bulk]
            outcomes += await self._call(call, portion, do)
        return outcomes

    async def _call(self, call: str, items: Sequence[T], do: Callable[[T, float], Outcome]) -> list[Outcome]:
        """Send a call. What is done is done in the middle, so that a caller may die on either side of it."""
        self._meter(call)
        there = draw(self._region.temper.latency, self._cloud.chance) / 2
        await self._cloud.sleep(there)
        outcomes = self._hear(items, do)
        unanswered = isinstance(outcomes[0], CallUnanswered)
        await self._wait(self._region.temper.patience if unanswered else there)
        return outcomes

    def _hear(self, items: Sequence[T], do: Callable[[T, float], Outcome]) -> list[Outcome]:
        now = self._arrive()
        fate, after = self._region.gate.fate(self._region.temper, now)
        if fate is Fate.THROTTLED:
            return [CallThrottled(item.key, after, "too many requests") for item in items]
        if fate is Fate.TRANSIENT:
            return [TransientFailure(item.key, "the region has a hiccup") for item in items]
        if fate is Fate.REQUEST_LOST:
            return [CallUnanswered(item.key, "no answer") for item in items]
        return self._perform(fate, items, do, now)

    def _perform(self, fate: Fate, items: Sequence[T], do: Callable[[T, float], Outcome], now: float) -> list[Outcome]:
        outcomes = [do(item, now) for item in items]
        if fate is Fate.DUPLICATED:
            self._region.gate.repeat_later(self._region.temper, now, lambda then: [do(item, then) for item in items])
        try:
            self._cloud.keep(self._region)
        except sqlite3.Error as error:  # it is done, but would not survive: so it must not count as answered
            return [CallUnanswered(item.key, str(error)) for item in items]
        return [CallUnanswered(item.key, "no answer") for item in items] if fate is Fate.ANSWER_LOST else outcomes

    def _arrive(self) -> float:
        """Let everything arrive that was sent before now; return the time."""
        now = self._cloud.clock()
        self._region.gate.deliver(now)
        return now

    async def _pages(self, found: Sequence[Machine]) -> MachineListing:
        """Fetch a listing page by page, until one is missing."""
        temper, chance = self._region.temper, self._cloud.chance
        pages = [found[first : first + temper.page] for first in range(0, len(found), temper.page)] or [[]]
        lost = chance.randrange(len(pages)) if chance.random() < temper.cut_short else None
        age, seen = draw(temper.late, chance), list[Observation]()
        for number, page in enumerate(pages):
            trouble, after = await self._look([] if number == lost else page, age, seen)
            if trouble or number == lost:
                return MachineListing(seen, complete=False, problem=trouble or MISSING, retry_after_s=after)
        return MachineListing(seen, complete=True)

    async def _look(self, page: Sequence[Machine], age: float, seen: list[Observation]) -> tuple[str, float]:
        """Fetch a page of a listing; return what went wrong, and how long to wait if it was throttled."""
        self._meter("list")
        await self._wait(self._region.temper.latency)
        now = self._cloud.clock()
        fate, after = self._region.gate.fate(self._region.temper, now)
        if fate not in (Fate.DONE, Fate.DUPLICATED):
            if fate in (Fate.REQUEST_LOST, Fate.ANSWER_LOST):
                await self._wait(self._region.temper.patience)
            return f"{MISSING}: {fate.name.lower().replace('_', ' ')}", after if fate is Fate.THROTTLED else 0.0
        seen.extend(shown(page, now - age, self._words, tokens=self._region.temper.knows_tokens))
        return "", 0.0

    async def _wait(self, span: Span) -> None:
        await self._cloud.sleep(draw(span, self._cloud.chance))


def _status(command: str) -> int:
    """Return the status that a command ends with, as far as that can be told without running it."""
    match command.split():
        case ["false"]:
            return 1
        case ["exit", number] if number.isdigit():
            return int(number) % 256
        case _:
            return 0
