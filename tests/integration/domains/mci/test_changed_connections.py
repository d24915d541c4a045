"""Connections that change while VMs use them: no operation is left on a closed client, and no old record returns."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stateward.domains.mci.handlers.cloud_vm_handlers import ACCEPTED
from stateward.domains.mci.model import CloudConnection
from stateward.domains.mci.provider import provider_client
from stateward.drivers.simulated import SimulatedDriver
from stateward.drivers.simulated.faults import CALM
from stateward.engine import Accepted, Temporary, Unknown
from stateward.errors import UnknownName
from stateward.store.records import Status
from tests.integration.domains.mci.conftest import ANN, NS, PATIENT, MciHarness, group, mci
from tests.integration.domains.mci.request_races import SEOUL, SLOW
from tests.waiting import until

HOME = "aws-ap-northeast-2"


class Gate:
    """Holds the first call of a function until the test opens it."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def pass_through(self) -> None:
        """Report that the call has come this far, and wait."""
        if not self.reached.is_set():
            self.reached.set()
            async with asyncio.timeout(PATIENT):
                await self.opened.wait()


async def renewed(harness: MciHarness, zone: str = "a") -> CloudConnection:
    """Change a connection in a way that its users do not forbid."""
    service = harness.service
    return await service.add_connection(replace(await service.catalogue.connection(HOME), zone=zone), ANN)


def refuse_after_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a simulated driver refuse every listing after its end, as drivers of real providers do."""

    async def close(driver: Any) -> None:
        async def refused(_keys: object = None) -> None:
            raise RuntimeError("cannot schedule new futures after shutdown")

        driver.observe = refused

    monkeypatch.setattr(SimulatedDriver, "close", close)


async def test_a_create_that_is_answered_after_its_connection_has_changed_is_observed_at_the_new_one(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_after_close(monkeypatch)
    gate, create = Gate(), SimulatedDriver.create

    async def slow(driver: Any, specs: Any) -> Any:
        await gate.pass_through()
        return await create(driver, specs)

    monkeypatch.setattr(SimulatedDriver, "create", slow)
    created = await harness.service.create(NS, mci("m1", group(size=1)), ANN)
    await gate.reached.wait()
    await renewed(harness)
    await harness.plugin.clients.by_name(HOME)  # replaces the client
    gate.opened.set()
    assert (await harness.ended(created)).status is Status.SUCCEEDED
    assert await harness.state() == "Running"


async def test_a_closed_client_refuses_calls_and_observations(harness: MciHarness) -> None:
    old = await harness.plugin.clients.by_name(HOME)
    await renewed(harness)
    await harness.plugin.clients.by_name(HOME)
    with pytest.raises(Temporary, match="has changed"):
        await old.create(None)  # type: ignore[arg-type]
    with pytest.raises(Unknown, match="has changed"):
        await old.observe("key")
    with pytest.raises(Unknown, match="has changed"):
        await old.wait_for_next("key", lambda _: True)


async def test_an_older_record_of_a_connection_never_replaces_its_client(harness: MciHarness) -> None:
    clients = harness.plugin.clients
    old = await harness.service.catalogue.connection(HOME)
    await clients.by_name(HOME)
    await renewed(harness)
    new = await clients.by_name(HOME)
    assert await clients.for_connection(old) is new
    assert await clients.by_name(HOME) is new
    assert (await new.list_now()).complete


async def test_a_read_that_is_overtaken_by_a_change_does_not_bring_the_old_client_back(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients, gate = harness.plugin.clients, Gate()
    read = harness.plugin.catalogue.stored_connection

    async def slow(name: str) -> Any:
        found = await read(name)
        await gate.pass_through()
        return found

    monkeypatch.setattr(harness.plugin.catalogue, "stored_connection", slow)
    overtaken = asyncio.create_task(clients.by_name(HOME))
    await gate.reached.wait()
    await renewed(harness)
    new = await clients.by_name(HOME)
    gate.opened.set()
    assert await overtaken is new
    assert await clients.by_name(HOME) is new


async def test_a_cached_client_is_not_used_for_a_vm_of_another_region(harnesses: list[MciHarness]) -> None:
    one, other = harnesses
    acct = CloudConnection("acct", "aws", "us-east-1")
    await one.service.add_connection(acct, ANN)
    cached = await one.plugin.clients.by_name("acct")
    await other.service.add_connection(replace(acct, region="us-west-2"), ANN)
    moved = await one.plugin.clients.for_lane("acct", "aws/us-west-2")
    assert (cached.lane, moved.lane) == ("aws/us-east-1", "aws/us-west-2")
    with pytest.raises(Temporary, match="leads to aws/us-west-2, and not to aws/us-east-1"):
        await one.plugin.clients.for_lane("acct", "aws/us-east-1")


async def test_a_round_over_connections_concludes_nothing_about_vms_of_another_region(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.created(mci("m1", group(size=1)))
    reconciler, clients = harness.plugin.reconciler, harness.plugin.clients
    elsewhere = await clients.by_name("aws-us-east-1")  # as if the connection led there

    async def client_of(_connection: object) -> Any:
        return elsewhere

    monkeypatch.setattr(clients, "for_connection", client_of)
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 0.0)
    for _ in range(2):
        await reconciler.reconcile_all()
    (vm,) = await harness.service.vms(NS, "m1")
    assert vm.state == "Running"


async def test_a_change_that_is_refused_leaves_the_client_in_use(harness: MciHarness) -> None:
    clients = harness.plugin.clients
    used, known = await clients.by_name(HOME), await harness.service.catalogue.connection(HOME)
    with pytest.raises(UnknownName):
        await harness.service.add_connection(replace(known, options={"nonsense": "1"}), ANN)
    await clients.check(replace(known, zone="b"))
    assert await clients.for_connection(known) is used
    assert (await used.observe("key")).problem != ""


async def test_a_reboot_that_the_provider_has_accepted_is_not_repeated_at_the_new_client(harness: MciHarness) -> None:
    await harness.created(mci("m1", group(size=1)))
    harness.cloud.set_profile(SEOUL, replace(SLOW, knows_tokens=False))
    accepted = await harness.service.control_vm(NS, "m1", "g1-1", "reboot", ANN)
    (machine,) = harness.cloud.region(SEOUL).machines.values()
    await until(lambda: has_step(harness, accepted, ACCEPTED))
    harness.cloud.set_profile(SEOUL, replace(CALM, knows_tokens=False, dead=True, patience=0.01))
    machine.until = harness.cloud.clock()  # it runs again, and the provider would accept another reboot
    await renewed(harness)
    await harness.plugin.clients.by_name(HOME)  # replaces the client, and the operation goes over to the new one
    harness.cloud.set_profile(SEOUL, replace(CALM, knows_tokens=False))
    assert (await harness.ended(accepted)).status is Status.SUCCEEDED
    assert machine.reboots == 1


async def has_step(harness: MciHarness, accepted: Accepted, step: str) -> bool:
    """Tell whether an operation has stored a step."""
    operation = await harness.engine.store.reader.operation(accepted.op.key)
    assert operation is not None
    return step in msgspec.json.decode(operation.steps)
