"""However many instances a host has, their files and rounds leave the event loop to others."""

import asyncio
import threading
from pathlib import Path

import pytest

from stateward.domains.systems.backends.local import LocalBackend, backend_supervisor
from stateward.domains.systems.backends.local.backend_supervisor import BackendSupervisor
from stateward.domains.systems.backends.local.instance_dir import BackendDir, InstanceDir, InstanceOrder
from stateward.domains.systems.backends.local.instance_supervisor import InstanceSupervisor
from stateward.domains.systems.backends.port import no_secrets
from stateward.workloads.confinement import Confinement
from tests.integration.domains.systems.local_backend_harness import PATIENT, WEB, shell, start


async def test_the_files_of_instances_are_written_and_read_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, threads = LocalBackend(tmp_path), set[threading.Thread]()
    put, read = InstanceDir.put_order, InstanceDir.order

    def noted_put(directory: InstanceDir, order: InstanceOrder) -> None:
        threads.add(threading.current_thread())
        put(directory, order)

    def noted_read(directory: InstanceDir) -> InstanceOrder | None:
        threads.add(threading.current_thread())
        return read(directory)

    monkeypatch.setattr(InstanceDir, "put_order", noted_put)
    monkeypatch.setattr(InstanceDir, "order", noted_read)
    await start(backend, shell("exec sleep 60"))
    assert [one.name for one in await backend.instances(WEB)] == ["one"]
    await backend.stop(WEB, "one")
    assert threads
    assert threading.current_thread() not in threads


async def test_a_cancelled_start_writes_nothing_after_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, is_writing, may_write = LocalBackend(tmp_path), threading.Event(), threading.Event()
    put = InstanceDir.put_order

    def held(directory: InstanceDir, order: InstanceOrder) -> None:
        is_writing.set()
        may_write.wait(PATIENT)
        put(directory, order)

    monkeypatch.setattr(InstanceDir, "put_order", held)
    starting = asyncio.create_task(start(backend, shell("exec sleep 60")))
    await asyncio.to_thread(is_writing.wait, PATIENT)
    starting.cancel()
    await asyncio.wait([starting], timeout=0)
    assert not starting.done()
    may_write.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert [one.name for one in await backend.instances(WEB)] == ["one"]


async def test_a_round_over_many_instances_lets_others_run_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_supervisor, "MAX_TURN_S", -1.0)
    ran: list[str] = []

    def tick(instance: InstanceSupervisor, now: float) -> bool:
        ran.append(instance.order.name)
        return False

    async def others() -> None:
        while True:
            ran.append("others")
            await asyncio.sleep(0)

    monkeypatch.setattr(InstanceSupervisor, "tick", tick)
    files = BackendDir(tmp_path)
    for name in ("a", "b"):
        files.instance_dir(WEB, name).put_order(InstanceOrder(name, "1", shell("exec sleep 60")))
    supervisor = BackendSupervisor(files, Confinement(), no_secrets)
    running = asyncio.create_task(others())
    await supervisor._run_round()
    running.cancel()
    assert "others" in ran[ran.index("a") : ran.index("b")]
