"""Deletion of VMs and MCIs: machines are terminated first, or the response names those that may be left."""

from collections.abc import Callable, Collection, Coroutine
from typing import Any

import pytest

from stateward.domains.mci.api.operation_replies import wait_for_end
from stateward.domains.mci.api.routes import mci_routes
from stateward.domains.mci.control import orphan_machines
from stateward.domains.mci.lifecycle import VmState
from stateward.domains.mci.model import mci_of, vm_of
from stateward.domains.mci.provider import provider_client
from stateward.domains.mci.provider.evidence import Evidence
from stateward.domains.mci.provider.provider_client import ProviderClient
from stateward.domains.mci.service import Service
from stateward.drivers import MachineState, ProviderRegion
from stateward.drivers.simulated.faults import CALM
from stateward.drivers.simulated.machine import state_at
from stateward.engine import NotFound, Refused
from stateward.store.errors import Unavailable
from stateward.store.records import Status
from tests.integration.domains.mci import api_harness
from tests.integration.domains.mci.api_harness import AWS, DEAD, HERE, ApiHarness
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, group, mci

SEOUL = ProviderRegion("aws", "ap-northeast-2")
M1 = f"/ns/{NS}/mci/m1"
VM = f"{M1}/vm/g1-1"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 0.02)
    monkeypatch.setattr(orphan_machines, "PROVIDER_TIMEOUT_S", 1.0)


def machine(harness: MciHarness, uid: str) -> MachineState | None:
    return state_at(harness.cloud.region(SEOUL).machines[uid], harness.cloud.clock())


async def left_behind(harness: MciHarness, id_: str = "m1.g1-1") -> list[str | None]:
    return [one.reason for one in await harness.engine.history(NS, id_) if one.event == "left behind"]


# --- terminate first -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["Running", "Suspended", "Failed", "Undefined"])
async def test_a_vm_is_terminated_at_its_provider_before_its_record_goes(harness: MciHarness, state: str) -> None:
    await harness.created(mci("m1", group("g1", 2)))
    uid = vm_of(await harness.service.vm(NS, "m1", "g1-1")).uid
    if state == "Suspended":
        await harness.ended(await harness.service.control_vm(NS, "m1", "g1-1", "suspend", ANN))
    elif state != "Running":
        event = "shows failed" if state == "Failed" else "cannot say"
        await harness.engine.act(NS, "m1.g1-1", event, actor="provider")
    accepted = await harness.service.terminate_and_delete_vm(NS, "m1", "g1-1", ANN)
    assert accepted.object.state == VmState.TERMINATING
    assert (await harness.ended(accepted)).status is Status.SUCCEEDED
    assert machine(harness, uid) is MachineState.TERMINATED
    assert [vm_of(one).name for one in await harness.service.vms(NS, "m1")] == ["g1-2"]
    assert await left_behind(harness) == []


async def test_a_subgroup_goes_with_its_last_vm_that_is_terminated_and_deleted(harness: MciHarness) -> None:
    await harness.created(mci("m1", group("g1", 1), group("g2", 1)))
    await harness.ended(await harness.service.terminate_and_delete_vm(NS, "m1", "g1-1", ANN))
    assert [one.name for one in mci_of(await harness.service.mci(NS, "m1")).groups] == ["g2"]


async def test_a_vm_that_cannot_be_terminated_keeps_its_record(harness: MciHarness) -> None:
    await harness.created(mci("m1", group("g1", 2)))
    harness.cloud.set_profile(SEOUL, DEAD)
    accepted = await harness.service.terminate_and_delete_vm(NS, "m1", "g1-1", ANN)
    assert (await harness.service.vm(NS, "m1", "g1-1")).state == VmState.TERMINATING
    with pytest.raises(Refused):
        await harness.service.terminate_and_delete_vm(NS, "m1", "g1-1", ANN)
    harness.cloud.set_profile(SEOUL, CALM)
    assert (await harness.ended(accepted)).status is Status.SUCCEEDED


async def test_a_delete_with_terminate_waits_for_the_end_and_leaves_nothing(api: ApiHarness) -> None:
    await api.created()
    answer = await api.delete(f"{VM}?option=terminate")
    assert (answer.status_code, answer.json()) == (200, {"message": "Deleted the VM info"})
    assert (await api.get(VM)).status_code == 404
    assert await orphans(api) == set()
    assert (await api.delete(f"{M1}/vm/g1-2?option=terminate")).status_code == 200
    assert (await api.delete(M1)).status_code == 200


async def test_a_delete_with_terminate_that_takes_long_names_its_operation(api: ApiHarness) -> None:
    await api.created()
    api.set_profile(DEAD)
    answer = await api.delete(f"{VM}?option=terminate&wait=0")
    assert (answer.status_code, answer.json()["operationStatus"]) == (202, "running")
    api.set_profile(CALM)
    over = await api.engine.wait_record(NS, answer.json()["operation"], 60.0)
    assert over.status is Status.SUCCEEDED


async def test_a_terminated_vm_is_deleted_with_terminate_too(api: ApiHarness) -> None:
    await api.created()
    await api.done(f"{VM}?action=terminate")
    assert (await api.delete(f"{VM}?option=terminate")).status_code == 200
    assert (await api.get(VM)).status_code == 404


# --- by force --------------------------------------------------------------------------------------------------------


async def orphans(api: ApiHarness) -> set[str]:
    found = (await api.get(f"http://test/api/v1/mci/orphans?connection={AWS}")).json()
    return {one["key"] for one in found["orphans"]}


@pytest.mark.parametrize("how", ["option=force", "force=true"])
async def test_a_running_vm_that_is_forgotten_is_named_with_its_place_and_is_an_orphan(
    api: ApiHarness, how: str
) -> None:
    shown = (await api.created())["vm"][0]
    answer = (await api.delete(f"{VM}?{how}")).json()
    assert answer["message"] == "Deleted the VM info"
    assert answer["remains"] == [shown["uid"]]
    (left,) = answer["left"]
    assert (left["vm"], left["connection"], left["key"]) == ("g1-1", AWS, shown["uid"])
    assert (left["nativeId"], left["shown"]) == (shown["cspResourceId"], "running")
    assert await orphans(api) == {shown["uid"]}


async def test_the_journal_says_what_a_forgotten_vm_may_leave_and_where(harness: MciHarness) -> None:
    await harness.created(mci("m1", group("g1", 2)))
    found = await harness.service.vm(NS, "m1", "g1-1")
    await harness.service.delete_vm(NS, "m1", "g1-1", ANN, force=True)
    (reason,) = await left_behind(harness)
    assert reason is not None
    assert all(part in reason for part in ("aws-ap-northeast-2", vm_of(found).uid, "native id i-", "Running"))


async def test_nothing_is_said_of_a_machine_that_is_known_to_be_gone(harness: MciHarness) -> None:
    await harness.created(mci("m1", group("g1", 2)))
    harness.cloud.terminate(SEOUL, vm_of(await harness.service.vm(NS, "m1", "g1-1")).uid)
    _, left = await harness.service.delete_vm(NS, "m1", "g1-1", ANN, force=True)
    assert (left, await left_behind(harness)) == ([], [])


async def test_a_provider_that_does_not_answer_holds_up_no_removal_and_is_told(api: ApiHarness) -> None:
    await api.created()
    api.set_profile(DEAD)
    (left,) = (await api.delete(f"{VM}?option=force")).json()["left"]
    assert left["shown"]
    assert left["shown"] != "running"


async def test_a_failed_vm_whose_machine_runs_is_not_forgotten_without_a_word(harness: MciHarness) -> None:
    await harness.created(mci("m1", group("g1", 2)))
    await harness.engine.act(NS, "m1.g1-1", "shows failed", actor="provider")
    _, left = await harness.service.delete_vm(NS, "m1", "g1-1", ANN)
    assert [(one.vm, one.shown) for one in left] == [("g1-1", "running")]
    assert len(await left_behind(harness)) == 1


async def test_a_removal_that_is_refused_asks_no_provider(api: ApiHarness) -> None:
    await api.created()
    before = len(api.calls)
    with pytest.raises(Refused, match="force"):
        await api.plugin.service.delete_vm(NS, "m1", "g1-1", ANN)
    assert len(api.calls) == before


@pytest.mark.parametrize("path", [f"{M1}?option=force", f"{M1}?force=true", f"/ns/{NS}/mci?option=force"])
async def test_whole_mcis_that_are_forgotten_name_what_may_be_left(api: ApiHarness, path: str) -> None:
    shown = await api.created(api_harness.mci("m1", api_harness.group("g1", 3)))
    await api.done(f"{VM}?action=terminate")
    answer: Any = (await api.delete(path)).json()
    running = {one["uid"] for one in shown["vm"][1:]}
    assert set(answer["remains"]) == {one["key"] for one in answer["left"]} == running == await orphans(api)
    assert api.plugin.cloud.region(HERE).machines.keys() >= running


async def test_force_and_terminate_together_are_bad_input(api: ApiHarness) -> None:
    await api.created()
    for path in (M1, VM):
        answer = await api.delete(f"{path}?option=terminate&force=true")
        assert (answer.status_code, answer.json()["field"]) == (400, "force")


# --- while the providers are listed ----------------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Let something happen between the read of the VMs and the answer of the provider, once."""
    observe_all = ProviderClient.observe_all
    pending = [act]
    monkeypatch.setattr(orphan_machines, "PROVIDER_TIMEOUT_S", 60.0)

    async def observed(client: ProviderClient, keys: Collection[str]) -> dict[str, Evidence]:
        if pending:
            await pending.pop()()
        return await observe_all(client, keys)

    monkeypatch.setattr(ProviderClient, "observe_all", observed)


async def test_vms_that_are_created_while_the_providers_are_listed_are_named(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.created(mci("m1", group("g1", 1)))

    async def grow() -> None:
        await harness.ended(await harness.service.scale(NS, "m1", "g1", 2, ANN))

    meanwhile(monkeypatch, grow)
    _, left = await harness.service.delete(NS, "m1", "force", ANN)
    assert await harness.service.vms(NS, "m1") == []
    machines = harness.cloud.region(SEOUL).machines
    assert ({one.key for one in left}, {one.vm for one in left}) == (set(machines), {"g1-1", "g1-2", "g1-3"})
    assert [len(await left_behind(harness, f"m1.g1-{number}")) for number in (1, 2, 3)] == [1, 1, 1]


async def test_a_proof_that_a_machine_is_gone_is_void_if_its_vm_has_changed_since(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.created(mci("m1", group("g1", 1)))
    uid = vm_of(await harness.service.vm(NS, "m1", "g1-1")).uid
    region = harness.cloud.region(SEOUL)
    hidden = region.machines.pop(uid)
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 0.0)
    monkeypatch.setattr(orphan_machines, "PROVIDER_TIMEOUT_S", 60.0)
    observe_all = ProviderClient.observe_all

    async def observed(client: ProviderClient, keys: Collection[str]) -> dict[str, Evidence]:
        evidence = await observe_all(client, keys)
        region.machines[uid] = hidden
        await harness.ended(await harness.service.control_vm(NS, "m1", "g1-1", "reboot", ANN))
        return evidence

    monkeypatch.setattr(ProviderClient, "observe_all", observed)
    _, left = await harness.service.delete(NS, "m1", "force", ANN)
    assert ([one.key for one in left], len(await left_behind(harness))) == ([uid], 1)


async def test_a_vm_that_was_created_under_the_name_of_a_deleted_one_is_not_removed(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.created(mci("m1", group("g1", 2)))
    first = vm_of(await harness.service.vm(NS, "m1", "g1-2"))

    async def replace_it() -> None:
        await harness.ended(await harness.service.terminate_and_delete_vm(NS, "m1", "g1-2", ANN))
        await harness.ended(await harness.service.scale(NS, "m1", "g1", 1, ANN))

    meanwhile(monkeypatch, replace_it)
    with pytest.raises(NotFound):
        await harness.service.delete_vm(NS, "m1", "g1-2", ANN, force=True)
    found = await harness.service.vm(NS, "m1", "g1-2")
    assert (found.state, vm_of(found).uid == first.uid) == ("Running", False)


async def test_an_error_at_one_mci_does_not_hide_what_the_others_may_leave(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = await api.created()
    await api.created(api_harness.mci("m2"))
    delete = Service.delete

    async def failing(service: Service, ns: str, mci: str, *how: Any) -> Any:
        if mci == "m2":
            raise Unavailable("the database is gone")
        return await delete(service, ns, mci, *how)

    monkeypatch.setattr(Service, "delete", failing)
    answer = await api.delete(f"/ns/{NS}/mci?option=force")
    assert answer.status_code >= 400
    assert all(one["uid"] in answer.text for one in shown["vm"])
    assert "the database is gone" in answer.text


async def test_an_mci_that_is_created_again_under_its_name_does_not_count_as_left(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.created()

    async def waited(*how: Any) -> Any:
        monkeypatch.setattr(mci_routes, "wait_for_end", wait_for_end)
        over = await wait_for_end(*how)
        await api.created()
        return over

    monkeypatch.setattr(mci_routes, "wait_for_end", waited)
    assert (await api.delete(f"{M1}?option=terminate")).status_code == 200
