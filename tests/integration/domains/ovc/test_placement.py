"""Placement and migration are internal: only administrators see them, in every answer and stream of the server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import msgspec
import pytest
import pytest_asyncio
from litestar import Litestar

from stateward.access import Role
from stateward.domains.ovc.lifecycle import VM
from stateward.domains.ovc.node_privacy import hide_nodes_in_errors
from stateward.domains.ovc.runtime import OvcRuntime
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.faults import CALM
from stateward.engine import Handler, Job, Kind, ObservedOutcome, Temporary
from stateward.plugin.runtime import ProcessContext
from stateward.server.live.feeds import LiveFeeds, encode_entry
from stateward.store import open_store
from stateward.store.filters import JournalFilter
from stateward.store.records import Key
from tests.integration.domains.ovc.gated_nodes import gate_nodes
from tests.integration.domains.ovc.ovc_harness import ADA, RECORDS_ONLY, Cloud
from tests.readable_routes import open_to_readers, readable_paths

pytestmark = pytest.mark.asyncio(loop_scope="module")

NS = "shop"
INTERNAL = ("migrate", "migrated", "place firewall")


class Scene:
    """A cloud in which machines were moved in every way, and those who look at it."""

    vm = stopped = failed = waiting = ""

    def __init__(self, cloud: Cloud, app: Litestar, clients: dict[Role, httpx.AsyncClient]) -> None:
        self.cloud, self.app, self.clients = cloud, app, clients

    async def get(self, path: str, role: Role) -> Any:
        """Return what a role is answered, if it is answered anything."""
        answer = await self.clients[role].get(path)
        return None if answer.status_code in (400, 403, 404) else answer.text

    async def ways(self) -> list[str]:
        """Return every path below which something about an object can be read."""
        return await readable_paths(self.app, self.cloud.engine.store.reader, NS)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cloud whose nodes went into maintenance and came back, and whose machines were moved, stopped and lost."""
    folder: Path = tmp_path_factory.mktemp("placement")
    dsn = str(folder / "stateward.db")
    if request.param == "postgres":
        dsn = request.getfixturevalue("postgres_server").new_database()
    plugin = OvcRuntime(ProcessContext(folder), RECORDS_ONLY, cloud=SimulatedCloud(profile=CALM))
    gates = gate_nodes(plugin.nodes)
    async with open_to_readers(open_store(dsn, migrate=True), plugin, NS) as served:
        scene = Scene(await Cloud(served.engine, plugin, gates, NS).create_base_objects(), served.app, served.clients)
        await _live_through(scene)
        yield scene
        gates.reset()


async def _live_through(scene: Scene) -> None:
    cloud, gates = scene.cloud, scene.cloud.gates
    scene.vm, scene.stopped, scene.failed = await cloud.vms(3)
    await cloud.did(scene.vm, "migrate", ADA)
    first, _ = cloud.nodes
    for how in ("move", "stop"):
        await cloud.did(first, "maintenance", ADA, vmaction=how)
        await cloud.did(first, "enable", ADA)
    gates.fail_at("move", f"{first} is full")
    assert (await cloud.do(scene.vm, "migrate", ADA)).status == "failed"
    assert (await cloud.do(await cloud.node_of(scene.vm), "maintenance", ADA)).status == "failed"
    gates.stop_failing("move")
    node = await cloud.node_of(scene.failed)
    gates.fail_at("pause", f"region {node} has no answer")
    assert (await cloud.do(scene.failed, "pause")).status == "failed"
    gates.stop_failing("pause")
    await cloud.engine.act(NS, scene.stopped, "shows off", actor="provider", who=await cloud.node_of(scene.stopped))
    gates.close("move")
    scene.waiting = (await cloud.ask(scene.vm, "migrate", ADA)).op.id
    await gates.wait_for_arrival("move")
    await cloud.ask(scene.vm, "stop")  # it stands behind the migration from here on


def _values(text: str) -> list[Any]:
    """Return what an answer says: JSON, lines of JSON, or events."""
    lines = [line.removeprefix("data: ") for line in text.splitlines()]
    return [msgspec.json.decode(line) for line in lines if line[:1] in ("{", "[")]


def _said(value: Any, nodes: set[str], others: set[str]) -> Iterator[str]:
    """Yield what is said that is internal: a record names a node though it is not the node's own."""
    if isinstance(value, list):
        for one in value:
            yield from _said(one, nodes, others)
    if not isinstance(value, dict):
        return
    text = msgspec.json.encode(value).decode()
    own = {node for node in nodes if node in (value.get("id"), value.get("object"), value.get("queue"))}
    if own and any(other in text for other in others):
        yield f"{own} has to do with another object: {text}"
    plain = msgspec.json.encode({key: one for key, one in value.items() if not isinstance(one, dict | list)}).decode()
    if not own and any(node in plain for node in nodes):
        yield f"a node is named: {plain}"
    told = any(value.get(field) in INTERNAL for field in ("action", "event", "how"))
    if told and "allowed" not in value:  # what the tables allow is no secret
        yield f"an internal operation is told of: {plain}"
    for one in value.values():
        yield from _said(one, nodes, others)


async def _leaks(scene: Scene, role: Role) -> list[str]:
    nodes = set(scene.cloud.nodes)
    others = {scene.vm, scene.stopped, scene.failed, scene.cloud.box}
    found = []
    for path in await scene.ways():
        if path.endswith("/events"):
            continue  # it goes on for as long as its operation does: see below
        text = await scene.get(path, role)
        values = [] if text is None or path.endswith("/map") else _values(text)
        found += [f"{path}: {one}" for value in values for one in _said(value, nodes, others)]
    return found


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
async def test_no_way_out_tells_where_machines_are_or_that_they_move(scene: Scene, role: Role) -> None:
    assert await _leaks(scene, role) == []


async def test_administrators_see_all_of_it(scene: Scene) -> None:
    leaks = "\n".join(await _leaks(scene, Role.ADMIN))
    for way in (
        "/history",
        "/journal",
        "/operations",
        "/queue",
        "/why",
        "/healing",
        f"/machines/{scene.vm}",
        "/nodes/",
    ):
        assert way in leaks


@pytest.mark.parametrize("internal", [False, True])
async def test_the_stream_tells_it_to_administrators_alone(scene: Scene, internal: bool) -> None:
    engine = scene.cloud.engine
    lines = await engine.store.reader.journal(0, 10_000, JournalFilter(ns=NS))
    texts = [text for line in lines if (text := encode_entry(engine.kinds, line, internal)) is not None]
    others = {scene.vm, scene.stopped, scene.failed, scene.cloud.box}
    found = [one for text in texts for one in _said(msgspec.json.decode(text), set(scene.cloud.nodes), others)]
    assert bool(found) is internal
    export = {"Accept": "application/x-ndjson"}
    role = Role.ADMIN if internal else Role.VIEWER
    answer = await scene.clients[role].get(f"/api/v1/journal?ns={NS}", headers=export)
    assert [one["seq"] for one in _values(answer.text)] == [msgspec.json.decode(text)["seq"] for text in texts]


async def test_an_internal_operation_is_not_found_followed_or_cancelled_by_others(scene: Scene) -> None:
    path = f"/api/v1/ns/{NS}/operations/{scene.waiting}"
    for way in (path, f"{path}/children", f"{path}/events"):
        assert (await scene.clients[Role.OPERATOR].get(way)).status_code == 404
    assert (await scene.clients[Role.OPERATOR].post(f"{path}/cancel")).status_code == 404
    assert (await scene.clients[Role.ADMIN].get(path)).json()["action"] == "migrate"
    assert (await scene.cloud.operation(scene.waiting)).status in ("waiting", "running")


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
async def test_the_history_of_a_node_names_operations_to_administrators_alone(scene: Scene, role: Role) -> None:
    path = f"/api/v1/ns/{NS}/objects/{scene.cloud.nodes[0]}/history"
    lines = (await scene.clients[role].get(path)).json()["items"]
    ops = {one["op"] for one in lines if one["event"] in ("register", "maintenance")}
    assert lines
    assert (ops == {None}) is (role is Role.VIEWER)


async def test_what_stands_behind_a_migration_waits_for_other_work(scene: Scene) -> None:
    for role, first in ((Role.VIEWER, "stop"), (Role.ADMIN, "migrate")):
        why = (await scene.clients[role].get(f"/api/v1/ns/{NS}/objects/{scene.vm}/why")).json()
        queue = (await scene.clients[role].get(f"/api/v1/ovc/{NS}/queues/{scene.vm}")).json()
        assert (why["queue"][0]["action"], queue["operations"][0]["action"]) == (first, first)
    why = (await scene.clients[Role.VIEWER].get(f"/api/v1/ns/{NS}/objects/{scene.vm}/why")).json()
    assert (why["text"], why["lane"]) == ("stop: other work on its object has to end first", None)


async def test_metrics_name_no_node_and_no_internal_operation_to_others(scene: Scene) -> None:
    live_feeds: LiveFeeds = scene.app.state["live_feeds"]
    live_feeds.metrics.count_entries(await scene.cloud.engine.store.reader.journal(0, 10_000, JournalFilter(ns=NS)))
    for namespaces in (None, frozenset({NS})):
        public = await live_feeds.metrics.text(namespaces, internal=False)
        whole = await live_feeds.metrics.text(namespaces)
        node = await scene.cloud.node_of(scene.vm)
        assert (f'lane="ovc/{node}"' in whole, f"ovc/{node}" in public) == (True, False)
        assert 'stateward_operations_in_flight{lane="ovc/*",status="running"} 1.0' in public
        assert ('action="migrate"' in whole, 'action="migrate"' in public) == (namespaces is None, False)


async def test_the_error_of_a_public_action_names_no_node(scene: Scene) -> None:
    found = (await scene.cloud.engine.store.reader.operations_of(Key(NS, scene.failed), 1))[0]
    assert (found.action, found.error) == ("pause", "region its node has no answer")


async def test_the_error_of_a_look_names_no_node_either(scene: Scene) -> None:
    node = scene.cloud.nodes[0]

    async def fail(_: Job) -> ObservedOutcome:
        raise Temporary(f"region {node} has no answer", after=7.0)

    kind = hide_nodes_in_errors(Kind(VM, {"pause": Handler(fail, fail, cancelled=fail)}), scene.cloud.plugin.nodes)
    handler, job = kind.handlers["pause"], cast("Job", SimpleNamespace(ns=NS, key=Key(NS, "op"), object=scene.vm))
    for work in (handler.run, handler.observe, handler.cancelled):
        assert work is not None
        with pytest.raises(Temporary, match="region its node has no answer") as error:
            await work(job)
        assert error.value.after == 7.0


async def test_only_administrators_choose_a_node(scene: Scene) -> None:
    path = f"/api/v1/ns/{NS}/objects/{scene.stopped}/actions/start"
    answer = await scene.clients[Role.OPERATOR].post(path, json={"args": {"node": scene.cloud.nodes[0]}})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert await scene.cloud.state(scene.stopped) == "HALTED"
