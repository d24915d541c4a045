"""What the driver of any cloud makes of errors: the same tests for each, with the calls and the codes of its cloud.

The fixtures `cloud`, `make` and `driver` are those of the folder of the driver.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import ClassVar

import pytest

from stateward.drivers import (
    CallThrottled,
    CallUnanswered,
    Driver,
    MachineAction,
    MachineHandle,
    TransientFailure,
)
from tests.integration.drivers.cloud_faults import Fault, FaultKind, FaultyCloud
from tests.integration.drivers.cloud_machines import CloudMachines
from tests.waiting import until


class CloudErrorContract:
    """A subclass names the machines, the calls, and the errors of a cloud."""

    machines: ClassVar[CloudMachines]
    native_id: ClassVar[str] = ""

    creating: ClassVar[str]
    reading: ClassVar[str]
    """The call that reads before a machine is created."""
    listing: ClassVar[str]
    checking: ClassVar[str]
    listing_parts: ClassVar[tuple[str, ...]]

    throttled: ClassVar[tuple[str, int]]
    inside: ClassVar[list[tuple[str, int]]]
    """Errors inside the cloud."""

    async def test_a_check_that_is_throttled_says_neither_yes_nor_no(self, driver: Driver, cloud: FaultyCloud) -> None:
        cloud.inject_fault(Fault(FaultKind.ERROR, self.checking, *self.throttled))
        assert isinstance(await driver.check(self.machines.spec, self.machines.image), CallThrottled)

    async def test_a_listing_of_parts_that_is_throttled_is_not_complete(
        self, driver: Driver, cloud: FaultyCloud
    ) -> None:
        for call in self.listing_parts:
            cloud.inject_fault(Fault(FaultKind.ERROR, call, *self.throttled))
            listing = await driver.list_resources()
            assert (listing.complete, self.throttled[0] in listing.problem) == (False, True), call

    async def test_after_an_error_inside_the_cloud_nobody_knows_what_was_done(
        self, driver: Driver, cloud: FaultyCloud
    ) -> None:
        wanted = self.machines.new_specs(len(self.inside))
        for number, (code, status) in enumerate(self.inside):
            cloud.inject_fault(Fault(FaultKind.DONE_BUT_ERROR, self.creating, code, status))
            (outcome,) = await driver.create([wanted[number]])
            assert isinstance(outcome, CallUnanswered), code
            assert cloud.calls[self.creating] == number + 1
        assert {machine.key for machine in (await driver.observe()).machines} == {spec.key for spec in wanted}

    async def test_where_only_reading_failed_nothing_was_done(self, driver: Driver, cloud: FaultyCloud) -> None:
        for code, status in self.inside:
            cloud.inject_fault(Fault(FaultKind.ERROR, self.reading, code, status))
            (outcome,) = await driver.create(self.machines.new_specs(1))
            assert isinstance(outcome, TransientFailure), code
        assert (cloud.calls[self.creating], list((await driver.observe()).machines)) == (0, [])

    async def test_an_endpoint_that_nobody_listens_at_was_never_reached(self, make: Callable[..., Driver]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        driver = make(endpoint_url=f"http://127.0.0.1:{port}")
        (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle("key", self.native_id)])
        assert isinstance(outcome, TransientFailure)

    async def test_silence_is_no_answer(self, make: Callable[..., Driver], cloud: FaultyCloud) -> None:
        driver = make(read_timeout="1.5")
        cloud.inject_fault(Fault(FaultKind.SILENCE, self.creating))
        (outcome,) = await driver.create(self.machines.new_specs(1))
        assert isinstance(outcome, CallUnanswered)

    async def test_a_closed_driver_does_nothing_and_says_so(self, driver: Driver) -> None:
        (handle,) = await self.machines.create(driver, 1)
        await driver.close()
        (outcome,) = await driver.act(MachineAction.TERMINATE, [handle])
        assert isinstance(outcome, TransientFailure)
        assert not (await driver.observe()).complete

    async def test_a_caller_that_is_cancelled_is_cancelled(self, driver: Driver, cloud: FaultyCloud) -> None:
        cloud.inject_fault(Fault(FaultKind.SILENCE, self.listing))
        looking = asyncio.create_task(driver.observe())
        await until(lambda: cloud.calls[self.listing])
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
        cloud.reset()
