"""The driver of a simulated region: calls with latency, lost requests and answers, throttling and pages."""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from typing import TypeVar

from msgspec.structs import replace

from stateward.drivers import port
from stateward.drivers.simulated.cloud import SimulatedCloud
from stateward.drivers.simulated.faults import CallFate, FaultProfile, Span, draw_seconds, with_options
from stateward.drivers.simulated.machine import NATIVE_STATES, OWN_STATES, SimulatedMachine, observations_at, state_at
from stateward.drivers.simulated.region import watch_changes

SUSPEND_BY_STOPPING = frozenset({"aws", "azure", "alibaba", "ncp"})
"""Providers whose machines are suspended by stopping them."""


PAGE_MISSING = "a page of the listing is missing"


T = TypeVar("T", port.CloudResource, port.MachineSpec, port.MachineHandle)


class SimulatedDriver:
    """A region of a simulated cloud; its options change the region's fault profile until the driver is closed."""

    def __init__(
        self, provider_region: port.ProviderRegion, cloud: SimulatedCloud, meter: port.Meter = lambda _: None
    ) -> None:
        self._provider = provider_region.provider
        self._cloud = cloud
        self._region = cloud.region(provider_region)
        self._own_profile = (
            with_options(self._region.base_profile, provider_region.options) if provider_region.options else None
        )
        if self._own_profile is not None:
            self._region.profile = self._own_profile
        self._meter = meter
        self._native_states = NATIVE_STATES.get(provider_region.provider, OWN_STATES)
        self._cached_caps: tuple[FaultProfile, port.Capabilities] | None = None

    @property
    def caps(self) -> port.Capabilities:
        """The capabilities of the region, cached per fault profile: the caller reads them for every VM."""
        profile = self._region.profile
        if self._cached_caps is None or self._cached_caps[0] is not profile:
            self._cached_caps = profile, self._capabilities(profile)
        return self._cached_caps[1]

    def _capabilities(self, profile: FaultProfile) -> port.Capabilities:
        return port.Capabilities(
            port.Suspension.BY_STOPPING if self._provider in SUSPEND_BY_STOPPING else port.Suspension.NATIVE,
            port.Idempotency.TOKEN,
            max_bulk=profile.bulk,
            page_size=profile.page,
            listing_lag_s=profile.late[1] if isinstance(profile.late, tuple) else profile.late,
            calls_a_second=profile.calls_a_second,
            has_events=True,
            runs_commands=True,
            has_ssh=False,
            lists_reboot_tokens=profile.knows_tokens,
        )

    def register(self, spec: str, image: str) -> None:
        """Register a size and an image by name."""
        self._cloud.register(self._provider, spec, image)

    async def check(self, spec: str, image: str) -> port.CallRefused | port.Inconclusive | None:
        """Check the catalogue, unless the region is dead."""
        self._meter("check")
        await self._wait(self._region.profile.latency)
        if self._region.profile.dead:
            return port.TransientFailure("", "the region does not answer")
        wrong = self._cloud.spec_problem(self._provider, spec, image)
        return port.CallRefused("", port.RefusalReason.INVALID, wrong) if wrong else None

    async def ensure(self, resource: port.CloudResource) -> port.Outcome:
        """Find a resource by its key, or create it."""
        (outcome,) = await self._call("ensure", [resource], lambda wanted, _: self._region.ensure(wanted))
        return outcome

    async def remove(self, resource: port.CloudResource) -> port.Outcome:
        """Remove a resource that nothing uses."""
        (outcome,) = await self._call("remove", [resource], self._region.remove)
        return outcome

    async def list_resources(self) -> port.ResourceListing:
        """List the resources, always as they are now."""
        self._meter("list parts")
        await self._wait(self._region.profile.latency)
        fate, _ = self._region.fault_injector.next_fate(self._region.profile, self._deliver_duplicates())
        if fate in (CallFate.DONE, CallFate.DUPLICATED):
            return port.ResourceListing(self._region.resources.all(), complete=True)
        return port.ResourceListing((), complete=False, problem=_page_problem(fate))

    async def create(self, machine_specs: Sequence[port.MachineSpec]) -> Sequence[port.Outcome]:
        """Create machines, in portions."""
        return await self._in_portions("create", machine_specs, self._region.create)

    async def act(self, action: port.MachineAction, handles: Sequence[port.MachineHandle]) -> Sequence[port.Outcome]:
        """Carry out an action on machines, in portions."""
        return await self._in_portions(action.value, handles, lambda handle, now: self._region.act(action, handle, now))

    async def observe(self, keys: Collection[str] | None = None) -> port.MachineListing:
        """List the machines as they were before the lag of the profile."""
        if keys is not None and not keys:
            return port.MachineListing([], complete=True)
        machines = self._region.find(keys, self._deliver_duplicates())
        try:
            self._cloud.save(self._region)
        except sqlite3.Error as error:  # a late duplicate must not be shown and then lost
            return port.MachineListing([], complete=False, problem=str(error))
        return await self._fetch_pages(machines)

    async def list_unmarked(self) -> port.MachineListing:
        """List the machines that carry no key."""
        listing = await self._fetch_pages(self._region.unmarked(self._deliver_duplicates()))
        return replace(listing, machines=[replace(machine, key="") for machine in listing.machines])

    async def adopt(self, handle: port.MachineHandle) -> port.Outcome:
        """Put a key on a machine that carries none."""
        (outcome,) = await self._call("adopt", [handle], self._region.adopt)
        return outcome

    async def release(self, handle: port.MachineHandle) -> port.Outcome:
        """Take a key off the machine that carries it."""
        (outcome,) = await self._call("release", [handle], self._region.release)
        return outcome

    async def run(self, handle: port.MachineHandle, command: str, user: str, seconds: float) -> str:
        """Pretend to run a command: its output is the command itself; `exit 3` and `false` fail as usual."""
        self._meter("run")
        took = draw_seconds(self._region.profile.latency, self._cloud.chance)
        late = took > seconds or self._region.profile.dead
        await self._cloud.sleep(seconds if late else took)
        if late:
            raise TimeoutError(f"{user}@{handle.key} did not answer within {seconds:g} s")
        now = self._deliver_duplicates()
        if not any(
            state_at(machine, now) is port.MachineState.RUNNING for machine in self._region.find([handle.key], now)
        ):
            raise ConnectionRefusedError(f"nobody listens at {handle.key}")
        match command.split():
            case ["false"]:
                status = 1
            case ["exit", number] if number.isdigit():
                status = int(number) % 256
            case _:
                status = 0
        if status:
            raise port.CommandFailed(status, "")
        return f"{command}\n"

    async def watch(self) -> AsyncGenerator[str, None]:
        """Yield the keys of machines when they change, unless the hint is lost."""
        async with aclosing(watch_changes(self._region, self._cloud.clock, self._cloud.sleep)) as heard:
            async for key in heard:
                if self._cloud.chance.random() >= self._region.profile.hint_lost:
                    yield key

    async def close(self) -> None:
        """Restore the region's own profile, unless another was set since; the owner of the cloud closes it."""
        if self._own_profile is not None and self._region.profile is self._own_profile:
            self._region.profile = self._region.base_profile

    # --- calls ---

    async def _in_portions(
        self, call: str, items: Sequence[T], do: Callable[[T, float], port.Outcome]
    ) -> list[port.Outcome]:
        outcomes: list[port.Outcome] = []
        while len(outcomes) < len(items):
            portion = items[len(outcomes) : len(outcomes) + self._region.profile.bulk]
            outcomes += await self._call(call, portion, do)
        return outcomes

    async def _call(self, call: str, items: Sequence[T], do: Callable[[T, float], port.Outcome]) -> list[port.Outcome]:
        """Send a call. Its effect is in the middle of the latency, so that a caller may die before or after it."""
        self._meter(call)
        there = draw_seconds(self._region.profile.latency, self._cloud.chance) / 2
        await self._cloud.sleep(there)
        outcomes = self._receive(items, do)
        unanswered = isinstance(outcomes[0], port.CallUnanswered)
        await self._wait(self._region.profile.patience if unanswered else there)
        return outcomes

    def _receive(self, items: Sequence[T], do: Callable[[T, float], port.Outcome]) -> list[port.Outcome]:
        now = self._deliver_duplicates()
        fate, after = self._region.fault_injector.next_fate(self._region.profile, now)
        if fate is CallFate.THROTTLED:
            return [port.CallThrottled(item.key, after, "too many requests") for item in items]
        if fate is CallFate.TRANSIENT:
            return [port.TransientFailure(item.key, "the region has a hiccup") for item in items]
        if fate is CallFate.REQUEST_LOST:
            return [port.CallUnanswered(item.key, "no answer") for item in items]
        outcomes = [do(item, now) for item in items]
        if fate is CallFate.DUPLICATED:
            self._region.fault_injector.schedule_duplicate(
                self._region.profile, now, lambda then: [do(item, then) for item in items]
            )
        try:
            self._cloud.save(self._region)
        except sqlite3.Error as error:  # done, but not durable: so it must not count as answered
            return [port.CallUnanswered(item.key, str(error)) for item in items]
        return (
            [port.CallUnanswered(item.key, "no answer") for item in items] if fate is CallFate.ANSWER_LOST else outcomes
        )

    def _deliver_duplicates(self) -> float:
        """Deliver the duplicates that are due; return the time."""
        now = self._cloud.clock()
        self._region.fault_injector.deliver_due(now)
        return now

    async def _fetch_pages(self, machines: Sequence[SimulatedMachine]) -> port.MachineListing:
        """Fetch a listing page by page, until one is missing."""
        profile, chance = self._region.profile, self._cloud.chance
        pages = [machines[first : first + profile.page] for first in range(0, len(machines), profile.page)] or [[]]
        lost = chance.randrange(len(pages)) if chance.random() < profile.cut_short else None
        age, seen = draw_seconds(profile.late, chance), list[port.Observation]()
        for number, page in enumerate(pages):
            trouble, after = await self._fetch_page([] if number == lost else page, age, seen)
            if trouble or number == lost:
                return port.MachineListing(seen, complete=False, problem=trouble or PAGE_MISSING, retry_after_s=after)
        return port.MachineListing(seen, complete=True)

    async def _fetch_page(
        self, page: Sequence[SimulatedMachine], age: float, seen: list[port.Observation]
    ) -> tuple[str, float]:
        """Fetch a page of a listing; return the problem, and how long to wait if the call was throttled."""
        self._meter("list")
        await self._wait(self._region.profile.latency)
        now = self._cloud.clock()
        fate, after = self._region.fault_injector.next_fate(self._region.profile, now)
        if fate not in (CallFate.DONE, CallFate.DUPLICATED):
            if fate in (CallFate.REQUEST_LOST, CallFate.ANSWER_LOST):
                await self._wait(self._region.profile.patience)
            return _page_problem(fate), after if fate is CallFate.THROTTLED else 0.0
        seen.extend(observations_at(page, now - age, self._native_states, tokens=self._region.profile.knows_tokens))
        return "", 0.0

    async def _wait(self, span: Span) -> None:
        await self._cloud.sleep(draw_seconds(span, self._cloud.chance))


def _page_problem(fate: CallFate) -> str:
    return f"{PAGE_MISSING}: {fate.name.lower().replace('_', ' ')}"
