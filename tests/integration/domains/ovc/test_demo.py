"""The demo's cloud: made once, found again, and kept in motion."""

import asyncio
from random import Random

import pytest

from stateward.domains.ovc.demo import DISKS, MACHINES, NODES, NS, OvcDemo
from stateward.domains.ovc.lifecycle import DISK, NODE, VM
from stateward.store.filters import Selector
from tests.integration.domains.ovc.ovc_harness import Cloud

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def count(cloud: Cloud, kind: str) -> int:
    """Return how many objects of a kind the demo has."""
    return sum((await cloud.engine.store.reader.count_states(Selector(NS, kind))).values())


async def test_the_demos_cloud_is_made_once_and_does_not_rest(world: Cloud) -> None:
    show = OvcDemo(world.service, Random(3), pause=0.0, sleep=lambda _: asyncio.sleep(0))
    await show.create_objects()
    await show.create_objects()
    counts = [await count(world, kind) for kind in (NODE.kind, VM.kind, DISK.kind)]
    assert counts == [NODES, MACHINES, MACHINES + DISKS]
    before = await world.engine.store.reader.last_journal_seq()
    for _ in range(60):
        await show.act_once()
    assert await world.engine.store.reader.last_journal_seq() > before + 20
    await world.service.queuer.terminate(NS)
