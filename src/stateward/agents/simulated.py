"""A simulated site: it takes its time, and does what the words of a spec ask it to. For tests, demos and figures."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from stateward.agents.messages import Existing, Order, Work
from stateward.agents.site import SiteError, Tell

FAILS = "fail"
"""A set-up that says this fails."""


class SimulatedSite:
    """Things in memory. `pace` is how many seconds each step takes, or a function that waits for it."""

    def __init__(self, pace: float = 0.0, steps: int = 1) -> None:
        self.things: dict[str, Existing] = {}
        self.applied: list[tuple[str, Work, int]] = []
        self._pace, self._steps = pace, steps
        self.gate: Callable[[Order], asyncio.Event | None] = lambda _: None

    async def look(self) -> Mapping[str, Existing]:
        """Return what exists."""
        return dict(self.things)

    async def do(self, order: Order, tell: Tell) -> None:
        """Make, change or remove a thing, in steps."""
        spec = msgspec.json.decode(order.spec) if order.spec else {}
        if order.work is not Work.DELETE:
            self.things[order.name] = Existing(order.generation, whole=False)
        for step in range(self._steps):
            tell(f"step {step + 1}", step + 1, self._steps)
            await asyncio.sleep(self._pace)
        gate = self.gate(order)
        if gate is not None:
            await gate.wait()
        if spec.get("setup") == FAILS and order.work is not Work.DELETE:
            raise SiteError("it was to fail")
        self.applied.append((order.name, order.work, order.operation))
        if order.work is Work.DELETE:
            self.things.pop(order.name, None)
        else:
            self.things[order.name] = Existing(order.generation)

    async def close(self) -> None:
        """Let go."""
