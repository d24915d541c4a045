"""A sample kind for tests of sagas: trips that are booked step by step, and a record of what is booked."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from stateward.engine import Handler, Job, Kind
from stateward.lifecycle import MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare


class Trip(State):
    BOOKING = "booking", TRANSITIONAL
    BOOKED = "booked", STABLE
    FAILED = "not booked", STABLE
    UNCLEAR = "unclear", STABLE


TRIP = declare(
    "test.trip",
    Trip,
    (
        action(NEW, "book", USER, Trip.BOOKING, Trip.BOOKED, Trip.FAILED, 1 * MINUTE),
        action(NEW, "hurry", USER, Trip.BOOKING, Trip.BOOKED, Trip.FAILED, 2.0),
    ),
    USER,
    unknown=Trip.UNCLEAR,
)


class Agency:
    """Books parts of trips and cancels them; a test says how a trip is booked."""

    def __init__(self, book: Callable[["Agency", Job], Awaitable[Any]]) -> None:
        self._book = book
        self.calls: list[str] = []
        self.booked: set[tuple[str, str]] = set()
        self.errors: dict[str, list[Exception]] = {}

    def fail(self, call: str, *errors: Exception) -> None:
        """Let the next calls fail, one error each."""
        self.errors.setdefault(call, []).extend(errors)

    def kind(self, **how: Any) -> Kind:
        """Return the kind of the trips."""
        handler = Handler(self.run, **how)
        return Kind(TRIP, {"book": handler, "hurry": handler})

    async def run(self, job: Job) -> Any:
        self.calls.append("handler")
        return await self._book(self, job)

    async def do(self, job: Job, part: str) -> str:
        """Book a part of a trip; a second time it is the same booking."""
        self._call(part)
        self.booked.add((job.object, part))
        return f"{part} of {job.object}"

    async def undo(self, job: Job, part: str, result: str) -> None:
        """Cancel a part of a trip."""
        assert result == f"{part} of {job.object}"
        self._call(f"no {part}")
        self.booked.discard((job.object, part))

    async def step(self, job: Job, part: str, **how: Any) -> Any:
        """Book a part of a trip in a step that can be undone."""
        return await job.once(part, lambda: self.do(job, part), undo=lambda result: self.undo(job, part, result), **how)

    def _call(self, call: str) -> None:
        self.calls.append(call)
        if self.errors.get(call):
            raise self.errors[call].pop(0)

    @property
    def count(self) -> Counter[str]:
        """How often each part was booked or cancelled."""
        return Counter(self.calls)

    @property
    def work(self) -> list[str]:
        """What was booked and cancelled, in order."""
        return [call for call in self.calls if call != "handler"]
