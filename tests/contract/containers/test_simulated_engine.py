"""The simulated engine under the contract, and its faults."""

import pytest

from stateward.containers import ContainerEngine, EngineRefusal, EngineRefused, EngineUnavailable
from stateward.testing.containers import SimulatedEngine
from tests.contract.containers.engine_contract import EngineContract

IMAGE = "simulated-busybox:1"


class TestSimulatedEngine(EngineContract):
    """The engine in memory."""

    image = IMAGE
    reaper_processes = 1

    @pytest.fixture
    async def engine(self) -> ContainerEngine:
        return SimulatedEngine([IMAGE])


class TestFaults:
    """Faults to order."""

    async def test_a_lost_answer_is_no_answer_and_the_work_is_found_again(self) -> None:
        engine = SimulatedEngine([IMAGE])
        spec = TestSimulatedEngine().spec()
        engine.faults.loses["create"] = 1
        with pytest.raises(EngineUnavailable) as unanswered:
            await engine.create_container(spec)
        assert unanswered.value.sent
        (found,) = await engine.list_containers()
        assert await engine.create_container(spec) == found.id

    async def test_an_engine_that_is_down_got_nothing(self) -> None:
        engine = SimulatedEngine([IMAGE])
        engine.faults.is_down = True
        with pytest.raises(EngineUnavailable) as unanswered:
            await engine.create_container(TestSimulatedEngine().spec())
        assert not unanswered.value.sent
        engine.faults.is_down = False
        assert await engine.list_containers() == []

    async def test_a_full_disk_is_a_refusal(self) -> None:
        engine = SimulatedEngine([IMAGE])
        engine.faults.is_disk_full = True
        with pytest.raises(EngineRefused) as refused:
            await engine.create_container(TestSimulatedEngine().spec())
        assert refused.value.reason is EngineRefusal.OUT_OF_DISK

    async def test_a_container_that_the_kernel_killed_says_so(self) -> None:
        engine = SimulatedEngine([IMAGE])
        container = await TestSimulatedEngine().started(engine)
        engine.kill_for_memory(container)
        found = await engine.inspect_container(container)
        assert (found.oom_killed, found.exit_code) == (True, 137)
