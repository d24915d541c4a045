"""Machines that others have created are adopted: they get a VM of an MCI, and are controlled and released by it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from stateward.domains.mci.control.machine_claims import claim_machine, remove_void_claims
from stateward.domains.mci.handlers.adopted_vms import AdoptedVms
from stateward.domains.mci.lifecycle import CLAIM, VM
from stateward.domains.mci.model import DEPLOYMENT_NS, MachineClaim, mci_of, vm_id, vm_of
from stateward.drivers import MachineHandle, MachineSpec, MachineState, ProviderRegion
from stateward.drivers.simulated.machine import unmarked_key
from stateward.engine.queries import list_all
from stateward.schemas.caller import Caller
from stateward.store.filters import Selector
from tests.integration.domains.mci.api_harness import NS, PATIENT, ApiHarness, open_api
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACE = ProviderRegion("aws", "ap-northeast-2")
HERE = "account"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiHarness]:
    async with open_api(tmp_path_factory.mktemp("adoption")) as opened:
        await opened.post("/ns", {"name": "other"})
        body = {"name": HERE, "provider": "aws", "region": PLACE.region, "driver": "simulated"}
        answer = await opened.post(
            "http://test/api/v1/mci/connections", {**body, "options": {"adopt": "default,other"}}
        )
        assert answer.status_code == 201, answer.text
        yield opened


def foreign(api: ApiHarness, name: str) -> str:
    """Create a machine at the provider that is none of ours."""
    return api.plugin.cloud.create_unmarked(PLACE, MachineSpec(f"theirs-{name}", name, "t3.nano", "ubuntu22.04"))


def state_at_provider(api: ApiHarness, native: str) -> tuple[str, str]:
    """Return the key and the state of a machine at its provider."""
    region = api.plugin.cloud.region(PLACE)
    found = next(one for one in region.machines.values() if one.native_id == native)
    return found.key, str(found.passage.then)


def adoption(name: str, *natives: str, **how: Any) -> dict[str, Any]:
    groups = [
        {"name": f"old{number}", "connectionName": HERE, "cspResourceId": native, **how}
        for number, native in enumerate(natives, 1)
    ]
    return {"name": name, "subGroups": groups}


async def adopted(api: ApiHarness, name: str, *natives: str, who: str = "operator", **how: Any) -> Any:
    answer = await api.post(f"/ns/{NS}/registerCspVm?wait=60", adoption(name, *natives, **how), who)
    assert answer.status_code == 200, answer.text
    return answer.json()


# --- adoption --------------------------------------------------------------------------------------------------------


async def test_a_machine_gets_a_vm_in_the_state_in_which_it_is(api: ApiHarness) -> None:
    runs, rests = foreign(api, "runs"), foreign(api, "rests")
    api.plugin.cloud.stop(PLACE, unmarked_key(rests))
    found = await adopted(api, "mixed", runs, rests)
    assert found["newVmList"] == ["old1-1", "old2-1"]
    first, second = found["vm"]
    assert (first["status"], first["cspResourceId"], first["cspSpecName"]) == ("Running", runs, "t3.nano")
    assert (second["status"], second["cspResourceId"]) == ("Suspended", rests)
    assert found["status"].startswith("Partial-")
    assert state_at_provider(api, runs) == (first["uid"], "running")


async def test_an_adopted_machine_is_suspended_resumed_and_terminated_like_any_other(api: ApiHarness) -> None:
    native = foreign(api, "worker")
    await adopted(api, "life", native)
    for action, state in (("suspend", "suspended"), ("resume", "running"), ("terminate", "terminated")):
        await api.done(f"/ns/{NS}/mci/life?action={action}")
        assert state_at_provider(api, native)[1] == state
    assert (await api.delete(f"/ns/{NS}/mci/life")).status_code == 200


async def test_the_names_of_the_present_release_work_too(api: ApiHarness) -> None:
    body = {"name": "newer", "nodeGroups": [{"connectionName": HERE, "cspResourceId": foreign(api, "newer")}]}
    found = (await api.post(f"/ns/{NS}/registerCspNode?wait=60", body)).json()
    assert [one["status"] for one in found["node"]] == ["Running"]
    assert found["newNodeList"] == ["g1-1"]


async def test_a_machine_joins_an_mci_that_exists(api: ApiHarness) -> None:
    await adopted(api, "grows", foreign(api, "one"))
    body = adoption("grows", foreign(api, "two"))
    found = (await api.post(f"/ns/{NS}/registerCspVm?wait=60", body)).json()
    assert [(one["id"], one["status"]) for one in found["vm"]] == [("old1-1", "Running"), ("old1-2", "Running")]


async def test_an_adoption_keeps_its_subgroup_when_the_last_vm_of_it_goes(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await adopted(api, "shrinks", foreign(api, "goes"))
    service, vm_specs = api.plugin.service, AdoptedVms.vm_specs

    async def emptied_meanwhile(*args: Any) -> Any:
        await service.delete_vm(NS, "shrinks", "old1-1", Caller("user", "ann"), force=True)
        return await vm_specs(*args)

    monkeypatch.setattr(AdoptedVms, "vm_specs", emptied_meanwhile)
    found = await adopted(api, "shrinks", foreign(api, "comes"))
    assert [one["status"] for one in found["vm"]] == ["Running"]
    groups = mci_of(await service.mci(NS, "shrinks")).groups
    assert [one.name for one in groups] == [vm_of(one).group for one in await service.vms(NS, "shrinks")] == ["old1"]


async def test_a_repeated_request_adopts_nothing_twice(api: ApiHarness) -> None:
    native = foreign(api, "again")
    first = await adopted(api, "again", native)
    second = await adopted(api, "again", native)
    assert [one["uid"] for one in second["vm"]] == [one["uid"] for one in first["vm"]]
    assert second["operation"] is None


async def test_of_two_adoptions_at_once_one_wins(api: ApiHarness) -> None:
    native = foreign(api, "wanted")
    answers = await asyncio.gather(
        *(api.post(f"/ns/{ns}/registerCspVm?wait=60", adoption("race", native)) for ns in (NS, "other"))
    )
    alive = [one.json()["vm"] for one in answers if one.status_code == 200 and one.json()["vm"]]
    assert [[vm["status"] for vm in vms] for vms in alive] == [["Running"]]
    assert state_at_provider(api, native)[0] == alive[0][0]["uid"]
    refusals = [one.text for one in answers if one.status_code != 200 or not one.json()["vm"]]
    assert len(refusals) == 1
    assert "another namespace" in refusals[0] or "in namespace" in refusals[0]
    loser = next(ns for ns, one in zip((NS, "other"), answers, strict=True) if one.text == refusals[0])
    assert (await api.delete(f"/ns/{loser}/mci/race")).status_code in (200, 404)  # 404: refused before it was created
    assert (await api.get(f"/ns/{loser}/mci/race")).status_code == 404


async def test_an_answer_that_is_lost_marks_and_stores_the_machine_once(api: ApiHarness) -> None:
    native = foreign(api, "lost")
    region = api.plugin.cloud.region(PLACE)
    calls = 0
    marks = region.adopt

    def mark(handle: MachineHandle, now: float) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:  # the call that marks it: its answer does not come
            marks(handle, now)
            raise OSError("the connection was lost")
        return marks(handle, now)

    region.adopt = mark  # type: ignore[method-assign]
    try:
        found = await adopted(api, "lost", native)
    finally:
        region.adopt = marks  # type: ignore[method-assign]
    assert calls == 2
    assert [(one["status"], one["cspResourceId"]) for one in found["vm"]] == [("Running", native)]


async def test_a_cancelled_adoption_takes_the_key_off_again(api: ApiHarness) -> None:
    native = foreign(api, "starting")
    region = api.plugin.cloud.region(PLACE)
    region.force(unmarked_key(native), MachineState.PENDING, api.plugin.cloud.clock())  # it never comes up
    begun = (await api.post(f"/ns/{NS}/registerCspVm", adoption("cancelled", native))).json()
    await until(lambda: state_at_provider(api, native)[0] != unmarked_key(native))
    again = (await api.post(f"/ns/{NS}/registerCspVm", adoption("cancelled", native))).json()
    assert again["operation"] == begun["operation"]  # the same request, again
    await api.post(f"http://test/api/v1/ns/{NS}/operations/{begun['operation']}/cancel")
    assert (await api.engine.wait_record(NS, begun["operation"], PATIENT)).status == "cancelled"
    assert state_at_provider(api, native)[0] == unmarked_key(native)
    region.force(unmarked_key(native), MachineState.TERMINATED, api.plugin.cloud.clock())  # nobody waits for it again


# --- refusals --------------------------------------------------------------------------------------------------------


async def test_a_machine_of_an_own_vm_is_refused_with_its_name(api: ApiHarness) -> None:
    native = foreign(api, "held")
    await adopted(api, "holder", native)
    answer = await api.post(f"/ns/{NS}/registerCspVm", adoption("thief", native), "operator")
    assert answer.status_code == 409
    assert "the VM 'old1-1' of MCI 'holder' in namespace 'default'" in answer.json()["message"]
    hidden = await api.post("/ns/other/registerCspVm", adoption("thief", native), "outsider")
    assert hidden.status_code == 409
    assert "holder" not in hidden.text
    assert (await api.get(f"/ns/{NS}/mci/thief")).status_code == 404


async def test_a_machine_with_the_key_of_another_server_is_refused(api: ApiHarness) -> None:
    made = api.plugin.cloud.create_orphan(PLACE, MachineSpec("their-key", "foreign", "t3.nano", "ubuntu22.04"))
    answer = await api.post(f"/ns/{NS}/registerCspVm", adoption("thief", getattr(made, "native_id", "")))
    assert answer.status_code == 409
    assert "'their-key' of another server" in answer.json()["message"]


async def test_a_machine_that_is_not_there_is_refused_with_its_field(api: ApiHarness) -> None:
    answer = await api.post(f"/ns/{NS}/registerCspVm", adoption("nothing", "i-0"))
    assert answer.status_code == 400
    assert answer.json()["field"] == "subGroups[0].cspResourceId"
    unknown = adoption("nothing", "i-0", connectionName="nowhere")
    assert (await api.post(f"/ns/{NS}/registerCspVm", unknown)).json()["field"] == "subGroups[0].connectionName"


async def test_a_machine_that_ends_while_it_is_adopted_leaves_no_vm(api: ApiHarness) -> None:
    stays, goes = foreign(api, "stays"), foreign(api, "goes")
    region = api.plugin.cloud.region(PLACE)
    marks = region.adopt

    def mark(handle: MachineHandle, now: float) -> Any:
        if handle.native_id == goes and unmarked_key(goes) in region.machines:
            region.force(unmarked_key(goes), MachineState.TERMINATED, now)
        return marks(handle, now)

    region.adopt = mark  # type: ignore[method-assign]
    try:
        found = await adopted(api, "ends", stays, goes)
    finally:
        region.adopt = marks  # type: ignore[method-assign]
    assert [(one["status"], one["cspResourceId"]) for one in found["vm"]] == [("Running", stays)]
    assert any("there is no machine" in one for one in found["systemMessage"])
    groups = await api.get(f"/ns/{NS}/mci/ends/subgroup")
    assert groups.json() == {"output": ["old1"]}


async def test_an_adoption_of_nothing_leaves_the_mci_as_it_was(api: ApiHarness) -> None:
    await adopted(api, "kept", foreign(api, "kept"))
    native = foreign(api, "gone")
    region = api.plugin.cloud.region(PLACE)
    marks = region.adopt

    def mark(handle: MachineHandle, now: float) -> Any:
        region.force(unmarked_key(native), MachineState.TERMINATED, now)
        return marks(handle, now)

    region.adopt = mark  # type: ignore[method-assign]
    try:
        found = await adopted(api, "kept", native)
    finally:
        region.adopt = marks  # type: ignore[method-assign]
    assert found["status"] == "Running:1 (R:1/1)"
    assert (await api.get(f"/ns/{NS}/mci/kept/subgroup")).json() == {"output": ["old1"]}


async def test_only_namespaces_that_the_connection_names_may_adopt(api: ApiHarness) -> None:
    body = {"name": "no", "subGroups": [{"connectionName": "aws-us-east-1", "cspResourceId": "i-1"}]}
    answer = await api.post(f"/ns/{NS}/registerCspVm", body)
    assert answer.status_code == 403
    assert "adopt=default" in answer.json()["message"]
    assert (await api.post(f"/ns/{NS}/registerCspVm", adoption("no", "i-1"), "viewer")).status_code == 403
    assert (await api.post(f"/ns/{NS}/registerCspVm", adoption("no", "i-1"), "outsider")).status_code == 403
    direct = {"machines": [{"connection": "aws-us-east-1", "native_id": "i-1", "group": "g1"}]}
    await adopted(api, "general", foreign(api, "general"))
    path = f"http://test/api/v1/ns/{NS}/objects/general/actions/adopt"
    assert (await api.post(path, {"args": direct})).status_code == 403


async def test_a_driver_that_cannot_adopt_says_so(api: ApiHarness) -> None:
    body = {"name": "host", "provider": "local", "region": "here", "driver": "process", "options": {"adopt": "*"}}
    await api.post("http://test/api/v1/mci/connections", {**body, "namespaces": [NS]})
    answer = await api.post(f"/ns/{NS}/registerCspVm", adoption("no", "1", connectionName="host"))
    assert answer.status_code == 409
    assert "the driver cannot" in answer.json()["message"]


async def test_commands_on_a_machine_without_a_known_user_say_what_is_missing(api: ApiHarness) -> None:
    await adopted(api, "silent", foreign(api, "silent"))
    await adopted(api, "spoken", foreign(api, "spoken"), vmUserName="root")
    shown = (await api.get(f"/ns/{NS}/mci/spoken?option=accessinfo")).json()
    assert shown["MciSubGroupAccessInfo"][0]["MciVmAccessInfo"][0]["vmUserName"] == "root"
    bad = await api.post(f"/ns/{NS}/registerCspVm", adoption("x", "i-1", vmUserName="a b"))
    assert bad.json()["field"] == "subGroups[0].vmUserName"


async def test_a_subgroup_of_adopted_machines_is_not_scaled_out(api: ApiHarness) -> None:
    await adopted(api, "fixed", foreign(api, "fixed"))
    answer = await api.post(f"/ns/{NS}/mci/fixed/subgroup/old1", {"numVMsToAdd": 1})
    assert answer.status_code == 400
    assert "were adopted" in answer.json()["message"]


# --- all machines ----------------------------------------------------------------------------------------------------


async def test_all_machines_of_a_connection_are_adopted_and_listed_before(api: ApiHarness) -> None:
    await api.post("/registerCspResources", {"nsId": NS, "connectionName": HERE, "mciNamePrefix": "rest"})
    natives = [foreign(api, "all-1"), foreign(api, "all-2")]
    seen = (await api.post("/inspectResources", {"connectionName": HERE, "resourceType": "vm"})).json()
    assert set(natives) <= {one["cspResourceId"] for one in seen["resources"]["onCspOnly"]["info"]}
    listed = await api.get(f"http://test/api/v1/mci/ns/{NS}/unmarked?connection={HERE}", "operator")
    assert {one["native_id"] for one in listed.json()["machines"]} == set(natives)
    body = {"nsId": NS, "connectionName": HERE, "infraNamePrefix": "everything"}
    found = (await api.post("/registerCspResources?infraFlag=y", body, "operator")).json()
    assert found["registerationOverview"]["vm"] == 2
    assert found["registerationResult"][0]["systemMessage"] == ""
    assert (await api.status("everything"))["status"] == "Running:2 (R:2/2)"
    again = (await api.post("/registerCspResourcesAll", {"nsId": NS}, "operator")).json()
    assert again["registerationOverview"]["vm"] == 0
    assert (await api.post("/registerCspResources", body, "outsider")).status_code == 403
    assert (await api.post("/registerCspResources", {"nsId": "nowhere"})).status_code == 404
    assert (await api.post("/registerCspResources?option=vNet", body)).json()["field"] == "option"


# --- deregistration --------------------------------------------------------------------------------------------------


async def test_a_deregistered_machine_stays_and_can_be_adopted_by_others(api: ApiHarness) -> None:
    native = foreign(api, "leaves")
    await adopted(api, "left", native)
    vm = vm_id("left", "old1-1")
    await api.engine.protect(NS, vm, "production")
    refused = await api.delete(f"/ns/{NS}/deregisterResource/mci/left/vm/old1-1", "operator")
    assert (refused.status_code, state_at_provider(api, native)[0] == unmarked_key(native)) == (409, False)
    await api.engine.protect(NS, vm, None)
    answer = await api.delete(f"/ns/{NS}/deregisterResource/mci/left/vm/old1-1", "operator")
    assert answer.status_code == 200, answer.text
    assert state_at_provider(api, native) == (unmarked_key(native), "running")
    assert (await api.get(f"/ns/{NS}/mci/left/vm/old1-1")).status_code == 404
    taken = await api.post("/ns/other/registerCspVm?wait=60", adoption("mine", native), "outsider")
    assert [one["status"] for one in taken.json()["vm"]] == ["Running"]
    assert (await api.delete(f"/ns/{NS}/deregisterResource/mci/left/vm/old1-1")).status_code == 404


async def test_a_machine_is_claimed_by_one_vm_whoever_asks(api: ApiHarness) -> None:
    native = foreign(api, "one-claim")
    found = await adopted(api, "claimant", native)
    claim = MachineClaim(native, "aws/ap-northeast-2", NS, "claimant.old1-1", found["vm"][0]["uid"])
    assert await claim_machine(api.engine, claim) is None  # its own
    assert await claim_machine(api.engine, replace(claim, ns="other", uid="another")) == claim


@pytest.mark.parametrize("text", ["a b", "*,/", "Ü"])
async def test_a_connection_with_a_bad_list_of_namespaces_is_refused(api: ApiHarness, text: str) -> None:
    body = {"name": "bad", "provider": "aws", "region": "x", "driver": "simulated", "options": {"adopt": text}}
    answer = await api.post("http://test/api/v1/mci/connections", body)
    assert (answer.status_code, answer.json()["field"]) == (400, "adopt")


async def test_claims_of_vms_that_are_gone_are_removed(api: ApiHarness) -> None:
    native = foreign(api, "claimed")
    await adopted(api, "claims", native)
    await api.delete(f"/ns/{NS}/mci/claims?option=terminate")
    await remove_void_claims(api.engine)
    reader = api.engine.store.reader
    claims = [one async for one in list_all(reader, Selector(DEPLOYMENT_NS, CLAIM.kind))]
    uids = {vm_of(one).uid for ns in (NS, "other") async for one in list_all(reader, Selector(ns, VM.kind))}
    assert claims
    assert all(any(uid in one.spec for uid in uids) for one in claims)
    assert all(native not in one.spec for one in claims)
