"""A phone number that is ported in from another carrier: the work is done by somebody else, who reports.

    python examples/phone_number.py

The carrier is an actor of this lifecycle. Its reports count only for the operation that is under way: a late report
about an earlier try is rejected, and stays in the history as such. A carrier that never answers runs into the deadline.
"""

import asyncio

from stateward.engine import Engine, ExternalReport, Kind
from stateward.lifecycle import (
    CLOCK, DAY, FINAL, MINUTE, NEW, STABLE, TRANSITIONAL, USER,
    Actor, State, declare, failure, request, step, success, timeout,
)  # fmt: skip
from stateward.store import open_store
from stateward.store.records import Operation

CARRIER = Actor("carrier")


class Number(State):
    """The states of a phone number."""

    REQUESTED = "requested", TRANSITIONAL, "the port was asked for"
    PORTING = "porting", TRANSITIONAL, "the other carrier has agreed"
    REJECTED = "rejected", STABLE, "the other carrier has refused"
    ACTIVE = "active", STABLE
    RELEASED = "released", FINAL


N = Number

ROWS = (
    #       from                     event       by       through      to         on error    within
    request(NEW | N.REJECTED,        "port in",  USER,    N.REQUESTED, N.ACTIVE,  N.REJECTED, 2 * DAY),
    step(   N.REQUESTED,             "agreed",   CARRIER,              N.PORTING, within=60 * MINUTE),
    success(N.REQUESTED | N.PORTING, "ported",   CARRIER,              N.ACTIVE),
    failure(N.REQUESTED | N.PORTING, "refused",  CARRIER,              N.REJECTED),
    timeout(N.REQUESTED | N.PORTING,                                   N.REJECTED),
    step(   N.ACTIVE | N.REJECTED,   "release",  USER,                 N.RELEASED),
)  # fmt: skip

number = Kind(declare("example.number", Number, ROWS, USER | CARRIER | CLOCK))


async def main(database: str = ":memory:") -> None:
    """Port a number in; the first try is refused, the second one works."""
    async with Engine(open_store(database), [number]) as engine:
        first = await engine.create("default", "+49301234", number.name, action="port in")
        await engine.report(_word(first.op, "refused", error="wrong customer name"))
        again = await engine.act("default", "+49301234", "port in")
        late = await engine.report(_word(first.op, "ported"))
        print("a late report about the first try counts:", late)
        await engine.report(_word(again.op, "agreed"))
        await engine.report(_word(again.op, "ported"))
        print("the number is", (await engine.get("default", "+49301234")).state)
        for line in await engine.history("default", "+49301234"):
            print(f"{line.event} by {line.actor}: {line.source} -> {line.target} {line.reason or ''}".rstrip())


def _word(operation: Operation, event: str, error: str | None = None) -> ExternalReport:
    """Say something about an operation, as the carrier."""
    about = operation.ns, operation.object, operation.id, operation.generation
    return ExternalReport(*about, event, CARRIER, error=error)


if __name__ == "__main__":
    asyncio.run(main())
