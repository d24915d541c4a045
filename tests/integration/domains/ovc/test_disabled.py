"""Disabled parents: below them no object is created, started or enlarged, also in a race with the disable."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

import pytest

from stateward.domains.ovc.errors import ParentNotReady
from stateward.domains.ovc.lifecycle import DISK, IMAGE
from stateward.domains.ovc.model import DiskSpec, ImageSpec
from stateward.engine import Accepted, Denied
from stateward.engine.requests import Creation
from stateward.store.filters import JournalFilter
from stateward.store.records import to_json
from tests.integration.domains.ovc.ovc_harness import ADA, ANN, Cloud

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def refused(asking: Awaitable[Accepted]) -> None:
    """Ask for something that is refused because of a parent."""
    with pytest.raises(ParentNotReady, match="is DISABLED: it has to be"):
        await asking


@pytest.mark.parametrize("parent", ["box", "account"])
async def test_machines_below_get_no_power_and_no_disks(cloud: Cloud, parent: str) -> None:
    running, paused, halted = await cloud.vms(3)
    await cloud.did(paused, "pause")
    await cloud.did(halted, "stop")
    disk, attached = await cloud.disk(), await cloud.attached(running)
    await cloud.did(getattr(cloud, parent), "disable")
    for caller in (ANN, ADA):
        for vm in (running, paused, halted):
            await refused(cloud.ask(vm, "attach disk", caller, disk=disk))
            await refused(cloud.ask(vm, "add disk", caller, name="more"))
        for action in ("reboot", "reset"):
            await refused(cloud.ask(running, action, caller))
        await refused(cloud.ask(paused, "resume", caller))
        await refused(cloud.ask(halted, "start", caller))
    await refused(cloud.service.create(cloud.ns, cloud.vm_spec(), ANN))
    assert await cloud.states(running, paused, halted, disk) == ["RUNNING", "PAUSED", "HALTED", "CREATED"]
    await cloud.did(running, "detach disk", disk=attached)
    for vm, action in ((running, "pause"), (running, "stop"), (paused, "delete"), (paused, "restore")):
        await cloud.did(vm, action)
    await cloud.did(halted, "destroy")


async def test_nothing_is_made_or_powered_below_an_account(cloud: Cloud) -> None:
    image, bin_, paused, ns = cloud.image, await cloud.new_box(), await cloud.new_box(), cloud.ns
    await cloud.did(bin_, "delete")
    await cloud.did(paused, "pause", ADA)
    await cloud.did(image, "disable")
    drawn = await described(cloud, DISK.kind, "disk-drawn", DiskSpec("drawn", cloud.account))
    sketched = await described(cloud, IMAGE.kind, "image-sketched", ImageSpec("sketched", cloud.account))
    await cloud.did(cloud.account, "disable")
    await refused(cloud.service.create(ns, DiskSpec("new", cloud.account), ANN))
    await refused(cloud.service.create(ns, ImageSpec("new", cloud.account), ANN))
    for id_, action, caller in (
        (drawn, "create", ANN),
        (sketched, "create", ANN),
        (image, "enable", ANN),
        (bin_, "restore", ANN),
        (paused, "resume", ADA),
        (paused, "reset", ADA),
        (cloud.box, "reset", ADA),
    ):
        await refused(cloud.ask(id_, action, caller))
    await cloud.did(cloud.account, "enable")
    for id_, action in ((drawn, "create"), (sketched, "create"), (image, "enable"), (bin_, "restore")):
        await cloud.did(id_, action)


async def described(cloud: Cloud, kind: str, id_: str, spec: DiskSpec | ImageSpec) -> str:
    """Describe something over the general API, and do not make it yet."""
    labels = {"name": spec.name, **({"account": spec.account} if kind == DISK.kind else {})}
    birth = Creation(kind, spec.account, to_json(labels))
    await cloud.engine.submit(cloud.engine.request(cloud.ns, id_, "define", who="ann", spec=spec, creates=birth))
    return id_


async def test_in_a_race_with_disabling_nothing_is_accepted_afterwards(cloud: Cloud) -> None:
    vm = await cloud.vm()
    for _ in range(5):
        disks = [await cloud.disk() for _ in range(3)]
        await asyncio.gather(
            ignoring(cloud.do(cloud.account, "disable")),
            *(ignoring(cloud.do(vm, "attach disk", disk=disk)) for disk in disks),
            ignoring(cloud.do(vm, "add disk", name=f"raced with {disks[0]}")),
            ignoring(cloud.disk()),
        )
        await cloud.did(cloud.account, "enable")
    lines = await cloud.engine.store.reader.journal(0, 10_000, JournalFilter(ns=cloud.ns))
    disabled, times = False, 0
    for line in lines:
        if line.object == cloud.account and line.event in ("disable", "enable"):
            disabled = line.event == "disable"
            times += disabled
        if line.event in ("attach disk", "add disk", "create") and line.source is not None:
            assert not disabled, line
    assert times == 5


async def ignoring(asking: Awaitable[object]) -> None:
    """Ask for something that may be refused."""
    with suppress(Denied):
        await asking
