"""The faults that are injected into the database, one after the other, and how each is undone."""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncpg
from msgspec import Struct

from tests.rehearsal.cluster import Cluster
from tests.rehearsal.network import Network

HOLD = 15.0
"""Seconds for which a standby lags."""

Undo = Callable[[], Awaitable[None]]


class Fault(Struct, frozen=True):
    """A fault: `strike` causes it, and returns a function that undoes it."""

    about: str
    strike: Callable[["FaultTarget"], Awaitable[Undo]]


class FaultTarget(Struct, frozen=True):
    """The cluster and the network that faults are injected into."""

    cluster: Cluster
    network: Network


async def kill_postgres(target: FaultTarget) -> Undo:
    primary = await target.cluster.primary()
    target.cluster.kill(primary, all_of_it=False)
    return nothing


async def kill_machine(target: FaultTarget) -> Undo:
    return _killed(target, await target.cluster.primary())


def _killed(target: FaultTarget, number: int) -> Undo:
    target.cluster.kill(number, all_of_it=True)

    async def undo() -> None:
        target.cluster.start_node(number)

    return undo


async def stop_receiving(target: FaultTarget) -> Undo:
    standby = await target.cluster.synchronous()
    target.cluster.receive(standby, still=True)
    await asyncio.sleep(HOLD)

    async def undo() -> None:
        target.cluster.receive(standby, still=False)

    return undo


async def lag_and_kill(target: FaultTarget) -> Undo:
    """Let both standbys lag for a while, then lose the primary: one has to catch up before it takes over."""
    primary = await target.cluster.primary()
    standbys = target.cluster.nodes.keys() - {primary}
    for one in standbys:
        await target.cluster.replay(one, pause=True)
    await asyncio.sleep(HOLD)
    revive = _killed(target, primary)

    async def undo() -> None:
        await revive()
        for one in standbys:
            with suppress(asyncpg.ObjectNotInPrerequisiteStateError):  # the one that has taken over goes on by itself
                await target.cluster.replay(one, pause=False)

    return undo


async def cut_primary(target: FaultTarget) -> Undo:
    return _cut(target, await target.cluster.primary())


async def cut_standby(target: FaultTarget) -> Undo:
    return _cut(target, await target.cluster.synchronous())


def _cut(target: FaultTarget, number: int) -> Undo:
    target.network.cut(number)

    async def undo() -> None:
        target.network.reconnect(number)

    return undo


async def nothing() -> None:
    """Undo nothing: Patroni recovers the node itself."""


KILL = Fault("the primary's machine dies: kill -9 of PostgreSQL, Patroni and etcd there", kill_machine)
ALL = (
    KILL,
    Fault("the primary's PostgreSQL is killed (kill -9), Patroni lives on", kill_postgres),
    Fault(f"the synchronous standby receives nothing for {HOLD:g} s (SIGSTOP of its walreceiver)", stop_receiving),
    Fault(f"both standbys lag for {HOLD:g} s (replay is paused), then the primary's machine dies", lag_and_kill),
    Fault("the network of the synchronous standby is cut", cut_standby),
    Fault("the network of the primary is cut", cut_primary),
)
