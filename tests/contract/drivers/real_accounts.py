"""The conformance suite against a real account, behind a guard on cost.

A simulator proves the shape of the calls, not that a cloud means the same by them. So the suite can be pointed at an
account, by environment variables with the provider's name (here GCP):

    STATEWARD_GCP_REGION, _ZONE, _CREDENTIAL   the region, as a connection has it; the credential is a reference
    STATEWARD_GCP_SPEC, _IMAGE                 a small size and an image that exist there
    STATEWARD_GCP_PROJECT, ...                 options of the driver, as many as its test file names
    STATEWARD_GCP_MAX_MACHINES                 how many machines the whole run may create: without it, nothing runs

Without the variables the tests are not even collected. The account must be one in which nothing else is made through
Stateward: the suite expects an empty region, and removes whatever carries a key of ours after each test. A driver's
test file has

    class GcpAccountCase(AccountCase):
        def make(self) -> Driver:
            return GcpDriver(self.account.provider_region, self.count)

    @pytest.mark.timeout(ACCOUNT_TEST_TIMEOUT_S)
    class TestGcpAccount(Conformance):
        __test__ = has_account("gcp")

        @pytest.fixture
        async def case(self) -> AsyncIterator[DriverCase]:
            case = GcpAccountCase(open_account("gcp", options=("project",)))
            async with case.cleared():
                yield case
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from functools import cache
from os import environ
from uuid import uuid4

import pytest
from msgspec import Struct
from msgspec.structs import replace

from stateward.drivers import (
    Capabilities,
    Driver,
    MachineAction,
    MachineHandle,
    MachineSpec,
    MachineState,
    Outcome,
    ProviderRegion,
    ResourceKind,
)
from tests.contract.drivers.driver_case import DriverCase, is_done, list_machines

ACCOUNT_TEST_TIMEOUT_S = 1800
"""The time-out of one test: a real machine takes a minute where a simulated one takes a moment."""

PAUSE_S = 2.0
CLEARING_ATTEMPTS = 200
REMOVED_IN_ORDER = (ResourceKind.SSH_KEY, ResourceKind.SECURITY_GROUP, ResourceKind.SUBNET, ResourceKind.NETWORK)


class MachineBudget:
    """The number of machines that a run may create; it is shared by all tests of a provider."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self._keys: set[str] = set()

    def spend(self, keys: Collection[str]) -> None:
        """Count the keys that are new; skips the test if they are too many, before anything is sent."""
        if len(self._keys | set(keys)) > self.maximum:
            pytest.skip(f"the run may create {self.maximum} machines, and this test needs more")
        self._keys |= set(keys)


class RealAccount(Struct, frozen=True):
    """An account, and what the suite may do in it."""

    provider_region: ProviderRegion
    spec: str
    image: str
    budget: MachineBudget


def has_account(provider: str) -> bool:
    """Tell whether any variable points the suite at an account of a provider."""
    return any(name.startswith(_variable(provider, "")) for name in environ)


def open_account(provider: str, options: Sequence[str] = ()) -> RealAccount:
    """Return the account that the variables describe; skips the test if they do not allow the cost."""
    needed = ("REGION", "CREDENTIAL", "SPEC", "IMAGE", *(option.upper() for option in options))
    missing = [_variable(provider, name) for name in needed if not _value(provider, name)]
    if missing:
        pytest.fail(f"an account needs {', '.join(missing)}, too")
    region = ProviderRegion(
        provider,
        _value(provider, "REGION"),
        _value(provider, "ZONE"),
        _value(provider, "CREDENTIAL"),
        {option: _value(provider, option.upper()) for option in options},
    )
    return RealAccount(region, _value(provider, "SPEC"), _value(provider, "IMAGE"), _budget(provider))


@cache
def _budget(provider: str) -> MachineBudget:
    name = _variable(provider, "MAX_MACHINES")
    maximum = _value(provider, "MAX_MACHINES")
    if not maximum.isdecimal() or int(maximum) == 0:
        pytest.skip(f"this would cost money: {name} must say how many machines may be created")
    return MachineBudget(int(maximum))


def _variable(provider: str, name: str) -> str:
    return f"STATEWARD_{provider.upper()}_{name}"


def _value(provider: str, name: str) -> str:
    return environ.get(_variable(provider, name), "")


class BudgetedDriver:
    """A driver whose creates are counted against a budget."""

    def __init__(self, driver: Driver, budget: MachineBudget) -> None:
        self._driver, self._budget = driver, budget
        self.check, self.act, self.observe = driver.check, driver.act, driver.observe
        self.ensure, self.remove, self.list_resources = driver.ensure, driver.remove, driver.list_resources
        self.run, self.watch, self.close = driver.run, driver.watch, driver.close

    @property
    def caps(self) -> Capabilities:
        return self._driver.caps

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        self._budget.spend({machine_spec.key for machine_spec in machine_specs})
        return await self._driver.create(machine_specs)


class AccountCase(DriverCase):
    """A driver in a real account; `make` is still to be written."""

    def __init__(self, account: RealAccount) -> None:
        super().__init__()
        self.account, self.spec, self.image = account, account.spec, account.image

    def driver(self) -> Driver:
        return BudgetedDriver(super().driver(), self.account.budget)

    def machine_spec(self, key: str = "") -> MachineSpec:
        """Return a spec whose key no run had before: a real cloud remembers client tokens."""
        return replace(super().machine_spec(), key=key or uuid4().hex)

    async def pause(self) -> None:
        # real time: between two listings of a loop
        await asyncio.sleep(PAUSE_S)

    @asynccontextmanager
    async def cleared(self) -> AsyncIterator[None]:
        """Check that the region is empty, and leave it empty, whatever the test did."""
        driver = self.driver()
        machines, resources = await list_machines(driver, self), await driver.list_resources()
        if machines.machines or resources.resources or not resources.complete:
            await self.close()
            pytest.fail("the region must have nothing that was made through Stateward: the suite would remove it")
        try:
            yield
        finally:
            await self._clear(self.driver())
            await self.close()

    async def _clear(self, driver: Driver) -> None:
        for _ in range(CLEARING_ATTEMPTS):
            machines = [
                one
                for one in (await list_machines(driver, self)).machines
                if one.state not in (MachineState.TERMINATED, MachineState.TERMINATING)
            ]
            if not machines and await _removed_resources(driver):
                return
            handles = [MachineHandle(one.key, one.native_id) for one in machines]
            await driver.act(MachineAction.TERMINATE, handles)
            await self.pause()
        raise AssertionError("the region could not be cleared: look for machines that cost money")


async def _removed_resources(driver: Driver) -> bool:
    """Remove all resources; tells whether none is left."""
    listing = await driver.list_resources()
    ordered = sorted(listing.resources, key=lambda one: REMOVED_IN_ORDER.index(one.kind))
    return all([is_done(await driver.remove(one)) for one in ordered]) and listing.complete
