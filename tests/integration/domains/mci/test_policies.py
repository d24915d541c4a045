"""VMs that fail: policies, refine, reconcile, post-commands, named resources."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from stateward.domains.mci import model
from stateward.domains.mci.errors import InUse
from stateward.domains.mci.lifecycle import MCI, MciState, VmState
from stateward.domains.mci.model import (
    RESOURCE_LIFECYCLES,
    CloudConnection,
    CommandRun,
    CommandRuns,
    FirewallRule,
    ImageRecord,
    KeySpec,
    MciSeen,
    MciSpec,
    NetworkSpec,
    Policy,
    PostCommand,
    SecurityGroupSpec,
    SubGroup,
    Subnet,
    VmSpec,
    mci_of,
    mci_seen,
    resource_identity,
    resource_seen,
    vm_of,
)
from stateward.domains.mci.provider import provider_client
from stateward.domains.mci.provider.catalogue import LOCAL_IMAGE
from stateward.domains.mci.shared_schemas import OrphanMachine
from stateward.drivers import CallRefused as No
from stateward.drivers import MachineState, ProviderRegion, RefusalReason
from stateward.drivers.process import driver as process_driver
from stateward.drivers.simulated.faults import CALM, FaultProfile
from stateward.drivers.simulated.machine import state_at
from stateward.engine import Refused
from stateward.engine.requests import Creation
from stateward.store.records import Object, Operation, Status
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, group, mci
from tests.integration.drivers.local.host_machines import kill_all_in

SEOUL = ProviderRegion("aws", "ap-northeast-2")
TOKYO = ProviderRegion("aws", "ap-northeast-1")
SINGAPORE = ProviderRegion("aws", "ap-southeast-1")
BREAKS = replace(CALM, fails=1.0)
FULL = replace(CALM, refused=1.0)
GOOD, BAD = group("good", 2), group("bad", 2, "aws+ap-northeast-1+t3.nano")


@pytest.fixture(autouse=True)
def _absent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 0.02)


def machines(harness: MciHarness, place: ProviderRegion) -> list[MachineState | None]:
    """Return the machines at a provider."""
    region = harness.cloud.region(place)
    return [state_at(one, harness.cloud.clock()) for one in region.machines.values()]


async def states(harness: MciHarness, name: str = "m1") -> dict[str, str]:
    return {vm_of(one).name: one.state for one in await harness.service.vms(NS, name)}


async def seen(harness: MciHarness, name: str = "m1") -> MciSeen:
    return mci_seen(await harness.service.mci(NS, name))


async def half_broken(harness: MciHarness, policy: Policy, profile: FaultProfile = BREAKS) -> Status:
    """Make an MCI of which the VMs of one region fail."""
    harness.cloud.set_profile(TOKYO, profile)
    return (await harness.created(mci("m1", GOOD, BAD, policy=policy))).status


@pytest.mark.parametrize("profile", [BREAKS, FULL], ids=["fails", "refused"])
async def test_by_default_failed_vms_stay_and_tell_why(harness: MciHarness, profile: FaultProfile) -> None:
    assert await half_broken(harness, "continue", profile) is Status.SUCCEEDED
    assert await states(harness) == {"good-1": "Running", "good-2": "Running", "bad-1": "Failed", "bad-2": "Failed"}
    assert await harness.state() == MciState.PARTIAL
    assert (await harness.status()).status == "Partial-Failed:2 (R:2/4)"
    assert [error.partition(":")[0] for error in (await seen(harness)).errors] == ["bad-1", "bad-2"]
    assert (await harness.service.vm(NS, "m1", "bad-1")).error


@pytest.mark.parametrize("profile", [BREAKS, FULL], ids=["fails", "refused"])
async def test_a_rollback_terminates_every_vm_at_its_provider_and_removes_it(
    harness: MciHarness, profile: FaultProfile
) -> None:
    assert await half_broken(harness, "rollback", profile) is Status.FAILED
    assert await states(harness) == {}
    assert set(machines(harness, SEOUL) + machines(harness, TOKYO)) <= {MachineState.TERMINATED}
    assert len((await seen(harness)).errors) == 2
    assert await harness.state() == MciState.FAILED


async def test_an_mci_that_was_rolled_back_stays_failed(harness: MciHarness) -> None:
    await half_broken(harness, "rollback")
    await harness.plugin.reconciler.status_updater.update(NS, "m1")
    assert await harness.state() == MciState.FAILED
    assert (await harness.status()).status == "Failed"


@pytest.mark.parametrize("profile", [BREAKS, FULL], ids=["fails", "refused"])
async def test_refining_by_policy_removes_the_failed_vms_and_no_others(
    harness: MciHarness, profile: FaultProfile
) -> None:
    assert await half_broken(harness, "refine", profile) is Status.SUCCEEDED
    assert await states(harness) == {"good-1": "Running", "good-2": "Running"}
    assert set(machines(harness, TOKYO)) <= {MachineState.TERMINATED}
    assert await harness.state() == MciState.RUNNING


@pytest.mark.parametrize("policy", ["continue", "rollback", "refine"])
async def test_an_mci_of_which_every_vm_fails_is_failed(harness: MciHarness, policy: Policy) -> None:
    harness.cloud.set_profile(TOKYO, BREAKS)
    operation = await harness.created(mci("m1", BAD, policy=policy))
    assert operation.status is Status.FAILED
    assert await harness.state() == MciState.FAILED
    assert set((await states(harness)).values()) == ({"Failed"} if policy == "continue" else set())
    assert len((await seen(harness)).errors) == 2


async def test_nothing_is_rolled_back_where_nothing_failed(harness: MciHarness) -> None:
    assert (await harness.created(mci(policy="rollback"))).status is Status.SUCCEEDED
    assert set((await states(harness)).values()) == {"Running"}


async def test_a_growth_that_fails_rolls_back_what_it_has_made_and_nothing_else(harness: MciHarness) -> None:
    await harness.created(mci("m1", group("g1", 2), policy="rollback"))
    harness.cloud.set_profile(SEOUL, BREAKS)
    await harness.ended(await harness.service.scale(NS, "m1", "g1", 2, ANN))
    assert await states(harness) == {"g1-1": "Running", "g1-2": "Running"}
    assert await harness.state() == MciState.RUNNING


async def test_a_record_that_cannot_be_read_keeps_no_other_from_being_looked_at(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.created(mci("m1", group("g1", 1)))
    await harness.created(mci("m2", group("g2", 1)))
    bad, good = await harness.service.vm(NS, "m1", "g1-1"), await harness.service.vm(NS, "m2", "g2-1")
    harness.cloud.fail(SEOUL, vm_of(good).uid)

    def read_or_fail(found: Object) -> VmSpec:
        if found.id == bad.id:
            raise ValueError("broken")
        return vm_of(found)

    monkeypatch.setattr(model, "vm_of", read_or_fail)
    assert await harness.plugin.reconciler.reconcile_all() == []  # the machine of the bad record is no orphan
    assert (await harness.service.vm(NS, "m2", "g2-1")).state == VmState.FAILED


async def test_an_error_at_one_connection_keeps_no_other_from_being_looked_at(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    async def look_or_fail(connection: CloudConnection, *_: object) -> list[OrphanMachine]:
        looked.append(connection.name)
        raise ValueError("broken")

    monkeypatch.setattr(harness.plugin.reconciler, "_reconcile_connection", look_or_fail)
    assert await harness.plugin.reconciler.reconcile_all() == []
    assert len(looked) > 1


async def test_a_growth_does_not_refine_what_has_failed_before(harness: MciHarness) -> None:
    await half_broken(harness, "refine")
    await harness.ended(await harness.service.control_vm(NS, "m1", "good-2", "suspend", ANN))
    harness.cloud.fail(SEOUL, vm_of(await harness.service.vm(NS, "m1", "good-1")).uid)
    await harness.plugin.reconciler.reconcile_all()
    await harness.ended(await harness.service.scale(NS, "m1", "good", 1, ANN))
    assert await states(harness) == {"good-1": "Failed", "good-2": "Suspended", "good-3": "Running"}


async def test_refine_terminates_at_the_provider_first_and_removes_then(harness: MciHarness) -> None:
    await half_broken(harness, "continue")
    await harness.ended(await harness.service.refine(NS, "m1", ANN))
    assert await states(harness) == {"good-1": "Running", "good-2": "Running"}
    assert machines(harness, TOKYO) == [MachineState.TERMINATED] * 2
    await harness.until(lambda state: state == MciState.RUNNING)


async def test_what_cannot_be_terminated_is_not_forgotten_and_does_not_stop_the_others(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (TOKYO, SINGAPORE):
        harness.cloud.set_profile(place, BREAKS)
    await harness.created(mci("m1", GOOD, BAD, group("worse", 1, "aws+ap-southeast-1+t3.nano")))
    monkeypatch.setattr(
        harness.cloud.region(SINGAPORE), "act", lambda _, ref, __: No(ref.key, RefusalReason.AUTH, "not yours")
    )
    await harness.ended(await harness.service.refine(NS, "m1", ANN))
    assert await states(harness) == {"good-1": "Running", "good-2": "Running", "worse-1": "Failed"}
    assert "not yours" in str((await harness.service.vm(NS, "m1", "worse-1")).error)


# --- reconcile -------------------------------------------------------------------------------------------------------


async def broken_suspend(harness: MciHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the suspend of an MCI's VMs fail, though they go on running."""
    with monkeypatch.context() as patch:
        patch.setattr(
            harness.cloud.region(SEOUL), "act", lambda _, ref, __: No(ref.key, RefusalReason.QUOTA, "not today")
        )
        verdict = await harness.service.control(NS, "m1", "suspend", ANN)
        assert (await harness.ended(verdict.whole)).status is Status.FAILED


async def test_vms_that_failed_to_be_suspended_run_again_when_they_are_reconciled(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.created(mci())
    await broken_suspend(harness, monkeypatch)
    assert await harness.state() == MciState.FAILED
    await harness.ended(await harness.service.reconcile(NS, "m1", ANN))
    assert set((await states(harness)).values()) == {"Running"}
    await harness.until(lambda state: state == MciState.RUNNING)
    told = [line.actor for line in await harness.engine.history(NS, "m1.g1-1") if line.event == "shows running"]
    assert told == ["provider"]


async def test_one_vm_is_reconciled_and_the_others_are_not(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.created(mci())
    await broken_suspend(harness, monkeypatch)
    await harness.ended(await harness.service.reconcile_vm(NS, "m1", "g1-2", ANN))
    assert await states(harness) == {"g1-1": "Failed", "g1-2": "Running"}
    await harness.until(lambda state: state == MciState.PARTIAL)


async def test_a_vm_that_never_came_up_stays_failed_when_it_is_reconciled(harness: MciHarness) -> None:
    await half_broken(harness, "continue")
    await harness.ended(await harness.service.reconcile(NS, "m1", ANN))
    assert list((await states(harness)).values()).count("Failed") == 2


async def test_a_vm_of_which_its_provider_knows_nothing_is_not_said_to_be_terminated_by_a_reconcile(
    harness: MciHarness,
) -> None:
    await half_broken(harness, "continue", FULL)
    await harness.ended(await harness.service.reconcile(NS, "m1", ANN))
    assert list((await states(harness)).values()).count("Failed") == 2


async def test_nothing_is_reconciled_that_runs(harness: MciHarness) -> None:
    await harness.created(mci())
    with pytest.raises(Refused):
        await harness.service.reconcile_vm(NS, "m1", "g1-1", ANN)


# --- post-commands ---------------------------------------------------------------------------------------------------

ON_HOST = SubGroup("p", 2, "local+here+tiny", LOCAL_IMAGE)


async def with_command(
    harness: MciHarness, *commands: str, groups: tuple[SubGroup, ...] = (ON_HOST,)
) -> dict[str, CommandRuns]:
    await harness.grant_host()
    await harness.created(mci("m1", *groups, post_command=PostCommand("ann", commands, minutes=1.0)))
    return (await seen(harness)).results


@pytest.fixture
async def machines_end(harness: MciHarness, tmp_path: Path) -> AsyncIterator[None]:
    """Leave no process of a machine behind."""
    yield
    kill_all_in(tmp_path / "machines" / "process" / "here")


@pytest.mark.usefixtures("machines_end")
async def test_a_post_command_is_run_on_every_machine_and_what_it_wrote_is_kept(harness: MciHarness) -> None:
    results = await with_command(harness, "echo hello from $USER", "echo $((6 * 7))")
    assert results.keys() == {"p-1", "p-2"}
    assert set(results.values()) == {(CommandRun("hello from ann\n", 0), CommandRun("42\n", 0))}
    assert await harness.state() == MciState.RUNNING


@pytest.mark.usefixtures("machines_end")
async def test_a_post_command_that_takes_too_long_is_told_and_fails_no_machine(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_driver, "is_ssh_installed", lambda: False)  # an SSH server takes a second to start
    command = PostCommand("ann", ("echo before", "sleep 3600", "echo after"), minutes=0.02)
    await harness.grant_host()
    await harness.created(mci("m1", ON_HOST, post_command=command))
    told = await seen(harness)
    assert set(told.results.values()) == {(CommandRun("before\n", 0), CommandRun())}, told
    assert all("TimeoutError" in why for why in told.failed.values()), told
    assert told.failed.keys() == {"p-1", "p-2"}
    assert await harness.state() == MciState.RUNNING


@pytest.mark.usefixtures("machines_end")
async def test_a_post_command_that_ends_badly_is_the_last_one_and_is_told_and_fails_no_machine(
    harness: MciHarness,
) -> None:
    results = await with_command(harness, "echo first", "echo second; exit 3", "echo third")
    assert set(results.values()) == {(CommandRun("first\n", 0), CommandRun("second\n", 3))}
    told = await seen(harness)
    assert set(told.failed.values()) == {"'echo second; exit 3' ended with exit status 3"}
    assert (told.errors, set((await states(harness)).values())) == ((), {"Running"})
    assert await harness.state() == MciState.RUNNING


@pytest.mark.usefixtures("machines_end")
async def test_a_post_command_is_run_on_new_machines_only_when_a_subgroup_grows(harness: MciHarness) -> None:
    await with_command(harness, "echo x >>../count; cat ../count")
    await harness.ended(await harness.service.scale(NS, "m1", "p", 1, ANN))
    assert (await seen(harness)).results.keys() == {"p-3"}


async def test_a_post_command_is_not_run_where_nothing_runs(harness: MciHarness) -> None:
    harness.cloud.set_profile(TOKYO, BREAKS)
    results = await with_command(harness, "echo hello", groups=(GOOD, BAD))
    assert results.keys() == {"good-1", "good-2"}


# --- parts with names ------------------------------------------------------------------------------------------------

AWS = "aws-ap-northeast-2"
COMMON = {"connection": AWS, "provider": "aws", "region": "ap-northeast-2"}
NET = NetworkSpec("net", "uid-net", cidr="10.1.0.0/16", subnets=(Subnet("a", "10.1.1.0/24"),), **COMMON)
WALL = SecurityGroupSpec("wall", "uid-wall", network="net", rules=(FirewallRule("22"),), **COMMON)
KEY = KeySpec("key", "uid-key", **COMMON)
STATIC = group("g1", 2, network="net", subnet="a", groups=("wall",), key="key")


async def with_parts(harness: MciHarness) -> str:
    """Create the resources that an MCI names; returns the private key of the response."""
    await harness.service.create_resource(NS, "vNet", NET, ANN)
    await harness.service.create_resource(NS, "securityGroup", WALL, ANN)
    _, pair = await harness.service.create_resource(NS, "sshKey", KEY, ANN)
    assert pair is not None
    return pair.private


async def test_a_static_mci_stands_on_the_parts_that_it_names(harness: MciHarness) -> None:
    secret = await with_parts(harness)
    assert "PRIVATE KEY" in secret
    assert (await harness.created(mci("m1", STATIC, dynamic=False))).status is Status.SUCCEEDED
    vm = vm_of(await harness.service.vm(NS, "m1", "g1-1"))
    assert (vm.network, vm.subnet, vm.groups, vm.key) == ("net", "a", ("wall",), "key")
    network = resource_seen(await harness.service.resource(NS, "vNet", "net"))
    assert (vm.parts["vNet"], vm.parts["subnet"]) == (network.native_id, network.subnets["a"])
    assert len(await harness.service.resources(NS, "vNet")) == 1


async def created_unchecked(harness: MciHarness, wanted: MciSpec) -> Operation:
    """Make an MCI as another operation does, long after somebody has looked up what is named."""
    request = harness.engine.request(NS, wanted.name, "create", spec=to_builtins(wanted), creates=Creation(MCI.kind))
    return await harness.ended(await harness.engine.submit(replace(request, parent="of a lease")))


async def test_a_static_mci_is_failed_by_a_part_that_is_not_there(harness: MciHarness) -> None:
    operation = await created_unchecked(harness, mci("m1", STATIC, dynamic=False))
    assert operation.status is Status.FAILED
    assert "vNet 'net'" in str(operation.error)
    assert await harness.state() == MciState.FAILED
    assert await states(harness) == {}


async def test_a_static_mci_is_failed_by_a_part_of_another_connection(harness: MciHarness) -> None:
    await with_parts(harness)
    elsewhere = replace(STATIC, spec="aws+ap-northeast-1+t3.nano")
    operation = await created_unchecked(harness, mci("m1", elsewhere, dynamic=False))
    assert operation.status is Status.FAILED
    assert AWS in str(operation.error)


@pytest.mark.parametrize(("word", "name"), [("vNet", "net"), ("securityGroup", "wall"), ("sshKey", "key")])
async def test_a_part_that_vms_stand_on_is_not_removed(harness: MciHarness, word: str, name: str) -> None:
    await with_parts(harness)
    await harness.created(mci("m1", STATIC, dynamic=False))
    with pytest.raises(InUse, match=r"m1\.g1-1"):
        await harness.service.delete_resource(NS, word, name, ANN)
    verdict = await harness.service.control(NS, "m1", "terminate", ANN)
    await harness.ended(verdict.whole)
    for each, called in (("sshKey", "key"), ("securityGroup", "wall"), ("vNet", "net")):
        assert (
            await harness.ended(await harness.service.delete_resource(NS, each, called, ANN))
        ).status is Status.SUCCEEDED
    assert await harness.service.resources(NS, word) == []


async def test_no_private_key_is_kept(harness: MciHarness) -> None:
    assert "PRIVATE KEY" in await with_parts(harness)
    kept = await harness.service.resource(NS, "sshKey", "key")
    lines = await harness.engine.history(NS, kept.id)
    assert "PRIVATE KEY" not in f"{kept}{lines}"


async def test_what_was_made_for_one_mci_is_not_withdrawn_from_another_that_waits_on_it(harness: MciHarness) -> None:
    for name in ("m1", "m2"):
        await harness.service.create(NS, mci(name, hold=True), ANN)
        await harness.until(lambda state: state == MciState.PREPARED, name)
    await harness.ended(await harness.service.continue_or_withdraw(NS, "m1", "withdraw", ANN))
    await harness.service.continue_or_withdraw(NS, "m2", "continue", ANN)
    await harness.until(lambda state: state in (MciState.RUNNING, MciState.FAILED), "m2")
    assert set((await states(harness, "m2")).values()) == {"Running"}


# --- what else must not go wrong -------------------------------------------------------------------------------------


async def test_an_mci_whose_vms_are_partly_terminated_and_partly_failed_can_be_deleted(harness: MciHarness) -> None:
    await half_broken(harness, "continue")
    verdict = await harness.service.control(NS, "m1", "terminate", ANN)
    await harness.ended(verdict.whole)
    await harness.service.delete(NS, "m1", "", ANN)
    assert await harness.service.mcis(NS) == await harness.service.vms(NS, "m1") == []


async def test_an_mci_that_is_terminated_already_is_deleted_with_its_records_by_terminate_first(
    harness: MciHarness,
) -> None:
    await harness.created(mci())
    verdict = await harness.service.control(NS, "m1", "terminate", ANN)
    await harness.ended(verdict.whole)
    await harness.service.delete(NS, "m1", "terminate", ANN)
    assert await harness.service.mcis(NS) == await harness.service.vms(NS, "m1") == []
    assert (await harness.created(mci())).status is Status.SUCCEEDED
    assert set((await states(harness)).values()) == {"Running"}


async def test_a_deletion_by_force_tells_what_may_remain_and_it_is_found_as_orphans(harness: MciHarness) -> None:
    await harness.created(mci())
    uids = {vm_of(one).uid for one in await harness.service.vms(NS, "m1")}
    _, remains = await harness.service.delete(NS, "m1", "force", ANN)
    assert {one.key for one in remains} == uids
    await harness.created(mci("m2"))
    assert {one.key for one in await harness.plugin.reconciler.reconcile_all()} == uids


async def test_a_subgroup_that_cannot_be_made_leaves_the_mci_as_it_was(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.created(mci())
    monkeypatch.setattr(harness.cloud, "spec_problem", lambda *_: "sold out")
    operation = await harness.ended(await harness.service.add_group(NS, "m1", group("g2"), ANN))
    assert operation.status is Status.FAILED
    assert "sold out" in str(operation.error)
    found = await harness.service.mci(NS, "m1")
    assert [one.name for one in mci_of(found).groups] == ["g1"]
    assert found.state == MciState.RUNNING


async def test_a_failed_mci_still_knows_what_was_wanted(harness: MciHarness) -> None:
    wanted = mci("m1", group(image="beos"))
    assert (await created_unchecked(harness, wanted)).status is Status.FAILED
    found = mci_of(await harness.service.mci(NS, "m1"))
    assert found == replace(wanted, uid=found.uid, access_from=())


async def test_a_growth_of_which_nothing_comes_leaves_the_size_as_it_was(harness: MciHarness) -> None:
    await harness.created(mci("m1", group("g1", 2), policy="refine"))
    harness.cloud.set_profile(SEOUL, BREAKS)
    assert (await harness.ended(await harness.service.scale(NS, "m1", "g1", 2, ANN))).status is Status.FAILED
    assert mci_of(await harness.service.mci(NS, "m1")).groups[0].size == 2
    assert await states(harness) == {"g1-1": "Running", "g1-2": "Running"}


@pytest.mark.parametrize("word", RESOURCE_LIFECYCLES)
async def test_what_a_held_mci_is_to_stand_on_is_made_anew_if_it_was_removed_meanwhile(
    harness: MciHarness, word: str
) -> None:
    accepted = await harness.service.create(NS, mci(hold=True), ANN)
    await harness.until(lambda state: state == MciState.PREPARED)
    words = ["securityGroup", "vNet"] if word == "vNet" else [word]  # a network goes after what is in it
    for one in words:
        (found,) = await harness.service.resources(NS, one)
        assert (
            await harness.ended(await harness.service.delete_resource(NS, one, resource_identity(found).name, ANN))
        ).error is None
    await harness.service.continue_or_withdraw(NS, "m1", "continue", ANN)
    assert (await harness.ended(accepted)).status is Status.SUCCEEDED
    assert (await harness.status()).status == "Running:2 (R:2/2)"


async def test_a_held_mci_whose_parts_were_removed_meanwhile_and_are_its_own_says_so(harness: MciHarness) -> None:
    await with_parts(harness)
    accepted = await harness.service.create(NS, mci("m1", STATIC, dynamic=False, hold=True), ANN)
    await harness.until(lambda state: state == MciState.PREPARED)
    assert (await harness.ended(await harness.service.delete_resource(NS, "sshKey", "key", ANN))).error is None
    await harness.service.continue_or_withdraw(NS, "m1", "continue", ANN)
    assert (await harness.ended(accepted)).status is Status.FAILED
    assert await harness.state() == MciState.FAILED
    assert mci_seen(await harness.service.mci(NS, "m1")).errors == ("there is no sshKey 'key'",)


async def test_a_held_mci_whose_image_has_gone_meanwhile_says_so(harness: MciHarness) -> None:
    await harness.service.register(NS, ImageRecord("mine", AWS, "ubuntu22.04"), ANN)
    await harness.service.create(NS, mci("m1", group("g1", 1), group("g2", 1, image="mine"), hold=True), ANN)
    await harness.until(lambda state: state == MciState.PREPARED)
    await harness.engine.act(NS, "image:mine", "remove")
    accepted = await harness.service.continue_or_withdraw(NS, "m1", "continue", ANN)
    assert accepted.object.state == MciState.CREATING
    await harness.until(lambda state: state != MciState.CREATING)
    assert any("mine" in error for error in (await seen(harness)).errors)
