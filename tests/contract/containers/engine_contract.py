"""The contract of container engines, for the simulated one and for real ones."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from itertools import count

import pytest

from stateward.containers import (
    KEY_LABEL,
    ContainerEngine,
    ContainerNetworkSpec,
    ContainerRecord,
    ContainerSpec,
    ContainerState,
    ContainerVolumeSpec,
    EngineEvent,
    EngineRefusal,
    EngineRefused,
    ExecEnd,
    ExecTimedOut,
    LogChunk,
    LogStream,
    PublishedPort,
    VolumeMount,
)
from stateward.errors import BadInput
from tests.waiting import until

PATIENT_S = 60.0
FOREVER = ("sleep", "100000")
REAPER = "sleep 100000 & wait"
"""A first process that reaps what is left to it, so that only living processes are counted."""

_numbers = count(1)


def new_name() -> str:
    """Return a name that no other test has."""
    return f"box-{next(_numbers)}"


class EngineContract(ABC):
    """The contract; a subclass gives the engine and an image that has busybox's programs."""

    @pytest.fixture
    @abstractmethod
    async def engine(self) -> AsyncIterator[ContainerEngine]: ...

    @property
    @abstractmethod
    def image(self) -> str: ...

    @property
    @abstractmethod
    def reaper_processes(self) -> int:
        """The number of processes that `REAPER` is."""

    def spec(self, *command: str, **fields: object) -> ContainerSpec:
        name = str(fields.pop("name", "") or new_name())
        return ContainerSpec(name, f"key-{name}", self.image, command or FOREVER, stop_grace_s=1, **fields)  # type: ignore[arg-type]

    async def started(self, engine: ContainerEngine, *command: str, **fields: object) -> str:
        container = await engine.create_container(self.spec(*command, **fields))
        await engine.start_container(container)
        return container

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    async def test_a_container_lives_and_every_action_is_idempotent(self, engine: ContainerEngine) -> None:
        spec = self.spec(labels={"colour": "red"})
        container = await engine.create_container(spec)
        assert await state_of(engine, container) is ContainerState.CREATED
        steps = (
            (engine.start_container, ContainerState.RUNNING),
            (engine.pause_container, ContainerState.PAUSED),
            (engine.unpause_container, ContainerState.RUNNING),
            (engine.kill_container, ContainerState.EXITED),
            (engine.start_container, ContainerState.RUNNING),
            (engine.stop_container, ContainerState.EXITED),
        )
        for act, state in steps:
            assert await act(container) is True
            await wait_for_state(engine, container, state)
            assert await act(container) is False
        found = await engine.inspect_container(spec.name)
        assert (found.id, found.name, found.key, found.labels["colour"]) == (container, spec.name, spec.key, "red")
        assert found.exit_code in (2, 137, 143)  # 2: it was stopped before runc had become its command
        assert found.started_at
        assert found.finished_at
        assert await engine.remove_container(container) is True
        assert await engine.remove_container(container) is False
        other = await engine.create_container(self.spec())
        assert await engine.remove_container(other[:12], force=True) is False  # nothing is found by a part of its id
        with pytest.raises(EngineRefused) as refused:
            await engine.inspect_container(container)
        assert refused.value.reason is EngineRefusal.NOT_FOUND

    async def test_a_listing_shows_every_state_and_finds_by_label(self, engine: ContainerEngine) -> None:
        created = await engine.create_container(self.spec(labels={"batch": "b1", "n": "1"}))
        running = await self.started(engine, labels={"batch": "b1", "n": "2"})
        paused = await self.started(engine, labels={"batch": "b1", "n": "3"})
        await engine.pause_container(paused)
        ended = await self.started(engine, "false", labels={"batch": "b1"})
        assert (await wait_for_state(engine, ended, ContainerState.EXITED)).exit_code == 1
        other = await self.started(engine, labels={"batch": "b2"})
        listed = {one.id: one for one in await engine.list_containers(("batch=b1",))}
        assert {key: one.state for key, one in listed.items()} == {
            created: ContainerState.CREATED,
            running: ContainerState.RUNNING,
            paused: ContainerState.PAUSED,
            ended: ContainerState.EXITED,
        }
        assert listed[ended].exit_code == 1
        assert listed[running].exit_code is None
        assert {one.id for one in await engine.list_containers(("batch", KEY_LABEL))} == {*listed, other}
        assert [one.id for one in await engine.list_containers(("batch=b1", "n=2"))] == [running]

    async def test_a_create_is_found_again_by_name_and_key(self, engine: ContainerEngine) -> None:
        spec = self.spec()
        container = await engine.create_container(spec)
        assert await engine.create_container(spec) == container
        await engine.start_container(container)
        assert await engine.create_container(spec) == container
        other = ContainerSpec(spec.name, "another-key", self.image, FOREVER)
        with pytest.raises(EngineRefused) as refused:
            await engine.create_container(other)
        assert refused.value.reason is EngineRefusal.NAME_TAKEN
        assert (await engine.inspect_container(spec.name)).key == spec.key

    async def test_actions_in_the_wrong_state_are_conflicts(self, engine: ContainerEngine) -> None:
        container = await engine.create_container(self.spec())
        for act in (engine.pause_container, engine.unpause_container):
            with pytest.raises(EngineRefused) as refused:
                await act(container)
            assert refused.value.reason is EngineRefusal.CONFLICT
        await engine.start_container(container)
        with pytest.raises(EngineRefused) as refused:
            await engine.remove_container(container)
        assert refused.value.reason is EngineRefusal.CONFLICT
        await engine.pause_container(container)
        assert await engine.remove_container(container, force=True) is True

    async def test_a_restart_starts_the_program_again(self, engine: ContainerEngine) -> None:
        container = await self.started(engine)
        before = (await engine.inspect_container(container)).started_at
        await engine.restart_container(container, 0)
        after = await wait_for_state(engine, container, ContainerState.RUNNING)
        assert before
        assert after.started_at
        assert after.started_at > before

    async def test_what_does_not_exist_is_refused(self, engine: ContainerEngine) -> None:
        with pytest.raises(EngineRefused) as refused:
            await engine.create_container(ContainerSpec(new_name(), "k", "no-such-image:1", FOREVER))
        assert refused.value.reason is EngineRefusal.IMAGE_MISSING
        for act in (engine.start_container, engine.stop_container, engine.pause_container, engine.inspect_container):
            with pytest.raises(EngineRefused) as refused:
                await act("no-such-container")
            assert refused.value.reason is EngineRefusal.NOT_FOUND
        with pytest.raises(EngineRefused) as refused:
            await engine.exec("no-such-container", ["true"])
        assert refused.value.reason is EngineRefusal.NOT_FOUND

    async def test_a_killed_program_ends_with_the_code_of_its_signal(self, engine: ContainerEngine) -> None:
        container = await self.started(engine)
        await engine.kill_container(container)
        assert (await wait_for_state(engine, container, ContainerState.EXITED)).exit_code == 137

    # --- output ------------------------------------------------------------------------------------------------------

    async def test_logs_have_both_streams_and_a_tail(self, engine: ContainerEngine) -> None:
        container = await self.started(engine, "cat", "/run/secrets/lines", "/nothing", secret_files=LINES)
        assert (await wait_for_state(engine, container, ContainerState.EXITED)).exit_code == 1
        chunks = await collect(engine.read_logs(container))
        assert text_of(chunks, LogStream.STDOUT) == LINES["/run/secrets/lines"]
        assert b"No such file" in text_of(chunks, LogStream.STDERR)
        tail = await collect(engine.read_logs(container, tail=2))
        assert len(b"".join(one.data for one in tail).splitlines()) == 2

    async def test_commands_run_in_a_container(self, engine: ContainerEngine) -> None:
        given = bytes(range(256)) * 4096
        given_file = {"/run/secrets/given": given}
        container = await self.started(engine, env={"COLOUR": "red"}, secret_files=given_file)
        done = await engine.exec(container, ["echo", "a", "b"])
        assert (done.exit_code, done.stdout, done.stderr, done.truncated) == (0, b"a b\n", b"", False)
        failed = await engine.exec(container, ["cat", "/nothing"])
        assert failed.exit_code == 1
        assert b"No such file" in failed.stderr
        found = (await engine.exec(container, ["env"], env={"TASTE": "sweet"})).stdout.splitlines()
        assert {b"COLOUR=red", b"TASTE=sweet"} <= set(found)
        back = await engine.exec(container, ["cat", *given_file], max_output=len(given))
        assert (back.stdout, back.truncated) == (given, False)
        cut = await engine.exec(container, ["cat", *given_file], max_output=1000)
        assert (cut.stdout, cut.truncated) == (given[:1000], True)
        streamed = [one async for one in engine.stream_exec(container, ["echo", "c"])]
        assert streamed[-1] == ExecEnd(0)
        await engine.pause_container(container)
        with pytest.raises(EngineRefused) as refused:
            await engine.exec(container, ["true"])
        assert refused.value.reason is EngineRefusal.CONFLICT

    async def test_a_command_ends_with_its_descendants_when_its_time_or_its_stream_does(
        self, engine: ContainerEngine
    ) -> None:
        container = await self.started(engine, "sh", "-c", REAPER)
        await wait_for_processes(engine, container, self.reaper_processes)
        sleeps = "sleep 1001 & (setsid sleep 1002 &) ; sleep 1003"
        for command in (["sleep", "1000"], ["sh", "-c", sleeps]):
            with pytest.raises(ExecTimedOut) as given_up:
                await engine.exec(container, command, timeout_s=1.0)
            assert given_up.value.is_over, command
            await wait_for_processes(engine, container, self.reaper_processes)
        running = asyncio.ensure_future(collect(engine.stream_exec(container, ["sh", "-c", sleeps])))
        await wait_for_processes(engine, container, self.reaper_processes, at_least=1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await wait_for_processes(engine, container, self.reaper_processes)
        assert await state_of(engine, container) is ContainerState.RUNNING

    async def test_a_command_that_does_not_exist_is_told(self, engine: ContainerEngine) -> None:
        container = await self.started(engine)
        try:
            exit_code = (await engine.exec(container, ["no-such-program"])).exit_code
        except EngineRefused as refused:
            exit_code = 127 if refused.reason is EngineRefusal.INVALID else 0
        assert exit_code in (126, 127)

    async def test_events_are_hints(self, engine: ContainerEngine) -> None:
        spec = self.spec()
        async with aclosing(engine.watch_events()) as events:
            seen = asyncio.create_task(see(events, spec.key))
            container = ""
            while not seen.done():  # whether the engine listens already cannot be known
                container = await engine.create_container(spec)
                await engine.start_container(container)
                await engine.remove_container(container, force=True)
                await asyncio.wait([seen], timeout=0.1)
            assert (await seen).kind == "container"

    async def test_statistics_are_of_those_that_run(self, engine: ContainerEngine) -> None:
        running = [await self.started(engine) for _ in range(3)]
        created = await engine.create_container(self.spec())
        assert {one.id for one in await engine.read_stats(running)} == set(running)
        found = await engine.read_stats([*running, created, "no-such-container"])
        assert {one.id for one in found} == set(running)
        assert all(one.memory_bytes > 0 and one.pids == 1 and one.cpu_s >= 0 for one in found), found
        assert [one.id for one in await engine.read_stats(running[:1])] == running[:1]

    # --- what a container is given -----------------------------------------------------------------------------------

    async def test_secret_files_go_with_their_container(self, engine: ContainerEngine) -> None:
        secret = b"s3cret \x00 bytes"
        spec = self.spec(secret_files={"/run/secrets/token": secret}, read_only_root=True)
        assert "s3cret" not in repr(spec)
        container = await engine.create_container(spec)
        assert await engine.create_container(spec) == container
        await engine.start_container(container)
        assert (await engine.exec(container, ["cat", "/run/secrets/token"])).stdout == secret
        await engine.restart_container(container, 0)
        assert (await engine.exec(container, ["cat", "/run/secrets/token"])).stdout == secret
        assert [one.name for one in await engine.list_volumes((f"{KEY_LABEL}={spec.key}",))] != []
        await engine.remove_container(container, force=True)
        assert await engine.list_volumes((f"{KEY_LABEL}={spec.key}",)) == []

    async def test_bad_specs_are_refused_before_anything_is_done(self, engine: ContainerEngine) -> None:
        name = new_name()
        for bad in (
            self.spec(name=name, secret_files={"/etc/passwd": b""}),
            self.spec(name=name, secret_files={"/run/secrets/../../etc/passwd": b""}),
            self.spec(name=name, secret_files={"/run/secrets/a": b""}, user="app"),
            self.spec(name=name, mounts=(VolumeMount("/data", "/etc"),)),
            self.spec(name=name, mounts=(VolumeMount("/data", "v:/etc"),)),
            self.spec(name=name, mounts=(VolumeMount("data", "v"),)),
            self.spec(name=name, env={"A=B": "c"}),
            self.spec(name=name, labels={"stateward.secrets": "another-volume"}),
            self.spec(name="cafe"),
        ):
            with pytest.raises(BadInput):
                await engine.create_container(bad)
        assert name not in {one.name for one in await engine.list_containers()}

    async def test_volumes_are_named_and_kept(self, engine: ContainerEngine) -> None:
        spec = ContainerVolumeSpec(new_name(), "volume-key", {"colour": "red"})
        assert await engine.create_volume(spec) == spec.name
        assert await engine.create_volume(spec) == spec.name
        with pytest.raises(EngineRefused) as refused:
            await engine.create_volume(ContainerVolumeSpec(spec.name, "another-key"))
        assert refused.value.reason is EngineRefusal.NAME_TAKEN
        container = await self.started(engine, mounts=(VolumeMount("/data", spec.name), VolumeMount("/scratch")))
        assert (await engine.inspect_container(container)).volumes == (spec.name,)
        with pytest.raises(EngineRefused) as refused:
            await engine.remove_volume(spec.name)
        assert refused.value.reason is EngineRefusal.IN_USE
        await engine.remove_container(container, force=True)
        assert [one.labels["colour"] for one in await engine.list_volumes((f"{KEY_LABEL}=volume-key",))] == ["red"]
        assert await engine.list_volumes((f"{KEY_LABEL}=volume-key", "colour=blue")) == []
        assert await engine.remove_volume(spec.name) is True
        assert await engine.remove_volume(spec.name) is False

    async def test_networks_ports_and_addresses(self, engine: ContainerEngine) -> None:
        spec = ContainerNetworkSpec(new_name(), "network-key", {"colour": "red"})
        network = await engine.create_network(spec)
        assert await engine.create_network(spec) == network
        with pytest.raises(EngineRefused) as refused:
            await engine.create_network(ContainerNetworkSpec(spec.name, "another-key"))
        assert refused.value.reason is EngineRefusal.NAME_TAKEN
        (listed,) = await engine.list_networks(("colour=red",))
        assert (listed.id, listed.name) == (network, spec.name)
        container = await self.started(engine, network=spec.name, aliases=("web",), ports=(PublishedPort(8080),))
        found = next(one for one in await engine.list_containers() if one.id == container)
        inspected = await engine.inspect_container(container)
        assert found.ips[spec.name]
        assert found.ips == inspected.ips
        (port,) = found.ports
        assert inspected.ports == found.ports
        assert (port.container_port, port.host_ip, port.protocol) == (8080, "127.0.0.1", "tcp")
        assert port.host_port > 0
        taken = await engine.create_container(self.spec(network=spec.name, ports=(port,)))
        with pytest.raises(EngineRefused) as refused:
            await engine.start_container(taken)
        assert refused.value.reason is EngineRefusal.PORT_TAKEN
        with pytest.raises(EngineRefused) as refused:
            await engine.remove_network(spec.name)
        assert refused.value.reason is EngineRefusal.IN_USE
        for one in (container, taken):
            await engine.remove_container(one, force=True)
        assert await engine.remove_network(network) is True
        assert await engine.remove_network(network) is False

    # --- images and the engine ---------------------------------------------------------------------------------------

    async def test_images_are_found(self, engine: ContainerEngine) -> None:
        found = await engine.inspect_image(self.image)
        assert any(tag.endswith(self.image) for tag in found.tags)
        with pytest.raises(EngineRefused) as refused:
            await engine.inspect_image("no-such-image:1")
        assert refused.value.reason is EngineRefusal.IMAGE_MISSING

    async def test_a_pull_of_what_no_registry_has_is_refused(self, engine: ContainerEngine) -> None:
        with pytest.raises(EngineRefused):
            await collect(engine.pull_image(self.unknown_reference))

    unknown_reference = "localhost:1/no-such-image:1"


LINES = {"/run/secrets/lines": b"one\ntwo\nthree\n"}


async def state_of(engine: ContainerEngine, container: str) -> ContainerState:
    """Return the state of a container."""
    return (await engine.inspect_container(container)).state


async def wait_for_state(engine: ContainerEngine, container: str, state: ContainerState) -> ContainerRecord:
    """Wait until a container is in a state."""
    return await until(lambda: engine.inspect_container(container), lambda container: container.state is state)


async def wait_for_processes(engine: ContainerEngine, container: str, idle: int, at_least: int = 0) -> None:
    """Wait until a container has its own processes alone, or at least some more."""
    async with asyncio.timeout(PATIENT_S):
        while True:
            more = (await engine.read_stats([container]))[0].pids - idle
            if more >= at_least > 0 or (at_least == more == 0):
                return
            await asyncio.sleep(0.02)


async def collect(chunks: AsyncGenerator[object]) -> list[LogChunk]:
    """Read a stream to its end."""
    async with asyncio.timeout(PATIENT_S), aclosing(chunks):
        return [one async for one in chunks if isinstance(one, LogChunk)]


def text_of(chunks: list[LogChunk], stream: LogStream) -> bytes:
    """Return what was written to a stream."""
    return b"".join(one.data for one in chunks if one.stream is stream)


async def see(events: AsyncGenerator[EngineEvent], key: str) -> EngineEvent:
    """Wait for an event of a container."""
    async with asyncio.timeout(PATIENT_S):
        async for event in events:
            if event.labels.get(KEY_LABEL) == key:
                return event
    raise AssertionError("the events have ended")
