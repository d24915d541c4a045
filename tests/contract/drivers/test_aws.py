"""The driver for EC2 under the suite, through boto3, against the test cloud."""

from collections.abc import AsyncIterator

import pytest

from stateward.drivers import Driver, Observation, ProviderRegion
from stateward.drivers.aws import AwsDriver
from tests.contract.drivers.conformance import Conformance
from tests.contract.drivers.driver_case import DriverCase
from tests.contract.drivers.fault_contract import BreakableDriverCase, FaultContract
from tests.integration.drivers.aws.moto_cloud import REGION, SPEC, shared_cloud
from tests.integration.drivers.aws.moto_images import IMAGE
from tests.integration.drivers.cloud_faults import Fault, FaultKind

CHANGING = ("RunInstances", "StopInstances", "StartInstances", "RebootInstances", "TerminateInstances")


class AwsCase(BreakableDriverCase):
    """A new world in the test cloud."""

    spec = SPEC
    image = IMAGE

    def __init__(self) -> None:
        super().__init__()
        self.cloud = shared_cloud()
        self.cloud.reset()

    def make(self) -> Driver:
        options = {"endpoint_url": self.cloud.url, "read_timeout": "20"}
        return AwsDriver(ProviderRegion("aws", REGION, credential="env:TEST_CLOUD", options=options), self.count)

    def reboots(self, seen: Observation) -> int:
        return self.cloud.instances.reboots[seen.native_id]

    async def cut(self) -> None:
        self.cloud.cut = True

    async def mend(self) -> None:
        self.cloud.cut = False

    async def kill(self, key: str) -> None:
        self.cloud.instances.kill(key)

    async def lose_next_answer(self) -> bool:
        for action in CHANGING:
            self.cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, action))
        return True


class TestAws(Conformance, FaultContract):
    """All of it."""

    @pytest.fixture
    async def case(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DriverCase]:
        monkeypatch.setenv("TEST_CLOUD_ACCESS_KEY_ID", "AKIDTEST")
        monkeypatch.setenv("TEST_CLOUD_SECRET_ACCESS_KEY", "secret")
        case = AwsCase()
        yield case
        await case.close()
