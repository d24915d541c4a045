"""The life of an MCI, from its creation to its end."""

import pytest

from stateward.domains.mci.errors import VmsAlive
from stateward.domains.mci.lifecycle import MciState
from stateward.engine import AlreadyExists, Refused
from stateward.engine.errors import NoneAllowed
from stateward.lifecycle import FORCE
from stateward.store.records import Status
from tests.integration.domains.mci.conftest import ANN, NS, House, group, mci


async def test_an_mci_is_prepared_provisioned_and_running(house: House) -> None:
    operation = await house.created(mci("m1", group("g1", 3), group("g2", 2, "gcp+asia-northeast3+e2-micro")))
    assert operation.status is Status.SUCCEEDED
    assert await house.state() == MciState.RUNNING
    assert (await house.status()).status == "Running:5 (R:5/5)"
    assert {one.id for one in await house.service.vms(NS, "m1")} == {
        "m1.g1-1",
        "m1.g1-2",
        "m1.g1-3",
        "m1.g2-1",
        "m1.g2-2",
    }
    assert [one.state for one in await house.service.resources(NS, "vNet")] == ["Available", "Available"]


async def test_all_vms_are_suspended_and_resumed_together(house: House) -> None:
    await house.created(mci())
    for action, state in (("suspend", MciState.SUSPENDED), ("resume", MciState.RUNNING), ("reboot", MciState.RUNNING)):
        verdict = await house.service.control(NS, "m1", action, ANN)
        assert (await house.ended(verdict.whole)).status is Status.SUCCEEDED
        assert await house.state() == state


async def test_of_the_vms_only_those_act_that_can_and_the_others_are_told(house: House) -> None:
    await house.created(mci("m1", group(size=3)))
    await house.ended(await house.service.control_vm(NS, "m1", "g1-2", "suspend", ANN))
    verdict = await house.service.control(NS, "m1", "suspend", ANN, force=False)
    assert verdict.skipped.keys() == {"m1.g1-2"}
    await house.ended(verdict.whole)
    assert await house.state() == MciState.SUSPENDED


async def test_an_action_that_no_vm_allows_is_refused(house: House) -> None:
    await house.created(mci())
    with pytest.raises((Refused, NoneAllowed)):
        await house.service.control(NS, "m1", "resume", ANN)


async def test_a_name_is_given_once(house: House) -> None:
    await house.created(mci())
    with pytest.raises(AlreadyExists):
        await house.service.create(NS, mci(), ANN)


async def test_an_mci_is_terminated_and_deleted(house: House) -> None:
    await house.created(mci())
    with pytest.raises((VmsAlive, Refused)):
        await house.service.delete(NS, "m1", "", ANN)
    verdict = await house.service.control(NS, "m1", "terminate", ANN)
    assert (await house.ended(verdict.whole)).status is Status.SUCCEEDED
    assert (await house.status()).status == "Terminated:2 (R:0/2)"
    await house.service.delete(NS, "m1", "", ANN)
    assert await house.service.mcis(NS) == []
    assert await house.service.vms(NS, "m1") == []


async def test_an_mci_is_terminated_first_and_deleted_when_that_is_asked_for(house: House) -> None:
    await house.created(mci())
    accepted, _ = await house.service.delete(NS, "m1", "terminate", ANN)
    assert (await house.ended(accepted)).status is Status.SUCCEEDED
    assert await house.service.mcis(NS) == []


async def test_an_mci_that_is_forced_to_its_end_without_its_vms_takes_them_along(house: House) -> None:
    await house.created(mci())
    forced = await house.engine.act(NS, "m1", "terminate", facts={FORCE})
    assert (await house.ended(forced)).status is Status.SUCCEEDED
    assert (await house.status()).status == "Terminated:2 (R:0/2)"


async def test_a_held_mci_waits_until_it_is_continued(house: House) -> None:
    accepted = await house.service.create(NS, mci(hold=True), ANN)
    worker = house.engine.worker
    assert worker is not None
    await house.until(lambda state: state == MciState.PREPARED)
    assert await house.service.vms(NS, "m1") == []
    await house.service.continue_or_withdraw(NS, "m1", "continue", ANN)
    await house.ended(accepted)
    assert await house.state() == MciState.RUNNING


async def test_a_held_mci_is_withdrawn_with_what_was_made_for_it(house: House) -> None:
    await house.service.create(NS, mci(hold=True), ANN)
    await house.until(lambda state: state == MciState.PREPARED)
    assert len(await house.service.resources(NS, "vNet")) == 1
    await house.ended(await house.service.continue_or_withdraw(NS, "m1", "withdraw", ANN))
    assert await house.service.mcis(NS) == []
    assert [await house.service.resources(NS, word) for word in ("vNet", "securityGroup", "sshKey")] == [[], [], []]


async def test_nothing_is_continued_that_is_not_held(house: House) -> None:
    await house.created(mci())
    with pytest.raises(Refused):
        await house.service.continue_or_withdraw(NS, "m1", "continue", ANN)


async def test_a_preparation_that_fails_leaves_nothing_behind(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house.cloud, "spec_problem", lambda *_: "sold out")
    operation = await house.created(mci("m1", group(spec="aws+ap-northeast-2+t3.nano")))
    assert operation.status is Status.FAILED
    assert "sold out" in (operation.error or "")
    assert await house.state() == MciState.FAILED
    assert await house.service.resources(NS, "vNet") == []


async def test_a_subgroup_grows_and_shrinks_and_no_number_is_used_twice(house: House) -> None:
    await house.created(mci("m1", group(size=2)))
    await house.ended(await house.service.scale(NS, "m1", "g1", 2, ANN))
    assert {one.id for one in await house.service.vms(NS, "m1")} == {f"m1.g1-{number}" for number in (1, 2, 3, 4)}
    await house.ended(await house.service.scale(NS, "m1", "g1", -1, ANN))
    assert {one.id for one in await house.service.vms(NS, "m1")} == {f"m1.g1-{number}" for number in (1, 2, 3)}
    await house.ended(await house.service.add_group(NS, "m1", group("g2", 1, "azure+koreacentral+Standard_B1s"), ANN))
    assert (await house.status()).status == "Running:4 (R:4/4)"
