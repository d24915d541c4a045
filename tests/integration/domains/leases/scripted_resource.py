"""A type of resource for tests: it succeeds, fails a given number of times, or hangs, as the test scripts it."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stateward.domains.leases.bookings import Demand
from stateward.domains.leases.model import ReservationSpec
from stateward.domains.leases.resources import ReservationTask
from stateward.engine import Permanent, Request, Temporary


class ScriptedResource:
    """Things that have a name, and are handed over and taken back."""

    name = "test:thing"

    def __init__(self) -> None:
        self.out: Counter[str] = Counter()  # how often a thing was handed over
        self.back: Counter[str] = Counter()
        self.fail: dict[str, list[Exception]] = {}  # by thing: what the next attempts raise
        self.hang: set[str] = set()
        self.hanging: set[str] = set()
        self.release = asyncio.Event()

    def read_details(self, given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        return {"thing": given.get("thing", (before or {}).get("thing", "thing"))}

    def demand(self, details: Mapping[str, Any]) -> Demand | None:
        return None

    async def check(self, ns: str, spec: ReservationSpec) -> None:
        return

    async def start_requests(self, task: ReservationTask) -> Sequence[Request]:
        return ()

    async def start(self, task: ReservationTask) -> None:
        thing = task.spec.details["thing"]
        await self._behave(thing)
        self.out[thing] += 1

    async def end_requests(self, task: ReservationTask) -> Sequence[Request]:
        return ()

    async def end(self, task: ReservationTask) -> None:
        thing = task.spec.details["thing"]
        await self._behave(f"end of {thing}")
        self.back[thing] += 1

    async def _behave(self, what: str) -> None:
        if what in self.hang:
            self.hanging.add(what)
            try:
                await self.release.wait()
            finally:
                self.hanging.discard(what)
        errors = self.fail.get(what)
        if errors:
            raise errors.pop(0)


def later(times: int) -> list[Exception]:
    """Return errors that go away after so many attempts."""
    return [Temporary("not now", after=0.01) for _ in range(times)]


def never() -> list[Exception]:
    """Return an error that does not go away."""
    return [Permanent("broken") for _ in range(99)]
