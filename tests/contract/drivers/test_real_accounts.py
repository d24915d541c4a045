"""The guard of the suite against real accounts: nothing runs, and nothing is created, that was not allowed."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from stateward.drivers import CloudResource, Driver, ProviderRegion, ResourceKind
from stateward.drivers.simulated import SimulatedCloud, SimulatedDriver
from tests.contract.drivers import real_accounts
from tests.contract.drivers.real_accounts import (
    AccountCase,
    MachineBudget,
    RealAccount,
    has_account,
    open_account,
)

VIRTUAL_TIME = True
VARIABLES = {"REGION": "r", "CREDENTIAL": "env:ACME", "SPEC": "small", "IMAGE": "any", "PROJECT": "p"}


class AcmeCase(AccountCase):
    """An account at a simulated provider."""

    def __init__(self, maximum: int) -> None:
        region = ProviderRegion("aws", "ap-northeast-2")
        super().__init__(RealAccount(region, "t3.nano", "ami-0a1b2c3d4e5f60718", MachineBudget(maximum)))
        self.cloud = SimulatedCloud(None, clock=asyncio.get_running_loop().time, chance=Random(7))

    def make(self) -> Driver:
        return SimulatedDriver(self.account.provider_region, self.cloud, self.count)


@pytest.fixture
async def case() -> AsyncIterator[AcmeCase]:
    case = AcmeCase(3)
    yield case
    await case.close()


def set_variables(monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    real_accounts._budget.cache_clear()
    for name, value in {**VARIABLES, **more}.items():
        monkeypatch.setenv(f"STATEWARD_ACME_{name}", value)


def test_without_variables_there_is_no_account() -> None:
    assert not has_account("acme")


@pytest.mark.parametrize("maximum", ["", "0", "many"])
def test_an_account_without_a_number_of_machines_is_not_used(monkeypatch: pytest.MonkeyPatch, maximum: str) -> None:
    set_variables(monkeypatch, MAX_MACHINES=maximum)
    assert has_account("acme")
    with pytest.raises(pytest.skip.Exception, match="STATEWARD_ACME_MAX_MACHINES"):
        open_account("acme")


def test_an_account_that_is_half_described_fails_and_names_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEWARD_ACME_REGION", "r")
    with pytest.raises(pytest.fail.Exception, match=r"STATEWARD_ACME_CREDENTIAL.*STATEWARD_ACME_PROJECT"):
        open_account("acme", options=("project",))


def test_an_account_is_the_region_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, MAX_MACHINES="7")
    account = open_account("acme", options=("project",))
    assert account.provider_region == ProviderRegion("acme", "r", "", "env:ACME", {"project": "p"})
    assert (account.spec, account.image, account.budget.maximum) == ("small", "any", 7)


async def test_no_more_machines_are_created_than_the_run_may(case: AcmeCase) -> None:
    driver = case.driver()
    wanted = [case.machine_spec() for _ in range(3)]
    await driver.create(wanted)
    await driver.create(wanted)  # a key counts once
    with pytest.raises(pytest.skip.Exception, match="3 machines"):
        await driver.create([case.machine_spec()])
    assert len((await driver.observe()).machines) == 3


async def test_a_region_with_machines_is_not_touched(case: AcmeCase) -> None:
    await case.make().create([case.machine_spec()])
    with pytest.raises(pytest.fail.Exception, match="must have nothing"):
        async with case.cleared():
            raise AssertionError("the test must not begin")
    assert len((await case.make().observe()).machines) == 1


async def test_what_a_test_has_made_is_removed_after_it(case: AcmeCase) -> None:
    driver = case.driver()
    async with case.cleared():
        network = await driver.ensure(CloudResource(ResourceKind.NETWORK, "net", "net"))
        await driver.ensure(CloudResource(ResourceKind.SUBNET, "sub", "sub", getattr(network, "native_id", "")))
        await driver.create([case.machine_spec(), case.machine_spec()])
    left = case.make()
    assert [one.state for one in (await left.observe()).machines if one.state != "terminated"] == []
    assert list((await left.list_resources()).resources) == []
