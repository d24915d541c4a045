"""What Compute Engine says, in the words of the port: over the wire for each reason, and for any whatever."""

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
    CloudResource,
    RefusalReason,
    ResourceKind,
    TransientFailure,
)
from stateward.drivers.cloud.client import THREADS
from stateward.drivers.gcp import GcpDriver
from stateward.drivers.gcp.errors import classify_code, failed_operation
from tests.integration.drivers.cloud_error_contract import CloudErrorContract
from tests.integration.drivers.cloud_faults import Fault, FaultKind
from tests.integration.drivers.gcp.conftest import MakeGcpDriver
from tests.integration.drivers.gcp.gce_cloud import GceCloud
from tests.integration.drivers.gcp.gce_test_machines import MACHINES, new_machine_specs
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
RETRY_AFTER = (("Retry-After", "7"),)


class TestGoogleErrors(CloudErrorContract):
    """What the drivers of all clouds do."""

    machines = MACHINES
    creating, reading = "instances.insert", "images.get"
    listing, checking = "instances.list", "machine_types.get"
    listing_parts = ("networks.list", "subnetworks.list", "firewalls.list", "projects.get")
    throttled = "rateLimitExceeded", 429
    inside: ClassVar = [("internalError", 500), ("", 502), ("backendError", 503), ("", 504)]


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


@pytest.mark.parametrize(("spec", "image"), [("a/b", IMAGE), ("", IMAGE), (SPEC, "a/b"), (SPEC, "")])
async def test_a_name_that_no_request_can_have_is_refused(driver: GcpDriver, spec: str, image: str) -> None:
    outcome = await driver.check(spec, image)
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.INVALID


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
