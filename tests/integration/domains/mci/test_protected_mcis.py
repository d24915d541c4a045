"""Deletion protection of MCIs, VMs and namespaces, on all ways to remove them."""

import pytest

from stateward.domains.mci.guards.subgroups import WITH_MCI
from stateward.domains.mci.lifecycle import FORGET, TERMINATE_FIRST, VM
from stateward.engine import Denied
from stateward.engine.errors import Protected
from stateward.lifecycle import FORCE, PROVIDER
from stateward.store.filters import Selector
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, mci


async def test_a_protected_mci_keeps_its_vms(harness: MciHarness) -> None:
    await harness.created(mci())
    await harness.engine.protect(NS, "m1", "production")
    vms = [one.id for one in await harness.service.vms(NS, "m1")]
    removals = (
        lambda: harness.service.control(NS, "m1", "terminate", ANN),
        lambda: harness.service.control(NS, "m1", "terminate", ANN, force=True),
        lambda: harness.service.scale(NS, "m1", "g1", -1, ANN),
        lambda: harness.service.refine(NS, "m1", ANN),
        lambda: harness.service.delete(NS, "m1", "terminate", ANN),
        lambda: harness.service.delete_vm(NS, "m1", "g1-1", ANN, force=True),
        lambda: harness.service.terminate_and_delete_vm(NS, "m1", "g1-1", ANN),
        lambda: harness.engine.act(NS, vms[0], "terminate"),
    )
    for remove in removals:
        with pytest.raises(Protected) as caught:
            await remove()
        assert caught.value.holder == "m1"
    assert await harness.state() == "Running"
    suspended = await harness.service.control(NS, "m1", "suspend", ANN)
    await harness.ended(suspended.whole)
    # what the provider does on its own is not asked for by a person
    await harness.engine.act(NS, vms[0], "shows terminated", actor=PROVIDER)


async def test_an_mci_with_a_protected_vm_is_not_deleted(harness: MciHarness) -> None:
    await harness.created(mci())
    first, second = [one.id for one in await harness.service.vms(NS, "m1")]
    await harness.engine.protect(NS, first)
    with pytest.raises(Protected, match=first):
        await harness.engine.act(NS, "m1", "delete", facts={TERMINATE_FIRST})
    assert await _states(harness) == {first: "Running", second: "Running"}


@pytest.mark.parametrize("force", [False, True])
async def test_a_group_action_removes_no_protected_vm_and_none_beside_it(harness: MciHarness, *, force: bool) -> None:
    await harness.created(mci())
    before = await _states(harness)
    protected = max(before)
    await harness.engine.protect(NS, protected)
    each = harness.engine.request(NS, "", "remove", actor=ANN.actor, who=ANN.who, facts={FORCE, WITH_MCI})
    whole = harness.engine.request(NS, "m1", "delete", actor=ANN.actor, who=ANN.who, facts={FORGET})
    removals = (
        lambda: harness.service.control(NS, "m1", "terminate", ANN, force=force),
        lambda: harness.service.delete(NS, "m1", "force" if force else "", ANN),
        lambda: harness.engine.group(whole, Selector(NS, VM.kind, "m1"), each),
    )
    for remove in removals:
        with pytest.raises(Protected if force else Denied, match=protected):
            await remove()
        assert await _states(harness) == before
    await harness.ended((await harness.service.control(NS, "m1", "suspend", ANN)).whole)


async def _states(harness: MciHarness) -> dict[str, str]:
    return {one.id: one.state for one in await harness.service.vms(NS, "m1")}


async def test_a_protected_namespace_is_not_removed(harness: MciHarness) -> None:
    await harness.service.add_namespace("shop", "", ANN)
    await harness.engine.protect_namespace("shop")
    with pytest.raises(Protected):
        await harness.service.remove_namespace("shop", ANN)
    await harness.engine.protect_namespace("shop", None)
    await harness.service.remove_namespace("shop", ANN)
