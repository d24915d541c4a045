"""Previews of actions on MCIs: they count the VMs that would be touched, and say what that costs or saves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateward.domains.mci.model import MciSpec, SubGroup, VmSpec
from stateward.store.changes import Changes
from stateward.store.records import Object, to_json
from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, ServerHarness
from tests.servers import PostgresServer
from tests.waiting import until


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """A new database of each sort."""
    if request.param == "sqlite":
        return ""
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.new_database()


def stored_object(
    name: str, kind: str, state: str, spec: object, parent: str | None = None, labels: str = "{}"
) -> Object:
    return Object(NS, name, kind, state, 0.0, 1, 1, None, name, parent, to_json(spec), labels, None, 0.0)


def stored_mci(state: str, vms: dict[str, int]) -> Iterator[Object]:
    """Yield the records of an MCI named `box`, and of so many VMs in each state."""
    states = [one for one, count in vms.items() for _ in range(count)]
    group = SubGroup("g", len(states), "aws+us-east-1+t3.small", "ubuntu22.04")
    yield stored_object("box", "mci.mci", state, MciSpec("box", "u", (group,)))
    for number, of_vm in enumerate(states, 1):
        region = "us-east-1" if number % 3 else "eu-west-1"
        place = (f"aws-{region}", "aws", region)
        vm = VmSpec(f"g-{number}", f"u{number}", "box", "g", *place, "t3.small", "ubuntu", "t3.small", "u", cost=0.5)
        labels = to_json({"provider": "aws", "region": region})
        yield stored_object(f"box.g-{number}", "mci.vm", of_vm, vm, "box", labels)


async def stored(harness: ServerHarness, state: str, **vms: int) -> None:
    await harness.engine.store.transact(lambda tx: tx.apply(Changes(objects=list(stored_mci(state, vms)))))


async def preview(harness: ServerHarness, action: str, body: Any = None) -> dict[str, Any]:
    answer = await harness.post(f"/ns/{NS}/objects/box/actions/{action}/preview", body, who="operator")
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_an_action_on_an_mci_counts_its_vms(tmp_path: Path, database: str) -> None:
    async with open_full_server(tmp_path, database) as harness:
        await stored(harness, "Running", Running=2_000)
        shown = await preview(harness, "suspend")
        assert (shown["accepted"], shown["total"], shown["undo"], shown["removes"]) == (True, 2000, "resume", False)
        assert shown["targets"] == [
            {"kind": "mci.vm", "state": "Running", "via": "Suspending", "desired": "Suspended", "count": 2000}
        ]
        assert shown["places"] == [
            {"place": "aws/us-east-1", "count": 1334},
            {"place": "aws/eu-west-1", "count": 666},
        ]
        assert shown["effects"] == ["about $1,000.00 an hour less"]
        shown = await preview(harness, "terminate")
        assert (shown["total"], shown["removes"], shown["undo"]) == (2000, True, None)
        rebooted = await preview(harness, "reboot")
        assert (rebooted["total"], rebooted["effects"], rebooted["undo"]) == (2000, [], None)
        assert (await preview(harness, "resume"))["problem"]["code"] == "needs_fact"


async def test_vms_that_an_action_would_skip_are_refused_with_the_reason(tmp_path: Path, database: str) -> None:
    async with open_full_server(tmp_path, database) as harness:
        await stored(harness, "Partial", Running=4, Suspended=3, Failed=2, Terminated=1)
        shown = await preview(harness, "suspend")
        assert (shown["total"], shown["effects"]) == (4, ["about $2.00 an hour less"])
        # resume would also start the VMs that are suspended now
        assert shown["undo"] is None
        assert [(one["state"], one["count"]) for one in shown["refused"]] == [
            ("Suspended", 3),
            ("Failed", 2),
            ("Terminated", 1),
        ]
        deleted = await preview(harness, "delete", {"facts": ["option=terminate"]})
        assert (deleted["accepted"], deleted["total"], deleted["removes"]) == (True, 10, True)
        assert {(one["state"], one["desired"]) for one in deleted["targets"]} == {
            (state, "(gone)") for state in ("Running", "Suspended", "Failed", "Terminated")
        }
        assert (await preview(harness, "refine"))["total"] == 2
        leaving = await preview(harness, "scale in", {"args": {"group": "g", "count": 4}})
        assert [(one["state"], one["count"]) for one in leaving["targets"]] == [
            ("Failed", 2),
            ("Suspended", 1),
            ("Terminated", 1),
        ]
        assert leaving["removes"] is True


async def test_a_protected_vm_refuses_the_removal_of_all_as_the_preview_says(tmp_path: Path) -> None:
    async with open_full_server(tmp_path) as harness:
        await stored(harness, "Running", Running=3)
        await harness.engine.protect(NS, "box.g-2", "keep")
        shown = await preview(harness, "terminate")
        assert (shown["accepted"], shown["problem"]["code"]) == (False, "protected")
        group = {
            "whole": {"object": "box", "action": "delete"},
            "selector": {"kind": "mci.vm", "parent": "box"},
            "facts": ["force", "option=force"],
        }
        previewed = await harness.post(f"/ns/{NS}/actions/remove/preview", group, who="operator")
        assert previewed.json()["problem"]["code"] == "protected", previewed.text
        done = await harness.post(f"/ns/{NS}/objects/box/actions/terminate", who="operator")
        assert (done.status_code, done.json()["code"]) == (409, "protected")
        done = await harness.post(f"/ns/{NS}/actions/remove", group, who="operator")
        assert (done.status_code, done.json()["code"]) == (409, "protected")
        assert (await preview(harness, "suspend"))["accepted"]


async def test_an_action_on_chosen_mcis_is_one_on_their_vms(tmp_path: Path, database: str) -> None:
    async with open_full_server(tmp_path, database) as harness:
        await stored(harness, "Running", Running=3, Failed=1)
        alone = stored_object("alone", "mci.mci", "Empty", MciSpec("alone", "v", ()))
        await harness.engine.store.transact(lambda tx: tx.apply(Changes(objects=[alone])))
        chosen = {"selector": {"kind": "mci.mci"}}
        shown = (await harness.post(f"/ns/{NS}/actions/suspend/preview", chosen, who="operator")).json()
        assert [(one["kind"], one["count"]) for one in shown["targets"]] == [("mci.vm", 3)]
        assert sorted((one["state"], one["count"]) for one in shown["refused"]) == [("Empty", 1), ("Failed", 1)]
        answer = await harness.post(f"/ns/{NS}/actions/suspend", {"objects": ["box", "box.g-1", "alone"]})
        assert answer.status_code == 202, answer.text
        (begun,) = answer.json()["begun"]
        assert (begun["object"]["id"], begun["operation"]["kind"]) == ("box", "mci.mci")
        assert list(answer.json()["skipped"]) == ["alone"]
        parts = (await harness.get(f"/ns/{NS}/operations?group={answer.json()['group']}")).json()["items"]
        assert {one["object"] for one in parts if one["kind"] == "mci.vm"} == {"box.g-1", "box.g-2", "box.g-3"}
        none = await harness.post(f"/ns/{NS}/actions/suspend", {"objects": ["alone"]})
        assert none.status_code == 409, none.text


@pytest.mark.parametrize("path", [f"/ns/{NS}/objects/held/actions/terminate", f"/ns/{NS}/actions/terminate"])
async def test_a_forced_terminate_gives_up_the_creation_of_an_mci_without_vms(tmp_path: Path, path: str) -> None:
    async with open_full_server(tmp_path) as harness:
        wanted = MciSpec("held", "u", (SubGroup("g", 1, "aws+us-east-1+t3.small", "ubuntu22.04"),), hold=True)
        await harness.engine.create(NS, "held", "mci.mci", "create", spec=wanted)
        await until(lambda: harness.engine.get(NS, "held"), lambda obj: obj.state == "Prepared")
        body = {"facts": ["force"], **({"objects": ["held"]} if "/objects/" not in path else {})}
        shown = await harness.post(f"{path}/preview", body)
        assert shown.json()["accepted"], shown.text
        answer = await harness.post(path, body)
        assert answer.status_code == 202, answer.text
        accepted = answer.json() if "/objects/" in path else answer.json()["begun"][0]
        ended = await harness.engine.wait(NS, accepted["operation"]["id"], 30)
        assert (ended.status, (await harness.engine.get(NS, "held")).state) == ("succeeded", "Empty")
