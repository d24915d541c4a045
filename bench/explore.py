"""How fast protocols are explored, on the one that matters: the edge agents', with loss, duplication and crashes.

The clock is the process's own, so that what else runs on the machine is not counted. The aim is a million states well
within a minute.
"""

from time import process_time

from msgspec import Struct

from bench.figures import Better, Line, plain
from stateward.lifecycle import AGENT, CONTROLLER
from stateward.testing.protocols import Bounds, Exploration, FaultBudget, explore
from tests.models.edge_protocol import Scenario, instance_protocol, listing

BOUNDS = Bounds(copies=1)
CRASHES: dict[str, int] = {AGENT: 1, CONTROLLER: 1}
LEAST = 30_000
"""How many states per second are good enough."""


class Case(Struct, frozen=True):
    """What is explored."""

    name: str
    scenario: Scenario
    faults: FaultBudget


CASES = (
    Case("2 losses, 2 duplicates", Scenario(ready=True), FaultBudget(2, 2, spared=listing)),
    Case("2 crashes, 1 duplicate", Scenario(patient=True), FaultBudget(0, 1, CRASHES)),
    Case("2 crashes, 1 loss", Scenario(ready=True), FaultBudget(1, 0, CRASHES, spared=listing)),
)


def report() -> list[Line]:
    results = [timed(case) for case in CASES]
    lines = [line(case.name, found, seconds) for case, (found, seconds) in zip(CASES, results, strict=True)]
    visited = sum(found.visited for found, _ in results)
    seconds = sum(seconds for _, seconds in results)
    rate = visited / seconds
    total = plain("the agent protocol, explored", rate, "states a second of a processor", LEAST, Better.HIGHER)
    return ["explore: the agent protocol, two wishes of the user", *lines, total]


def timed(case: Case) -> tuple[Exploration, float]:
    protocol = instance_protocol(case.scenario)
    began = process_time()
    found = explore(protocol, case.faults, BOUNDS)
    return found, process_time() - began


def line(name: str, found: Exploration, seconds: float) -> str:
    verdict = "holds" if found.violation is None and found.complete else str(found)
    return (
        f"  {name:24} {found.visited:9,} states, {found.visited / seconds:9,.0f} states/s, "
        f"{found.transitions:9,} transitions, depth {found.depth}: {verdict}"
    )
