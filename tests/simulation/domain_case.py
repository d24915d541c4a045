"""A domain as simulations run it: its runtime with real handlers and guards, the world outside, users, invariants.

A case has everything that outlives a process: providers, agents, backends. The same actions serve random workloads and
pairs of actions in every order: chance chooses their objects, and a `FirstChoice` always the first.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from msgspec import Struct

from stateward.domains.mci.control import reconciler
from stateward.domains.mci.provider import provider_pool
from stateward.engine import Engine
from stateward.plugin.runtime import DomainRuntime, ProcessContext
from stateward.store.records import Object

NS = "default"


class Server(Struct):
    """A process as its users see it."""

    engine: Engine
    runtime: Any


class FirstChoice(Random):
    """Chance that always chooses the first, and the least."""

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int) -> int:
        del b
        return a


Action = Callable[[Server, Random], Awaitable[Any]]


class DomainCase:
    """One domain; a subclass says what there is, what users do, and what must be true."""

    name: ClassVar[str]
    pairs: ClassVar[Sequence[tuple[str, str]]] = ()
    """The pairs of actions that the suite tries in every order; the long form tries all."""

    before: ClassVar[Mapping[str, Sequence[str]]] = {}
    """The actions that must have been done before another one can be."""

    def __init__(self, clock: Callable[[], float], chance: Callable[[str], Random]) -> None:
        self.clock = clock
        self.chance = chance
        self.data = TemporaryDirectory()
        self.processes: list[Any] = []

    def context(self, name: str) -> ProcessContext:
        """Return the context of a process."""
        return ProcessContext(Path(self.data.name), random=self.chance(f"{name}/runtime"), offers_local=False)

    def make_runtime(self, name: str) -> DomainRuntime:
        """Return the domain in a new process."""
        raise NotImplementedError

    async def prepare(self, server: Server) -> None:
        """Create the first objects."""

    @property
    def actions(self) -> Mapping[str, Action]:
        """What users and the world outside do, by name; one that is named twice as often happens so."""
        raise NotImplementedError

    def broken(self, objects: Iterable[Object]) -> Iterator[str]:
        """Yield what is wrong after a commit."""
        yield from ()

    def unsettled(self, objects: Iterable[Object]) -> Iterator[str]:
        """Yield what has not come to rest, besides operations and timers that are due."""
        yield from ()

    async def broken_at_rest(self, server: Server) -> list[str]:
        """Return what is wrong once everything has come to rest."""
        return []

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    def calm_down(self) -> None:
        """End the faults of the world outside."""

    def lose_process(self, runtime: Any) -> None:
        """Break the connections to a process that has died."""

    def close(self) -> None:
        """Remove the files."""
        self.data.cleanup()


@contextmanager
def virtual_clocks() -> Iterator[None]:
    """Let the clocks that domains read be that of the running loop."""
    real = time.monotonic

    def read_clock() -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return real()

    with pytest.MonkeyPatch.context() as patch:
        for module in (provider_pool, reconciler, time):
            patch.setattr(module, "monotonic", read_clock)
        yield
