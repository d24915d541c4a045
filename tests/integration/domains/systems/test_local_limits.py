"""Limits of the resources of local instances: of control groups where the host has them, else of processes."""

import os
from pathlib import Path

import pytest

from stateward.domains.systems.backends.local import LocalBackend
from stateward.domains.systems.definition import Resources
from stateward.workloads.limits import (
    AppliedLimits,
    Controller,
    ProgramGroups,
    ProgramLimits,
    group_name,
    usable_controllers,
)
from tests.integration.domains.systems.local_backend_harness import (
    HOME,
    PYTHON,
    WEB,
    end_all,
    ready,
    shell,
    start,
    until_instances,
)

EATER = (
    f"exec {PYTHON} -I -S -c 'import time; held = bytearray(200 << 20); print(len(held), flush=True); time.sleep(99)'"
)
FORKER = "for number in 1 2 3 4 5 6 7 8; do sleep 99 & done; echo forked; wait; exec sleep 99"
HERE = Path(__file__).parent


def needs_groups(*names: str) -> None:
    """Skip a test, loudly, where no control group can be created."""
    missing = set(names) - usable_controllers().keys()
    if missing:
        pytest.skip(f"this host has no control groups that we could create for {', '.join(sorted(missing))}")


async def log_of(backend: LocalBackend) -> str:
    """Return what the instance has written."""
    return "".join(one.text for one in await backend.logs(WEB, None, 0, 10_000))


@pytest.fixture
def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without control groups."""
    monkeypatch.setattr("stateward.workloads.limits.usable_controllers", dict)


async def test_an_instance_that_uses_too_much_memory_is_killed_and_the_reason_is_told(tmp_path: Path) -> None:
    needs_groups("memory")
    backend = LocalBackend(tmp_path)
    await backend.prepare(HOME)
    async with backend.live():
        await start(backend, shell(EATER, resources=Resources(memory=64)))
        seen = await until_instances(backend, lambda seen: bool(seen and seen[0].restarts))
        assert "it used more than its 64 MiB of memory" in seen[0].why
        assert seen[0].unlimited == ()
        await end_all(backend)
    parent = usable_controllers()["memory"].folder
    assert not (parent / group_name(tmp_path / "default/shop/services/web/instances/one")).exists()


async def test_an_instance_has_no_more_processes_and_processor_time_than_it_may(tmp_path: Path) -> None:
    needs_groups("cpu", "pids")
    backend = LocalBackend(tmp_path)
    await backend.prepare(HOME)
    async with backend.live():
        await start(backend, shell(FORKER, resources=Resources(cpu=0.25, pids=5)))
        await until_instances(backend, lambda seen: bool(seen and (seen[0].restarts or seen[0].ready)))
        text = await log_of(backend)
        assert "fork" in text.lower()
        assert "forked" not in text or "cannot fork" in text.lower()
        await end_all(backend)


async def test_a_cpu_limit_is_written_into_the_group_of_the_process(tmp_path: Path) -> None:
    needs_groups("cpu")
    backend = LocalBackend(tmp_path)
    await backend.prepare(HOME)
    async with backend.live():
        await start(backend, shell("exec sleep 99", resources=Resources(cpu=0.25)))
        (one,) = await ready(backend)
        controller = usable_controllers()["cpu"]
        group = controller.folder / group_name(tmp_path / "default/shop/services/web/instances/one")
        assert str(one.pid) in (group / "cgroup.procs").read_text().split()
        file = "cpu.max" if controller.is_unified else "cpu.cfs_quota_us"
        assert (group / file).read_text().split()[0] == "25000"
        await end_all(backend)
        assert not group.exists()


@pytest.mark.usefixtures("no_groups")
async def test_without_control_groups_processes_are_limited_and_the_rest_is_told(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    await backend.prepare(HOME)
    async with backend.live():
        await start(backend, shell(EATER, resources=Resources(cpu=0.5, memory=64, pids=50)))
        seen = await until_instances(backend, lambda seen: bool(seen and seen[0].restarts))
        assert "MemoryError" in seen[0].why
        told = {"cpu", "memory of all its processes together"} | (set() if os.geteuid() == 0 else {"pids"})
        assert set(seen[0].unlimited) == told
        await end_all(backend)


def test_the_files_of_the_unified_hierarchy_get_their_values(tmp_path: Path) -> None:
    """The kernel of this host may have the other version: the folder stands for its file system."""
    groups = ProgramGroups({name: Controller(tmp_path, True) for name in ("cpu", "memory", "pids")})
    assert groups.limit(HERE, 77, ProgramLimits(1.5, 256, 20), has_own_user=True) == AppliedLimits((), ":")
    group = tmp_path / group_name(HERE)
    written = {one.name: one.read_text() for one in group.iterdir()}
    assert written == {
        "cpu.max": "150000 100000",
        "memory.max": str(256 << 20),
        "pids.max": "20",
        "cgroup.procs": "77",
    }
    (group / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert groups.was_out_of_memory(HERE)
    (group / "memory.events").write_text("low 0\noom 0\noom_kill 0\n")
    assert not groups.was_out_of_memory(HERE)
