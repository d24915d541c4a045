"""The HTTP API of the domain: requests, rights and answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from stateward.access import Role, Tokens
from stateward.access.quotas import QuotaGuard, quota_kind
from stateward.access.tokens import token_kind
from stateward.config import Config
from stateward.domains.ovc.api.collection_routes import COLLECTIONS, Collection
from stateward.domains.ovc.model import OrphanId
from stateward.domains.ovc.orphan_scan import record_orphans
from stateward.domains.ovc.runtime import OvcRuntime
from stateward.domains.ovc.service import DONE_STATES
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.faults import CALM
from stateward.engine import Engine
from stateward.lifecycle import FINAL, TRANSITIONAL
from stateward.plugin.runtime import ProcessContext
from stateward.server.app import create_app
from stateward.store import open_store
from stateward.store.changes import Changes
from stateward.store.port import Tx
from stateward.store.records import Key
from tests.integration.domains.ovc.gated_nodes import NodeGates, gate_nodes
from tests.integration.domains.ovc.ovc_harness import RECORDS_ONLY, TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Api:
    """The application, and its callers."""

    def __init__(self, engine: Engine, gates: NodeGates, clients: dict[str, httpx.AsyncClient]) -> None:
        self.engine, self.gates, self.clients = engine, gates, clients
        self.ids: dict[str, str] = {}

    async def call(self, method: str, path: str, who: str = "user", **how: Any) -> httpx.Response:
        return await self.clients[who].request(method, path, **how)

    async def get(self, path: str, who: str = "user") -> Any:
        answer = await self.call("GET", path, who)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def asked(self, path: str, body: Any = None, who: str = "user", method: str = "POST") -> Any:
        """Ask for something that is accepted, and wait until it has ended."""
        answer = await self.call(method, path, who, **({} if body is None else {"json": body}))
        assert answer.status_code == 202, answer.text
        told = answer.json()
        if told["operation"] is not None:
            operation = await self.engine.wait_record("shop", told["operation"], TIMEOUT_S)
            assert operation.status == "succeeded", operation
        return told

    async def refused(self, path: str, body: Any = None, who: str = "user", method: str = "POST") -> Any:
        """Ask for something that is refused."""
        answer = await self.call(method, path, who, **({} if body is None else {"json": body}))
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        return answer.json()

    async def made(self, things: str, who: str = "user", **body: Any) -> str:
        """Make something, and return its id."""
        return str((await self.asked(f"/{things}", body, who))["object"]["id"])

    async def machine(self, name: str) -> str:
        """Make a VM."""
        return await self.made("machines", name=name, cloudspace=self.ids["box"], image=self.ids["image"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """An application with two nodes, an account, a cloudspace and an image."""
    folder: Path = tmp_path_factory.mktemp("api")
    plugin = OvcRuntime(ProcessContext(folder), RECORDS_ONLY, cloud=SimulatedCloud(profile=CALM))
    gates = gate_nodes(plugin.nodes)
    kinds = [*plugin.kinds, token_kind(), quota_kind()]
    engine = Engine(open_store(":memory:"), kinds, admission=QuotaGuard())
    plugin.bind_engine(engine)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(engine)
        await stack.enter_async_context(plugin.running(engine, works=True))
        tokens = Tokens(engine)
        app = create_app(engine, tokens, Config(rate=1_000_000), routes=plugin.routes)
        roles = {"user": Role.OPERATOR, "admin": Role.ADMIN, "viewer": Role.VIEWER, "root": Role.ADMIN}
        clients = {}
        for who, role in roles.items():
            token = (await tokens.issue(who, role, ["*" if who == "root" else "shop"]))[0]
            clients[who] = await stack.enter_async_context(
                httpx.AsyncClient(
                    transport=httpx.ASGITransport(app),  # type: ignore[arg-type]
                    base_url="http://test/api/v1/ovc/shop",
                    headers={"Authorization": f"Bearer {token}"},
                )
            )
        api = Api(engine, gates, clients)
        for name in ("n1", "n2"):
            api.ids[name] = await api.made("nodes", "admin", name=name, driver="simulated")
        api.ids["account"] = await api.made("accounts", name="acme")
        api.ids["box"] = await api.made("cloudspaces", name="web", account=api.ids["account"])
        api.ids["image"] = await api.made("images", name="tick", account=api.ids["account"])
        yield api


@pytest_asyncio.fixture(loop_scope="module")
async def api(opened: Api) -> AsyncIterator[Api]:
    """The application, with all gates open."""
    yield opened
    opened.gates.reset()


async def test_a_machine_is_made_and_goes_through_the_words_of_the_design(api: Api) -> None:
    vm = await api.machine("words")
    shown = await api.get(f"/machines/{vm}")
    assert (shown["state"], shown["name"], shown["kind"], shown["parent"]) == ("RUNNING", "words", "vm", api.ids["box"])
    for action, state in (
        ("pause", "PAUSED"),
        ("resume", "RUNNING"),
        ("reboot", "RUNNING"),
        ("reset", "RUNNING"),
        ("stop", "HALTED"),
        ("start", "RUNNING"),
        ("delete", "DELETED"),
        ("restore", "HALTED"),
        ("destroy", "DESTROYED"),
    ):
        await api.asked(f"/machines/{vm}/{action}")
        assert (await api.get(f"/machines/{vm}"))["state"] == state
    assert vm in [one["id"] for one in await api.get("/machines?state=DESTROYED")]


async def test_an_action_in_transition_is_a_409_in_the_designs_words_that_names_the_one_in_the_way(api: Api) -> None:
    vm = await api.machine("busy")
    api.gates.close("pause")
    told = (await api.call("POST", f"/machines/{vm}/pause")).json()
    assert (told["object"]["state"], told["object"]["operation"]) == ("PAUSING", told["operation"])
    problem = await api.refused(f"/machines/{vm}/stop")
    assert (problem["status"], problem["code"], problem["state"]) == (409, "in_transition", "PAUSING")
    assert problem["retry"] is True
    assert problem["detail"].startswith("Cannot execute action at this time")
    assert problem["blocker"]["op"] == told["operation"]
    queue = await api.get(f"/queues/{vm}")
    assert (queue["exists"], [one["action"] for one in queue["operations"]]) == (True, ["pause"])
    stopping = asyncio.create_task(api.call("DELETE", f"/queues/{vm}"))
    api.gates.open("pause")
    assert (await stopping).json()["exists"] is False


async def force(api: Api, id_: str, state: str) -> None:
    """Put an object into a state by hand."""
    key = Key("shop", id_)

    async def program(tx: Tx) -> None:
        found = (await tx.objects([key]))[key]
        await tx.apply(Changes(objects=[replace(found, state=state, op=None, version=found.version + 1)]))

    await api.engine.store.transact(program)


@pytest.mark.parametrize("collection", COLLECTIONS, ids=lambda one: str(one.path))
async def test_every_pair_that_is_in_no_table_is_a_409_with_the_state_and_what_is_allowed(
    api: Api, collection: Collection
) -> None:
    lifecycle = collection.lifecycle
    bodies: dict[str, dict[str, str]] = {
        "accounts": {},
        "cloudspaces": {"account": api.ids["account"]},
        "machines": {"cloudspace": api.ids["box"], "image": api.ids["image"]},
        "disks": {"account": api.ids["account"]},
        "images": {"account": api.ids["account"]},
        "nodes": {"driver": "simulated"},
    }
    id_ = await api.made(collection.path, "admin", name="in no table", **bodies[collection.path])
    for state in lifecycle.declaration.states:
        await force(api, id_, state.word)
        for action in collection.actions:
            if (state, action, "admin") in lifecycle.moves or state in DONE_STATES.get(action, ()):
                continue
            problem = await api.refused(f"/{collection.path}/{id_}/{action}", who="admin")
            assert (problem["status"], problem["state"]) == (409, state.word), (state, action)
            if state.state_class is TRANSITIONAL:
                assert problem["code"] == "in_transition"
                assert problem["detail"].startswith("Cannot execute action at this time")
            else:
                code = "final_state" if state.state_class is FINAL else "not_from_here"
                assert problem["code"] == code, (state, action)
    await force(api, id_, "DECOMMISSIONED" if collection.path == "nodes" else "DESTROYED")


async def test_a_lost_race_is_told_as_such(api: Api) -> None:
    vm = await api.machine("raced")
    problem = await api.refused(f"/machines/{vm}/stop?status=PAUSED")
    assert (problem["status"], problem["code"]) == (409, "other_action")
    assert problem["detail"].startswith(f"Other action currently happening on vm {vm}")


async def test_disks_are_added_attached_detached_and_listed(api: Api) -> None:
    vm = await api.machine("disks")
    await api.asked(f"/machines/{vm}/disks", {"name": "data", "gib": 2})
    disk = await api.made("disks", name="loose", account=api.ids["account"], gib=3)
    await api.asked(f"/machines/{vm}/attach", {"disk": disk})
    names = {one["name"] for one in await api.get(f"/machines/{vm}/disks")}
    assert names == {"data", "disks-boot", "loose"}
    assert (await api.get(f"/disks/{disk}"))["vm"] == vm
    await api.asked(f"/machines/{vm}/detach", {"disk": disk})
    assert (await api.get(f"/disks/{disk}"))["state"] == "CREATED"


async def test_the_disk_of_another_account_is_a_403(api: Api) -> None:
    vm = await api.machine("theirs")
    other = await api.made("accounts", name="other")
    disk = await api.made("disks", name="not yours", account=other)
    problem = await api.refused(f"/machines/{vm}/attach", {"disk": disk})
    assert (problem["status"], problem["code"]) == (403, "forbidden")


async def test_deleting_is_to_the_bin_and_permanently_is_for_good_and_both_can_be_repeated(api: Api) -> None:
    vm = await api.machine("bin")
    for _ in range(2):
        told = await api.asked(f"/machines/{vm}", method="DELETE")
    assert (told["status"], told["again"], told["object"]["state"]) == ("done", True, "DELETED")
    assert told["object"]["bin"]["along"] is None
    problem = await api.refused("/machines", {"name": "bin", "cloudspace": api.ids["box"], "image": api.ids["image"]})
    assert (problem["status"], problem["code"]) == (409, "name_taken")
    for _ in range(2):
        told = await api.asked(f"/machines/{vm}?permanently=true", method="DELETE")
    assert (told["again"], told["object"]["state"]) == (True, "DESTROYED")


async def test_nodes_and_migration_are_for_administrators_and_only_they_see_where_a_machine_is(api: Api) -> None:
    vm = await api.machine("where")
    seen = await api.get(f"/machines/{vm}", "admin")
    assert seen["node"] in (api.ids["n1"], api.ids["n2"])
    assert "node" not in await api.get(f"/machines/{vm}")
    for path, body in (
        (f"/machines/{vm}/migrate", {}),
        (f"/nodes/{seen['node']}/maintenance", {}),
        (f"/nodes/{seen['node']}/decommission", None),
        ("/nodes", {"name": "mine"}),
    ):
        assert (await api.refused(path, body))["status"] == 403
    await api.asked(f"/machines/{vm}/migrate", {}, "admin")
    moved = await api.get(f"/machines/{vm}", "admin")
    assert (moved["node"] != seen["node"], moved["state"]) == (True, "RUNNING")


async def test_a_node_goes_into_maintenance_and_comes_back_with_a_report(api: Api) -> None:
    vm = await api.machine("moved")
    node = (await api.get(f"/machines/{vm}", "admin"))["node"]
    await api.asked(f"/nodes/{node}/maintenance", {"vmaction": "move"}, "admin")
    shown = await api.get(f"/nodes/{node}", "admin")
    assert (shown["state"], vm in shown["away"], vm in shown["report"]["done"]) == ("MAINTENANCE", True, True)
    await api.asked(f"/nodes/{node}/enable", who="admin")
    assert (await api.get(f"/machines/{vm}", "admin"))["node"] == node


async def test_a_cloudspace_is_paused_by_administrators_alone_and_a_user_cannot_take_down_what_runs(api: Api) -> None:
    box = await api.made("cloudspaces", name="mine", account=api.ids["account"])
    for action in ("pause", "resume"):  # now, and never
        problem = await api.refused(f"/cloudspaces/{box}/{action}")
        assert (problem["status"], problem["code"]) == (403, "not_yours")
    await api.asked(f"/cloudspaces/{box}/pause", who="admin")
    await api.asked(f"/cloudspaces/{box}/resume", who="admin")
    await api.made("machines", name="runs", cloudspace=box, image=api.ids["image"])
    problem = await api.refused(f"/cloudspaces/{box}", method="DELETE")
    assert (problem["status"], problem["code"]) == (409, "has_running")
    await api.asked(f"/cloudspaces/{box}", who="admin", method="DELETE")
    assert (await api.get(f"/cloudspaces/{box}"))["state"] == "DELETED"


async def test_a_clone_is_made_of_what_does_not_run(api: Api) -> None:
    vm = await api.machine("source")
    assert (await api.refused(f"/machines/{vm}/clone", {"name": "copy"}))["code"] == "parent_not_ready"
    await api.asked(f"/machines/{vm}/stop")
    clone = (await api.asked(f"/machines/{vm}/clone", {"name": "copy"}))["object"]["id"]
    assert (await api.get(f"/machines/{vm}"))["clones"] == [clone]
    assert (await api.refused(f"/machines/{vm}", method="DELETE"))["code"] == "has_clones"


async def test_the_same_key_makes_one_machine(api: Api) -> None:
    body = {"name": "once", "cloudspace": api.ids["box"], "image": api.ids["image"]}
    key = {"Idempotency-Key": "k1"}
    answers = [await api.call("POST", "/machines", json=body, headers=key) for _ in range(2)]
    assert answers[0].json()["object"]["id"] == answers[1].json()["object"]["id"]
    assert [one.headers.get("idempotency-replayed") for one in answers] == [None, "true"]


async def test_to_ask_once_more_for_what_is_done_already_succeeds_with_the_same_key_too(api: Api) -> None:
    vm = await api.machine("once more")
    await api.asked(f"/machines/{vm}/delete")
    headers = {"Idempotency-Key": "again"}
    answers = [await api.call("POST", f"/machines/{vm}/delete", headers=headers) for _ in range(2)]
    assert [one.status_code for one in answers] == [202, 202], answers[1].text
    assert [one.json()["object"]["id"] for one in answers] == [vm, vm]


async def test_a_key_of_an_action_of_two_words_is_told_as_the_caller_gave_it(api: Api) -> None:
    vm = await api.machine("two words")
    for name, status in (("two words a", 202), ("two words b", 409)):
        body, headers = {"name": name, "gib": 2}, {"Idempotency-Key": "disks"}
        answer = await api.call("POST", f"/machines/{vm}/disks", json=body, headers=headers)
        assert answer.status_code == status, answer.text
    assert "'disks'" in answer.json()["detail"]


async def test_what_is_refused_in_transition_is_refused_in_the_same_words_under_its_key(api: Api) -> None:
    vm = await api.machine("in transition")
    api.gates.close("stop")
    begun = (await api.call("POST", f"/machines/{vm}/stop")).json()
    refused = await api.call("POST", f"/machines/{vm}/reset", headers={"Idempotency-Key": "now"})
    assert refused.status_code == 409, refused.text
    assert refused.json()["detail"].startswith("Cannot execute action at this time")
    api.gates.open("stop")
    await api.engine.wait_record("shop", begun["operation"], TIMEOUT_S)
    again = await api.call("POST", f"/machines/{vm}/reset", headers={"Idempotency-Key": "now"})
    assert (again.status_code, again.json()["detail"]) == (409, refused.json()["detail"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/machines", {"name": "x"}, 400),
        ("POST", "/machines", {"name": "x", "cloudspace": "nowhere", "image": "none"}, 404),
        ("POST", "/machines", {"name": "a/b", "cloudspace": "c", "image": "i"}, 400),
        ("POST", "/accounts", {"name": "x", "colour": "red"}, 400),
        ("POST", "/accounts", {"name": "x", "retention": -1}, 400),
        ("POST", "/machines/none/start", None, 404),
        ("POST", "/machines/none/fly", None, 404),
        ("GET", "/machines/none", None, 404),
        ("GET", "/disks/none", None, 404),
        ("GET", "/queues/none", None, 404),
        ("GET", "/machines?limit=0", None, 400),
        ("GET", "/machines?state=NOPE", None, 400),
        ("GET", "/machines?state=", None, 400),
        ("GET", "/disks?state=CREATED,RUNNING", None, 400),
        ("POST", "/accounts", {"name": "a\0b"}, 400),
        ("POST", "/accounts", {"name": "a\u200bb"}, 400),
        ("POST", "/disks", {"name": "a\ufeff", "account": "x"}, 400),
    ],
)
async def test_what_makes_no_sense_is_refused_with_a_problem(
    api: Api, method: str, path: str, body: Any, status: int
) -> None:
    assert (await api.refused(path, body, method=method))["status"] == status


async def test_states_that_a_list_can_be_narrowed_by_are_told(api: Api) -> None:
    problem = await api.refused("/nodes?state=NOPE", method="GET")
    assert (problem["field"], problem["status"]) == ("state", 400)
    assert "DECOMMISSIONED, DECOMMISSIONING, ENABLED" in problem["detail"]


async def test_to_delete_or_destroy_what_is_destroyed_is_a_success_that_does_nothing(api: Api) -> None:
    account = await api.made("accounts", name="fleeting")
    await api.asked(f"/accounts/{account}?permanently=true", method="DELETE")
    for path, method in (
        (f"/accounts/{account}", "DELETE"),
        (f"/accounts/{account}?permanently=true", "DELETE"),
        (f"/accounts/{account}/delete", "POST"),
        (f"/accounts/{account}/destroy", "POST"),
    ):
        answer = await api.asked(path, method=method)
        assert (answer["operation"], answer["status"], answer["again"]) == (None, "done", True)
        assert answer["object"]["state"] == "DESTROYED"


@pytest.mark.parametrize("driver", ["process", "qemu"])
async def test_an_administrator_of_one_namespace_gets_no_programs_on_the_host_and_is_told_who_can(
    api: Api, driver: str
) -> None:
    problem = await api.refused("/nodes", {"name": "host", "driver": driver}, "admin")
    assert (problem["status"], problem["code"]) == (403, "forbidden")
    assert "an administrator of all namespaces can register this node in namespace shop" in problem["detail"]
    assert [one for one in await api.get("/nodes") if one["name"] == "host"] == []


@pytest.mark.parametrize("action", ["maintenance", "enable", "decommission"])
async def test_no_action_on_a_node_makes_it_one_on_the_host(api: Api, action: str) -> None:
    node = await api.made("nodes", "admin", name=f"a node for {action}")
    if action == "enable":
        await api.asked(f"/nodes/{node}/maintenance", {}, "admin")
    before = await api.get(f"/nodes/{node}", "admin")
    stolen = {"spec": {"name": "n1", "driver": "qemu", "options": {"program": "/tmp/any-program"}}}
    for who in ("admin", "root"):
        problem = await api.refused(f"http://test/api/v1/ns/shop/objects/{node}/actions/{action}", stolen, who)
        assert (problem["status"], problem["field"]) == (422, "spec")
        assert "these actions take one: register" in problem["detail"]
    assert await api.get(f"/nodes/{node}", "admin") == before


@pytest.mark.parametrize(
    ("collection", "action", "spec"),
    [
        ("accounts/{account}", "disable", {"x": 1}),
        ("accounts/{account}", "delete", {"name": "acme", "retention": 1e9}),
        ("cloudspaces/{box}", "disable", {"name": "web", "account": "another"}),
        ("images/{image}", "disable", {"name": "tick", "account": "another", "source": "any"}),
        ("machines/{vm}", "stop", {"name": "v", "account": "another", "size": "64c262144m"}),
    ],
)
async def test_no_action_moves_or_resizes_what_was_accepted(
    api: Api, collection: str, action: str, spec: dict[str, Any]
) -> None:
    path = f"/{collection}".format(**api.ids, vm=await api.machine(f"vm for {action} {len(spec)}"))
    before = await api.get(path, "admin")
    general = f"http://test/api/v1/ns/shop/objects/{before['id']}/actions/{action}"
    problem = await api.refused(general, {"spec": spec})
    assert (problem["status"], problem["field"]) == (422, "spec")
    assert (await api.get(path, "admin"))["spec"] == before["spec"]


async def test_an_administrator_of_everything_gives_a_namespace_a_node_on_the_host(api: Api) -> None:
    node = await api.made("nodes", "root", name="host", driver="process")
    await api.asked(f"/nodes/{node}/decommission", who="root")


@pytest.mark.parametrize(
    ("driver", "options", "field"),
    [
        ("simulated", {"colour": "red"}, "options.colour"),
        ("simulated", {"latency": "soon"}, "options.latency"),
        ("process", {"keep": "nan"}, "options.keep"),
        ("process", {"colour": "red"}, "options.colour"),
        ("qemu", {"arch": "z80"}, "options.arch"),
        ("qemu", {"accel": "warp"}, "options.accel"),
        ("qemu", {"bandwidth": "-1"}, "options.bandwidth"),
        ("qemu", {"program": "/bin/sh"}, "options.program"),
        ("qemu", {"folder": "/"}, "options.folder"),
        ("process", {"folder": "/"}, "options.folder"),
    ],
)
async def test_a_node_with_options_that_its_driver_does_not_take_is_refused_at_once(
    api: Api, driver: str, options: dict[str, str], field: str
) -> None:
    body = {"name": "odd", "driver": driver, "options": options}
    problem = await api.refused("/nodes", body, "root")
    assert (problem["status"], problem["field"]) == (400, field)
    assert [one for one in await api.get("/nodes") if one["name"] == "odd"] == []


async def test_an_object_is_found_under_its_own_kind_alone(api: Api) -> None:
    assert (await api.refused(f"/machines/{api.ids['box']}", method="GET"))["status"] == 404
    assert (await api.refused(f"/machines/{api.ids['box']}/stop"))["status"] == 404


async def test_viewers_look_and_do_nothing(api: Api) -> None:
    await api.get("/machines", "viewer")
    assert (await api.refused("/accounts", {"name": "v"}, "viewer"))["status"] == 403


async def test_all_queues_are_stopped_by_administrators(api: Api) -> None:
    assert (await api.call("DELETE", "/queues")).status_code == 403
    answer = await api.call("DELETE", "/queues", "admin")
    assert (answer.status_code, answer.json()) == (200, {"stopped": 0})


async def test_a_firewall_is_shown_with_its_cloudspace_and_where_it_is_to_administrators_alone(api: Api) -> None:
    shown = await api.get(f"/cloudspaces/{api.ids['box']}", "admin")
    assert (shown["firewall"], shown["node"] in (api.ids["n1"], api.ids["n2"])) == ("on", True)
    assert "node" not in await api.get(f"/cloudspaces/{api.ids['box']}")


async def test_what_was_healed_can_be_looked_at(api: Api) -> None:
    assert await api.get("/healing?seconds=60") == {"stuck": [], "healed": []}
    assert await api.get("/healing?seconds=60", "admin") == {"stuck": [], "healed": [], "strangers": []}


async def test_what_belongs_to_nobody_is_told_to_administrators_alone(api: Api) -> None:
    node, stray = Key("shop", api.ids["n1"]), OrphanId("machine", "vm-of-nobody-12345678")
    await api.engine.store.transact(lambda tx: record_orphans(tx, node, [stray], complete=True))
    told = (await api.get("/healing?seconds=60", "admin"))["strangers"]
    assert [(one["node"], one["what"], one["name"]) for one in told] == [(node.id, *msgspec.structs.astuple(stray))]
    assert (await api.get(f"/nodes/{node.id}", "admin"))["strangers"] == told
    assert "strangers" not in await api.get("/healing?seconds=60")
    assert "strangers" not in await api.get(f"/nodes/{node.id}")
    await api.engine.store.transact(lambda tx: record_orphans(tx, node, [], complete=True))


async def test_what_is_made_over_the_generic_api_obeys_the_same_rules(api: Api) -> None:
    generic = {"id": "vm-x", "kind": "ovc.account", "spec": {"name": "acme"}, "labels": {"name": "acme"}}
    answer = await api.clients["user"].post("http://test/api/v1/ns/shop/objects", json=generic)
    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")


@pytest.mark.parametrize("kind", ["vm", "disk", "image", "node"])
async def test_nobody_chooses_the_id_of_what_has_files_and_is_told_the_route(api: Api, kind: str) -> None:
    generic = {"id": "x", "kind": f"ovc.{kind}", "spec": {"name": "x"}, "labels": {"name": "x"}}
    for who in ("user", "admin"):
        answer = await api.clients[who].post("http://test/api/v1/ns/shop/objects", json=generic)
        assert (answer.status_code, "/api/v1/ovc" in answer.json()["detail"]) == (403, True)


async def test_the_label_by_which_a_name_is_taken_cannot_be_taken_away(api: Api) -> None:
    account = await api.made("accounts", name="labelled")
    path = f"http://test/api/v1/ns/shop/objects/{account}/labels"
    for labels in ({}, {"name": "other"}):
        told = await api.refused(path, {"labels": labels}, method="PUT")
        assert (told["status"], told["field"]) == (400, "labels")
    kept = await api.call("PUT", path, json={"labels": {"name": "labelled", "tier": "gold"}})
    assert (kept.status_code, kept.json()["labels"]) == (200, {"name": "labelled", "tier": "gold"})
