"""Creations of two steps, describe and make: both are accepted in one transaction, or nothing is written."""

import asyncio
from collections.abc import Awaitable

import pytest

from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, VM
from stateward.domains.ovc.model import CloudspaceSpec, DiskSpec, ImageSpec
from stateward.engine import Accepted, Denied
from stateward.engine.accept.idempotency import RefusedBefore
from stateward.engine.errors import KeyReused
from stateward.engine.requests import Creation
from stateward.store.filters import JournalFilter, Selector
from stateward.store.records import JournalEntry, to_json
from tests.integration.domains.ovc.ovc_harness import ADA, ANN, Cloud

pytestmark = pytest.mark.asyncio(loop_scope="module")

MADE = (CLOUDSPACE.kind, VM.kind, DISK.kind, IMAGE.kind)


async def lines_of(cloud: Cloud, *kinds: str) -> list[JournalEntry]:
    """Return what the journal has about some kinds of objects."""
    lines = await cloud.engine.store.reader.journal(0, 10_000, JournalFilter(ns=cloud.ns))
    return [line for line in lines if line.kind in kinds]


async def counted(cloud: Cloud) -> dict[tuple[str, str], int]:
    """Return how many objects there are, by kind and state."""
    return dict(await cloud.engine.store.reader.count_states(Selector(cloud.ns)))


async def without_nodes(cloud: Cloud) -> None:
    for node in cloud.nodes:
        await cloud.did(node, "maintenance", ADA)


def making(cloud: Cloud, kind: str, name: str = "new", key: str | None = None) -> Awaitable[Accepted]:
    """Ask for a new object."""
    specs = {CLOUDSPACE.kind: CloudspaceSpec, DISK.kind: DiskSpec, IMAGE.kind: ImageSpec}
    spec = cloud.vm_spec() if kind == VM.kind else specs[kind](name, cloud.account)
    return cloud.service.create(cloud.ns, spec, ANN, key)


@pytest.mark.parametrize("kind", [VM.kind, CLOUDSPACE.kind])
async def test_what_cannot_be_deployed_is_refused_leaves_nothing_and_its_name_is_free(cloud: Cloud, kind: str) -> None:
    await without_nodes(cloud)
    objects, lines = await counted(cloud), await lines_of(cloud, *MADE)
    with pytest.raises(Denied, match="none is ENABLED"):
        await making(cloud, kind)
    assert await counted(cloud) == objects
    assert await lines_of(cloud, *MADE) == lines
    await cloud.did(cloud.nodes[0], "enable", ADA)
    await cloud.made(making(cloud, kind))


@pytest.mark.parametrize("kind", MADE)
async def test_in_a_race_with_the_deletion_of_the_account_a_refused_creation_leaves_nothing(
    cloud: Cloud, kind: str
) -> None:
    if kind == VM.kind:
        cloud.box = await cloud.new_box()
    asked = [making(cloud, kind, f"raced {number}") for number in range(7)]
    answers = await asyncio.gather(cloud.ask(cloud.account, "delete", ADA), *asked, return_exceptions=True)
    deleted, made = answers[0], answers[1:]
    accepted = {one.object.id for one in made if isinstance(one, Accepted)}
    assert all(isinstance(one, Accepted | Denied) for one in made), made
    defined = [line.object for line in await lines_of(cloud, kind) if line.event == "define" and line.target]
    assert set(defined[-len(accepted) :] if accepted else ()) == accepted
    assert not [line for line in await lines_of(cloud, *MADE) if line.who == "taken back"]
    assert isinstance(deleted, Accepted)
    assert (await cloud.ended(deleted)).status == "succeeded"
    assert (await counted(cloud))[ACCOUNT.kind, "DELETED"] == 1


async def test_the_refusal_of_a_creation_is_repeated_under_its_key(cloud: Cloud) -> None:
    await without_nodes(cloud)
    with pytest.raises(Denied, match="none is ENABLED"):
        await making(cloud, CLOUDSPACE.kind, "new", "k1")
    await cloud.did(cloud.nodes[0], "enable", ADA)
    with pytest.raises(RefusedBefore, match="none is ENABLED"):
        await making(cloud, CLOUDSPACE.kind, "new", "k1")
    with pytest.raises(KeyReused):
        await making(cloud, CLOUDSPACE.kind, "other", "k1")
    made = await making(cloud, CLOUDSPACE.kind, "new", "k2")
    await cloud.ended(made)
    again = await making(cloud, CLOUDSPACE.kind, "new", "k2")
    assert (again.again, again.object.id, again.op.id) == (True, made.object.id, made.op.id)


async def test_a_creation_whose_answer_was_lost_is_known_by_its_operation(cloud: Cloud) -> None:
    engine, spec = cloud.engine, DiskSpec("lost", cloud.account)
    birth = Creation(DISK.kind, cloud.account, to_json({"name": spec.name, "account": spec.account}))
    first = engine.request(cloud.ns, "disk-lost", "define", spec=spec, creates=birth)
    requests = [first, engine.request(cloud.ns, "disk-lost", "create")]
    made = await engine.submit_sequence(requests)
    again = await engine.submit_sequence(requests)
    assert (made.again, again.again, again.op.id) == (False, True, made.op.id)


async def test_of_many_same_creations_under_one_key_one_is_made_and_all_get_its_answer(cloud: Cloud) -> None:
    made = await asyncio.gather(*(making(cloud, DISK.kind, "one", "k1") for _ in range(10)))
    assert len({(one.object.id, one.op.id) for one in made}) == 1
    assert sum(not one.again for one in made) == 1
    assert len([line for line in await lines_of(cloud, DISK.kind) if line.event == "define"]) == 1
