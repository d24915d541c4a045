"""A server that is to stop: it serves until its operations have had time to end, and not longer than it is asked to."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stateward.engine.worker import worker
from stateward.store.records import Key, Status
from tests.integration.server.live_server import PATIENT, LiveServer, open_live_server
from tests.waiting import until


@pytest.fixture
async def live_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LiveServer]:
    monkeypatch.setattr(worker, "SHUTDOWN_GRACE_S", PATIENT)
    async with open_live_server(tmp_path) as opened:
        yield opened


async def until_draining(live_server: LiveServer) -> str:
    """Begin to stop it while an operation runs; return that."""
    running = live_server.engine.worker
    assert running is not None
    live_server.hold()
    accepted = await live_server.engine.create("a", "first", "mci.vm")
    await until(lambda: running.busy == 1)
    live_server.server._stop()
    await until(lambda: running.is_draining)
    return accepted.op.id


async def test_it_serves_while_operations_end_and_starts_no_more(live_server: LiveServer) -> None:
    running = await until_draining(live_server)
    async with live_server.client() as client:
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        answer = await client.post("/api/v1/ns/a/objects", json={"kind": "mci.vm", "id": "next"})
        assert answer.status_code == 202, answer.text
        live_server.release()
        assert (await live_server.engine.wait_record("a", running, PATIENT)).status is Status.SUCCEEDED
    left = await live_server.engine.store.reader.operation(Key("a", answer.json()["operation"]["id"]))
    assert left is not None
    assert left.status is Status.WAITING


async def test_a_second_signal_ends_the_waiting(live_server: LiveServer) -> None:
    await until_draining(live_server)
    live_server.server.force_exit = True
    await until(lambda: not any(one.is_serving() for one in live_server.server.servers))
    assert live_server.engine.worker is not None
    assert live_server.engine.worker.busy == 1
