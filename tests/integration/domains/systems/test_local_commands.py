"""Commands in instances that are processes."""

import asyncio
from pathlib import Path

import pytest

from stateward.domains.systems.errors import NoRunningInstance
from stateward.procfs import stat_of
from tests.integration.domains.systems.local_backend_harness import WEB, end_all, ready, run_backend, shell, start


async def test_a_command_runs_with_the_environment_and_the_folder_of_an_instance(tmp_path: Path) -> None:
    async with run_backend(tmp_path) as backend:
        with pytest.raises(NoRunningInstance):
            await backend.run_command(WEB, None, ("true",), 10.0, 1_000)
        await start(backend, shell("echo mine > $STATEWARD_WORK/file; sleep 100", env={"WORD": "given"}))
        await ready(backend)
        text = "cat $STATEWARD_WORK/file; echo $WORD $STATEWARD_NAME; echo oh >&2; exit 5"
        done = await backend.run_command(WEB, "one", ("sh", "-c", text), 30.0, 1_000)
        assert (done.exit_status, done.stdout, done.stderr) == (5, "mine\ngiven one\n", "oh\n")
        assert (await backend.run_command(WEB, None, ("no such program",), 30.0, 1_000)).exit_status == 127
        long = await backend.run_command(WEB, None, ("sh", "-c", "yes | head -c 100000; kill $$"), 30.0, 1_000)
        assert (len(long.stdout), long.truncated, long.exit_status) == (1_000, True, 143)
        with pytest.raises(NoRunningInstance):
            await backend.run_command(WEB, "other", ("true",), 10.0, 1_000)
        await end_all(backend)


async def test_a_command_that_does_not_end_in_time_is_killed_with_its_descendants(tmp_path: Path) -> None:
    async with run_backend(tmp_path) as backend:
        await start(backend, shell("sleep 100"))
        await ready(backend)
        done = await backend.run_command(WEB, None, ("sh", "-c", "echo begins; sleep 1000 & sleep 1000"), 0.5, 1_000)
        assert (done.exit_status, done.stdout) == (None, "begins\n")  # it is over when nobody writes any more
        await end_all(backend)


async def test_a_process_that_has_left_the_session_of_its_command_ends_with_it(tmp_path: Path) -> None:
    """It holds the output of the command for ever, so many such commands must not wait for each other either."""
    async with run_backend(tmp_path) as backend:
        await start(backend, shell("sleep 100"))
        await ready(backend)
        text = "echo begins; setsid sh -c 'echo $$ > $STATEWARD_WORK/pid-$0; sleep 1000' $0 & sleep 1000"
        commands = [backend.run_command(WEB, None, ("sh", "-c", text, str(number)), 1.0, 1_000) for number in range(10)]
        outcomes = await asyncio.gather(*commands)
        assert {(one.exit_status, one.stdout) for one in outcomes} == {(None, "begins\n")}
        pids = [int(file.read_text()) for file in tmp_path.rglob("pid-*")]
        assert len(pids) == len(commands)
        assert [pid for pid in pids if (stat := stat_of(pid)) is not None and stat.alive] == []
        await end_all(backend)
