"""The driver for EC2 under the suite, through boto3, against the test cloud."""

from collections.abc import AsyncIterator

import pytest

from stateward.drivers import Driver, Observation, ProviderRegion
from stateward.drivers.aws import AwsDriver
from tests.contract.drivers.breaking import BreakableCase, Breaking
from tests.contract.drivers.case import Case
from tests.contract.drivers.conformance import Conformance
from tests.integration.drivers.aws.cloud import REGION, SPEC, Fault, Harm, shared_cloud
from tests.integration.drivers.aws.images import IMAGE

CHANGING = ("RunInstances", "StopInstances", "StartInstances", "RebootInstances", "TerminateInstances")


class AwsCase(BreakableCase):
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
        return self.cloud.life.reboots[seen.native_id]

    async def cut(self) -> None:
        self.cloud.cut = True

    async def mend(self) -> None:
        self.cloud.cut = False

    async def kill(self, key: str) -> None:
        self.cloud.life.kill(key)

    async def lose_next_answer(self) -> bool:
        for action in CHANGING:
            self.cloud.harm(Fault(Harm.LOST_ANSWER, action))
        return True


class TestAws(Conformance, Breaking):
    """All of it."""

    @pytest.fixture
    async def case(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
        monkeypatch.setenv("TEST_CLOUD_ACCESS_KEY_ID", "AKIDTEST")
        monkeypatch.setenv("TEST_CLOUD_SECRET_ACCESS_KEY", "secret")
        case = AwsCase()
        yield case
        await case.close()
