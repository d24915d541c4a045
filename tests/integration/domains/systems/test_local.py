"""Instances as processes of this host: started, checked, restarted, taken over, and stopped."""

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from stateward.domains.systems.backends.local import backend_supervisor, health_check, instance_supervisor
from stateward.domains.systems.backends.local import launch as launch_module
from stateward.domains.systems.backends.local.instance_dir import (
    PROXY,
    BackendDir,
    InstanceDir,
    InstanceOrder,
    read_record,
    write_record,
)
from stateward.domains.systems.backends.local.instance_supervisor import back_off
from stateward.domains.systems.backends.local.launch import find_unrecorded, launch
from stateward.domains.systems.backends.port import InstancePhase, ServiceRef, SystemRef
from stateward.domains.systems.definition import HealthCheck, NodePool, Service, revision_of
from stateward.domains.systems.errors import NodePoolFull
from stateward.workloads.confinement import Confinement
from tests.integration.domains.systems.local_backend_harness import (
    HOME,
    PATIENT,
    WEB,
    end_all,
    is_alive,
    kill_marked,
    program,
    ready,
    run_backend,
    shell,
    start,
    until_instances,
)
from tests.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "systems"
    assert kill_marked(tmp_path) == []  # nothing is left behind


async def test_an_instance_is_a_process_that_answers_and_ends_well(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(backend, program("hello"))
        (one,) = await ready(backend)
        assert one.pid is not None
        assert is_alive(one.pid)
        assert one.port is not None
        assert await asked(one.port)
        await backend.stop(WEB, "one")
        await until_instances(backend, lambda seen: not seen)
        assert not is_alive(one.pid)
        (log,) = await backend.logs(WEB, None, None, 1000)
        assert log.text == f"serves {one.port} hello\nended well\n"


@pytest.mark.parametrize(
    "check",
    [
        HealthCheck(http="/", interval=0.1),
        HealthCheck(tcp=True, interval=0.1),
        HealthCheck(command=("/bin/sh", "-c", 'test -d "$STATEWARD_WORK"'), interval=0.1),
    ],
    ids=["http", "tcp", "command"],
)
async def test_an_instance_is_ready_when_its_check_says_so(folder: Path, check: HealthCheck) -> None:
    async with run_backend(folder) as backend:
        await start(backend, program(check=check))
        await ready(backend)
        await end_all(backend)


async def test_one_whose_check_says_no_is_not_ready_and_tells_why(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(backend, shell("sleep 60", health=HealthCheck(tcp=True, interval=0.05)))
        (one,) = await until_instances(backend, lambda seen: bool(seen and seen[0].why))
        assert (one.ready, one.why) == (False, "Connection refused")
        await end_all(backend)


async def test_one_without_a_check_is_ready_when_it_has_run_for_a_moment(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(backend, shell("sleep 60"))
        await ready(backend)
        await end_all(backend)


async def test_a_crash_is_told_with_its_last_words_and_mended_after_a_while(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(backend, shell('test -f "$STATEWARD_WORK/again" && exec sleep 60; echo no luck; exit 3'))
        (one,) = await until_instances(backend, lambda seen: bool(seen) and seen[0].phase is InstancePhase.CRASHED)
        assert (one.ready, one.why) == (False, "ended with 3: no luck")
        next(folder.rglob("work")).joinpath("again").touch()
        (one,) = await ready(backend)
        assert one.restarts >= 1
        await end_all(backend)


async def test_a_folder_that_an_instance_cannot_enter_is_told_with_the_setting_that_opens_it(
    folder: Path, tmp_path: Path
) -> None:
    async with run_backend(folder) as backend:
        await start(backend, shell("sleep 60", folder=str(tmp_path / "closed")))
        (one,) = await until_instances(backend, lambda seen: bool(seen) and seen[0].phase is InstancePhase.CRASHED)
        assert one.why.startswith(f"ended with 126: {tmp_path}/closed must exist, and be readable by everybody")
        assert "machine_paths" in one.why
        await end_all(backend)


async def test_one_that_was_killed_is_started_again(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(backend, program())
        (first,) = await ready(backend)
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        (one,) = await until_instances(backend, lambda seen: seen[0].restarts == 1)
        # One that is up again has no fault; whoever finds it dead later does not know by what it ended.
        assert one.ready or "killed by SIGKILL" in one.why or "its process has ended" in one.why
        (again,) = await ready(backend)
        assert again.pid != first.pid
        await end_all(backend)


async def test_one_that_falls_ill_is_ended_and_started_again(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(backend, program())
        await ready(backend)
        ill = next(folder.rglob("work")) / "ill"
        ill.touch()
        (one,) = await until_instances(backend, lambda seen: seen[0].phase is InstancePhase.CRASHED)
        assert one.why == "not healthy: GET / is answered with 503"
        ill.unlink()
        await ready(backend)
        await end_all(backend)


def test_the_pauses_between_crashes_grow_up_to_a_limit() -> None:
    pauses = [back_off(crashes) for crashes in range(1, 12)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 30.0


async def test_a_command_that_is_not_there_is_a_crash_that_says_so(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(backend, Service(command=("no-such-program",)))
        (one,) = await until_instances(backend, lambda seen: bool(seen) and seen[0].phase is InstancePhase.CRASHED)
        assert "no-such-program" in one.why
        await end_all(backend)


async def test_whatever_an_instance_has_started_ends_with_it(folder: Path) -> None:
    async with run_backend(folder) as backend:
        text = 'sleep 600 & setsid sleep 600 & echo $! >"$STATEWARD_WORK/pid"; trap "" TERM; while :; do sleep 1; done'
        await start(backend, shell(text))
        await ready(backend)
        pid = int(next(folder.rglob("pid")).read_text())
        assert is_alive(pid)
        await end_all(backend)
        assert not is_alive(pid)


async def test_the_next_keeper_takes_over_what_runs_and_starts_nothing_twice(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(backend, program("a"), "one")
        await start(backend, program("b"), "two")
        first = await ready(backend, 2)
    async with run_backend(folder) as backend:
        assert [one.pid for one in await ready(backend, 2)] == [one.pid for one in first]
        assert [one.restarts for one in await backend.instances(WEB)] == [0, 0]
        await end_all(backend)


@pytest.mark.parametrize("is_former", [False, True], ids=["started by this version", "started by an earlier one"])
async def test_a_process_that_was_started_but_never_noted_is_found_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_former: bool
) -> None:
    with monkeypatch.context() as version:
        if is_former:
            version.setattr(launch_module, "mark_of", launch_module._former_mark)
        async with run_backend(folder) as backend:
            await start(backend, program())
            (first,) = await ready(backend)
    state = next(folder.rglob("state.json"))
    text = state.read_text()
    begun, end = text.index('"process"'), text.index("}}", text.index('"process"')) + 3
    state.write_text(text[:begun] + '"launching":true,' + text[end:])
    async with run_backend(folder) as backend:
        (one,) = await until_instances(backend, lambda seen: seen[0].pid is not None)
        assert one.pid == first.pid
        await end_all(backend)


async def test_one_that_ended_while_nobody_looked_is_started_again(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(backend, program())
        (first,) = await ready(backend)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    async with run_backend(folder) as backend:
        (again,) = await until_instances(backend, lambda seen: seen[0].restarts == 1 and seen[0].ready)
        assert again.pid != first.pid
        await end_all(backend)


async def test_there_is_one_keeper_at_a_time_and_the_next_one_waits(folder: Path) -> None:
    async with run_backend(folder) as first, run_backend(folder) as second:
        await start(second, program())
        (one,) = await ready(second)
        assert [other.pid for other in await first.instances(WEB)] == [one.pid]
        await end_all(second)


async def test_the_environment_is_its_own_and_has_no_secret_of_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEWARD_TOKEN", "secret")
    async with run_backend(folder) as backend:
        await start(backend, shell("env; pwd; exec sleep 60", env={"COLOUR": "green"}))
        await ready(backend)
        (log,) = await backend.logs(WEB, "one", None, 10_000)
        assert "COLOUR=green" in log.text
        assert "STATEWARD_SYSTEM=shop" in log.text
        assert "secret" not in log.text
        where, facts = log.text.splitlines()[-1], dict(line.split("=", 1) for line in log.text.splitlines()[:-1])
        assert str(folder) not in facts["STATEWARD_INSTANCE"]
        assert where == facts["HOME"] == facts["STATEWARD_WORK"]
        assert os.environ["HOME"] != facts["HOME"]
        await end_all(backend)


async def test_an_instance_that_no_process_can_be_made_of_crashes_alone(folder: Path) -> None:
    other = ServiceRef(SystemRef("zeta", "other"), "/web")
    async with run_backend(folder) as backend:
        await start(backend, shell("sleep 60", env={"A": "a\0b"}))
        await start(backend, shell("sleep 60"), ref=other)
        await ready(backend, ref=other)
        (bad,) = await until_instances(backend, lambda seen: seen[0].restarts > 1)
        assert (bad.phase, bad.ready, bad.why) == (InstancePhase.CRASHED, False, "embedded null byte")
        await end_all(backend)
        await end_all(backend, other)


async def test_an_error_of_ours_with_one_instance_is_its_own_state_and_is_tried_again_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[float] = []

    def fail_for_one(lodge: InstanceDir, order: InstanceOrder, *how: Any) -> tuple[int, tuple[str, ...]]:
        if order.name == "one" and len(failures) < 2:
            failures.append(time.monotonic())
            raise RuntimeError("no launch")
        return launch(lodge, order, *how)

    monkeypatch.setattr(instance_supervisor, "launch", fail_for_one)
    async with run_backend(folder) as backend:
        await start(backend, shell("sleep 60"), "one")
        await start(backend, shell("sleep 60"), "two")
        seen = await ready(backend)
        assert [(one.phase, one.ready, one.why) for one in seen] == [
            (InstancePhase.CRASHED, False, "RuntimeError: no launch"),
            (InstancePhase.UP, True, ""),
        ]
        one, _ = await ready(backend, 2)
        assert (one.phase, one.why) == (InstancePhase.UP, "")
        assert failures[1] - failures[0] >= back_off(1)
        await end_all(backend)
    logged = [line.getMessage() for line in caplog.records if line.name == "stateward.systems"]
    assert logged == ["instance one of service shop/web in default failed; retrying"]


async def test_the_end_of_an_instance_does_not_wait_for_its_backoff(folder: Path) -> None:
    lodge, service = BackendDir(folder).instance_dir(WEB, "one"), shell("sleep 60")
    lodge.put_order(InstanceOrder("one", "r", service))
    one = instance_supervisor.InstanceSupervisor(lodge, lodge.order(), Confinement())  # type: ignore[arg-type]
    one.fail(1.0, RuntimeError("broken"))
    assert not one.tick(1.1)
    lodge.put_order(InstanceOrder("one", "r", service, stop=True))
    one.reload_order()
    assert one.tick(1.2)
    assert one.is_gone


async def test_a_gate_that_cannot_be_told_of_its_instances_is_told_later_and_keeps_nobody_else_waiting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, broken = ServiceRef(SystemRef("zeta", "other"), "/web"), [True]

    def write_or_fail(file: Path, value: Any) -> None:
        if broken[0] and "default" in file.parts:
            raise OSError("no space left")
        write_record(file, value)

    monkeypatch.setattr(backend_supervisor, "write_record", write_or_fail)
    async with run_backend(folder) as backend:
        await start(backend, shell("sleep 60"))
        await start(backend, shell("sleep 60"), ref=other)
        await ready(backend, ref=other)
        (one,) = await ready(backend)
        broken[0] = False
        await until(lambda: read_record(BackendDir(folder).service_path(WEB) / "ready.json", list[int]) == [one.port])
        await end_all(backend)
        await end_all(backend, other)


async def test_a_log_is_read_on_from_a_place(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(
            backend, shell('echo one; while ! test -f "$STATEWARD_WORK/go"; do sleep 0.02; done; echo two; sleep 60')
        )
        await ready(backend)
        (first,) = await backend.logs(WEB, "one", None, 1000)
        next(folder.rglob("work")).joinpath("go").touch()
        while not (more := (await backend.logs(WEB, "one", first.next, 1000))[0]).text:
            await asyncio.sleep(0.01)
        assert (first.text, more.text) == ("one\n", "two\n")
        await end_all(backend)


async def test_the_log_of_an_instance_that_runs_is_bounded_and_read_on_across_that(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_supervisor, "MAX_LOG_BYTES", 6)
    monkeypatch.setattr(backend_supervisor, "LOG_INTERVAL_S", 0.0)
    async with run_backend(folder) as backend:
        wait = 'while ! test -f "$STATEWARD_WORK/{}"; do sleep 0.02; done; '
        await start(backend, shell(f"echo one; {wait.format('a')} echo two; {wait.format('b')} echo three; sleep 60"))
        await ready(backend)
        (first,) = await backend.logs(WEB, "one", None, 1000)
        text, place = first.text, first.next
        for file, line in (("a", "two"), ("b", "three")):
            next(folder.rglob("work")).joinpath(file).touch()
            while line not in text:
                (more,) = await backend.logs(WEB, "one", place, 1000)
                text, place = text + more.text, more.next
                await asyncio.sleep(0.01)
            await until(lambda: next(folder.rglob("one.log")).stat().st_size <= 6)
        assert text == "one\ntwo\nthree\n"
        assert list(folder.rglob("one.old"))
        await end_all(backend)


async def test_changes_that_nobody_reads_wait_once_for_each_service_that_is_there(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(backend, shell("exec sleep 60"))
        await ready(backend)  # it has changed twice
        changed = backend._supervisor.changed_services
        assert len(changed) == 1
        await backend.stop(WEB, "one")
        await until_instances(backend, lambda seen: not seen)
        await backend.forget(WEB)
        await until(lambda: len(changed) == 0)


async def test_the_log_of_a_service_that_a_failed_deploy_removes_is_kept_until_it_is_removed_again(
    folder: Path,
) -> None:
    async with run_backend(folder) as backend:
        for keep_logs, kept in ((True, ["no luck\n"]), (False, [])):
            await start(backend, shell("echo no luck; exec sleep 60"))
            await ready(backend)
            await backend.stop(WEB, "one")
            await until_instances(backend, lambda seen: not seen)
            await backend.forget(WEB, keep_logs=keep_logs)
            assert [one.text for one in await backend.logs(WEB, None, None, 1_000)] == kept
        assert not BackendDir(folder).services(HOME)


async def test_nodes_have_room_for_so_many(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await backend.ensure_pool(HOME, "main", NodePool(nodes=2, slots=1))
        for name in ("one", "two"):
            await start(backend, shell("sleep 60", node_pool="main"), name)
        assert {one.node for one in await backend.instances(WEB)} == {"main-0", "main-1"}
        with pytest.raises(NodePoolFull):
            await start(backend, shell("sleep 60", node_pool="main"), "three")
        with pytest.raises(NodePoolFull):
            await backend.ensure_pool(HOME, "main", NodePool(nodes=1, slots=1))
        await end_all(backend)
        await backend.ensure_pool(HOME, "main", NodePool(nodes=1, slots=1))


async def test_an_address_stands_before_all_instances_and_outlives_the_keeper(folder: Path) -> None:
    async with run_backend(folder) as backend:
        await start(backend, program())
        await ready(backend)
        port = await until(lambda: backend.address(WEB, 0), lambda port: port is not None)
        assert await asked(port)
    assert await asked(port)
    async with run_backend(folder) as backend:
        assert await backend.address(WEB, port) == port
        await end_all(backend)


async def asked(port: int) -> str:
    """Return what is answered at a port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    answer = (await reader.read()).decode()
    writer.close()
    return answer.rpartition("\r\n")[2]


async def test_an_address_whose_port_another_program_holds_is_not_open_and_says_so(folder: Path) -> None:
    async with run_backend(folder) as backend:
        port = await until(lambda: backend.address(WEB, 0), lambda port: port is not None)
        proxy = BackendDir(folder).instance_dir(WEB, PROXY)
        process = getattr(proxy.state(), "process", None)
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        with socket.socket() as thief:  # it accepts connections, as the proxy would
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            await until(lambda: is_bound(thief, port))
            thief.listen()
            await until(lambda: getattr(proxy.state(), "restarts", 0) >= 2)
            assert await backend.address(WEB, port) is None
            assert f"port {port} cannot be opened: Address already in use" in await backend.address_problem(WEB, port)
        await backend.forget(WEB)


def is_bound(one: socket.socket, port: int) -> bool:
    try:
        one.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT PROVED HERE: users of their own need a server that is root")
async def test_a_keeper_that_dies_right_after_a_start_leaves_a_note_of_the_instances_user(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, confinement = BackendDir(folder), Confinement()
    lodge, service = files.instance_dir(WEB, "one"), shell("setsid sleep 60 & sleep 60")
    lodge.put_order(InstanceOrder("one", revision_of(service), service))

    class Killed(BaseException):
        """The keeper is killed."""

    def start_and_die(*how: Any) -> int:
        launch(*how)
        raise Killed

    monkeypatch.setattr(instance_supervisor, "launch", start_and_die)
    with pytest.raises(Killed):
        instance_supervisor.InstanceSupervisor(lodge, lodge.order(), confinement).tick(1.0)  # type: ignore[arg-type]
    monkeypatch.undo()
    async with asyncio.timeout(10):
        while find_unrecorded(lodge, 1) is None:  # it shows its environment when it has become what it is to be
            await asyncio.sleep(0.01)
    next_one = instance_supervisor.InstanceSupervisor(
        lodge, InstanceOrder("one", revision_of(service), service, stop=True), confinement
    )
    next_one.tick(2.0)
    process = next_one.state.process
    assert process is not None
    assert next_one.state.uid == Path(f"/proc/{process.pid}").stat().st_uid
    os.killpg(process.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        while not next_one.is_gone:
            next_one.tick(3.0)
            await asyncio.sleep(0.01)


async def test_a_check_that_is_broken_off_while_its_command_is_started_leaves_no_process(tmp_path: Path) -> None:
    begun: list[subprocess.Popen[bytes]] = []
    broken_off = Event()

    def begin(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        broken_off.wait(PATIENT)
        begun.append(start())
        return begun[0]

    check = HealthCheck(command=("/bin/sleep", "60"))
    look = asyncio.create_task(health_check.check_health(check, 0, {}, str(tmp_path), begin))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    look.cancel()
    await asyncio.sleep(0)
    broken_off.set()
    await asyncio.gather(look, return_exceptions=True)
    await until(lambda: begun)
    ended = begun[0].poll() is not None
    begun[0].kill()
    begun[0].wait()
    assert ended
