"""The lifecycle of an MCI, from its creation to its deletion."""

import pytest

from stateward.domains.mci.errors import VmsAlive
from stateward.domains.mci.lifecycle import MciState
from stateward.engine import AlreadyExists, Refused
from stateward.engine.errors import NoneAllowed
from stateward.lifecycle import FORCE
from stateward.store.records import Status
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, group, mci


async def test_an_mci_is_prepared_provisioned_and_running(harness: MciHarness) -> None:
    operation = await harness.created(mci("m1", group("g1", 3), group("g2", 2, "gcp+asia-northeast3+e2-micro")))
    assert operation.status is Status.SUCCEEDED
    assert await harness.state() == MciState.RUNNING
    assert (await harness.status()).status == "Running:5 (R:5/5)"
    assert {one.id for one in await harness.service.vms(NS, "m1")} == {
        "m1.g1-1",
        "m1.g1-2",
        "m1.g1-3",
        "m1.g2-1",
        "m1.g2-2",
    }
    assert [one.state for one in await harness.service.resources(NS, "vNet")] == ["Available", "Available"]


async def test_all_vms_are_suspended_and_resumed_together(harness: MciHarness) -> None:
    await harness.created(mci())
    for action, state in (("suspend", MciState.SUSPENDED), ("resume", MciState.RUNNING), ("reboot", MciState.RUNNING)):
        verdict = await harness.service.control(NS, "m1", action, ANN)
        assert (await harness.ended(verdict.whole)).status is Status.SUCCEEDED
        assert await harness.state() == state


async def test_of_the_vms_only_those_act_that_can_and_the_others_are_told(harness: MciHarness) -> None:
    await harness.created(mci("m1", group(size=3)))
    await harness.ended(await harness.service.control_vm(NS, "m1", "g1-2", "suspend", ANN))
    verdict = await harness.service.control(NS, "m1", "suspend", ANN, force=False)
    assert verdict.skipped.keys() == {"m1.g1-2"}
    await harness.ended(verdict.whole)
    assert await harness.state() == MciState.SUSPENDED


async def test_an_action_that_no_vm_allows_is_refused(harness: MciHarness) -> None:
    await harness.created(mci())
    with pytest.raises((Refused, NoneAllowed)):
        await harness.service.control(NS, "m1", "resume", ANN)


async def test_a_name_is_given_once(harness: MciHarness) -> None:
    await harness.created(mci())
    with pytest.raises(AlreadyExists):
        await harness.service.create(NS, mci(), ANN)


async def test_an_mci_is_terminated_and_deleted(harness: MciHarness) -> None:
    await harness.created(mci())
    with pytest.raises((VmsAlive, Refused)):
        await harness.service.delete(NS, "m1", "", ANN)
    verdict = await harness.service.control(NS, "m1", "terminate", ANN)
    assert (await harness.ended(verdict.whole)).status is Status.SUCCEEDED
    assert (await harness.status()).status == "Terminated:2 (R:0/2)"
    await harness.service.delete(NS, "m1", "", ANN)
    assert await harness.service.mcis(NS) == []
    assert await harness.service.vms(NS, "m1") == []


async def test_an_mci_is_terminated_first_and_deleted_when_that_is_asked_for(harness: MciHarness) -> None:
    await harness.created(mci())
    accepted, _ = await harness.service.delete(NS, "m1", "terminate", ANN)
    assert (await harness.ended(accepted)).status is Status.SUCCEEDED
    assert await harness.service.mcis(NS) == []


async def test_an_mci_that_is_forced_to_its_end_without_its_vms_takes_them_along(harness: MciHarness) -> None:
    await harness.created(mci())
    forced = await harness.engine.act(NS, "m1", "terminate", facts={FORCE})
    assert (await harness.ended(forced)).status is Status.SUCCEEDED
    assert (await harness.status()).status == "Terminated:2 (R:0/2)"


async def test_a_held_mci_waits_until_it_is_continued(harness: MciHarness) -> None:
    accepted = await harness.service.create(NS, mci(hold=True), ANN)
    worker = harness.engine.worker
    assert worker is not None
    await harness.until(lambda state: state == MciState.PREPARED)
    assert await harness.service.vms(NS, "m1") == []
    await harness.service.continue_or_withdraw(NS, "m1", "continue", ANN)
    await harness.ended(accepted)
    assert await harness.state() == MciState.RUNNING


async def test_a_held_mci_is_withdrawn_with_what_was_made_for_it(harness: MciHarness) -> None:
    await harness.service.create(NS, mci(hold=True), ANN)
    await harness.until(lambda state: state == MciState.PREPARED)
    assert len(await harness.service.resources(NS, "vNet")) == 1
    await harness.ended(await harness.service.continue_or_withdraw(NS, "m1", "withdraw", ANN))
    assert await harness.service.mcis(NS) == []
    assert [await harness.service.resources(NS, word) for word in ("vNet", "securityGroup", "sshKey")] == [[], [], []]


async def test_nothing_is_continued_that_is_not_held(harness: MciHarness) -> None:
    await harness.created(mci())
    with pytest.raises(Refused):
        await harness.service.continue_or_withdraw(NS, "m1", "continue", ANN)


async def test_a_preparation_that_fails_leaves_nothing_behind(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.cloud, "spec_problem", lambda *_: "sold out")
    operation = await harness.created(mci("m1", group(spec="aws+ap-northeast-2+t3.nano")))
    assert operation.status is Status.FAILED
    assert "sold out" in (operation.error or "")
    assert await harness.state() == MciState.FAILED
    assert await harness.service.resources(NS, "vNet") == []


async def test_a_subgroup_grows_and_shrinks_and_no_number_is_used_twice(harness: MciHarness) -> None:
    await harness.created(mci("m1", group(size=2)))
    await harness.ended(await harness.service.scale(NS, "m1", "g1", 2, ANN))
    assert {one.id for one in await harness.service.vms(NS, "m1")} == {f"m1.g1-{number}" for number in (1, 2, 3, 4)}
    await harness.ended(await harness.service.scale(NS, "m1", "g1", -1, ANN))
    assert {one.id for one in await harness.service.vms(NS, "m1")} == {f"m1.g1-{number}" for number in (1, 2, 3)}
    await harness.ended(
        await harness.service.add_group(NS, "m1", group("g2", 1, "azure+koreacentral+Standard_B1s"), ANN)
    )
    assert (await harness.status()).status == "Running:4 (R:4/4)"
