"""Drivers of other packages: found by entry points, named by connections, on this host unless they say no."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.domains.mci.errors import NotGranted
from stateward.domains.mci.lifecycle import MciState
from stateward.domains.mci.model import CloudConnection, ImageRecord, SpecRecord, SubGroup
from stateward.drivers import ProviderRegion
from stateward.drivers.simulated import SimulatedCloud
from stateward.errors import BadInput, UnknownName
from stateward.plugin.driver_factory import DriverFactory
from stateward.plugin.entry_points import PluginFault
from stateward.store.port import Store
from stateward.store.records import Status
from tests.installed_package import install_package
from tests.integration.domains.mci.conftest import ANN, NS, mci, open_harness

PAGE = Path(__file__).parents[4] / "docs" / "howto" / "driver.md"
(EXAMPLE,) = re.findall(r"```python\n(import asyncio.*?)\n\nasync def main", PAGE.read_text("utf-8"), re.DOTALL)
HERE = ProviderRegion("acme", "here")


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with the driver of the documentation, and with some that cannot be used."""
    source = f"""{EXAMPLE}
silent = DriverPlugin(lambda setup: MemoryDriver(MEMORY))
needy = DriverPlugin(lambda setup: __import__("acme_sdk_that_nobody_has"), on_host=False)
text = "no driver"
"""
    parts = {name: f"acme_cloud:{name}" for name in ("memory", "silent", "needy", "text", "missing")}
    lost = {"lost": "acme_nowhere:driver", "simulated": "acme_cloud:memory"}
    install_package(tmp_path, monkeypatch, "acme_cloud", source, {"stateward.drivers": parts | lost})


def factory(folder: Path) -> DriverFactory:
    return DriverFactory(folder, SimulatedCloud)


@pytest.mark.usefixtures("acme")
def test_a_driver_that_does_not_say_that_it_acts_elsewhere_acts_on_this_host(tmp_path: Path) -> None:
    drivers = factory(tmp_path)
    builtin = {"aws", "azure", "container", "gcp", "openstack", "process", "qemu", "simulated"}
    assert set(drivers.names) == {*builtin, "memory", "silent", "needy"}
    assert not drivers.is_on_host("memory")
    assert {name for name in ("silent", "text", "missing", "lost", "unheard of") if drivers.is_on_host(name)} == {
        *("silent", "text", "missing", "lost", "unheard of")
    }


@pytest.mark.usefixtures("acme")
def test_a_broken_driver_is_told_with_its_reason_and_stops_nothing_until_it_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drivers = factory(tmp_path)
    for name, reason in (
        ("text", "must be a DriverPlugin"),
        ("missing", "has no attribute 'missing'"),
        ("lost", "No module named 'acme_nowhere'"),
    ):
        told = [record.getMessage() for record in caplog.records if f"plug-in {name} (" in record.getMessage()]
        assert len(told) == 1
        assert reason in told[0]
        assert "acme_cloud 1.0" in told[0]
        with pytest.raises(PluginFault, match=re.escape(reason)):
            drivers.make(name, HERE)
    with pytest.raises(BadInput, match="a driver whose library is installed"):
        drivers.make("needy", HERE)
    with pytest.raises(UnknownName, match="did you mean 'memory'"):
        drivers.make("memmory", HERE)
    assert type(drivers.make("memory", HERE)).__name__ == "MemoryDriver"


@pytest.mark.usefixtures("acme")
def test_a_driver_of_another_package_does_not_replace_a_built_in_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drivers = factory(tmp_path)
    assert type(drivers.make("simulated", ProviderRegion("aws", "eu-west-1"))).__name__ == "SimulatedDriver"
    assert any("plug-in simulated (acme_cloud:memory" in record.getMessage() for record in caplog.records)


@pytest.mark.usefixtures("acme")
async def test_a_connection_names_an_installed_driver(new_store: Callable[[], Store], tmp_path: Path) -> None:
    async with open_harness(new_store(), tmp_path) as harness:
        await harness.service.add_connection(CloudConnection("memory", "acme", "here", driver="memory"), ANN)
        await harness.service.register(NS, SpecRecord("small", "memory", "small"), ANN)
        await harness.service.register(NS, ImageRecord("any", "memory", "any"), ANN)
        done = await harness.created(mci("m1", SubGroup("g", 2, "small", "any")))
        assert (done.status, done.error, await harness.state()) == (Status.SUCCEEDED, None, MciState.RUNNING)


@pytest.mark.usefixtures("acme")
async def test_a_driver_that_may_act_on_this_host_serves_nobody_before_an_administrator_grants_it(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    async with open_harness(new_store(), tmp_path) as harness:
        with pytest.raises(PluginFault, match="No module named 'acme_nowhere'"):
            await harness.service.add_connection(CloudConnection("lost", "acme", "here", driver="lost"), ANN)
        await harness.service.add_connection(CloudConnection("silent", "acme", "here", driver="silent"), ANN)
        with pytest.raises(NotGranted):
            await harness.service.register(NS, SpecRecord("small", "silent", "small"), ANN)
        await harness.grant_host(connection="silent")
        await harness.service.register(NS, SpecRecord("small", "silent", "small"), ANN)
        await harness.service.register(NS, ImageRecord("any", "silent", "any"), ANN)
        assert (await harness.created(mci("m1", SubGroup("g", 1, "small", "any")))).status is Status.SUCCEEDED
