"""MCIs over HTTP: creation, control, scaling and deletion."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stateward.domains.mci.api.views import _results
from stateward.domains.mci.model import MciSeen, mci_of
from stateward.drivers.simulated.faults import CALM
from stateward.store.records import Key
from tests.integration.domains.mci.api_harness import (
    AWS,
    DEAD,
    MICRO,
    NANO,
    NS,
    UBUNTU,
    ApiHarness,
    group,
    mci,
)

M1 = f"/ns/{NS}/mci/m1"
FAILING = replace(CALM, fails=1.0)


# --- making ----------------------------------------------------------------------------------------------------------


async def test_a_create_answers_when_it_is_accepted_and_names_the_operation(api: ApiHarness) -> None:
    api.set_profile(DEAD)
    answer = await api.post(f"/ns/{NS}/mciDynamic", mci())
    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["status"], shown["targetAction"], shown["targetStatus"]) == ("Preparing", "Create", "Running")
    assert shown["operation"]
    api.set_profile(CALM)
    await api.until("Running:2")


async def test_a_create_is_waited_for_if_wanted(api: ApiHarness) -> None:
    shown = await api.created(mci("m1", group("G_1", "3")))
    assert (shown["status"], [one["id"] for one in shown["vm"]]) == ("Running:3 (R:3/3)", ["g-1-1", "g-1-2", "g-1-3"])


async def test_a_name_is_given_once(api: ApiHarness) -> None:
    await api.created()
    answer = await api.post(f"/ns/{NS}/mciDynamic", mci())
    assert (answer.status_code, answer.json()["code"]) == (409, "exists")


async def test_a_body_that_cannot_be_read_names_the_field(api: ApiHarness) -> None:
    answer = await api.post(f"/ns/{NS}/mciDynamic", mci("m1", group(size="many")))
    assert (answer.status_code, answer.json()["field"]) == (400, "subGroups[0].subGroupSize")


async def test_a_namespace_that_is_not_there_takes_no_mci(api: ApiHarness) -> None:
    assert (await api.post("/ns/nowhere/mciDynamic", mci())).status_code == 404


async def test_an_mci_that_cannot_be_prepared_is_failed_and_tells_why(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.plugin.cloud, "spec_problem", lambda *_: "sold out")
    shown = await api.created(mci("m1", group()))
    assert (shown["status"], shown["vm"]) == ("Failed", [])
    assert "sold out" in shown["systemMessage"][0]
    errors = shown["creationErrors"]
    assert (errors["totalVmCount"], errors["failedVmCount"], errors["failureHandlingStrategy"]) == (2, 2, "continue")
    assert errors["vmObjectCreationErrors"][0]["vmName"] == "g1"


async def test_vms_that_failed_are_told_of_with_the_policy(api: ApiHarness) -> None:
    api.set_profile(FAILING)
    shown = await api.created(
        mci("m1", group("g1", 1), group("g2", 1, specId=MICRO), policyOnPartialFailure="continue")
    )
    assert shown["status"] == "Partial-Failed:1 (R:1/2)"
    errors = shown["creationErrors"]
    assert [one["vmName"] for one in errors["vmCreationErrors"]] == ["g1-1"]
    assert (errors["successfulVmCount"], errors["failedVmCount"]) == (1, 1)
    why = (await api.get(f"http://test/api/v1/ns/{NS}/objects/m1/why")).json()
    assert why["error"] == f"m1.g1-1 is Failed: {shown['vm'][0]['systemMessage']}"


async def test_each_post_command_has_a_result_of_its_own_on_every_vm_in_order(api: ApiHarness) -> None:
    command = {"command": ["echo a", "echo b", "exit 3", "echo never"]}
    shown = await api.created(mci("m1", group(size=10), postCommand=command))
    results = shown["postCommandResult"]["results"]
    assert [one["vmId"] for one in results] == [f"g1-{number}" for number in range(1, 11)]
    assert results[0]["command"] == {"0": "echo a", "1": "echo b", "2": "exit 3", "3": "echo never"}
    assert results[0]["stdout"] == {"0": "echo a\n", "1": "echo b\n", "2": ""}
    assert results[0]["exitStatus"] == {"0": 0, "1": 0, "2": 3}
    assert results[0]["err"] == "'exit 3' ended with exit status 3"


async def test_phases_of_post_commands_run_in_order_on_the_vms_that_they_choose(api: ApiHarness) -> None:
    phases = [
        {"command": ["echo a", "echo b"], "nodeGroupId": "web"},
        {"command": "echo c", "labelSelector": "role=db"},
        {"command": ["echo d"], "nodeId": "none-1", "continueOnError": True},
        {"command": ["echo e"], "nodeId": "web-2", "timeoutMinutes": 5},
        {"command": ["echo f"], "labelSelector": "role=none"},
        {"command": ["echo g"]},
    ]
    body = mci("m1", group("web"), group("db", 1, label={"role": "db"}), postCommands=phases, postCommandAsync=True)
    shown = await api.created(body)
    ran = [(one["phase"], one["status"], one["target"]) for one in shown["postCommandResults"]]
    assert ran == [
        (1, "Completed", "nodeGroupId=web"),
        (2, "Completed", "labelSelector=role=db"),
        (3, "Failed", "nodeId=none-1"),
        (4, "Completed", "nodeId=web-2"),
        (5, "Failed", "labelSelector=role=none"),
        (6, "Skipped", ""),
    ]
    each = [[one["vmId"] for one in phase["results"]["results"]] for phase in shown["postCommandResults"]]
    assert each == [["web-1", "web-2"], ["db-1"], [], ["web-2"], [], []]
    assert shown["postCommandResults"][0]["results"]["results"][0]["command"] == {"0": "echo a", "1": "echo b"}
    assert (shown["postCommandStatus"], shown["status"]) == ("CompletedWithErrors", "Running:3 (R:3/3)")
    own = group("more", 1, postCommands=[{"command": ["echo h"]}])
    added = (await api.post(f"{M1}/subGroupDynamic?wait=60", own)).json()
    assert added["postCommandResults"][-1]["target"] == "nodeGroupId=more"


WRONG_PHASES: list[tuple[dict[str, Any], str]] = [
    ({"command": []}, "postCommands[0].command"),
    ({"command": ["x"], "nodeGroupId": "none"}, "postCommands[0].subGroupId"),
    ({"command": ["x"], "nodeGroupId": "g1", "nodeId": "g1-1"}, "postCommands[0].labelSelector"),
    ({"command": ["x"], "labelSelector": "role"}, "postCommands[0].labelSelector"),
    ({"command": ["x"], "continueOnError": "maybe"}, "postCommands[0].continueOnError"),
]


async def test_a_phase_that_could_not_run_is_refused(api: ApiHarness) -> None:
    for phase, field in WRONG_PHASES:
        answer = await api.post(f"/ns/{NS}/mciDynamic", mci("m1", group(), postCommands=[phase]))
        assert (answer.status_code, answer.json()["field"]) == (400, field), phase


async def test_results_of_post_commands_that_an_earlier_version_wrote_are_shown(api: ApiHarness) -> None:
    await api.created(mci("m1", group(size=1), postCommand={"command": ["echo a", "echo b"]}))
    found = await api.engine.record(NS, "m1")
    old = msgspec.convert(msgspec.json.decode(found.seen) | {"results": {"g1-1": "a\nb\n"}}, MciSeen)
    (result,) = _results("m1", mci_of(found), old, ()).results
    assert (result.stdout, result.exit_status) == ({"0": "a\nb\n"}, {})


async def test_a_static_mci_stands_on_what_it_names(api: ApiHarness) -> None:
    parts = {"connectionName": AWS, "name": "p1"}
    subnets = [{"name": "s1", "ipv4_CIDR": "10.0.1.0/24"}]
    assert (await api.post(f"/ns/{NS}/resources/vNet", {**parts, "subnetInfoList": subnets})).status_code == 201
    assert (await api.post(f"/ns/{NS}/resources/securityGroup", {**parts, "vNetId": "p1"})).status_code == 200
    assert (await api.post(f"/ns/{NS}/resources/sshKey", parts)).status_code == 200
    older = {
        "name": "m1",
        "vm": [
            {
                "name": "g1", "subGroupSize": "2", "connectionName": AWS, "specId": NANO, "imageId": UBUNTU,
                "vNetId": "p1", "subnetId": "null", "securityGroupIds": ["p1"], "sshKeyId": "p1",
                "vmUserPassword": "hidden",
            }
        ],
    }  # fmt: skip
    answer = await api.post(f"/ns/{NS}/mci?wait=60", older)
    shown = answer.json()
    assert shown["status"] == "Running:2 (R:2/2)"
    assert {(one["vNetId"], *one["securityGroupIds"], one["sshKeyId"]) for one in shown["vm"]} == {("p1", "p1", "p1")}
    assert shown["vm"][0]["cspSubnetId"]
    assert "hidden" not in answer.text


async def test_a_held_mci_goes_on_when_it_is_continued(api: ApiHarness) -> None:
    shown = (await api.post(f"/ns/{NS}/mciDynamic?option=hold", mci())).json()
    await api.held()
    answer = await api.post(f"{M1}?action=continue&wait=60")
    assert answer.json()["message"] == "Continue the holding MCI"
    assert answer.json()["operation"] == shown["operation"]
    await api.until("Running:2 (R:2/2)")


async def test_a_held_mci_is_withdrawn(api: ApiHarness) -> None:
    await api.post(f"/ns/{NS}/mciDynamic?option=hold", mci())
    await api.held()
    answer = await api.get(f"/ns/{NS}/control/mci/m1?action=withdraw&wait=60")
    assert (answer.status_code, answer.json()["message"]) == (200, "Withdraw the holding MCI")
    assert (await api.get(M1)).status_code == 404
    assert (await api.get(f"/ns/{NS}/resources/vNet?option=id")).json() == {"output": []}


# --- control ---------------------------------------------------------------------------------------------------------


async def test_control_is_served_in_both_forms_with_the_same_words(api: ApiHarness) -> None:
    await api.created()
    for action, message, status in (
        ("suspend", "Suspending the MCI", "Suspended:2 (R:0/2)"),
        ("resume", "Resuming the MCI", "Running:2 (R:2/2)"),
        ("reboot", "Rebooting the MCI", "Running:2 (R:2/2)"),
        ("terminate", "Terminated the MCI", "Terminated:2 (R:0/2)"),
    ):
        path = f"/ns/{NS}/control/mci/m1" if action in ("resume", "terminate") else M1
        call = api.get if action in ("resume", "terminate") else api.post
        answer = await call(f"{path}?action={action}&wait=60")
        assert answer.status_code == 200, answer.text
        assert (answer.json()["message"], answer.json()["operationStatus"]) == (message, "succeeded")
        assert (await api.status())["status"] == status


async def test_a_control_call_answers_when_it_is_accepted(api: ApiHarness) -> None:
    await api.created()
    api.set_profile(DEAD)
    said = (await api.post(f"{M1}?action=suspend")).json()
    assert (said["message"], said["operationStatus"]) == ("Suspending the MCI", "running")
    operation = await api.engine.store.reader.operation(Key(NS, said["operation"]))
    assert operation is not None
    assert operation.action == "suspend"
    api.set_profile(CALM)


async def test_vms_that_do_not_allow_it_are_passed_over_and_told_of(api: ApiHarness) -> None:
    await api.created(mci("m1", group(size=3)))
    await api.done(f"{M1}/vm/g1-2?action=suspend")
    said = await api.done(f"{M1}?action=suspend")
    assert [(one["vm"], one["status"]) for one in said["skipped"]] == [("g1-2", "Suspended")]
    assert (await api.status())["status"] == "Suspended:3 (R:0/3)"


async def test_a_second_action_is_refused_and_names_the_first(api: ApiHarness) -> None:
    await api.created()
    api.set_profile(DEAD)
    first = (await api.post(f"{M1}?action=suspend")).json()
    second = await api.post(f"{M1}?action=terminate")
    assert second.status_code == 409
    assert second.json()["blocker"]["op"] == first["operation"]
    assert first["operation"] in second.json()["message"]
    api.set_profile(CALM)


async def test_force_pre_empts_what_is_under_way(api: ApiHarness) -> None:
    await api.created()
    api.set_profile(DEAD)
    await api.post(f"{M1}?action=suspend")
    answer = await api.post(f"{M1}?action=terminate&force=true")
    assert answer.status_code == 200, answer.text
    api.set_profile(CALM)
    await api.until("Terminated:2 (R:0/2)")


async def test_a_create_that_has_no_vms_yet_is_given_up_by_force_and_nothing_else_is_done_to_it(
    api: ApiHarness,
) -> None:
    await api.post(f"/ns/{NS}/mciDynamic?option=hold", mci())
    await api.held()
    refused = await api.post(f"{M1}?action=suspend&force=true")
    assert (refused.status_code, refused.json()["code"]) == (409, "none_allowed")
    refused = await api.post(f"{M1}?action=terminate")
    assert (refused.status_code, refused.json()["blocker"]["action"]) == (409, "create")
    await api.done(f"{M1}?action=terminate&force=true")
    assert (await api.status())["status"] == "Empty"
    assert (await api.delete(M1)).status_code == 200


async def test_targets_are_none_again_when_all_vms_have_reached_their_end(api: ApiHarness) -> None:
    await api.created()
    for action in ("reboot", "suspend", "terminate"):
        await api.done(f"{M1}?action={action}")
        status = await api.status()
        for one in (status, *status["vm"]):
            assert (one["targetAction"], one["targetStatus"]) == ("None", "None"), action


async def test_a_vm_is_controlled_in_both_forms(api: ApiHarness) -> None:
    await api.created()
    assert (await api.done(f"{M1}/vm/G1-1?action=suspend"))["message"] == "Working on suspend"
    answer = await api.get(f"/ns/{NS}/control/mci/m1/vm/g1-1?action=resume&wait=60")
    assert (answer.status_code, answer.json()["operationStatus"]) == (200, "succeeded")


async def test_refine_removes_what_has_failed(api: ApiHarness) -> None:
    api.set_profile(FAILING)
    await api.created(mci("m1", group("g1", 2), group("g2", 1, specId=MICRO)))
    api.set_profile(CALM)
    assert (await api.done(f"{M1}?action=refine"))["message"] == "Refined the MCI"
    assert (await api.status())["status"] == "Running:1 (R:1/1)"


async def test_work_that_leaves_the_state_alone_is_a_target_too(api: ApiHarness) -> None:
    api.set_profile(FAILING)
    await api.created(mci("m1", group("g1", 1), group("g2", 1, specId=MICRO)))
    api.set_profile(DEAD)
    await api.post(f"{M1}?action=refine")
    status = await api.status()
    assert (status["targetAction"], status["targetStatus"]) == ("Refine", "None")
    api.set_profile(CALM)


# --- subgroups and VMs -----------------------------------------------------------------------------------------------


async def test_a_subgroup_grows_shrinks_and_is_brought_to_a_size(api: ApiHarness) -> None:
    await api.created()
    for body, new, total in (
        ({"numVMsToAdd": "2"}, ["g1-3", "g1-4"], 4),
        ({"numVMsToRemove": 1}, [], 3),
        ({"size": 5}, ["g1-4", "g1-5"], 5),
        ({"size": 1}, [], 1),
        ({"size": 1}, [], 1),
    ):
        answer = await api.post(f"{M1}/subgroup/g1?wait=60", body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["newVmList"] == new
        assert answer.json()["status"] == f"Running:{total} (R:{total}/{total})"


async def test_no_more_vms_go_than_there_are(api: ApiHarness) -> None:
    await api.created()
    assert (await api.post(f"{M1}/subgroup/g1", {"numVMsToRemove": 3})).status_code == 400
    assert (await api.post(f"{M1}/subgroup/g9", {"numVMsToAdd": 3})).status_code == 404


async def test_a_subgroup_is_added(api: ApiHarness) -> None:
    await api.created()
    answer = await api.post(f"{M1}/subGroupDynamic?wait=60", group("", 2, specId=MICRO))
    assert answer.json()["newVmList"] == ["g2-1", "g2-2"]
    assert answer.json()["status"] == "Running:4 (R:4/4)"
    shared, key = f"{NS}-shared-{AWS}", (await api.get(f"{M1}/vm/g1-1")).json()["sshKeyId"]
    static = group("g3", 1, vNetId=shared, securityGroupIds=[f"{shared}-closed"], sshKeyId=key)
    answer = await api.post(f"{M1}/vm?wait=60", static)
    assert answer.json()["newVmList"] == ["g3-1"]
    assert (await api.get(f"{M1}/subgroup")).json() == {"output": ["g1", "g2", "g3"]}
    assert (await api.post(f"{M1}/vm", static)).status_code == 409


async def test_nothing_is_scaled_while_something_is_under_way(api: ApiHarness) -> None:
    await api.created()
    api.set_profile(DEAD)
    await api.post(f"{M1}?action=suspend")
    answer = await api.post(f"{M1}/subgroup/g1", {"numVMsToAdd": 1})
    assert (answer.status_code, answer.json()["blocker"]["action"]) == (409, "suspend")
    assert (await api.post(f"{M1}/subGroupDynamic", group("g9"))).status_code == 409
    api.set_profile(CALM)


async def test_a_running_vm_is_terminated_before_it_is_deleted(api: ApiHarness) -> None:
    await api.created()
    assert (await api.delete(f"{M1}/vm/g1-1")).json() == {"message": "Deleted the VM info"}
    assert (await api.get(f"{M1}?option=id")).json() == {"output": ["g1-2"]}
    assert ("aws", "terminate") in api.calls


async def test_a_terminated_vm_is_forgotten(api: ApiHarness) -> None:
    await api.created()
    await api.done(f"{M1}/vm/g1-1?action=terminate")
    answer = await api.delete(f"{M1}/vm/g1-1")
    assert (answer.status_code, answer.json()) == (200, {"message": "Deleted the VM info"})
    assert (await api.delete(f"{M1}/vm/g1-2?option=force")).status_code == 200
    assert (await api.get(f"{M1}?option=id")).json() == {"output": []}


# --- deleting --------------------------------------------------------------------------------------------------------


async def test_a_terminated_mci_is_deleted_line_by_line(api: ApiHarness) -> None:
    await api.created()
    await api.done(f"{M1}?action=terminate")
    answer = await api.delete(M1)
    lines = ["[Done] VM: g1-1", "[Done] VM: g1-2", "[Done] SubGroup: g1", "[Done] MCI: m1"]
    assert (answer.status_code, answer.json()) == (200, {"output": lines})
    assert (await api.get(M1)).status_code == 404


async def test_the_journal_of_an_mci_stays_readable_when_it_is_deleted(api: ApiHarness) -> None:
    await api.created()
    assert (await api.delete(f"{M1}?option=terminate")).status_code == 200
    assert (await api.get(M1)).status_code == 404
    for id_, events in (("m1", {"create", "delete"}), ("m1.g1-1", {"create", "terminate", "remove"})):
        answer = await api.get(f"http://test/api/v1/ns/{NS}/objects/{id_}/history")
        assert events <= {line["event"] for line in answer.json()["items"]}, answer.text


async def test_a_deletion_terminates_first_and_is_waited_for(api: ApiHarness) -> None:
    await api.created()
    answer = await api.delete(f"{M1}?option=terminate")
    assert (answer.status_code, answer.json()["output"][-1]) == (200, "[Done] MCI: m1")
    assert (await api.get(M1)).status_code == 404


async def test_a_deletion_that_takes_long_is_told_of_by_its_operation(api: ApiHarness) -> None:
    await api.created()
    api.set_profile(DEAD)
    answer = await api.delete(f"{M1}?option=terminate&wait=0")
    assert (answer.status_code, answer.json()["operationStatus"]) == (202, "running")
    api.set_profile(CALM)
    await api.engine.wait_record(NS, answer.json()["operation"], 60)
    assert (await api.get(M1)).status_code == 404


async def test_a_forced_deletion_tells_what_may_remain(api: ApiHarness) -> None:
    shown = await api.created()
    answer = await api.delete(f"{M1}?option=force")
    assert answer.status_code == 200, answer.text
    assert sorted(answer.json()["remains"]) == sorted(one["uid"] for one in shown["vm"])


async def test_all_mcis_are_deleted(api: ApiHarness) -> None:
    await api.created(mci("m1"))
    await api.created(mci("m2"))
    assert (await api.delete(f"/ns/{NS}/mci")).status_code == 409
    answer = await api.delete(f"/ns/{NS}/mci?option=terminate")
    assert (answer.status_code, answer.json()) == (200, {"message": "All MCIs have been deleted"})
    assert (await api.get(f"/ns/{NS}/mci")).json() == {"mci": []}
