"""The faults of the simulated engine, to order: latency, silence, lost answers, refusals and a full disk."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stateward.containers.errors import EngineRefusal, EngineRefused, EngineUnavailable

MAX_CALLS = 100_000
"""How many calls are remembered."""


class SimulatedFaults:
    """What goes wrong; every field may be changed at any time. Calls have the names of the port's verbs."""

    def __init__(self, latency_s: float = 0.0, timeout_s: float = 30.0) -> None:
        self.latency_s = latency_s
        self.timeout_s = timeout_s  # after which a call that hangs has no answer
        self.is_down = False  # no connection
        self.is_disk_full = False
        self.hangs: set[str] = set()  # calls that are not answered, and not carried out
        # bounded by: the verbs of the port
        self.loses: Counter[str] = Counter()  # how many of a call are carried out, but not answered
        self.refuses: dict[str, EngineRefusal] = {}  # calls that are refused, with the reason
        self.half_starts = 0  # how many containers are left half started, as by an engine that is killed
        # bounded by: half_starts, which tests set
        self._damaged: set[str] = set()  # their ids
        self.calls: list[str] = []  # the calls that have arrived, in order

    async def pass_call(self, call: str) -> None:
        """Let a call reach the engine, or raise what happens to it."""
        if self.is_down:
            raise EngineUnavailable(call, "connection refused", sent=False)
        self.calls.append(call)
        del self.calls[:-MAX_CALLS]
        if call in self.hangs:
            await asyncio.sleep(self.timeout_s)
            raise EngineUnavailable(call, "it took too long", sent=True)
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if call in self.refuses:
            raise EngineRefused(self.refuses[call], call, "refused to order")

    @asynccontextmanager
    async def answering(self, call: str) -> AsyncIterator[None]:
        """Carry out a call that changes something; its answer may be lost afterwards."""
        await self.pass_call(call)
        yield
        if self.loses[call] > 0:
            self.loses[call] -= 1
            raise EngineUnavailable(call, "the connection was closed", sent=True)

    def check_disk(self, call: str) -> None:
        """Refuse what needs room on a full disk."""
        if self.is_disk_full:
            raise EngineRefused(EngineRefusal.OUT_OF_DISK, call, "no space left on device")

    def check_start(self, call: str, container: str) -> None:
        """Refuse to start a container that is half started; only its removal helps."""
        if self.half_starts > 0:
            self.half_starts -= 1
            self._damaged.add(container)
        if container in self._damaged:
            raise EngineRefused(EngineRefusal.DAMAGED, call, "container with given ID already exists")
