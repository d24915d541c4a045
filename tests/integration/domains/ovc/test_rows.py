"""Every row of every table runs, and every pair of state and action that no row has is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.domains.ovc.errors import ChangedWithVm, NotNow
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, LIFECYCLES, NODE, VM
from stateward.domains.ovc.model import AccountSpec, CloudspaceSpec, DiskSpec, ImageSpec, NodeSpec, short_kind
from stateward.engine import Accepted, Refused
from stateward.lifecycle import ADMIN, TRANSITIONAL, USER, Lifecycle, Meaning, Move, RefusalCode
from stateward.store import open_store
from stateward.store.changes import Changes
from stateward.store.port import Tx
from stateward.store.records import Key
from tests.integration.domains.ovc.ovc_harness import ADA, ANN, NUMBERS, Cloud, open_cloud

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAYS = {
    # how an object of a kind is brought to a state, from the one that it has when it was made
    VM.kind: {"RUNNING": (), "PAUSED": ("pause",), "HALTED": ("stop",), "DELETED": ("delete",)},
    CLOUDSPACE.kind: {"DEPLOYED": (), "DISABLED": ("disable",), "PAUSED": ("pause",), "DELETED": ("delete",)},
    ACCOUNT.kind: {"CONFIRMED": (), "DISABLED": ("disable",), "DELETED": ("delete",)},
    IMAGE.kind: {"CREATED": (), "DISABLED": ("disable",), "DELETED": ("delete",)},
    NODE.kind: {"ENABLED": (), "MAINTENANCE": ("maintenance",)},
}
VM_ACTIONS = {"assign": "add disk", "attach": "attach disk", "detach": "detach disk"}
"""Actions that change a disk together with its VM, and the VM's action for each."""


def rows(lifecycle: Lifecycle) -> list[Move]:
    """Return every move that begins something on an object that exists, as its least actor."""
    moves = [one for one in lifecycle.every_move() if one.meaning is Meaning.ACTION and one.source != "(new)"]
    least = {(one.source, one.event): one for one in reversed(moves) if one.actor in (USER, ADMIN)}
    return list(least.values())


def named(lifecycle: Lifecycle, move: Move) -> str:
    """Return the name of a row's test."""
    return f"{short_kind(lifecycle.kind)} {move.source} {move.event}"


EVERY = [(one, move) for one in LIFECYCLES for move in rows(one)]
ROWS = [pytest.param(one, move, id=named(one, move)) for one, move in EVERY]


async def make(cloud: Cloud, kind: str) -> str:
    """Make an object that nobody else needs."""
    service, ns, name = cloud.service, cloud.ns, f"one {next(NUMBERS)}"
    if kind == VM.kind:
        return await cloud.vm()
    if kind == CLOUDSPACE.kind:
        return await cloud.new_box()
    if kind == ACCOUNT.kind:
        return await cloud.new_account()
    if kind == IMAGE.kind:
        return await cloud.made(service.create(ns, ImageSpec(name, cloud.account), ANN))
    return await cloud.node() if kind == NODE.kind else await cloud.disk()


async def force(cloud: Cloud, id_: str, state: str) -> None:
    """Put an object into a state by hand."""

    async def program(tx: Tx) -> None:
        found = (await tx.objects([Key(cloud.ns, id_)]))[Key(cloud.ns, id_)]
        await tx.apply(Changes(objects=[replace(found, state=state, op=None, version=found.version + 1)]))

    await cloud.engine.store.transact(program)


async def bring(cloud: Cloud, kind: str, state: str) -> str:
    """Make an object, and bring it to a state; where no good way leads there, by hand."""
    id_ = await make(cloud, kind)
    if state not in WAYS.get(kind, {}):
        await force(cloud, id_, state)
        return id_
    for action in WAYS[kind][state]:
        await cloud.did(id_, action, ADA)
    return id_


async def bring_disk(cloud: Cloud, state: str) -> str:
    """Make a disk, and bring it to a state: with a VM where it belongs to one."""
    if state in ("ASSIGNED", "TOBEDELETED"):
        disk = await cloud.attached(await cloud.vm())
        if state == "TOBEDELETED":
            await cloud.did(disk, "delete")
        return disk
    disk = await cloud.disk()
    if state == "DELETED":
        await cloud.did(disk, "delete")
    elif state != "CREATED":
        await force(cloud, disk, state)
    return disk


@pytest.mark.parametrize(("lifecycle", "move"), ROWS)
async def test_a_row_leads_where_the_table_says(cloud: Cloud, lifecycle: Lifecycle, move: Move) -> None:
    assert move.desired is not None
    caller = ANN if move.actor == USER else ADA
    if lifecycle is DISK:
        await _disk_row(cloud, move)
        return
    id_ = await bring(cloud, lifecycle.kind, move.source.word)
    args = {"name": "more"} if move.event == "add disk" else {}
    if move.event in ("attach disk", "detach disk"):
        args = {"disk": await cloud.disk()}
    if move.event == "detach disk":
        await cloud.did(id_, "attach disk", ANN, **args)
    if lifecycle is VM and move.source == "ERROR":
        await force(cloud, cloud.boot_disk(id_), "ERROR")
    accepted = await cloud.ask(id_, move.event, caller, **args)
    assert accepted.object.state == move.target.word
    assert (await cloud.ended(accepted)).status == "succeeded"
    assert await cloud.state(id_) == move.desired.word


async def _disk_row(cloud: Cloud, move: Move) -> None:
    assert move.desired is not None
    disk = await bring_disk(cloud, move.source.word)
    if move.event not in VM_ACTIONS:
        accepted = await cloud.ask(disk, move.event)
        assert accepted.object.state == move.target.word
        await cloud.ended(accepted)
        assert await cloud.state(disk) == move.desired.word
        return
    with pytest.raises(ChangedWithVm, match=VM_ACTIONS[move.event]):
        await cloud.ask(disk, move.event)
    assert await cloud.state(disk) == move.source.word  # done with a VM in test_machines.py


@pytest.mark.parametrize("lifecycle", LIFECYCLES, ids=lambda one: short_kind(one.kind))
async def test_whatever_is_in_no_table_is_refused(lifecycle: Lifecycle, tmp_path: Path) -> None:
    async with open_cloud(open_store(str(tmp_path / "stateward.db")), tmp_path) as opened:
        cloud = await opened.create_base_objects()
        id_ = await make(cloud, lifecycle.kind)
        for state in lifecycle.declaration.states:
            await force(cloud, id_, state.word)
            for action in lifecycle.actions:
                for caller in (ANN, ADA):
                    if (state, action, caller.actor) in lifecycle.moves:
                        continue
                    with pytest.raises(Refused) as refused:
                        await cloud.service.submit(cloud.engine.request(cloud.ns, id_, action, actor=caller.actor))
                    assert isinstance(refused.value, NotNow) == (
                        refused.value.refusal.reason is RefusalCode.IN_TRANSITION
                    )
                    if state.state_class is TRANSITIONAL:
                        assert "Cannot execute action at this time" in str(refused.value)
            assert await cloud.state(id_) == state.word


NEW: dict[str, Callable[[Cloud], object]] = {
    "account": lambda cloud: cloud.service.create(cloud.ns, AccountSpec("a"), ANN),
    "cloudspace": lambda cloud: cloud.service.create(cloud.ns, CloudspaceSpec("c", cloud.account), ANN),
    "vm": lambda cloud: cloud.service.create(cloud.ns, cloud.vm_spec(), ANN),
    "disk": lambda cloud: cloud.service.create(cloud.ns, DiskSpec("d", cloud.account), ANN),
    "image": lambda cloud: cloud.service.create(cloud.ns, ImageSpec("i", cloud.account), ANN),
    "node": lambda cloud: cloud.service.create(cloud.ns, NodeSpec("n"), ADA),
}
FIRST = {
    "account": ("CREATING", "CONFIRMED"),
    "cloudspace": ("DEPLOYING", "DEPLOYED"),
    "vm": ("DEPLOYING", "RUNNING"),
    "disk": ("CREATING", "CREATED"),
    "image": ("CREATING", "CREATED"),
    "node": ("REGISTERING", "ENABLED"),
}


@pytest.mark.parametrize("kind", NEW)
async def test_what_is_new_begins_as_the_table_says(cloud: Cloud, kind: str) -> None:
    accepted = await NEW[kind](cloud)  # type: ignore[misc]
    assert isinstance(accepted, Accepted)
    assert accepted.object.state == FIRST[kind][0]
    await cloud.ended(accepted)
    assert await cloud.state(accepted.object.id) == FIRST[kind][1]
