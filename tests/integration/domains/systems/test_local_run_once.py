"""Instances that run once, as processes of this host: their exit statuses, and what a killed supervisor leaves."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateward.domains.systems.backends.local import LocalBackend, instance_supervisor
from stateward.domains.systems.backends.local.instance_dir import BackendDir, InstanceOrder
from stateward.domains.systems.backends.local.launch import launch, read_exit
from stateward.domains.systems.backends.port import InstancePhase, InstanceSpec, ServiceInstance, job_run_ref
from stateward.domains.systems.definition import Service, revision_of
from stateward.workloads.confinement import Confinement
from tests.integration.domains.systems.local_backend_harness import (
    HOME,
    end_all,
    is_alive,
    kill_marked,
    run_backend,
    shell,
    until_instances,
)
from tests.waiting import until

RUN = job_run_ref(HOME, "/nightly/report", "first")
ENDED = InstancePhase.ENDED


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "systems"
    assert kill_marked(tmp_path) == []


async def start_once(backend: LocalBackend, service: Service, name: str = "0-0") -> None:
    await backend.start(RUN, InstanceSpec(name, revision_of(service), service, run_once=True))


async def ended(backend: LocalBackend, count: int = 1) -> dict[str, ServiceInstance]:
    """Wait until so many instances have ended."""
    seen = await until_instances(backend, lambda seen: sum(one.phase is ENDED for one in seen) == count, RUN)
    return {one.name: one for one in seen}


async def test_an_instance_ends_with_its_status_and_is_not_started_again(folder: Path) -> None:
    async with run_backend(folder) as backend:
        for name, text in (("0-0", "echo well done"), ("1-0", "echo oh no; exit 3"), ("2-0", "kill -9 $$")):
            await start_once(backend, shell(text), name)
        await start_once(backend, Service(command=("exit", "7"), drain=0.05), "3-0")  # a program, not a word of a shell
        seen = await ended(backend, 4)
        assert {name: one.exit_status for name, one in seen.items()} == {"0-0": 0, "1-0": 3, "2-0": 137, "3-0": 127}
        assert (seen["0-0"].why, seen["1-0"].why) == ("", "ended with 3: oh no")
        assert seen["1-0"].restarts == 0
        written = {one.instance: one.text for one in await backend.logs(RUN, None, None, 1_000)}
        assert written["0-0"] == "well done\n"
        await backend.start(RUN, InstanceSpec("0-0", "", shell("echo again"), run_once=True))  # the name is taken
        assert (await ended(backend, 4))["0-0"].since == seen["0-0"].since
        await end_all(backend, RUN)
        assert await backend.logs(RUN, None, None, 1_000) == []


async def test_it_has_its_own_environment_and_an_empty_standard_input(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start_once(backend, shell("cat; ls /proc/self/fd | tr '\\n' ' '; echo $STATEWARD_NAME", env={"A": "b"}))
        assert (await ended(backend))["0-0"].exit_status == 0
        (excerpt,) = await backend.logs(RUN, None, None, 1_000)
        assert excerpt.text == "0 1 2 3 0-0\n"  # 3 is the folder that ls reads
        await end_all(backend, RUN)


async def test_a_stop_gives_it_time_to_end_and_whatever_it_has_started_ends_too(folder: Path) -> None:
    async with run_backend(folder) as backend:
        text = "trap 'sleep 0.2; echo ended well; exit 0' TERM; setsid sleep 60 & echo up; while :; do sleep 0.05; done"
        await start_once(backend, shell(text))
        await until(lambda: backend.logs(RUN, None, None, 1000), lambda parts: any("up" in one.text for one in parts))
        await backend.stop(RUN, "0-0")
        await until_instances(backend, lambda seen: not seen, RUN)
        (excerpt,) = await backend.logs(RUN, None, None, 1_000)
        assert "ended well" in excerpt.text
        await backend.forget(RUN)


async def test_the_next_supervisor_knows_the_status_of_what_ended_while_nobody_looked(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start_once(backend, shell("while [ ! -e $STATEWARD_WORK/go ]; do sleep 0.02; done; exit 5"))
        (one,) = await until_instances(backend, lambda seen: any(one.ready for one in seen), RUN)
    (BackendDir(folder).instance_dir(RUN, "0-0").folder / "work" / "go").touch()
    pid = one.pid
    assert pid is not None
    await until(lambda: not is_alive(pid))
    async with run_backend(folder) as backend:
        assert (await ended(backend))["0-0"].exit_status == 5
        await end_all(backend, RUN)


async def test_an_unknown_end_is_told_as_unknown_and_nothing_is_started_again(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start_once(backend, shell("echo begun; sleep 60"))
        (one,) = await until_instances(backend, lambda seen: any(one.ready for one in seen), RUN)
        assert one.pid is not None
        os.killpg(one.pid, signal.SIGKILL)
        seen = (await ended(backend))["0-0"]
        assert (seen.exit_status, seen.why) == (None, "killed by SIGKILL: begun")
        await end_all(backend, RUN)


@pytest.mark.parametrize("has_run", [True, False])
async def test_a_supervisor_that_dies_during_a_start_runs_the_command_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, has_run: bool
) -> None:
    lodge, service = BackendDir(folder).instance_dir(RUN, "0-0"), shell("echo ran")
    order = InstanceOrder("0-0", revision_of(service), service, run_once=True)
    lodge.put_order(order)

    class Killed(BaseException):
        """The supervisor is killed."""

    def die(*how: Any) -> int:
        if has_run:
            launch(*how)
        raise Killed

    monkeypatch.setattr(instance_supervisor, "launch", die)
    with pytest.raises(Killed):
        instance_supervisor.InstanceSupervisor(lodge, order, Confinement()).tick(1.0)
    monkeypatch.undo()
    await until(lambda: not has_run or read_exit(lodge)[1] is not None)
    async with run_backend(folder) as backend:
        assert (await ended(backend))["0-0"].exit_status == 0
        (excerpt,) = await backend.logs(RUN, None, None, 1_000)
        assert excerpt.text == "ran\n"
        await end_all(backend, RUN)
