"""Many agents on one controller, over real sockets: all reconnect at once after its restart, and are synced."""

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stateward.agents.simulation import SimulatedFleet
from stateward.domains.edge.api.routes import AGENTS_PATH
from stateward.domains.edge.lifecycle import CLOUDLET, CLUSTERINST
from stateward.domains.edge.model import ClusterInst, InstanceStatus
from stateward.store import open_store
from stateward.store.changes import Changes
from stateward.store.port import TxFunction
from stateward.store.records import Object, to_json
from tests.integration.server.server_processes import Served
from tests.long_forms import in_long_form

NS, EACH = "lab", 20
PATIENT = 120.0
AGENTS = {"name": "all", "role": "agent", "namespaces": [f"{NS}:*"]}


async def set_up(file: Path, cloudlets: list[str]) -> dict[str, dict[str, int]]:
    """Write cloudlets down, each with instances that are ready."""
    store = open_store(str(file))
    await store.open()
    now, things = time.time(), {}
    for name in cloudlets:
        things[name] = {f"c{n}": 7 for n in range(EACH)}
        rows = [row(now, name, name, CLOUDLET.kind, "Offline", None, '{"missing":"recreate","orphans":"report"}', "{}")]
        spec, marks = to_json(ClusterInst(revision=7)), InstanceStatus(7, 0, 7, 7)
        seen = to_json(msgspec.structs.replace(marks, spec=spec))
        rows += [row(now, name, f"{name}:c{n}", CLUSTERINST.kind, "Ready", name, spec, seen) for n in range(EACH)]
        await store.transact(applying(rows))
    await store.close()
    return things


def applying(rows: list[Object]) -> TxFunction[None]:
    return lambda tx: tx.apply(Changes(objects=rows))


def row(now: float, cloudlet: str, id_: str, kind: str, state: str, parent: str | None, spec: str, seen: str) -> Object:
    return Object(NS, id_, kind, state, now, 1, 1, None, id_, parent, spec, "{}", None, now, seen=seen)


async def until_all_ready(server: Served, many: int) -> None:
    client = server.client()
    async with asyncio.timeout(PATIENT):
        while True:
            counts = (await asyncio.to_thread(client.get, "/api/v1/namespaces")).json()
            found: dict[str, dict[str, int]] = next((one["counts"] for one in counts if one["ns"] == NS), {})
            here = (await asyncio.to_thread(client.get, f"/api/v1/edge/ns/{NS}/agents")).json()["agents"]
            if found.get(CLOUDLET.kind, {}) == {"Ready": many} and len(here) == many:
                break
            await asyncio.sleep(0.1)
    client.close()


@pytest.mark.parametrize("many", in_long_form([60, 200, 1000], short=[60]))
async def test_agents_come_back_at_once_and_all_are_settled(
    tmp_path: Path, record_property: Callable[[str, object], None], many: int
) -> None:
    folder = tmp_path / "controller"
    folder.mkdir()
    names = [f"site{n:04}" for n in range(many)]
    things = await set_up(folder / "stateward.db", names)
    environ = {"STATEWARD_RATE": "100000", "STATEWARD_ONLY": "edge"}
    server = await asyncio.to_thread(Served, folder, environ=environ)
    with server.client() as client:
        token = client.post("/api/v1/tokens", json=AGENTS).json()
    port = int(server.url.rpartition(":")[2])
    fleet = SimulatedFleet([f"ws://127.0.0.1:{port}"], AGENTS_PATH, NS, names, token["token"])
    fleet.add_existing(things)
    fleet.start()
    try:
        async with asyncio.timeout(PATIENT):
            await fleet.wait_synced()
        await until_all_ready(server, many)
        server.stop(signal.SIGKILL)
        await fleet.wait_disconnected()
        begun = time.monotonic()
        again = await asyncio.to_thread(Served, folder, "--port", str(port), environ=environ)
        await until_all_ready(again, many)
        record_property("seconds", time.monotonic() - begun)
        with again.client() as client:
            counts = client.get("/api/v1/namespaces").json()
            agents = client.get(f"/api/v1/edge/ns/{NS}/agents").json()
        found = next(one["counts"] for one in counts if one["ns"] == NS)
        assert found[CLUSTERINST.kind] == {"Ready": many * EACH}
        assert agents["rejected"] == {}
        again.stop()
    finally:
        await fleet.stop()
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)
