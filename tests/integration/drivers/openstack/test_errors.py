"""What OpenStack says, in the words of the port: over the wire, and for any status and text whatever."""

import asyncio
import socket

import msgspec
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
from stateward.drivers.openstack import OpenStackDriver
from stateward.drivers.openstack.errors import classify_answer
from stateward.drivers.openstack.sdk import HttpAnswer
from tests.integration.drivers.openstack.breaking_proxy import BreakingProxy, BreakKind
from tests.integration.drivers.openstack.conftest import MakeDriver
from tests.integration.drivers.openstack.nova_server import NovaClient
from tests.integration.drivers.openstack.nova_worlds import IMAGE, SPEC, new_machine_specs
from tests.long_forms import in_long_form
from tests.waiting import until

CREATE, LIST = r"POST .*/servers", r"GET .*/servers/detail"

REFUSALS = [
    (400, "badRequest", "Invalid input for field/attribute name.", RefusalReason.INVALID),
    (401, "unauthorized", "The request you have made requires authentication.", RefusalReason.AUTH),
    (403, "forbidden", "Policy doesn't allow os_compute_api:servers:create to be performed.", RefusalReason.AUTH),
    (403, "forbidden", "Quota exceeded for cores: Requested 1, but already used 20 of 20 cores", RefusalReason.QUOTA),
    (403, "forbidden", "Only volume-backed servers are allowed for flavors with zero disk.", RefusalReason.INVALID),
    (404, "itemNotFound", "Instance 1 could not be found.", RefusalReason.NOT_FOUND),
    (409, "conflictingRequest", "Cannot 'x' instance 1 while it is in vm_state active", RefusalReason.CONFLICT),
    (400, "badRequest", "No valid host was found. There are not enough hosts available.", RefusalReason.CAPACITY),
    (413, "overLimit", "Quota exceeded for instances", RefusalReason.QUOTA),
    (501, "notImplemented", "Unable to do it", RefusalReason.UNABLE),
]
NEUTRON = [
    ("OverQuota", 409, "Quota exceeded for resources: ['network'].", RefusalReason.QUOTA),
    ("NetworkInUse", 409, "There are one or more ports still in use.", RefusalReason.IN_USE),
    ("IpAddressGenerationFailure", 409, "No more IP addresses available on network 1.", RefusalReason.CAPACITY),
    ("NetworkNotFound", 404, "Network 1 could not be found.", RefusalReason.NOT_FOUND),
    ("SecurityGroupRuleExists", 409, "Security group rule already exists.", RefusalReason.CONFLICT),
]


def answer(status: int, kind: str, message: str, *, neutron: bool = False) -> HttpAnswer:
    body = (
        {"NeutronError": {"type": kind, "message": message, "detail": ""}} if neutron else {kind: {"message": message}}
    )
    return HttpAnswer(status, {}, body)


@pytest.mark.parametrize(("status", "kind", "message", "why"), REFUSALS)
def test_a_refusal_of_nova_is_told_with_its_reason(status: int, kind: str, message: str, why: RefusalReason) -> None:
    failed = classify_answer("CreateServer", answer(status, kind, message), reads=False)
    assert (failed.why, failed.outcome.message) == (why, f"{status}: {message}")


@pytest.mark.parametrize(("kind", "status", "message", "why"), NEUTRON)
def test_a_refusal_of_neutron_is_told_with_its_reason(kind: str, status: int, message: str, why: RefusalReason) -> None:
    failed = classify_answer("CreateNetwork", answer(status, kind, message, neutron=True), reads=False)
    assert (failed.why, failed.code) == (why, kind)


@pytest.mark.parametrize("status", [413, 429])
async def test_throttling_is_no_failure_and_says_how_long_to_wait(
    driver: OpenStackDriver, proxy: BreakingProxy, nova: NovaClient, status: int
) -> None:
    body = '{"overLimit": {"code": 413, "message": "This request was rate-limited."}}'
    proxy.lose(BreakKind.ERROR, CREATE, status=status, body=body, headers=(("Retry-After", "7"),))
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallThrottled)
    assert outcome.retry_after_s == 7.0
    assert nova.servers() == []


async def test_a_throttled_listing_is_incomplete_and_says_how_long_to_wait(
    driver: OpenStackDriver, proxy: BreakingProxy
) -> None:
    proxy.lose(BreakKind.ERROR, LIST, status=429, headers=(("Retry-After", "7"),))
    listing = await driver.observe()
    assert (listing.complete, listing.retry_after_s) == (False, 7.0)


async def test_a_check_that_is_throttled_says_neither_yes_nor_no(driver: OpenStackDriver, proxy: BreakingProxy) -> None:
    proxy.lose(BreakKind.ERROR, r"GET .*/flavors/detail", status=429)
    assert isinstance(await driver.check(SPEC, IMAGE), CallThrottled)


@pytest.mark.parametrize("status", in_long_form((500, 502, 503, 504), short=(503,)))
async def test_after_an_error_inside_nova_nobody_knows_what_was_done(
    make: MakeDriver, proxy: BreakingProxy, status: int
) -> None:
    proxy.lose(BreakKind.DONE_BUT_ERROR, CREATE, status=status)
    driver, (want,) = make(), new_machine_specs(1)
    (outcome,) = await driver.create([want])
    assert isinstance(outcome, CallUnanswered)
    assert [one.key for one in (await driver.observe()).machines] == [want.key]


@pytest.mark.parametrize("status", [500, 503])
async def test_where_only_reading_failed_nothing_was_done(
    driver: OpenStackDriver, proxy: BreakingProxy, nova: NovaClient, status: int
) -> None:
    proxy.lose(BreakKind.ERROR, LIST, status=status)
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, TransientFailure)
    assert nova.servers() == []


async def test_a_cloud_that_nobody_answers_at_was_never_reached(
    make: MakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    monkeypatch.setenv("TEST_CLOUD_AUTH_URL", f"http://127.0.0.1:{port}/identity/v3")
    (outcome,) = await make().act(MachineAction.TERMINATE, [MachineHandle("key", "1")])
    assert isinstance(outcome, TransientFailure)


async def test_a_keystone_that_fails_leaves_everything_undone(driver: OpenStackDriver, proxy: BreakingProxy) -> None:
    proxy.lose(BreakKind.ERROR, r"POST .*/auth/tokens", status=503, times=9)
    (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle("key", "1")])
    assert isinstance(outcome, TransientFailure)


async def test_silence_is_no_answer(make: MakeDriver, proxy: BreakingProxy) -> None:
    driver = make()
    assert (await driver.observe()).complete
    assert driver._calls._session is not None
    driver._calls._session._timeouts = 5.0, 0.5
    proxy.lose(BreakKind.SILENCE, r"DELETE .*")
    (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle("key", "1")])
    assert isinstance(outcome, CallUnanswered)


async def test_the_sdk_repeats_nothing_by_itself(driver: OpenStackDriver, proxy: BreakingProxy) -> None:
    proxy.lose(BreakKind.ERROR, CREATE, status=503, times=9)
    await driver.create(new_machine_specs(1))
    proxy.lose(BreakKind.LOST_REQUEST, r"DELETE .*", times=9)
    await driver.act(MachineAction.TERMINATE, [MachineHandle("key", "1")])
    assert (proxy.count_of(CREATE), proxy.count_of(r"DELETE .*")) == (1, 1)


async def test_a_closed_driver_does_nothing_and_says_so(driver: OpenStackDriver) -> None:
    await driver.close()
    (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle("key", "1")])
    assert isinstance(outcome, TransientFailure)
    assert not (await driver.observe()).complete


async def test_a_caller_that_is_cancelled_is_cancelled_and_its_create_is_not_repeated(
    make: MakeDriver, proxy: BreakingProxy, nova: NovaClient
) -> None:
    driver, (want,) = make(), new_machine_specs(1)
    proxy.lose(BreakKind.SILENCE, CREATE)
    creating = asyncio.create_task(driver.create([want]))
    await until(lambda: proxy.count_of(CREATE))
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    (again,) = await make().create([want])
    assert isinstance(again, CallUnanswered)
    assert (proxy.count_of(CREATE), nova.servers()) == (1, [])


async def test_a_nova_that_is_too_old_is_refused_with_what_it_offers(
    driver: OpenStackDriver, proxy: BreakingProxy
) -> None:
    link = [{"rel": "self", "href": f"{proxy.url}/compute/v2.1/"}]
    version = {"id": "v2.1", "status": "CURRENT", "version": "2.60", "min_version": "2.1", "links": link}
    body = msgspec.json.encode({"version": version}).decode()
    proxy.lose(BreakKind.ERROR, r"GET /compute/v2\.1/?", status=200, body=body, times=9)
    for _ in range(2):  # it stays refused
        (outcome,) = await driver.create(new_machine_specs(1))
        assert isinstance(outcome, CallRefused)
        assert "Nova offers microversions up to 2.60, and the driver needs 2.69 or newer" in outcome.message


async def test_a_region_without_the_service_is_a_refusal(make: MakeDriver, proxy: BreakingProxy) -> None:
    driver = make()
    driver._calls._region = msgspec.structs.replace(driver._calls._region, region="RegionTwo")
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.INVALID


async def test_the_check_says_what_is_missing(driver: OpenStackDriver) -> None:
    refused = await driver.check("no-such-flavor", IMAGE)
    assert isinstance(refused, CallRefused)
    assert (refused.key, refused.why) == ("no-such-flavor", RefusalReason.NOT_FOUND)
    refused = await driver.check("m1.large", "fakeimage6")
    assert refused is None
    refused = await driver.check(SPEC, "00000000-0000-0000-0000-000000000000")
    assert isinstance(refused, CallRefused)


@given(st.integers(500, 599), st.text(), st.text())
def test_no_error_inside_a_service_is_ever_taken_for_nothing_done(status: int, kind: str, message: str) -> None:
    failed = classify_answer("CreateServer", answer(status, kind, message), reads=False)
    assert isinstance(failed.outcome, CallUnanswered) or status == 501


@given(st.integers(300, 599), st.text(), st.booleans())
def test_every_answer_has_a_verdict_of_one_line(status: int, text: str, reads: bool) -> None:
    failed = classify_answer("CreateServer", HttpAnswer(status, {}, None, text), reads=reads)
    assert len(failed.outcome.message.splitlines()) == 1
    assert not isinstance(failed.outcome, (CallAccepted, AlreadyDone))
