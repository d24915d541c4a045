"""The lock of an agent's folder, and the upgrade from one version to another, with real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateward.agents import self_upgrade
from stateward.agents.messages import UPGRADE_FAILED, UPGRADING, Upgrade
from stateward.agents.self_upgrade import AgentFolderInUse, InvalidIdentity, NoUpgrade, SelfUpgrade, read_installation
from tests.waiting import until

HOLDER = """
import signal, sys, time
from pathlib import Path
from stateward.agents.self_upgrade import SelfUpgrade
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
holds = SelfUpgrade(Path(sys.argv[1]), Path(sys.argv[1]), "1.0", [])
print("holds", flush=True)
time.sleep(1000)
"""
PATIENT = 60.0

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Start]:
    """Let an agent of another process serve from the folder."""
    started: list[subprocess.Popen[str]] = []

    def start(manner: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDER, str(tmp_path), manner]
        one = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(one)
        assert one.stdout is not None
        assert one.stdout.readline() == "holds\n"
        return one

    yield start
    for one in started:
        one.kill()
        one.wait(PATIENT)
        assert one.stdout is not None
        one.stdout.close()


class ReportRecorder:
    """What an agent has said of an upgrade."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    async def __call__(self, event: str, error: str) -> None:
        self.events.append((event, error))


def install(folder: Path, version: str, program: str) -> None:
    """Install a version whose program is this."""
    (folder / version).mkdir()
    file = folder / version / "stateward"
    file.write_text(f"#!/bin/sh\n{program}\n")
    file.chmod(0o755)


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_two_agents_never_serve_from_one_folder(tmp_path: Path, held: Start) -> None:
    other = held("polite")
    with pytest.raises(AgentFolderInUse, match=f"process {other.pid}"):
        SelfUpgrade(tmp_path, tmp_path, "1.0", [])


@pytest.mark.parametrize("manner", ["polite", "deaf"])
async def test_an_heir_ends_the_one_before_whether_or_not_it_listens_and_serves_from_then_on(
    tmp_path: Path, held: Start, manner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_upgrade, "TERMINATION_GRACE_S", 0.3)
    before = held(manner)
    heir = SelfUpgrade(tmp_path, tmp_path, "2.0", [], successor_of=7)
    assert heir.successor_of == 7
    async with asyncio.timeout(PATIENT):
        await heir.take_over()
    assert before.wait(PATIENT) == (-signal.SIGTERM if manner == "polite" else -signal.SIGKILL)
    assert heir.successor_of == 0
    with pytest.raises(AgentFolderInUse, match=f"process {os.getpid()}"):
        SelfUpgrade(tmp_path, tmp_path, "1.0", [])
    await heir.take_over()  # who serves already has nobody to end


@pytest.mark.parametrize(
    ("program", "within", "why"),
    [
        ("exit 7", 60.0, "version 2.0 has ended with 7"),
        ("echo $$ >pid; exec sleep 1000", 1.0, "version 2.0 has not come up in 1 s"),
        (None, 60.0, "version 2.0 cannot be started: No such file or directory"),
    ],
)
async def test_a_successor_that_does_not_take_over_is_ended_and_reported(
    tmp_path: Path, program: str | None, within: float, why: str
) -> None:
    if program is not None:
        install(tmp_path, "2.0", f"cd {tmp_path}; {program}")
    said = ReportRecorder()
    await SelfUpgrade(tmp_path / "agent", tmp_path, "1.0", []).upgrade(Upgrade("2.0", 5, 1, within=within), said)
    assert said.events == [(UPGRADING, ""), (UPGRADE_FAILED, why)]
    with suppress(FileNotFoundError, ValueError):  # it may not even have come to write its number down
        assert not is_alive(int((tmp_path / "pid").read_text()))


async def test_the_successor_gets_the_same_arguments_and_is_told_whose_heir_it_is(tmp_path: Path) -> None:
    install(tmp_path, "2.0", f'echo "$@" >{tmp_path}/said; exit 0')
    old = SelfUpgrade(tmp_path / "agent", tmp_path, "1.0", ["--cloudlet", "munich"])
    await old.upgrade(Upgrade("2.0", 5, 1, within=60.0), ReportRecorder())
    assert (tmp_path / "said").read_text() == "agent --cloudlet munich --heir 5\n"


async def test_an_upgrade_that_is_asked_for_again_does_not_start_a_second_successor(tmp_path: Path) -> None:
    install(tmp_path, "2.0", f"echo x >>{tmp_path}/started; exec sleep 1000")
    old, first, second = SelfUpgrade(tmp_path / "agent", tmp_path, "1.0", []), ReportRecorder(), ReportRecorder()
    work = asyncio.create_task(old.upgrade(Upgrade("2.0", 5, 1, within=1.0), first))
    await until(lambda: first.events)
    await old.upgrade(Upgrade("2.0", 5, 1, within=1.0), second)
    assert second.events == [(UPGRADING, "")]
    await work
    assert not (tmp_path / "started").exists() or len((tmp_path / "started").read_text()) <= len("x\n")


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_upgrade_that_a_later_one_has_replaced_leaves_the_later_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    """The end of the first upgrade, by its killed successor or by its deadline, comes while the second one runs."""
    for version in ("2.0", "3.0"):
        install(tmp_path, version, "exec sleep 1000")
    started, resume, popen = list[subprocess.Popen[bytes]](), asyncio.Event(), subprocess.Popen

    def start(*command: Any, **how: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*command, **how))
        return started[-1]

    async def pause(_seconds: float) -> None:
        await resume.wait()

    old = SelfUpgrade(tmp_path / "agent", tmp_path, "1.0", [])
    reports = [ReportRecorder() for _ in range(3)]
    orders = [
        Upgrade("2.0", 5, 1, within=60.0),
        Upgrade("3.0", 6, 1, within=1000.0),
        Upgrade("3.0", 6, 1, within=1000.0),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", start)
        clock, tasks = [0.0], list[asyncio.Task[None]]()
        loop = SimpleNamespace(time=lambda: clock[0])
        patched.setattr(self_upgrade, "asyncio", SimpleNamespace(sleep=pause, get_running_loop=lambda: loop))
        for order, report in zip(orders[:2], reports[:2], strict=True):
            tasks.append(asyncio.create_task(old.upgrade(order, report)))
            await asyncio.sleep(0)  # it runs as far as its first pause
        assert [one.poll() for one in started] == [-signal.SIGKILL, None]
        clock[0] = 100.0 if is_late else 0.0
        first, resume = resume, asyncio.Event()  # both look at their successors; the second one pauses again
        first.set()
        await tasks[0]
        tasks.append(asyncio.create_task(old.upgrade(orders[2], reports[2])))
        await asyncio.sleep(0)
    assert started[1].poll() is None
    assert len(started) == 2
    assert reports[2].events == [(UPGRADING, "")]
    started[1].kill()
    started[1].wait(PATIENT)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_of_many_in_a_simulation_says_that_it_is_not_upgraded() -> None:
    said = ReportRecorder()
    await NoUpgrade().take_over()
    await NoUpgrade().upgrade(Upgrade("2.0", 5, 1), said)
    assert said.events == [(UPGRADE_FAILED, "version 2.0 is not installed here")]


def test_an_installation_has_one_random_identity_for_good(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: read_installation(tmp_path / "a"), range(8)))
    assert found == {read_installation(tmp_path / "a")}
    assert read_installation(tmp_path / "b") not in found
    assert [one.name for one in (tmp_path / "a").iterdir()] == ["installation"]


def test_an_identity_that_cannot_be_read_is_refused_and_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "installation").write_text("what?")
    with pytest.raises(InvalidIdentity, match="32 hexadecimal digits"):
        read_installation(tmp_path)
    assert (tmp_path / "installation").read_text() == "what?"
