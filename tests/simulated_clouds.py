"""Simulated clouds for tests: handlers that only take time, for every lifecycle.

What a handler has to report is read from the lifecycle's own table: an action just succeeds, and a request that is
worked in phases is walked along its rows to the state that it is to reach. Now and then something fails.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from stateward.access.quotas import quota_kind
from stateward.access.sessions import session_kind
from stateward.access.tokens import token_kind
from stateward.engine import Ending, Engine, Handler, Job, Kind, ObservedOutcome, Permanent, Route, Temporary
from stateward.lifecycle import SUCCEEDED, TRANSITIONAL, Lifecycle, Meaning, Move
from stateward.plugin.registry import installed
from stateward.store.filters import Selector
from stateward.store.records import Object

MIXED = "mixed"
"""The event of a composite whose parts are not all in the desired state."""


class CloudFaults(Struct, frozen=True):
    """How a simulated cloud behaves: how long things take, in seconds, and how often they fail."""

    shortest: float = 0.3
    longest: float = 3.0
    fails: float = 0.02
    stumbles: float = 0.05


def way(lifecycle: Lifecycle, state: str, desired: str) -> list[Move]:
    """Return the shortest row of reports that brings work in a state to its desired end."""
    found: dict[str, list[Move]] = {state: []}
    waiting = deque([state])
    while waiting:
        here = waiting.popleft()
        for move in lifecycle.exits(here):
            if move.needs or move.begins or move.target.word in found:
                continue
            if move.meaning is Meaning.SUCCESS and move.target.word == desired:
                return [*found[here], move]
            if move.meaning is Meaning.STEP and move.target.state_class is TRANSITIONAL:
                found[move.target.word] = [*found[here], move]
                waiting.append(move.target.word)
    return []


class SimulatedClouds:
    """Makes kinds whose work is simulated."""

    def __init__(
        self,
        faults: CloudFaults,
        chance: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._faults, self._chance, self._sleep = faults, chance, sleep
        self.engine: Engine | None = None  # to count the parts of a composite with

    def kind(self, lifecycle: Lifecycle) -> Kind:
        """Return a kind of which every action is simulated."""

        async def run(job: Job) -> Any:
            return await self._run(lifecycle, job)

        handlers = {action: Handler(run, self._observe) for action in lifecycle.actions}
        return Kind(lifecycle, handlers, _route)

    async def _run(self, lifecycle: Lifecycle, job: Job) -> Ending | None:
        operation = job.claim.operation
        reports = way(lifecycle, job.claim.object.state, operation.desired)
        await self._take_time(job, len(reports))
        for move in reports[:-1]:
            await job.phase(move.event, move.actor)
            await self._take_time(job, 1)
        last = reports[-1] if reports else None
        whole = last is not None and (last.source, MIXED, last.actor) in lifecycle.moves
        if not whole:  # a composite fails by its parts
            self._fail()
        if last is None or last.event == SUCCEEDED:
            return None
        mixed = whole and not await self._all_there(job, operation.desired)
        return Ending(MIXED if mixed else last.event, last.actor)

    async def _take_time(self, job: Job, phases: int) -> None:
        steps = self._chance.randint(2, 5)
        seconds = self._chance.uniform(self._faults.shortest, self._faults.longest) / max(1, phases) / steps
        for step in range(steps):
            await job.progress(f"{job.action} at {job.claim.work.lane or 'home'}", step, steps)
            await self._sleep(seconds)

    def _fail(self) -> None:
        if self._chance.random() < self._faults.fails:
            raise Permanent("the simulated cloud has no room left")
        if self._chance.random() < self._faults.stumbles:
            raise Temporary("the simulated cloud did not answer", after=0.5)

    async def _all_there(self, job: Job, desired: str) -> bool:
        """Return whether all parts of a composite are in the desired state; true if it has no parts."""
        if self.engine is None:
            return True
        counts = await self.engine.store.reader.count_states(Selector(job.ns, parent=job.object))
        return all(
            state == desired for kind, state in counts if kind.split(".")[0] == job.claim.object.kind.split(".")[0]
        )

    async def _observe(self, _: Job) -> ObservedOutcome:
        return ObservedOutcome.NOT_DONE  # nothing is ever left half done here


def all_kinds(clouds: SimulatedClouds | None = None) -> list[Kind]:
    """Return every kind that a server knows, without its domain's plugin; with clouds, all work is theirs."""
    domains = [Kind(one) if clouds is None else clouds.kind(one) for one in installed().lifecycles]
    return [*domains, token_kind(), session_kind(), quota_kind()]


def _route(found: Object, _action: str) -> Route:
    """Put an object's work into the lane of its cloud's region."""
    spec = msgspec.json.decode(found.spec)
    if not isinstance(spec, dict) or "provider" not in spec:
        return Route()
    return Route(str(spec["provider"]), f"{spec['provider']}/{spec.get('region', 'anywhere')}")
