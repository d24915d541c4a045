"""The driver for Azure under the suite, through Azure's own libraries: against the test cloud, or a real account.

The driver has never been run against Azure itself. `real_accounts.py` says how to do that; the account needs a resource
group (STATEWARD_AZURE_RESOURCE_GROUP) and in it the subnet of machines that name none (STATEWARD_AZURE_SUBNET).
"""

from collections.abc import AsyncIterator

import pytest

from stateward.drivers import Driver, Observation, ProviderRegion
from stateward.drivers.azure import AzureDriver
from stateward.drivers.azure.names import arm_name
from tests.contract.drivers.conformance import Conformance
from tests.contract.drivers.driver_case import DriverCase
from tests.contract.drivers.fault_contract import BreakableDriverCase, FaultContract
from tests.contract.drivers.real_accounts import ACCOUNT_TEST_TIMEOUT_S, AccountCase, has_account, open_account
from tests.integration.drivers.azure.arm_cloud import GROUP, LOCATION, SUBNET, shared_cloud
from tests.integration.drivers.azure.arm_machines import IMAGE, SPEC
from tests.integration.drivers.cloud_faults import Fault, FaultKind


class AzureCase(BreakableDriverCase):
    """A new world in the test cloud."""

    spec = SPEC
    image = IMAGE

    def __init__(self) -> None:
        super().__init__()
        self.cloud = shared_cloud()
        self.cloud.reset()

    def make(self) -> Driver:
        options = {
            "endpoint_url": self.cloud.url,
            "resource_group": GROUP,
            "subnet": SUBNET,
            "poll_interval": "0.005",
            "read_timeout": "20",
        }
        return AzureDriver(ProviderRegion("azure", LOCATION, credential="env:TEST_CLOUD", options=options), self.count)

    def reboots(self, seen: Observation) -> int:
        return self.cloud.machines.restarts[arm_name(seen.key)]

    async def cut(self) -> None:
        self.cloud.cut = True

    async def mend(self) -> None:
        self.cloud.cut = False

    async def kill(self, key: str) -> None:
        self.cloud.machines.kill(arm_name(key))

    async def lose_next_answer(self) -> bool:
        for verb in ("PUT virtualMachines", "DELETE virtualMachines", "POST virtualMachines/start"):
            self.cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, verb))
        return True


class TestAzure(Conformance, FaultContract):
    """All of it."""

    @pytest.fixture
    async def case(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DriverCase]:
        for name in ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET"):
            monkeypatch.setenv(f"TEST_CLOUD_{name}", "test")
        monkeypatch.setenv("TEST_CLOUD_SUBSCRIPTION_ID", "00000000-0000-0000-0000-000000000001")
        case = AzureCase()
        yield case
        await case.close()


class AzureAccountCase(AccountCase):
    """A real resource group."""

    def make(self) -> Driver:
        return AzureDriver(self.account.provider_region, self.count)


@pytest.mark.timeout(ACCOUNT_TEST_TIMEOUT_S)
class TestAzureAccount(Conformance):
    """The suite in a real account, if there is one."""

    __test__ = has_account("azure")

    @pytest.fixture
    async def case(self) -> AsyncIterator[DriverCase]:
        case = AzureAccountCase(open_account("azure", options=("resource_group", "subnet")))
        async with case.cleared():
            yield case
