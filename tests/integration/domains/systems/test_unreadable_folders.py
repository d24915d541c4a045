"""Files of the local backend that cannot be read at a moment: nothing is known about them, which is not absence."""

import asyncio
import errno
import os
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.domains.systems.backends.local import LocalBackend, instance_dir
from stateward.domains.systems.backends.port import SystemRef
from stateward.domains.systems.definition import NodePool
from tests.integration.domains.systems.local_backend_harness import (
    HOME,
    WEB,
    end_all,
    is_alive,
    ready,
    run_backend,
    shell,
    start,
)

NO_DESCRIPTORS = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def failing(*_: object, **__: object) -> Any:
    raise NO_DESCRIPTORS


async def test_a_listing_that_fails_is_no_proof_that_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_backend(tmp_path) as backend:
        await start(backend, shell("exec sleep 1000"))
        await ready(backend)
        for module, name in ((instance_dir, "open"), (os, "scandir")):
            with monkeypatch.context() as patch:
                patch.setattr(module, name, failing, raising=False)
                with pytest.raises(OSError, match="Too many open files"):
                    await backend.instances(WEB)
        assert [one.ready for one in await backend.instances(WEB)] == [True]
        await end_all(backend)


async def test_an_order_that_cannot_be_read_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_backend(tmp_path) as backend:
        await start(backend, shell("exec sleep 1000"))
        await ready(backend)
        (instance,) = backend._supervisor._instances.values()
        process = instance.state.process
        assert process is not None
        directory = instance.dir
        order = directory.order()
        assert order is not None
        directory.put_order(replace(order, revision="r2"))  # a new stamp: it is read again
        with monkeypatch.context() as patch:
            patch.setattr(instance_dir, "open", failing, raising=False)
            backend._supervisor._tick(WEB, instance, 0.0)
            assert not instance.order.stop
        backend._supervisor._tick(WEB, instance, 0.0)
        assert instance.order.revision == "r2"
        assert is_alive(process.pid)
        await end_all(backend)


def test_pools_that_two_processes_define_at_the_same_time_are_both_kept(tmp_path: Path) -> None:
    """Two threads stand for the processes: a lock of a file belongs to its handle, not to a process."""
    meet = Barrier(2, timeout=0.5)

    class SlowDir(instance_dir.BackendDir):
        def pools(self, system_ref: SystemRef) -> dict[str, NodePool]:
            found = super().pools(system_ref)
            with suppress(BrokenBarrierError):
                meet.wait()  # both have read, unless a lock keeps one of them from it
            return found

    def define(name: str) -> None:
        backend = LocalBackend(tmp_path)
        backend._dir = SlowDir(tmp_path)
        asyncio.run(backend.ensure_pool(HOME, name, NodePool(nodes=1)))

    threads = [Thread(target=define, args=(name,)) for name in ("a", "b")]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(instance_dir.BackendDir(tmp_path).pools(HOME)) == ["a", "b"]
