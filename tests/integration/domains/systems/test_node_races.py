"""Transactions on nodes and instances of two processes that overlap on PostgreSQL, where each has its own store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stateward.agents.connection import ConnectionId
from stateward.domains.systems.backends.nodes_backend import NodesBackend
from stateward.domains.systems.backends.port import InstancePhase
from stateward.domains.systems.nodes import node_records
from stateward.domains.systems.nodes.node_model import node_status, placed_instance
from stateward.domains.systems.nodes.node_records import (
    InstanceReport,
    lose_node,
    mark_ordered,
    record_reports,
    stop_instances,
)
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.engine import Engine
from stateward.store.port import Tx
from stateward.store.postgres import PostgresStore
from stateward.store.records import Key
from tests.integration.domains.systems.test_node_records import NS, UP, Nodes
from tests.integration.postgres_helpers import looking_at, until_somebody_waits
from tests.servers import PostgresServer

Run = Callable[[Tx], Awaitable[Any]]


class TwoControllers(Nodes):
    """Nodes on PostgreSQL, and the store of a second process."""

    def __init__(self, engine: Engine, backend: NodesBackend, other: PostgresStore, server: Any) -> None:
        super().__init__(engine, backend)
        self._other, self._server = other, server

    async def overlap(self, first: Run, second: Run) -> tuple[Any, Any]:
        """Run a transaction, and before it commits a second one of another process, until that one waits."""
        second_task: list[asyncio.Task[Any]] = []

        async def hold(tx: Tx) -> Any:
            done = await first(tx)
            if not second_task:
                second_task.append(asyncio.create_task(self._other.transact(second)))
                waiting = asyncio.create_task(until_somebody_waits(self._server))
                await asyncio.wait([waiting, *second_task], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            return done

        done = await self.engine.store.transact(hold)
        return done, await second_task[0]


@pytest.fixture
async def nodes(postgres_server: PostgresServer, tmp_path: Path) -> AsyncIterator[TwoControllers]:
    dsn = postgres_server.new_migrated_database()
    backend = NodesBackend(tmp_path / "addresses", Random(1))
    plugin = SystemsRuntime({"nodes": backend})
    engine, other = Engine(PostgresStore(dsn), plugin.kinds, works=False), PostgresStore(dsn)
    plugin.bind_engine(engine)
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        server = await stack.enter_async_context(looking_at(dsn))
        await stack.enter_async_context(engine)
        await other.open()
        stack.push_async_callback(other.close)
        opened = TwoControllers(engine, backend, other, server)
        await opened.actions.register("a", {})
        assert await opened.sync("a", await opened.hello("a")) == ""
        yield opened
    postgres_server.drop_later(dsn)


async def test_a_report_that_waits_for_the_loss_of_its_node_does_not_count(nodes: TwoControllers) -> None:
    await nodes.place("r1-0", once=True)
    run = await nodes.stored("r1-0")
    await nodes.engine.store.transact(lambda tx: mark_ordered(tx, [run.key]))
    node, kinds = Key(NS, "a"), nodes.engine.kinds
    status = node_status(await nodes.actions.node("a"))
    report = InstanceReport(ConnectionId(node, status.notify), run.id, placed_instance(run).number, UP)
    is_lost, counted = await nodes.overlap(
        lambda tx: lose_node(tx, kinds, node, status.renewals),
        lambda tx: record_reports(tx, kinds, [report]),
    )
    assert (is_lost, counted) == (True, [False])
    assert (await nodes.seen())["r1-0"].phase is InstancePhase.ENDED


async def test_two_processes_that_stop_instances_of_a_run_keep_no_more_logs_than_allowed(
    nodes: TwoControllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_records, "MAX_KEPT_LOGS", 1)
    keys = []
    for name in ("r1-0", "r1-1"):
        await nodes.place(name, once=True)
        keys.append((await nodes.stored(name)).key)
    kinds = nodes.engine.kinds
    await nodes.overlap(
        lambda tx: stop_instances(tx, kinds, keys[:1]),
        lambda tx: stop_instances(tx, kinds, keys[1:]),
    )
    assert [(await nodes.stored(name)).state for name in ("r1-0", "r1-1")] == ["halting", "leaving"]
