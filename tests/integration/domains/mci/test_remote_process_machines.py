"""Commands and files on machines that are processes of this host, over their own SSH servers."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.domains.mci.model import CommandInput, CommandSpec, PostCommand, VmChoice, command_seen, mci_seen
from stateward.domains.mci.remote.command_requests import submit_command
from stateward.procfs import process_of
from stateward.store import open_store
from stateward.store.records import Object, Status
from tests.fork_server import forked_module
from tests.integration.domains.mci.command_worker import MACHINES
from tests.integration.domains.mci.conftest import ANN, NS, PATIENT, MciHarness, mci, open_harness
from tests.integration.drivers.local.host_machines import kill_all_in
from tests.waiting import until


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[MciHarness]:
    try:
        async with open_harness(open_store(str(tmp_path / "stateward.db")), tmp_path) as opened:
            await opened.grant_host()
            yield opened
    finally:
        kill_all_in(tmp_path / "machines" / "process" / "here")


async def submitted(harness: MciHarness, spec: CommandSpec, given: CommandInput | None = None) -> Object:
    """Run a command to its end, and return its record."""
    accepted = await submit_command(harness.service, NS, VmChoice(), spec, given or CommandInput(), ANN)
    await harness.engine.wait_record(NS, accepted.op.id, PATIENT)
    return await harness.engine.record(NS, accepted.object.id)


async def test_commands_and_files_reach_machines_that_are_processes(harness: MciHarness) -> None:
    await harness.created(
        mci("m1", MACHINES, post_command=PostCommand(commands=("echo made >made; echo $SSH_NONE ok",)))
    )
    made = mci_seen(await harness.service.mci(NS, "m1"))
    assert made.failed == {}
    content = b64encode(b"\0copied\n").decode()
    copied = await submitted(harness, CommandSpec("m1", (), path="file", file="f"), CommandInput(content=content))
    assert (copied.state, copied.error) == ("Succeeded", None)
    ran = await submitted(harness, CommandSpec("m1", (), ("cat made; wc -c <file; echo bad >&2; exit 6",)))
    assert ran.state == "Failed"
    results = command_seen(ran).results
    assert list(results) == ["g1-1", "g1-2"]
    for one in results.values():
        (run,) = one.runs
        assert (run.written.split(), run.stderr, run.status) == (["made", "8"], "bad\n", 6)


async def test_what_has_lost_its_parent_ends_with_its_command(harness: MciHarness, tmp_path: Path) -> None:
    await harness.created(mci("m1", replace(MACHINES, size=1)))
    forked = "((sh -c 'echo $PPID >forked'; sleep 300; :) &)"  # a shell that was forked, and has started no program
    away = "(setsid sh -c 'echo $$ >away; sleep 300; :' &)"
    ran = await submitted(harness, CommandSpec("m1", (), (f"{forked}; {away}; sleep 300",), minutes=0.1))
    assert "its processes were ended" in command_seen(ran).results["g1-1"].error
    for name in ("forked", "away"):
        (file,) = tmp_path.rglob(f"work/{name}")
        pid = int(file.read_text())
        await until(partial(process_of, pid), lambda process: process is None)


async def test_after_kill_9_of_its_worker_a_command_goes_on_and_is_not_run_again(tmp_path: Path) -> None:
    try:
        with forked_module("tests.integration.domains.mci.command_worker", str(tmp_path)) as (_, printed):
            async with asyncio.timeout(PATIENT):
                op, command = (await asyncio.to_thread(printed.readline)).split()
                markers = await until(
                    lambda: [one for one in tmp_path.rglob("marker") if one.read_text() == "run\n"],
                    lambda markers: len(markers) >= 2,
                )
        async with open_harness(open_store(str(tmp_path / "stateward.db")), tmp_path) as harness:
            for one in markers:
                one.with_name("go").touch()
            ended = await harness.engine.wait_record(NS, op, PATIENT)
            assert ended.status is Status.SUCCEEDED
            results = command_seen(await harness.engine.record(NS, command)).results
        assert [one.runs[0].written for one in results.values()] == ["run\n", "run\n"]
        assert [one.read_text() for one in markers] == ["run\n", "run\n"]
    finally:
        kill_all_in(tmp_path / "machines" / "process" / "here")
