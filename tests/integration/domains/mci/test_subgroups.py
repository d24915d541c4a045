"""A subgroup is removed with its last VM, whatever removes the VM."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.domains.mci.guards.subgroups import WITH_MCI
from stateward.domains.mci.lifecycle import MciState
from stateward.domains.mci.model import mci_of, vm_of
from stateward.domains.mci.provider import provider_client
from stateward.drivers import ProviderRegion
from stateward.drivers.simulated.faults import CALM
from stateward.engine import NotFound
from stateward.store.records import Status
from tests.integration.domains.mci import api_harness
from tests.integration.domains.mci.api_harness import MICRO, ApiHarness, open_api
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, group, mci

TOKYO = ProviderRegion("aws", "ap-northeast-1")
FAILING = replace(CALM, fails=1.0)
GOOD, BAD = group("good", 2), group("bad", 2, "aws+ap-northeast-1+t3.nano")
M1 = f"/ns/{NS}/mci/m1"


@pytest.fixture(autouse=True)
def _absent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 0.02)


async def subgroups(harness: MciHarness) -> list[str]:
    return [one.name for one in mci_of(await harness.service.mci(NS, "m1")).groups]


async def test_refine_takes_the_subgroup_along_whose_vms_have_all_failed(harness: MciHarness) -> None:
    harness.cloud.set_profile(TOKYO, FAILING)
    await harness.created(mci("m1", GOOD, BAD))
    assert await subgroups(harness) == ["good", "bad"]
    await harness.ended(await harness.service.refine(NS, "m1", ANN))
    assert await subgroups(harness) == ["good"]
    lines = [one for one in await harness.engine.history(NS, "m1") if one.event == "subgroup removed"]
    assert [one.reason for one in lines] == ["subgroup bad has no VM left"]


@pytest.mark.parametrize(("policy", "left"), [("continue", ["good", "bad"]), ("refine", ["good"]), ("rollback", [])])
async def test_a_policy_that_removes_vms_takes_subgroups_along(
    harness: MciHarness, policy: str, left: list[str]
) -> None:
    harness.cloud.set_profile(TOKYO, FAILING)
    await harness.created(mci("m1", GOOD, BAD, policy=policy))
    assert await subgroups(harness) == left


async def test_a_subgroup_that_shrinks_to_nothing_is_gone_and_its_name_is_free(harness: MciHarness) -> None:
    await harness.created(mci("m1", GOOD, group("other", 1)))
    await harness.ended(await harness.service.scale(NS, "m1", "other", -1, ANN))
    assert await subgroups(harness) == ["good"]
    with pytest.raises(NotFound):
        await harness.service.scale(NS, "m1", "other", 1, ANN)
    await harness.ended(await harness.service.add_group(NS, "m1", group("other", 3, "aws+ap-northeast-1+t3.nano"), ANN))
    assert await subgroups(harness) == ["good", "other"]
    assert len(await harness.service.vms(NS, "m1")) == 5


async def test_a_subgroup_stays_until_its_last_vm_is_removed(harness: MciHarness) -> None:
    await harness.created(mci("m1", GOOD, group("other", 1)))
    await harness.service.delete_vm(NS, "m1", "good-1", ANN, force=True)
    assert await subgroups(harness) == ["good", "other"]
    await harness.service.delete_vm(NS, "m1", "good-2", ANN, force=True)
    assert await subgroups(harness) == ["other"]
    await harness.service.delete_vm(NS, "m1", "other-1", ANN, force=True)
    assert await subgroups(harness) == []
    await harness.until(lambda state: state == MciState.EMPTY)


async def test_vms_that_are_removed_at_once_take_their_subgroups_along(harness: MciHarness) -> None:
    await harness.created(mci("m1", GOOD, group("other", 3)))
    names = ("good-1", "good-2", "other-1", "other-2")
    await asyncio.gather(*(harness.service.delete_vm(NS, "m1", name, ANN, force=True) for name in names))
    assert await subgroups(harness) == ["other"]


async def test_vms_that_are_deleted_at_their_provider_at_once_take_along_only_subgroups_without_vms(
    harness: MciHarness,
) -> None:
    await harness.created(mci("m1", GOOD, group("other", 4)))
    names = ("good-1", "good-2", "other-1", "other-2", "other-3")
    deletes = await asyncio.gather(*(harness.service.terminate_and_delete_vm(NS, "m1", name, ANN) for name in names))
    ended = await asyncio.gather(*map(harness.ended, deletes))
    assert {one.status for one in ended} == {Status.SUCCEEDED}
    assert await subgroups(harness) == ["other"]
    assert [vm_of(one).name for one in await harness.service.vms(NS, "m1")] == ["other-4"]


async def test_an_mci_that_is_deleted_keeps_the_record_of_its_subgroups(harness: MciHarness) -> None:
    await harness.created(mci("m1", GOOD))
    accepted, _ = await harness.service.delete(NS, "m1", "force", ANN)
    assert accepted.object.removed
    assert [one.name for one in mci_of(accepted.object).groups] == ["good"]
    assert WITH_MCI not in str(await harness.engine.history(NS, "m1"))


async def test_a_subgroup_without_vms_is_in_no_view(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await refined(api)
        assert (await api.get(f"{M1}/subgroup")).json() == {"output": ["g2"]}
        assert (await api.get(f"{M1}/subgroup/g1")).status_code == 404
        assert (await api.get(f"{M1}/associatedResources")).json()["subGroupIds"] == ["g2"]
        groups = (await api.get(f"{M1}?option=accessinfo")).json()["MciSubGroupAccessInfo"]
        assert [one["SubGroupId"] for one in groups] == ["g2"]
        assert (await api.post(f"{M1}/subgroup/g1", {"numVMsToAdd": 1})).status_code == 404


async def test_the_errors_of_a_creation_are_told_in_full_though_a_policy_has_removed_vms(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        errors = (await refined(api, policyOnPartialFailure="refine"))["creationErrors"]
        assert (errors["totalVmCount"], errors["successfulVmCount"], errors["failedVmCount"]) == (3, 1, 2)
        assert [one["vmName"] for one in errors["vmCreationErrors"]] == ["g1-1", "g1-2"]


async def refined(api: ApiHarness, **how: str) -> Any:
    """Make an MCI of which one subgroup fails and is removed."""
    api.set_profile(FAILING)
    made = await api.created(
        api_harness.mci("m1", api_harness.group("g1", 2), api_harness.group("g2", 1, specId=MICRO), **how)
    )
    api.set_profile(CALM)
    if not how:
        await api.done(f"{M1}?action=refine")
    return made
