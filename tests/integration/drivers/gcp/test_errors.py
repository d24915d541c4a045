"""What Compute Engine says, in the words of the port: over the wire for each reason, and for any whatever."""

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallThrottled,
    CallUnanswered,
    CloudResource,
    MachineAction,
    MachineHandle,
    RefusalReason,
    ResourceKind,
    TransientFailure,
)
from stateward.drivers.cloud.client import THREADS
from stateward.drivers.gcp import GcpDriver
from stateward.drivers.gcp.errors import classify_code, failed_operation
from tests.integration.drivers.cloud_faults import Fault, FaultKind
from tests.integration.drivers.gcp.conftest import MakeGcpDriver
from tests.integration.drivers.gcp.gce_cloud import GceCloud
from tests.integration.drivers.gcp.gce_test_machines import create_machines, new_machine_specs
from tests.integration.drivers.gcp.gce_world import IMAGE, SPEC
from tests.waiting import until

REFUSALS = [
    (400, "invalid", RefusalReason.INVALID),
    (400, "badRequest", RefusalReason.INVALID),
    (400, "resourceInUseByAnotherResource", RefusalReason.IN_USE),
    (403, "forbidden", RefusalReason.AUTH),
    (403, "accessNotConfigured", RefusalReason.AUTH),
    (403, "quotaExceeded", RefusalReason.QUOTA),
    (403, "limitExceeded", RefusalReason.QUOTA),
    (404, "notFound", RefusalReason.NOT_FOUND),
    (412, "conditionNotMet", RefusalReason.CONFLICT),
    (503, "ZONE_RESOURCE_POOL_EXHAUSTED", RefusalReason.CAPACITY),
]
THROTTLING = [(429, "rateLimitExceeded"), (403, "rateLimitExceeded"), (403, "userRateLimitExceeded"), (429, "")]
ITS_OWN_FAULT = [(500, "internalError"), (502, ""), (503, "backendError"), (504, "")]
RETRY_AFTER = (("Retry-After", "7"),)


@pytest.mark.parametrize(("status", "reason", "why"), REFUSALS)
async def test_a_refusal_is_told_with_its_reason(
    driver: GcpDriver, cloud: GceCloud, status: int, reason: str, why: RefusalReason
) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, "instances.insert", reason, status))
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, outcome.message.startswith(f"{reason}: ")) == (why, True)


@pytest.mark.parametrize(("status", "reason"), THROTTLING)
async def test_throttling_is_no_failure(driver: GcpDriver, cloud: GceCloud, status: int, reason: str) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, "instances.insert", reason, status))
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallThrottled)
    assert outcome.retry_after_s > 0


@pytest.mark.parametrize("status", [429, 503])
async def test_the_provider_s_own_word_for_how_long_to_wait_counts(
    driver: GcpDriver, cloud: GceCloud, status: int
) -> None:
    for action in ("instances.insert", "instances.list"):
        cloud.inject_fault(Fault(FaultKind.ERROR, action, status=status, headers=RETRY_AFTER))
    (outcome,) = await driver.create(new_machine_specs(1))
    listing = await driver.observe()
    assert isinstance(outcome, CallThrottled)
    assert (outcome.retry_after_s, listing.complete, listing.retry_after_s) == (7.0, False, 7.0)


async def test_a_check_that_is_throttled_says_neither_yes_nor_no(driver: GcpDriver, cloud: GceCloud) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, "machine_types.get", status=429))
    assert isinstance(await driver.check(SPEC, IMAGE), CallThrottled)


@pytest.mark.parametrize("action", ["networks.list", "subnetworks.list", "firewalls.list", "projects.get"])
async def test_a_listing_of_parts_that_is_throttled_is_not_complete(
    driver: GcpDriver, cloud: GceCloud, action: str
) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, action, "rateLimitExceeded", 429))
    listing = await driver.list_resources()
    assert (listing.complete, "rateLimitExceeded" in listing.problem) == (False, True)


@pytest.mark.parametrize(("status", "reason"), ITS_OWN_FAULT)
async def test_after_an_error_inside_google_nobody_knows_what_was_done(
    driver: GcpDriver, cloud: GceCloud, status: int, reason: str
) -> None:
    cloud.inject_fault(Fault(FaultKind.DONE_BUT_ERROR, "instances.insert", reason, status))
    (want,) = new_machine_specs(1)
    (outcome,) = await driver.create([want])
    assert isinstance(outcome, CallUnanswered)
    assert [one.key for one in (await driver.observe()).machines] == [want.key]


@pytest.mark.parametrize(("status", "reason"), ITS_OWN_FAULT)
async def test_where_only_reading_failed_nothing_was_done(
    driver: GcpDriver, cloud: GceCloud, status: int, reason: str
) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, "images.get", reason, status))
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, TransientFailure)
    assert cloud.world.instances == []


@pytest.mark.parametrize(("spec", "image"), [("a/b", IMAGE), ("", IMAGE), (SPEC, "a/b"), (SPEC, "")])
async def test_a_name_that_no_request_can_have_is_refused(driver: GcpDriver, spec: str, image: str) -> None:
    outcome = await driver.check(spec, image)
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.INVALID


async def test_an_endpoint_that_nobody_listens_at_was_never_reached(make: MakeGcpDriver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    driver = make(endpoint_url=f"http://127.0.0.1:{port}")
    (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle("key")])
    assert isinstance(outcome, TransientFailure)


async def test_silence_is_no_answer(make: MakeGcpDriver, cloud: GceCloud) -> None:
    driver = make(read_timeout="1.5")
    cloud.inject_fault(Fault(FaultKind.SILENCE, "instances.insert"))
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallUnanswered)


@pytest.mark.parametrize("action", ["instances.insert", "instances.list"])
async def test_the_library_repeats_nothing_by_itself(driver: GcpDriver, cloud: GceCloud, action: str) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, action, status=503))
    await driver.create(new_machine_specs(1))
    await driver.observe()
    assert cloud.calls[action] == 1


async def test_an_operation_that_is_looked_at_in_vain_is_followed_further(driver: GcpDriver, cloud: GceCloud) -> None:
    cloud.behaviour.operation = 0.3
    cloud.inject_fault(Fault(FaultKind.ERROR, "global_operations.get", status=503, times=2))
    outcome = await driver.ensure(CloudResource(ResourceKind.NETWORK, "net", "net"))
    assert isinstance(outcome, CallAccepted)
    assert cloud.calls["global_operations.get"] > 2


async def test_an_operation_that_does_not_end_is_no_answer(make: MakeGcpDriver, cloud: GceCloud) -> None:
    driver, cloud.behaviour.operation = make(operation_timeout="0.2"), 3600.0
    outcome = await driver.ensure(CloudResource(ResourceKind.NETWORK, "net", "net"))
    assert isinstance(outcome, CallUnanswered)
    assert "operation-1 still runs" in outcome.message


async def test_a_closed_driver_does_nothing_and_says_so(driver: GcpDriver) -> None:
    (handle,) = await create_machines(driver, 1)
    await driver.close()
    (outcome,) = await driver.act(MachineAction.TERMINATE, [handle])
    assert isinstance(outcome, TransientFailure)
    assert not (await driver.observe()).complete


async def test_closing_drops_what_was_not_sent_and_says_so(driver: GcpDriver, cloud: GceCloud) -> None:
    await driver.check(SPEC, IMAGE)
    cloud.behaviour.latency = 0.2
    creating = asyncio.create_task(driver.create(new_machine_specs(3 * THREADS)))
    await until(lambda: cloud.calls["instances.insert"])
    await driver.close()
    kinds = [type(outcome) for outcome in await creating]
    assert kinds.count(TransientFailure) > 0
    assert kinds.count(CallAccepted) + kinds.count(TransientFailure) == len(kinds)
    assert len(cloud.world.instances) == kinds.count(CallAccepted)


async def test_a_caller_that_is_cancelled_is_cancelled(driver: GcpDriver, cloud: GceCloud) -> None:
    cloud.inject_fault(Fault(FaultKind.SILENCE, "instances.list"))
    looking = asyncio.create_task(driver.observe())
    await until(lambda: cloud.calls["instances.list"])
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    cloud.reset()


async def test_a_budget_of_the_provider_is_felt_as_throttling_and_passes(driver: GcpDriver, cloud: GceCloud) -> None:
    await driver.check(SPEC, IMAGE)
    cloud.behaviour.calls, cloud.behaviour.window = 4, 3600.0
    wanted = new_machine_specs(8)
    kinds = [type(outcome) for outcome in await driver.create(wanted)]
    assert (kinds.count(CallAccepted), kinds.count(CallThrottled)) == (2, 6)
    cloud.behaviour.calls = None
    assert all(isinstance(one, (AlreadyDone, CallAccepted)) for one in await driver.create(wanted))
    assert len(cloud.world.instances) == 8


async def test_an_operation_with_errors_and_without_a_status_has_failed() -> None:
    from google.cloud.compute_v1 import Operation

    coded = Operation(status="DONE", error={"errors": [{"code": "QUOTA_EXCEEDED", "message": "no"}]})
    plain = Operation(status="DONE", http_error_status_code=403, http_error_message="FORBIDDEN")
    failures = [failed_operation("instances.insert", one) for one in (coded, plain, Operation(status="DONE"))]
    assert [None if one is None else one.why for one in failures] == [RefusalReason.QUOTA, RefusalReason.AUTH, None]


@given(st.text(), st.integers(500, 599), st.sampled_from(["instances.insert", "instances.suspend"]))
def test_no_unknown_error_inside_google_is_ever_taken_for_nothing_done(code: str, status: int, call: str) -> None:
    outcome = classify_code(call, code, status, "").outcome
    assert not isinstance(outcome, TransientFailure) or code.replace("_", "").lower() == "resourcenotready"


@given(st.text(), st.integers(400, 499), st.sampled_from(["instances.insert", "instances.list"]), st.text())
def test_every_code_has_a_verdict_of_one_line(code: str, status: int, call: str, message: str) -> None:
    outcome = classify_code(call, code, status, message).outcome
    assert len(outcome.message.removeprefix(code).splitlines()) == 1
