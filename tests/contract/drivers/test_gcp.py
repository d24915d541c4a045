"""The driver for Compute Engine under the suite, through Google's library: the test cloud, or a real account."""

from collections.abc import AsyncIterator

import pytest

from stateward.drivers import Driver, Observation, ProviderRegion
from stateward.drivers.gcp import GcpDriver
from tests.contract.drivers.conformance import Conformance
from tests.contract.drivers.driver_case import DriverCase
from tests.contract.drivers.fault_contract import BreakableDriverCase, FaultContract
from tests.contract.drivers.real_accounts import ACCOUNT_TEST_TIMEOUT_S, AccountCase, has_account, open_account
from tests.integration.drivers.cloud_faults import Fault, FaultKind
from tests.integration.drivers.gcp.gce_cloud import shared_cloud
from tests.integration.drivers.gcp.gce_world import IMAGE, PROJECT, REGION, SPEC, ZONE

CHANGING = [f"instances.{verb}" for verb in ("insert", "suspend", "resume", "reset", "delete")]


class GcpCase(BreakableDriverCase):
    """A new world in the test cloud."""

    spec = SPEC
    image = IMAGE

    def __init__(self) -> None:
        super().__init__()
        self.cloud = shared_cloud()
        self.cloud.reset()

    def make(self) -> Driver:
        options = {"endpoint_url": self.cloud.url, "anonymous": "true", "project": PROJECT, "read_timeout": "20"}
        return GcpDriver(ProviderRegion("gcp", REGION, ZONE, options=options), self.count)

    def reboots(self, seen: Observation) -> int:
        return self.cloud.world.resets[seen.native_id]

    async def cut(self) -> None:
        self.cloud.cut = True

    async def mend(self) -> None:
        self.cloud.cut = False

    async def kill(self, key: str) -> None:
        self.cloud.world.kill(key)

    async def lose_next_answer(self) -> bool:
        for action in CHANGING:
            self.cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, action))
        return True


class TestGcp(Conformance, FaultContract):
    """All of it."""

    @pytest.fixture
    async def case(self) -> AsyncIterator[DriverCase]:
        case = GcpCase()
        yield case
        await case.close()


class GcpAccountCase(AccountCase):
    """A project at Google."""

    def make(self) -> Driver:
        return GcpDriver(self.account.provider_region, self.count)


@pytest.mark.timeout(ACCOUNT_TEST_TIMEOUT_S)
class TestGcpAccount(Conformance):
    """What can be asked of a real cloud: all but the faults."""

    __test__ = has_account("gcp")

    @pytest.fixture
    async def case(self) -> AsyncIterator[DriverCase]:
        case = GcpAccountCase(open_account("gcp", options=("project",)))
        async with case.cleared():
            yield case
