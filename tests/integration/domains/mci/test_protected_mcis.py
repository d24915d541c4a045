"""Deletion protection of MCIs, VMs and namespaces, on all ways to remove them."""

import pytest

from stateward.domains.mci.lifecycle import TERMINATE_FIRST
from stateward.engine.errors import Protected
from stateward.lifecycle import PROVIDER
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
    left = await harness.service.vms(NS, "m1")
    assert [(one.id, one.state) for one in left] == [(first, "Running"), (second, "Running")]


async def test_a_protected_namespace_is_not_removed(harness: MciHarness) -> None:
    await harness.service.add_namespace("shop", "", ANN)
    await harness.engine.protect_namespace("shop")
    with pytest.raises(Protected):
        await harness.service.remove_namespace("shop", ANN)
    await harness.engine.protect_namespace("shop", None)
    await harness.service.remove_namespace("shop", ANN)
