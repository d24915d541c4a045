"""The container driver under the suite: on a real Podman, and on the simulated engine."""

from collections.abc import AsyncGenerator, AsyncIterator
from itertools import count
from time import time

import pytest

from stateward.containers import (
    ContainerSpec,
    ContainerState,
    EngineClient,
    PullProgress,
    RegistryLogin,
)
from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    Driver,
    MachineAction,
    MachineHandle,
    MachineSpec,
    MachineState,
    Observation,
    ProviderRegion,
    RefusalReason,
)
from stateward.drivers.container import ContainerDriver
from stateward.drivers.container.reboot_records import RebootRecords
from stateward.testing.containers import SimulatedEngine
from tests.containers import IMAGE, PodmanService
from tests.contract.drivers.conformance import REAL_MACHINES, Conformance
from tests.contract.drivers.driver_case import find
from tests.contract.drivers.fault_contract import BreakableDriverCase, FaultContract

_regions = count(1)


class PodmanCase(BreakableDriverCase):
    """A region of a Podman service; without the service, the provider is out of reach."""

    spec = "0.5c-64m"
    image = IMAGE
    ssh_port = 0

    def __init__(self, podman: PodmanService) -> None:
        super().__init__()
        self._podman, self._is_cut = podman, False
        self._region = f"region-{next(_regions)}"

    def make(self) -> Driver:
        return ContainerDriver(
            ProviderRegion("lab", self._region, options={"engine": self._podman.address}), self.count
        )

    def reboots(self, seen: Observation) -> int:
        return self._podman.count_starts(seen.native_id) - 1

    async def cut(self) -> None:
        self._is_cut = True
        self._podman.kill()

    async def mend(self) -> None:
        self._is_cut = False
        self._podman.start()

    async def kill(self, key: str) -> None:
        seen = await find(self.driver(), self, key)
        assert seen is not None
        self._podman.run("kill", seen.native_id)

    async def close(self) -> None:
        await super().close()
        if self._is_cut:
            await self.mend()
        client = EngineClient(self._podman.address)
        for container in await client.list_containers():
            await client.remove_container(container.id, force=True)
        for volume in await client.list_volumes():
            await client.remove_volume(volume.name)
        await client.close()


class TestPodmanMachines(Conformance, FaultContract):
    """Containers of a real Podman."""

    short_form = REAL_MACHINES

    def test_the_short_form_has_names_of_tests_alone(self) -> None:
        assert [name for name in REAL_MACHINES if not hasattr(self, name)] == []

    @pytest.fixture
    async def case(self, podman: PodmanService) -> AsyncIterator[PodmanCase]:
        case = PodmanCase(podman)
        yield case
        await case.close()


class SimulatedCase(BreakableDriverCase):
    """A region of a simulated engine."""

    spec = "1c-512m"
    image = "machine:1"
    ssh_port = 0

    def __init__(self) -> None:
        super().__init__()
        self._engine = SimulatedEngine([self.image])

    def make(self) -> Driver:
        return ContainerDriver(ProviderRegion("lab", "here"), self.count, self._engine)

    async def cut(self) -> None:
        self._engine.faults.is_down = True

    async def mend(self) -> None:
        self._engine.faults.is_down = False

    async def kill(self, key: str) -> None:
        seen = await find(self.driver(), self, key)
        assert seen is not None
        self._engine.end_program(seen.native_id, 137)

    async def lose_next_answer(self) -> bool:
        self._engine.faults.loses["start"] = 1
        return True


class TestSimulatedMachines(Conformance, FaultContract):
    """Containers of the simulated engine."""

    @pytest.fixture
    async def case(self) -> AsyncIterator[SimulatedCase]:
        case = SimulatedCase()
        yield case
        await case.close()


async def test_what_ended_long_ago_by_the_engines_time_is_removed_by_the_first_listing_of_a_new_driver() -> None:
    behind_s = 100.0
    engine = SimulatedEngine(["machine:1"], clock=lambda: time() - behind_s)
    former = ContainerDriver(ProviderRegion("lab", "here"), engine=engine)
    await former.create([MachineSpec(f"k{n}", f"m{n}", "1c-512m", "machine:1") for n in range(3)])
    for key in ("k0", "k1"):
        await former.act(MachineAction.REBOOT, [MachineHandle(key, token="t")])
    assert len(await engine.list_volumes()) == 2
    ids = {one.key: one.native_id for one in (await former.observe()).machines}
    engine.end_program(ids["k0"], 137)
    behind_s = 0.0
    engine.end_program(ids["k2"], 137)  # just now
    await former.observe()
    assert len(await engine.list_containers()) == 3  # an hour is not over
    driver = ContainerDriver(ProviderRegion("lab", "here", options={"keep": "10"}), engine=engine)
    assert len((await driver.observe()).machines) == 3
    assert {one.key for one in await engine.list_containers()} == {"k1", "k2"}
    assert [one.key for one in await RebootRecords(engine, {}).list_all()] == ["k1"]


async def test_machines_whose_containers_a_killed_engine_has_left_half_started_are_created_again() -> None:
    engine = SimulatedEngine(["machine:1"])
    driver = ContainerDriver(ProviderRegion("lab", "here"), engine=engine)
    engine.faults.half_starts = 1
    outcomes = await driver.create([MachineSpec(f"k{n}", f"m{n}", "1c-512m", "machine:1") for n in range(3)])
    created = {one.native_id for one in outcomes if isinstance(one, CallAccepted)}
    assert len(created) == 3, outcomes
    seen = (await driver.observe()).machines
    assert {one.native_id for one in seen if one.state is MachineState.RUNNING} == created
    await driver.close()


class CutAfterRestart(SimulatedEngine):
    """A simulated engine that cannot be reached after it has restarted a container."""

    async def restart_container(self, container: str, grace_s: int | None = None) -> None:
        await super().restart_container(container, grace_s)
        self.faults.is_down = True


async def test_a_reboot_whose_confirmation_was_lost_is_one_reboot_when_it_is_repeated() -> None:
    times = count(1.0)
    engine = CutAfterRestart(["machine:1"], clock=lambda: next(times))
    driver = ContainerDriver(ProviderRegion("lab", "here"), engine=engine)
    await driver.create([MachineSpec("k", "m", "1c-512m", "machine:1")])
    handle = MachineHandle("k", token="t")
    (first,) = await driver.act(MachineAction.REBOOT, [handle])
    assert not isinstance(first, CallAccepted)
    engine.faults.is_down = False
    (again,) = await driver.act(MachineAction.REBOOT, [handle])
    assert isinstance(again, AlreadyDone)
    assert engine.faults.calls.count("restart") == 1
    (seen,) = (await driver.observe()).machines
    assert (seen.state, seen.reboot_tokens) == (MachineState.RUNNING, ("t",))


async def test_a_container_of_the_same_name_with_another_key_is_not_taken_for_the_machine() -> None:
    engine = SimulatedEngine(["machine:1"])
    driver = ContainerDriver(ProviderRegion("lab", "here"), engine=engine)
    machine = MachineSpec("k", "m", "1c-512m", "machine:1")
    await driver.create([machine])
    (ours,) = await engine.list_containers()
    await engine.remove_container(ours.id, force=True)
    foreign = await engine.create_container(ContainerSpec(ours.name, "another key", "machine:1"))
    await engine.start_container(foreign)
    assert [isinstance(one, CallRefused) for one in await driver.create([machine])] == [True]
    for action in MachineAction:
        (outcome,) = await driver.act(action, [MachineHandle("k", token="t")])
        assert isinstance(outcome, CallRefused)
        assert outcome.why is RefusalReason.NOT_FOUND
    assert (await engine.inspect_container(foreign)).state is ContainerState.RUNNING


class LoginRecorder(SimulatedEngine):
    """A simulated engine that records which user's login came with the pull of which image."""

    def __init__(self, registry: list[str]) -> None:
        super().__init__([], registry=dict.fromkeys(registry, 1))
        self.pulled: dict[str, str] = {}

    async def pull_image(self, image: str, login: RegistryLogin | None = None) -> AsyncGenerator[PullProgress]:
        self.pulled[image] = "" if login is None else login.username
        async for one in super().pull_image(image, login):
            yield one


@pytest.mark.parametrize(
    ("registry", "own"), [("registry.example:5000", "registry.example:5000/team/app:1"), ("", "team/app:1")]
)
async def test_the_login_of_a_connection_goes_to_its_own_registry_only(
    registry: str, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("REGISTRY", registry), ("REGISTRY_USER", "robot"), ("REGISTRY_PASSWORD", "secret")):
        monkeypatch.setenv(f"BOXES_{name}", value)
    images = [own, "evil.example/app:1", "registry.example/team/app:1", "Evil/app:1", "localhost/app:1"]
    engine = LoginRecorder(images)
    driver = ContainerDriver(
        ProviderRegion("lab", "here", credential="env:BOXES", options={"pull": "yes"}), engine=engine
    )
    outcomes = await driver.create([MachineSpec(f"k{n}", f"m{n}", "tiny", one) for n, one in enumerate(images)])
    assert all(isinstance(one, CallAccepted) for one in outcomes), outcomes
    assert engine.pulled == {one: "robot" if one == own else "" for one in images}
    await driver.close()
