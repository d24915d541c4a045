"""What is done to the database, one after the other, and how it is undone."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncpg
from msgspec import Struct

from tests.rehearsal.cluster import Cluster
from tests.rehearsal.network import Network

HOLD = 15.0
"""How many seconds a lagging standby lags."""

Undo = Callable[[], Awaitable[None]]


class Fault(Struct, frozen=True):
    """Something that goes wrong: does it, and returns how to undo it."""

    about: str
    strike: Callable[["Victim"], Awaitable[Undo]]


class Victim(Struct, frozen=True):
    """What things are done to."""

    cluster: Cluster
    network: Network


async def kill_postgres(victim: Victim) -> Undo:
    primary = await victim.cluster.primary()
    victim.cluster.kill(primary, all_of_it=False)
    return nothing


async def kill_machine(victim: Victim) -> Undo:
    return _killed(victim, await victim.cluster.primary())


def _killed(victim: Victim, number: int) -> Undo:
    victim.cluster.kill(number, all_of_it=True)

    async def undo() -> None:
        victim.cluster.start_node(number)

    return undo


async def stop_receiving(victim: Victim) -> Undo:
    standby = await victim.cluster.synchronous()
    victim.cluster.receive(standby, still=True)
    await asyncio.sleep(HOLD)

    async def undo() -> None:
        victim.cluster.receive(standby, still=False)

    return undo


async def lag_and_kill(victim: Victim) -> Undo:
    """Let both standbys lag for a while, then lose the primary: one has to catch up before it takes over."""
    primary = await victim.cluster.primary()
    standbys = victim.cluster.nodes.keys() - {primary}
    for one in standbys:
        await victim.cluster.replay(one, pause=True)
    await asyncio.sleep(HOLD)
    revive = _killed(victim, primary)

    async def undo() -> None:
        await revive()
        for one in standbys:
            with suppress(asyncpg.ObjectNotInPrerequisiteStateError):  # the one that has taken over goes on by itself
                await victim.cluster.replay(one, pause=False)

    return undo


async def cut_primary(victim: Victim) -> Undo:
    return _cut(victim, await victim.cluster.primary())


async def cut_standby(victim: Victim) -> Undo:
    return _cut(victim, await victim.cluster.synchronous())


def _cut(victim: Victim, number: int) -> Undo:
    victim.network.cut(number)

    async def undo() -> None:
        victim.network.mend(number)

    return undo


async def nothing() -> None:
    """Leave it to Patroni."""


KILL = Fault("the primary's machine dies: kill -9 of PostgreSQL, Patroni and etcd there", kill_machine)
ALL = (
    KILL,
    Fault("the primary's PostgreSQL is killed (kill -9), Patroni lives on", kill_postgres),
    Fault(f"the synchronous standby receives nothing for {HOLD:g} s (SIGSTOP of its walreceiver)", stop_receiving),
    Fault(f"both standbys lag for {HOLD:g} s (replay is paused), then the primary's machine dies", lag_and_kill),
    Fault("the network of the synchronous standby is cut", cut_standby),
    Fault("the network of the primary is cut", cut_primary),
)
