"""A real Podman that is killed, hangs, loses answers, or has no room: each gives a typed outcome in time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.containers import (
    KEY_LABEL,
    ContainerLimits,
    ContainerSpec,
    ContainerState,
    EngineClient,
    EngineRefusal,
    EngineRefused,
    EngineTls,
    EngineUnavailable,
)
from stateward.drivers import (
    AlreadyDone,
    CallRefused,
    CallUnanswered,
    MachineAction,
    MachineHandle,
    MachineSpec,
    ProviderRegion,
    RefusalReason,
)
from stateward.drivers.container import ContainerDriver
from stateward.errors import BadInput
from stateward.testing.containers import SimulatedEngine
from tests.containers import IMAGE, PodmanService
from tests.integration.containers.socket_proxy import SocketProxy

FOREVER = ("sleep", "100000")
SMALL_DISK_BYTES = 12 << 20


@pytest.fixture
async def engine(podman: PodmanService) -> AsyncIterator[EngineClient]:
    client = EngineClient(podman.address)
    yield client
    for container in await client.list_containers():
        await client.remove_container(container.id, force=True)
    await client.close()


async def started(engine: EngineClient, name: str, *command: str, **fields: object) -> str:
    spec = ContainerSpec(name, f"key-{name}", IMAGE, command or FOREVER, **fields)  # type: ignore[arg-type]
    container = await engine.create_container(spec)
    await engine.start_container(container)
    return container


async def test_containers_outlive_their_engine_and_the_client_goes_on(
    engine: EngineClient, podman: PodmanService
) -> None:
    container = await started(engine, "survivor")
    command = asyncio.create_task(engine.exec(container, ["cat"]))
    podman.kill()
    with pytest.raises(EngineUnavailable) as unanswered:
        await engine.list_containers()
    assert not unanswered.value.sent
    with pytest.raises(EngineUnavailable):
        await command
    podman.start()
    (found,) = await engine.list_containers()
    assert (found.id, found.state) == (container, ContainerState.RUNNING)
    assert (await engine.exec(container, ["echo", "on"])).stdout == b"on\n"


async def test_an_engine_that_hangs_does_not_hang_its_caller(engine: EngineClient, podman: PodmanService) -> None:
    container = await started(engine, "patient")
    hasty = EngineClient(podman.address, timeout_s=2.0)
    await hasty._transport.negotiate(60.0)  # before the engine hangs
    podman.freeze()
    try:
        for call in (hasty.list_containers(), hasty.pause_container(container), hasty.exec(container, ["true"])):
            with pytest.raises(EngineUnavailable) as unanswered:
                await call
            assert unanswered.value.sent
        driver = ContainerDriver(ProviderRegion("lab", "here", options={"engine": podman.address, "timeout": "0.5"}))
        assert not (await driver.observe()).complete
        await driver.close()
    finally:
        podman.thaw()
        await hasty.close()
    (found,) = await engine.list_containers()  # the truth: what was sent may have had its effect, or not
    assert found.state in (ContainerState.RUNNING, ContainerState.PAUSED)


async def test_a_create_whose_answer_is_lost_is_found_by_its_key(engine: EngineClient, podman: PodmanService) -> None:
    spec = ContainerSpec("lost", "key-lost", IMAGE, FOREVER)
    async with SocketProxy(podman.socket, loses=b"/containers/create").at_path(podman.folder / "proxy.sock") as address:
        client = EngineClient(address)
        with pytest.raises(EngineUnavailable) as unanswered:
            await client.create_container(spec)
        assert unanswered.value.sent
        (found,) = await client.list_containers((f"{KEY_LABEL}={spec.key}",))
        await client.close()
    assert await engine.create_container(spec) == found.id


async def test_secret_files_of_a_container_that_starts_once_are_in_memory(engine: EngineClient) -> None:
    files = {"/run/secrets/token": b"x"}
    spec = ContainerSpec("forgetful", "key-f", IMAGE, FOREVER, secret_files=files, starts_once=True)
    container = await engine.create_container(spec)
    assert await engine.create_container(spec) == container  # as after a crash: the files are written again
    await engine.start_container(container)
    shown = await engine.exec(container, ["sh", "-c", "cat /run/secrets/token; grep /run/secrets /proc/mounts"])
    assert shown.stdout.startswith(b"xtmpfs /run/secrets tmpfs")
    await engine.remove_container(container, force=True)
    assert await engine.list_volumes((f"{KEY_LABEL}=key-f",)) == []


async def test_secret_files_do_not_outlive_a_removal_that_was_interrupted(
    engine: EngineClient, podman: PodmanService
) -> None:
    spec = ContainerSpec("secretive", "key-s", IMAGE, FOREVER, secret_files={"/run/secrets/token": b"x"})
    await engine.create_container(spec)
    podman.run("rm", spec.name)  # as if the client was killed after that
    assert await engine.list_volumes((f"{KEY_LABEL}={spec.key}",))
    assert await engine.remove_container(spec.name) is False
    assert await engine.list_volumes((f"{KEY_LABEL}={spec.key}",)) == []
    with pytest.raises(EngineRefused):
        await engine.create_container(replace(spec, image="no-such-image:1"))
    assert await engine.list_volumes((f"{KEY_LABEL}={spec.key}",)) == []


async def test_a_reboot_whose_answer_is_lost_is_not_repeated(podman: PodmanService) -> None:
    machine = MachineSpec("key-1", "box", "0.5c-64m", IMAGE)
    direct = ContainerDriver(ProviderRegion("lab", "lossy", options={"engine": podman.address}))
    await direct.create([machine])
    handle = MachineHandle("key-1", None, "token")
    async with SocketProxy(podman.socket, loses=b"/restart").at_path(podman.folder / "proxy.sock") as address:
        lossy = ContainerDriver(ProviderRegion("lab", "lossy", options={"engine": address}))
        (outcome,) = await lossy.act(MachineAction.REBOOT, [handle])
        await lossy.close()
    assert isinstance(outcome, CallUnanswered)
    (seen,) = (await direct.observe()).machines
    assert (seen.unconfirmed_reboot, seen.reboot_tokens) == ("token", ())
    async with asyncio.timeout(60):
        while not isinstance((await direct.act(MachineAction.REBOOT, [handle]))[0], AlreadyDone):
            await asyncio.sleep(0.05)
    (seen,) = (await direct.observe()).machines
    assert (seen.unconfirmed_reboot, seen.reboot_tokens) == ("", ("token",))
    assert podman.count_starts(seen.native_id) == 2
    await direct.act(MachineAction.TERMINATE, [handle])
    await direct.close()


@pytest.mark.usefixtures("needs_podman")
async def test_a_full_disk_is_told_as_such() -> None:
    service = PodmanService(SMALL_DISK_BYTES)
    client = EngineClient(service.address)
    driver = ContainerDriver(ProviderRegion("lab", "full", options={"engine": service.address}))
    try:
        with pytest.raises(EngineRefused) as refused:
            await fill(client)
        assert refused.value.reason is EngineRefusal.OUT_OF_DISK
        (outcome,) = await driver.create([MachineSpec("key-1", "box", "0.5c-64m", IMAGE)])
        assert isinstance(outcome, CallRefused)
        assert outcome.why is RefusalReason.CAPACITY
    finally:
        await client.close()
        await driver.close()
        service.stop()


async def fill(engine: EngineClient) -> None:
    """Create containers, each with a copy of its image, until the disk is full."""
    for number in range(20):
        await engine.create_container(ContainerSpec(f"box-{number}", f"k{number}", IMAGE, FOREVER))


async def test_a_container_cannot_take_more_memory_than_its_limit(engine: EngineClient) -> None:
    limits = ContainerLimits(memory_bytes=16 << 20)
    container = await started(engine, "greedy", "tail", "/dev/zero", limits=limits)
    async with asyncio.timeout(60):
        while (found := await engine.inspect_container(container)).exit_code is None:
            await asyncio.sleep(0.05)
    assert found.exit_code == 137
    assert found.oom_killed is not False  # where the engine cannot see it, it is not known


async def test_a_container_has_no_rights_on_its_host(engine: EngineClient) -> None:
    container = await started(engine, "weak")
    status = (await engine.exec(container, ["cat", "/proc/1/status"])).stdout.decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {fields[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "CapInh")} == {"0" * 16}
    assert fields["NoNewPrivs"].strip() == "1"
    interfaces = (await engine.exec(container, ["ls", "/sys/class/net"])).stdout.split()
    assert interfaces == [b"lo"]


@pytest.mark.parametrize(
    "address",
    [
        "tcp://192.0.2.1:2375",
        "http://127.0.0.1:2375",
        "unix://",
        "unix://relative",
        "tcp://127.0.0.1",
        "",
        "tcp://[::1",
    ],
)
def test_an_address_that_is_none_or_not_safe_is_refused(address: str) -> None:
    with pytest.raises(BadInput):
        EngineClient(address)


async def test_a_closed_client_sends_no_further_call() -> None:
    client = EngineClient("unix:///nowhere/engine.sock")
    await client.close()
    with pytest.raises(EngineUnavailable, match="the client is closed") as unanswered:
        await client.list_containers()
    assert not unanswered.value.sent


def test_certificates_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        EngineClient("tcp://192.0.2.1:2376", EngineTls(str(tmp_path / "nothing.pem")))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"network": "host"}, "network"),
        ({"network": "container:other"}, "network"),
        ({"pull": "maybe"}, "pull"),
        ({"keep": "soon"}, "keep"),
        ({"timeout": "-1"}, "timeout"),
        ({"timeout": "nan"}, "timeout"),
        ({"command": "echo 'open"}, "command"),
        ({"engine": "tcp://192.0.2.1:2375"}, "engine"),
    ],
)
def test_bad_options_of_a_connection_are_refused_by_name(options: dict[str, str], field: str) -> None:
    with pytest.raises(BadInput) as bad:
        ContainerDriver(ProviderRegion("lab", "here", options=options))
    assert bad.value.field == field


async def test_an_ended_machine_is_removed_after_its_time() -> None:
    engine = SimulatedEngine(["machine:1"])
    driver = ContainerDriver(ProviderRegion("lab", "here", options={"keep": "0.001"}), engine=engine)
    await driver.create([MachineSpec("key-1", "one", "small", "machine:1")])
    (container,) = await engine.list_containers()
    engine.end_program(container.id, 0)
    await driver.observe()
    # real time: a longer pause proves the same
    await asyncio.sleep(0.01)
    await driver.create([MachineSpec("key-2", "two", "small", "machine:1")])
    await driver.observe()
    assert [one.key for one in await engine.list_containers()] == ["key-2"]
