"""Transitions that time out: the time-outs can be set, and the observed outcome decides how they end."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stateward.domains.ovc.lifecycle import VM
from stateward.domains.ovc.settings import Settings, read_settings, with_timeouts
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import HEALER
from stateward.store.filters import JournalFilter
from stateward.store.port import Store
from tests.integration.domains.ovc.ovc_harness import ADA, Cloud, open_cloud


@pytest.fixture
async def hurried(
    tmp_path: Path, request: pytest.FixtureRequest, new_store: Callable[[], Store]
) -> AsyncIterator[Cloud]:
    """A cloud in which one transition may not take long."""
    settings = Settings("none", {request.param: 0.3}, 0.0)
    async with open_cloud(new_store(), tmp_path, settings) as cloud:
        yield await cloud.create_base_objects()


async def healed(cloud: Cloud) -> list[tuple[str, str, str | None, str | None]]:
    """Return what stands in the report: what, how it was settled, its state since, and why."""
    found = (await cloud.service.healing(cloud.ns, 0.0)).healed
    lines = await cloud.engine.store.reader.journal(0, 1000, JournalFilter(ns=cloud.ns, actor=HEALER))
    assert [line.object for line in lines] == [one.object for one in found]
    return [(one.object, one.how, one.state, one.reason) for one in found]


def hurries(transition: str) -> pytest.MarkDecorator:
    """Say which transition may not take long in a test."""
    return pytest.mark.parametrize("hurried", [transition], indirect=True)


@hurries("vm.PAUSING")
async def test_what_is_not_done_in_its_time_goes_back_with_the_reason(hurried: Cloud) -> None:
    vm = await hurried.vm()
    hurried.gates.close("pause")
    operation = await hurried.do(vm, "pause")
    assert (operation.status, await hurried.state(vm)) == ("failed", "RUNNING")
    assert "found not done" in str(operation.error)
    assert await healed(hurried) == [(vm, "failed", "RUNNING", operation.error)]


@hurries("vm.PAUSING")
async def test_what_turns_out_to_be_done_is_done(hurried: Cloud) -> None:
    vm = await hurried.vm()
    node = await hurried.plugin.nodes.get(hurried.ns, await hurried.node_of(vm))
    await node.pause(await hurried.machine(vm))  # by another hand
    hurried.gates.close("pause")
    assert ((await hurried.do(vm, "pause")).status, await hurried.state(vm)) == ("succeeded", "PAUSED")
    assert await healed(hurried) == [(vm, "succeeded", "PAUSED", None)]


@hurries("vm.ATTACHING_DISK")
async def test_a_disk_comes_to_rest_with_its_machine_when_their_time_is_over(hurried: Cloud) -> None:
    vm, disk = await hurried.vm(), await hurried.disk()
    hurried.gates.close("attach")
    assert (await hurried.do(vm, "attach disk", disk=disk)).status == "failed"
    assert await hurried.states(vm, disk) == ["RUNNING", "CREATED"]


@hurries("vm.migrate")
async def test_a_migration_that_takes_too_long_is_given_up_and_nothing_shows(hurried: Cloud) -> None:
    vm = await hurried.vm()
    before = await hurried.node_of(vm)
    hurried.gates.close("move")
    operation = await hurried.do(vm, "migrate", ADA)
    assert (operation.status, await hurried.state(vm), await hurried.node_of(vm)) == ("failed", "RUNNING", before)
    hurried.gates.open("move")
    await hurried.did(vm, "pause")


@hurries("cloudspace.PAUSING")
async def test_a_firewall_that_does_not_stop_in_time_leaves_its_cloudspace_deployed(hurried: Cloud) -> None:
    hurried.gates.close("stop")
    operation = await hurried.do(hurried.box, "pause", ADA)
    assert (operation.status, await hurried.state(hurried.box)) == ("failed", "DEPLOYED")


# --- settings --------------------------------------------------------------------------------------------------------


def test_other_deadlines_are_those_of_the_transitions_named_alone() -> None:
    lifecycle = with_timeouts({"vm.STOPPING": 12.0, "vm.migrate": 34.0})[VM.kind]
    within = {row.event: row.within for row in lifecycle.rows}
    declared = {row.event: row.within for row in VM.rows}
    assert within == {**declared, "stop": 12.0, "migrate": 34.0}


def test_a_transition_that_does_not_exist_is_told_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "ovc.toml").write_text('[timeouts]\n"vm.STOPING" = 1.0\n')
    with pytest.raises(UnknownName, match=r"vm\.STOPPING"):
        read_settings(tmp_path)


@pytest.mark.parametrize("text", ["storage = 1", "colour = 'red'", "storage = ", "[timeouts]\n'vm.STOPPING' = 'soon'"])
def test_settings_that_cannot_be_read_are_refused_with_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "ovc.toml").write_text(text)
    with pytest.raises(BadInput, match=r"ovc\.toml"):
        read_settings(tmp_path)


def test_without_a_file_all_is_as_declared(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == Settings()
