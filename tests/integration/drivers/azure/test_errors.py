"""What Azure says, in the words of the port: over the wire for each code, and for any code whatever."""

import asyncio
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallThrottled,
    CallUnanswered,
    MachineAction,
    MachineHandle,
    RefusalReason,
    TransientFailure,
)
from stateward.drivers.azure import AzureDriver
from stateward.drivers.azure.errors import classify_answer
from tests.integration.drivers.azure.arm_cloud import ArmCloud
from tests.integration.drivers.azure.azure_machines import MACHINES, counts, create_machines, new_machine_specs
from tests.integration.drivers.azure.conftest import MakeDriver
from tests.integration.drivers.cloud_error_contract import CloudErrorContract
from tests.integration.drivers.cloud_faults import Fault, FaultKind
from tests.waiting import until

PUT = "PUT virtualMachines"
REFUSALS = [
    ("SkuNotAvailable", 409, RefusalReason.CAPACITY),
    ("AllocationFailed", 409, RefusalReason.CAPACITY),
    ("ZonalAllocationFailed", 409, RefusalReason.CAPACITY),
    ("OverconstrainedAllocationRequest", 409, RefusalReason.CAPACITY),
    ("QuotaExceeded", 403, RefusalReason.QUOTA),
    ("PublicIPCountLimitReached", 400, RefusalReason.QUOTA),
    ("ResourceNotFound", 404, RefusalReason.NOT_FOUND),
    ("InvalidResourceReference", 400, RefusalReason.NOT_FOUND),
    ("PlatformImageNotFound", 404, RefusalReason.NOT_FOUND),
    ("ResourceGroupNotFound", 404, RefusalReason.INVALID),
    ("SubscriptionNotFound", 404, RefusalReason.INVALID),
    ("OperationNotAllowed", 409, RefusalReason.CONFLICT),
    ("Conflict", 409, RefusalReason.CONFLICT),
    ("SomethingNew", 409, RefusalReason.CONFLICT),
    ("AuthorizationFailed", 403, RefusalReason.AUTH),
    ("RequestDisallowedByPolicy", 403, RefusalReason.AUTH),
    ("ExpiredAuthenticationToken", 401, RefusalReason.AUTH),
    ("InvalidParameter", 400, RefusalReason.INVALID),
    ("InUseSubnetCannotBeDeleted", 400, RefusalReason.IN_USE),
    ("NicInUse", 400, RefusalReason.IN_USE),
]


class TestAzureErrors(CloudErrorContract):
    """What the drivers of all clouds do."""

    machines = MACHINES
    creating, reading = PUT, "GET virtualMachines"
    listing, checking = "LIST virtualMachines", "GET skus"
    listing_parts = ("LIST virtualNetworks", "LIST networkSecurityGroups", "LIST sshPublicKeys")
    throttled = "TooManyRequests", 429
    inside: ClassVar = [
        ("InternalServerError", 500),
        ("ServerTimeout", 503),
        ("GatewayTimeout", 504),
        ("BadGateway", 502),
    ]


@pytest.mark.parametrize(("code", "status", "why"), REFUSALS)
async def test_a_refusal_is_told_with_its_reason_and_leaves_nothing(
    driver: AzureDriver, cloud: ArmCloud, code: str, status: int, why: RefusalReason
) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, PUT, code, status))
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, outcome.message) == (why, f"{code}: injected")
    assert counts(cloud) == [0, 0, 0, 0]


async def test_a_quota_may_hide_behind_a_general_code(driver: AzureDriver, cloud: ArmCloud) -> None:
    text = "Operation could not be completed as it results in exceeding approved Total Regional Cores quota."
    cloud.inject_fault(Fault(FaultKind.ERROR, PUT, "OperationNotAllowed", 409, text))
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.QUOTA


@pytest.mark.parametrize(
    ("headers", "seconds"), [((("Retry-After", "7"),), 7.0), ((("Retry-After", "Fri, 1 Jan"),), 5.0), ((), 5.0)]
)
async def test_throttling_is_no_failure_and_says_how_long_to_wait(
    driver: AzureDriver, cloud: ArmCloud, headers: tuple[tuple[str, str], ...], seconds: float
) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, PUT, "OperationNotAllowed", 429, headers=headers))
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallThrottled)
    assert outcome.retry_after_s == seconds
    assert cloud.calls[PUT] == 1


@pytest.mark.parametrize("action", ["LIST virtualMachines", "LIST virtualMachines/statuses", "LIST networkInterfaces"])
async def test_a_throttled_listing_is_incomplete_and_says_how_long_to_wait(
    driver: AzureDriver, cloud: ArmCloud, action: str
) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, action, "TooManyRequests", 429, headers=(("Retry-After", "7"),)))
    listing = await driver.observe()
    assert (listing.complete, listing.retry_after_s) == (False, 7.0)


@pytest.mark.parametrize("code", ["AnotherOperationInProgress", "RetryableError", "ReferencedResourceNotProvisioned"])
async def test_an_answer_that_asks_for_a_repetition_is_no_refusal(
    driver: AzureDriver, cloud: ArmCloud, code: str
) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, PUT, code, 409))
    wanted = new_machine_specs(1)
    outcomes = [(await driver.create(wanted))[0] for _ in range(2)]
    assert [type(one) for one in outcomes] == [TransientFailure, CallAccepted]


async def test_a_group_that_is_not_shown_makes_nobody_absent(make: MakeDriver) -> None:
    driver = make(resource_group="elsewhere")
    (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle("key")])
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.INVALID
    assert not (await driver.observe()).complete
    assert not (await driver.list_resources()).complete


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_the_libraries_repeat_nothing_by_themselves(driver: AzureDriver, cloud: ArmCloud, status: int) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.inject_fault(Fault(FaultKind.ERROR, "POST virtualMachines/restart", "Busy", status))
    await driver.act(MachineAction.REBOOT, [handle])
    assert cloud.calls["POST virtualMachines/restart"] == 1


@pytest.mark.parametrize(
    ("action", "call"),
    [(MachineAction.TERMINATE, "DELETE virtualMachines"), (MachineAction.SUSPEND, "POST virtualMachines/deallocate")],
)
async def test_a_used_connection_that_breaks_repeats_nothing(
    driver: AzureDriver, cloud: ArmCloud, action: MachineAction, call: str
) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, call))
    (outcome,) = await driver.act(action, [handle])
    assert isinstance(outcome, CallUnanswered)
    assert cloud.calls[call] == 1


async def test_a_missing_registration_is_refused_and_not_made_up_for(driver: AzureDriver, cloud: ArmCloud) -> None:
    text = "The subscription is not registered to use namespace 'Microsoft.Compute'"
    cloud.inject_fault(Fault(FaultKind.ERROR, PUT, "MissingSubscriptionRegistration", 409, text))
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.AUTH
    assert not [call for call in cloud.calls if "other" in call]


async def test_closing_never_hides_what_was_sent(driver: AzureDriver, cloud: ArmCloud) -> None:
    cloud.behaviour.latency = 0.1
    creating = asyncio.create_task(driver.create(new_machine_specs(60)))
    await until(lambda: cloud.calls[PUT])
    await driver.close()
    kinds = [type(outcome) for outcome in await creating]
    assert {CallAccepted, CallUnanswered, TransientFailure} >= set(kinds)
    assert kinds.count(TransientFailure) > 0
    assert counts(cloud)[0] <= kinds.count(CallAccepted) + kinds.count(CallUnanswered)


async def test_a_budget_of_the_provider_is_felt_as_throttling_and_passes(driver: AzureDriver, cloud: ArmCloud) -> None:
    cloud.behaviour.calls, cloud.behaviour.window = 10, 3600.0
    wanted = new_machine_specs(8)
    kinds = {type(outcome) for outcome in await driver.create(wanted)}
    assert CallThrottled in kinds
    cloud.behaviour.calls = None
    kinds = {type(outcome) for outcome in await driver.create(wanted)}
    assert kinds <= {AlreadyDone, CallAccepted}
    assert counts(cloud) == [8, 8, 8, 0]


CHANGING = st.sampled_from(["compute.virtual_machines.begin_start", "network.subnets.begin_create_or_update"])


@given(st.text(), st.integers(500, 599), CHANGING)
def test_no_error_inside_azure_is_ever_taken_for_nothing_done(code: str, status: int, call: str) -> None:
    assert isinstance(classify_answer(call, status, code, "", 1.0).outcome, CallUnanswered)


@given(st.text(), st.integers(400, 499), CHANGING | st.just("compute.virtual_machines.get"), st.text())
def test_every_code_has_a_verdict_of_one_line(code: str, status: int, call: str, message: str) -> None:
    outcome = classify_answer(call, status, code, message, 1.0).outcome
    assert len(outcome.message.removeprefix(code).splitlines()) == 1
