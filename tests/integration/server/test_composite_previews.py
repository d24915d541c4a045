"""Previews of composites of several domains: the parts that go with them, and the capacity that is freed."""

from pathlib import Path
from typing import Any

from stateward.domains.edge.model import AppInst, CloudletSpec, ClusterInst, InstanceStatus
from stateward.domains.systems.backends.names import SIMULATED
from stateward.domains.systems.definition import JobDefinition, NodePool, Service
from stateward.domains.systems.model import DesiredJob, DesiredService, SystemSpec
from stateward.store.changes import Changes
from stateward.store.records import Object, to_json
from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, ServerHarness

SYSTEMS = "http://localhost/api/v1/systems"


def stored(name: str, kind: str, state: str, spec: object, parent: str | None = None, seen: object = None) -> Object:
    """Return the record of an object at rest."""
    made = Object(NS, name, kind, state, 0.0, 1, 1, None, name, parent, to_json(spec), "{}", None, 0.0)
    return Object(**{**{one: getattr(made, one) for one in made.__struct_fields__}, "seen": to_json(seen or {})})


async def put(harness: ServerHarness, *objects: Object) -> None:
    await harness.engine.store.transact(lambda tx: tx.apply(Changes(objects=list(objects))))


async def test_a_cluster_takes_its_apps_along_and_frees_its_nodes(tmp_path: Path) -> None:
    async with open_full_server(tmp_path) as harness:
        await put(
            harness,
            stored("rome", "edge.cloudlet", "Ready", CloudletSpec()),
            stored("rome:web", "edge.clusterinst", "Ready", ClusterInst(nodes=3), "rome", InstanceStatus()),
            stored(
                *("rome:web:shop", "edge.appinst", "Ready"),
                *(AppInst("shop", cluster="web", auto_delete=True), "rome", InstanceStatus(cluster="web")),
            ),
            stored("rome:db", "edge.clusterinst", "Ready", ClusterInst(nodes=1), "rome", InstanceStatus()),
        )
        answer = await harness.post(f"/ns/{NS}/objects/rome:web/actions/delete/preview", who="operator")
        shown = answer.json()
        assert (shown["problem"], shown["removes"], shown["undo"]) == (None, True, None)
        assert [(one["kind"], one["desired"], one["count"]) for one in shown["targets"]] == [
            ("edge.appinst", "NotPresent", 1)
        ]
        assert shown["effects"] == ["3 nodes are freed"]
        alone = (await harness.post(f"/ns/{NS}/objects/rome:db/actions/delete/preview")).json()
        assert [(one["kind"], one["count"]) for one in alone["targets"]] == [("edge.clusterinst", 1)]
        assert alone["effects"] == ["1 node is freed"]


async def test_a_system_takes_its_services_along(tmp_path: Path) -> None:
    async with open_full_server(tmp_path) as harness:
        await put(
            harness,
            stored("shop", "systems.system", "stable", SystemSpec(SIMULATED)),
            stored("empty", "systems.system", "stable", SystemSpec(SIMULATED)),
            *(stored(f"shop.s{n}", "systems.service", "stable", {"path": f"/s{n}"}, "shop") for n in range(3)),
        )
        locked = {"tree": "shop", "locks": [{"path": "/", "mode": "X"}]}
        shown = (await harness.post(f"/ns/{NS}/objects/shop/actions/delete/preview", locked, who="operator")).json()
        assert (shown["problem"], shown["total"], shown["removes"]) == (None, 3, True)
        assert [(one["kind"], one["desired"]) for one in shown["targets"]] == [("systems.service", "(gone)")]
        alone = (
            await harness.post(f"/ns/{NS}/objects/empty/actions/delete/preview", {**locked, "tree": "empty"})
        ).json()
        assert [(one["kind"], one["count"]) for one in alone["targets"]] == [("systems.system", 1)]


async def test_the_dry_run_of_a_call_of_a_domain_has_its_preview(tmp_path: Path) -> None:
    async with open_full_server(tmp_path) as harness:
        two, one = (DesiredService(Service(("run",), instances=n), "r", "d") for n in (2, 1))
        await put(
            harness,
            stored("shop", "systems.system", "stable", SystemSpec(SIMULATED)),
            stored("shop:web", "systems.service", "stable", two, "shop"),
            stored("shop:db", "systems.service", "stable", one, "shop"),
            stored("shop~big", "systems.nodepool", "stable", NodePool(nodes=1), "shop"),
            stored("shop.report", "systems.job", "active", DesiredJob(JobDefinition(Service(("run",))), "d"), "shop"),
        )
        before = await harness.engine.store.reader.last_journal_seq()
        system, definition = f"{SYSTEMS}/{NS}/shop", "services:\n  web:\n    command: run\n    instances: 2\n"

        async def preview(method: str, path: str, body: Any = None, status: int = 200) -> Any:
            call = harness.caller("admin").request
            answer = await call(method, path, json=body, headers={"X-Stateward-Dry-Run": "1"})
            assert answer.status_code == status, answer.text
            return answer.json()["preview"] if status == 200 else answer.json()

        for method, path, body in (("POST", f"{system}/teardowns", {}), ("DELETE", system, None)):
            shown = await preview(method, path, body)
            assert (shown["problem"], shown["total"], shown["removes"], shown["undo"]) == (None, 4, True, None)
            assert {(one["kind"], one["count"]) for one in shown["targets"]} == {
                ("systems.service", 2),
                ("systems.nodepool", 1),
                ("systems.job", 1),
            }
            assert shown["effects"] == ["3 instances are stopped"]
        less = await preview("POST", f"{system}/deploys", {"definition": definition})
        assert (less["total"], less["removes"], less["effects"]) == (3, True, ["1 instance is stopped"])
        same = await preview(
            "POST", f"{system}/deploys", {"path": "/web", "definition": "command: run\ninstances: 5\n"}
        )
        assert (same["accepted"], same["total"], same["removes"]) == (True, 0, False)
        refused = await preview("POST", f"{system}/rollback", {"path": "/"}, 409)
        assert refused["code"] == "nothing_to_roll_back"
        several = await harness.post(f"/ns/{NS}/actions/delete/preview", {"objects": ["shop"]})
        assert "'delete' is refused by the only member: 'delete' of system shop needs its lock" in several.text
        assert await harness.engine.store.reader.last_journal_seq() == before
