"""Providers that do not answer, in virtual time: their VMs become Undefined, and waiting requests show the reason."""

import asyncio
import logging
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.domains.mci.api.target_status import waiting_problems
from stateward.domains.mci.lifecycle import MciState
from stateward.domains.mci.provider.provider_client import SILENT_AFTER_S
from stateward.drivers import ProviderRegion
from stateward.drivers.simulated.faults import FaultProfile
from stateward.engine import HistoryEntry
from stateward.engine.troubles import is_worth_reporting
from stateward.store.records import Status
from tests.integration.domains.mci.conftest import ANN, NS, group, mci
from tests.integration.domains.mci.test_evidence import LONGEST, made, states
from tests.integration.domains.mci.virtual_world import World, live

SEOUL = ProviderRegion("aws", "ap-northeast-2")
FAIR = FaultProfile()
DEAD = replace(FAIR, dead=True)
ROUND = 40.0
"""A round over all connections comes at the latest after this many seconds."""


async def history(world: World, id_: str) -> list[HistoryEntry]:
    return await world.harness.engine.history(NS, id_)


def are_growing(lines: list[HistoryEntry]) -> bool:
    """Tell whether each distance between lines is at least that of the one before, but for jitter."""
    gaps = [later.at - earlier.at for earlier, later in pairwise(lines)]
    return all(later > earlier for earlier, later in pairwise(gaps))


def test_vms_of_a_dead_region_are_undefined_after_a_while_and_come_back_as_what_they_are() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 3), group("b", 2, "gcp+asia-northeast3+e2-micro"))
        suspended = await world.harness.service.control_vm(NS, "m1", "a-1", "suspend", ANN)
        await world.harness.engine.wait_record(NS, suspended.op.id, LONGEST)
        world.cloud.set_profile(SEOUL, DEAD)
        await asyncio.sleep(SILENT_AFTER_S - 20.0)
        assert Counter((await states(world.harness)).values()) == {"Running": 4, "Suspended": 1}
        await asyncio.sleep(5 * ROUND)
        assert Counter((await states(world.harness)).values()) == {"Undefined": 3, "Running": 2}
        assert await world.harness.state() == MciState.PARTIAL
        lines = [(await history(world, f"m1.a-{number}"))[-1] for number in (1, 2, 3)]
        assert {(one.actor, one.target, one.at) for one in lines} == {("provider", "Undefined", lines[0].at)}
        assert [one.source for one in lines] == ["Suspended", "Running", "Running"]
        assert "has not shown it for" in str(lines[0].reason)
        found = await world.harness.service.vm(NS, "m1", "a-2")
        assert found.error == lines[1].reason
        last = await world.store.reader.last_journal_seq()
        await asyncio.sleep(3600.0)
        assert (
            await world.store.reader.last_journal_seq() - last <= 130
        )  # a round takes its turn, and no VM is told again
        assert (await history(world, "m1.a-2"))[-1] == lines[1]
        world.cloud.set_profile(SEOUL, FAIR)
        await asyncio.sleep(2 * ROUND)
        assert await states(world.harness) == {"a-1": "Suspended"} | dict.fromkeys(
            ("a-2", "a-3", "b-1", "b-2"), "Running"
        )
        assert (await world.harness.service.vm(NS, "m1", "a-2")).error is None

    live(1, FAIR, course)


def test_a_region_that_is_silent_for_a_moment_makes_nothing_undefined() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 3))
        for _ in range(10):
            world.cloud.set_profile(SEOUL, DEAD)
            await asyncio.sleep(40.0)
            world.cloud.set_profile(SEOUL, FAIR)
            await asyncio.sleep(2 * ROUND)
        lines = [line for number in (1, 2, 3) for line in await history(world, f"m1.a-{number}")]
        assert not [line for line in lines if line.target == "Undefined"]

    live(2, FAIR, course)


def test_whoever_waits_for_a_dead_region_is_told_why_and_not_with_every_attempt(caplog: Any) -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 2), group("b", 1, "gcp+asia-northeast3+e2-micro"))
        world.cloud.set_profile(SEOUL, DEAD)
        with caplog.at_level(logging.WARNING, logger="stateward.worker"):
            verdict = await world.harness.service.control(NS, "m1", "suspend", ANN)
            await asyncio.sleep(600.0)
        vm = await world.harness.service.vm(NS, "m1", "a-1")
        assert (vm.state, "the listing is missing" in str(vm.error)) == ("Suspending", True)
        told = [line for line in await history(world, "m1.a-1") if line.event == "has trouble"]
        assert 2 <= len(told) <= 8
        assert are_growing(told)
        whole = [line for line in await history(world, "m1") if line.event == "waits"]
        assert 2 <= len(whole) <= 10
        assert str(whole[0].reason).startswith("m1.a-")
        found = await world.harness.service.mci(NS, "m1")
        shown = await waiting_problems(world.store.reader, found, await world.harness.service.vms(NS, "m1"))
        assert 1 <= len(shown) <= 2
        assert all("the listing is missing" in one for one in shown)
        logged = [one for one in caplog.records if "is tried again" in one.getMessage()]
        assert 1 <= len(logged) <= 20
        assert "aws/ap-northeast-2" in logged[0].getMessage()
        world.cloud.set_profile(SEOUL, FAIR)
        assert verdict.whole is not None
        assert (await world.harness.engine.wait_record(NS, verdict.whole.op.id, LONGEST)).status is Status.SUCCEEDED
        assert (await world.harness.service.vm(NS, "m1", "a-1")).error is None

    live(3, FAIR, course)


def test_a_region_that_dies_after_it_has_taken_an_action_is_told_too() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        world.cloud.set_profile(SEOUL, replace(FAIR, suspending=30.0))
        begun = await world.harness.service.control_vm(NS, "m1", "a-1", "suspend", ANN)
        await asyncio.sleep(2.0)
        world.cloud.set_profile(SEOUL, replace(DEAD, suspending=30.0))
        await asyncio.sleep(300.0)
        told = [line for line in await history(world, "m1.a-1") if line.event == "has trouble"]
        assert 2 <= len(told) <= 6
        assert are_growing(told)
        assert "the listing is missing" in str((await world.harness.service.vm(NS, "m1", "a-1")).error)
        world.cloud.set_profile(SEOUL, FAIR)
        assert (await world.harness.engine.wait_record(NS, begun.op.id, LONGEST)).status is Status.SUCCEEDED

    live(4, FAIR, course)


def test_a_preparation_that_waits_for_a_dead_region_says_so() -> None:
    async def course(world: World) -> None:
        world.cloud.set_profile(SEOUL, DEAD)
        created = await world.harness.service.create(NS, mci("m1", group("a", 1)), ANN)
        await asyncio.sleep(300.0)
        found = await world.harness.service.mci(NS, "m1")
        shown = await waiting_problems(world.store.reader, found, [])
        assert found.state == "Preparing"
        assert [one.partition(":")[0] for one in shown] == ["vNet", "sshKey"]
        assert [line for line in await history(world, "m1") if line.event == "waits"]
        world.cloud.set_profile(SEOUL, FAIR)
        assert (await world.harness.engine.wait_record(NS, created.op.id, LONGEST)).status is Status.SUCCEEDED

    live(5, FAIR, course)


@pytest.mark.parametrize("attempt", [1, 2, 3, 4, 5, 8, 12, 16])
def test_the_second_attempt_is_told_and_then_each_power_of_two(attempt: int) -> None:
    assert is_worth_reporting(attempt) == (attempt in (2, 4, 8, 16))
