"""kill -9 in the middle of an action: the next worker goes on with the right step."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which

import pytest
from msgspec.structs import replace

from stateward.domains.ovc.lifecycle import NODE
from stateward.domains.ovc.model import vm_seen
from stateward.domains.ovc.nodes.qemu_node import QemuNode
from stateward.drivers.qemu.errors import MonitorError
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import HEALER
from stateward.store import open_store
from stateward.store.filters import Selector
from stateward.store.port import Tx
from stateward.store.records import Key
from tests.fork_server import forked_module
from tests.integration.domains.ovc.machine_processes import nodes_in, vms_in
from tests.integration.domains.ovc.ovc_harness import ADA, FILES, Cloud, open_cloud
from tests.integration.drivers.local.host_machines import live_processes_in, needs_qemu
from tests.servers import PostgresServer
from tests.waiting import until

CHILD = "tests.integration.domains.ovc.crash_child"
PATIENT_LEASE = 15.0
"""A lease that a living worker renews in time on a busy machine as well, in seconds."""

needs_disks = pytest.mark.skipif(
    which("qemu-img") is None, reason="qemu-img is not installed: apt-get install qemu-utils"
)


@contextmanager
# real time: the process is killed; others wait until its lease has expired
def hanging(database: str, folder: Path, *what: str, lease: float = 1.0) -> Iterator[dict[str, str]]:
    """Start a process, wait until it hangs in the middle, and kill it."""
    with forked_module(CHILD, database, str(folder), *what, str(lease)) as (_, printed):
        told: dict[str, str] = json.loads(printed.readline())
        yield told


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that nobody has used."""
    if request.param == "sqlite":
        return str(tmp_path / "stateward.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.new_database()


async def words(cloud: Cloud, op: str) -> list[str]:
    """Return the steps that an operation told of."""
    operation = await cloud.operation(op)
    return [one.text for one in await cloud.engine.store.reader.progress_of(operation.key, 0)]


@needs_qemu
@needs_disks
@pytest.mark.parametrize(
    ("driver", "step", "told"),
    [
        ("qemu", "stop", ["stop", "stop", "delete", "destroy"]),
        ("process", "after stop", ["stop", "stop", "delete", "destroy"]),
        ("process", "delete", ["stop", "delete", "delete", "destroy"]),
        ("process", "destroy", ["stop", "delete", "destroy", "destroy"]),
        ("qemu", "after destroy", ["stop", "delete", "destroy"]),  # whoever comes next sees that it is done
    ],
)
async def test_a_destruction_that_was_killed_goes_on_with_the_right_step(
    database: str, folder: Path, driver: str, step: str, told: list[str]
) -> None:
    with hanging(database, folder, driver, "destroy", step) as at:
        assert at["at"] == step
    async with open_cloud(open_store(database), folder, FILES) as cloud:
        operation = await cloud.engine.wait_record(cloud.ns, at["op"], 60)
        assert (operation.status, await words(cloud, at["op"])) == ("succeeded", told)
        assert await cloud.states(at["vm"], cloud.boot_disk(at["vm"])) == ["DESTROYED", "DESTROYED"]
    assert vms_in(folder) == []
    assert [file.name for file in (folder / "ovc" / "vault").glob("disk-*")] == []


async def test_a_cascade_that_was_killed_goes_on_with_those_who_are_left(database: str, folder: Path) -> None:
    with hanging(database, folder, "process", "delete account", "") as at:
        assert at["at"] == "the second VM"
    async with open_cloud(open_store(database), folder) as cloud:
        operation = await cloud.engine.wait_record(cloud.ns, at["op"], 60)
        assert (operation.status, await cloud.state(operation.object)) == ("succeeded", "DELETED")
        counts = await cloud.engine.store.reader.count_states(Selector(cloud.ns))
        assert {state for kind, state in counts if kind != NODE.kind} == {"DELETED", "TOBEDELETED"}
        lines = [line.event for line in await cloud.engine.history(cloud.ns, at["vm"]) if line.event == "delete"]
        assert lines == ["delete"]  # whoever had gone was not asked again
        await cloud.did(operation.object, "restore")
        assert await cloud.state(at["vm"]) == "HALTED"
        await cloud.did(operation.object, "destroy", ADA)
    assert [pid for node in nodes_in(folder) for pid in live_processes_in(node)] == []


async def hurry(cloud: Cloud, vm: str) -> None:
    """Let a slow migration go on as fast as it can; it may be over already."""
    seen = vm_seen(await cloud.get(vm))
    node = await cloud.plugin.nodes.get(cloud.ns, seen.node)
    assert isinstance(node, QemuNode)
    with suppress(MonitorError):
        most = {"max-bandwidth": 1 << 30}
        await node.host.use_monitor(seen.machine, lambda monitor: monitor.execute("migrate-set-parameters", most))


@needs_qemu
@needs_disks
async def test_a_migration_whose_controller_was_killed_is_taken_up_and_ends(database: str, folder: Path) -> None:
    with hanging(database, folder, "qemu", "migrate", "") as at:
        before = vms_in(folder)
        assert len(before) == 2  # the one that sends, and the one that receives
    async with open_cloud(open_store(database), folder, FILES) as cloud:
        source = vm_seen(await cloud.get(at["vm"])).node
        await hurry(cloud, at["vm"])
        operation = await cloud.engine.wait_record(cloud.ns, at["op"], 60)
        assert operation.status == "succeeded", operation
        seen = vm_seen(await cloud.get(at["vm"]))
        assert (await cloud.state(at["vm"]), seen.node != source, seen.to) == ("RUNNING", True, "")
        after = vms_in(folder)
        assert len(after) == 1
        assert after[0] in before  # the same move: nothing was begun anew
        await cloud.did(at["vm"], "pause")


@needs_qemu
@needs_disks
async def test_a_destruction_that_waited_behind_a_migration_when_all_was_killed_still_follows_it(
    database: str, folder: Path
) -> None:
    with hanging(database, folder, "qemu", "migrate", "destroy") as at:
        pass
    async with open_cloud(open_store(database), folder, FILES) as cloud:
        assert await cloud.state(at["vm"]) == "DESTROYING"
        await hurry(cloud, at["vm"])
        migrating = await cloud.engine.wait_record(cloud.ns, at["op"], 60)
        destroying = await cloud.engine.wait_record(cloud.ns, at["behind"], 60)
        assert (migrating.status, destroying.status) == ("succeeded", "succeeded")
        assert await words(cloud, at["behind"]) == ["stop", "delete", "destroy"]
        assert not (await cloud.service.queuer.queue(cloud.ns, at["vm"])).exists
        assert await cloud.states(at["vm"], cloud.boot_disk(at["vm"])) == ["DESTROYED", "DESTROYED"]
    assert vms_in(folder) == []


async def test_what_a_dead_worker_held_is_taken_over_by_a_living_one_which_looks_first(
    postgres_server: PostgresServer, folder: Path
) -> None:
    """The healer against a worker that is dead: it must act."""
    database = postgres_server.new_database()
    with hanging(database, folder, "process", "destroy", "destroy") as at:
        pass
    async with open_cloud(open_store(database), folder) as cloud:
        operation = await cloud.engine.wait_record(cloud.ns, at["op"], 60)
        assert (operation.status, await cloud.state(at["vm"])) == ("succeeded", "DESTROYED")
        healing = await cloud.service.healing(cloud.ns, 0.0)
        assert (at["vm"], "put back") in [(one.object, one.how) for one in healing.healed]
        lines = [line for line in await cloud.engine.history(cloud.ns, at["vm"]) if line.actor == HEALER]
        assert [line.event for line in lines] == ["put back"]


@pytest.mark.parametrize(
    ("step", "state", "disk", "event"),
    [("stop", "ERROR", "ERROR", "failed"), ("after destroy", "DESTROYED", "DESTROYED", "succeeded")],
)
async def test_what_has_outlived_its_time_and_its_worker_is_settled_by_what_is_true(
    folder: Path, step: str, state: str, disk: str, event: str
) -> None:
    database = str(folder / "stateward.db")
    with hanging(database, folder, "process", "destroy", step) as at:
        pass
    async with open_cloud(open_store(database), folder, works=False) as cloud:
        await cloud.engine.store.transact(lambda tx: _late(tx, Key(cloud.ns, at["vm"]), Key(cloud.ns, at["op"])))
        await until(lambda: _is_stuck(cloud, at["vm"]))
    async with open_cloud(open_store(database), folder) as cloud:
        await cloud.engine.wait_record(cloud.ns, at["op"], 60)
        assert await cloud.states(at["vm"], cloud.boot_disk(at["vm"])) == [state, disk]
        healed = (await cloud.service.healing(cloud.ns, 0.0)).healed
        assert (at["vm"], event, state) in [(one.object, one.how, one.state) for one in healed]
        if state == "ERROR":
            await cloud.did(at["vm"], "destroy")


async def _is_stuck(cloud: Cloud, vm: str) -> bool:
    return [one.object for one in (await cloud.service.healing(cloud.ns, 0.0)).stuck] == [vm]


async def _late(tx: Tx, vm: Key, op: Key) -> None:
    """Let the time of an operation be over."""
    uow = UnitOfWork(tx)
    await uow.load([vm])
    work = uow.work(op)
    assert work is not None
    uow.update_work(replace(work, deadline=uow.now - 1.0))
    await uow.apply()


async def test_a_worker_that_is_slow_and_alive_is_left_alone(postgres_server: PostgresServer, folder: Path) -> None:
    """The healer against a worker that is slow but alive: it must not act."""
    database = postgres_server.new_database()
    with hanging(database, folder, "process", "destroy", "stop", lease=PATIENT_LEASE) as at:
        async with open_cloud(open_store(database), folder, lease=PATIENT_LEASE) as cloud:
            assert cloud.engine.worker is not None

            async def others_looked() -> bool:
                """Wait until the other worker has renewed its lease several times beside us."""
                seen.add(tuple(sorted((one.id, one.seen) for one in await cloud.engine.store.reader.workers())))
                return len(seen) > 3

            seen: set[tuple[tuple[str, float], ...]] = set()
            await until(others_looked)
            assert (await cloud.operation(at["op"])).status == "running"
            assert await cloud.state(at["vm"]) == "DESTROYING"
            healing = await cloud.service.healing(cloud.ns, 0.0)
            assert (healing.stuck, healing.healed) == ([], [])
