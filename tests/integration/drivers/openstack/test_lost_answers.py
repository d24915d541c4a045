"""Answers and requests that are lost: each machine is made once, whatever is repeated, and by whomever."""

from pathlib import Path
from time import sleep

import pytest

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    MachineAction,
    MachineState,
    RefusalReason,
)
from stateward.drivers.openstack import OpenStackDriver
from stateward.drivers.openstack.machines import CreateGuard
from tests.integration.drivers.openstack.breaking_proxy import BreakingProxy, BreakKind
from tests.integration.drivers.openstack.conftest import MakeDriver
from tests.integration.drivers.openstack.nova_server import NovaClient
from tests.integration.drivers.openstack.nova_worlds import (
    IMAGE,
    PAUSE_S,
    create_machines,
    new_machine_specs,
    wait_for_state,
    wait_until_gone,
)

CREATE = r"POST .*/servers"


async def test_a_create_whose_answer_was_lost_is_found_by_another_driver(
    make: MakeDriver, proxy: BreakingProxy, nova: NovaClient
) -> None:
    proxy.lose(BreakKind.LOST_ANSWER, CREATE)
    (want,) = new_machine_specs(1)
    (lost,) = await make().create([want])
    (again,) = await make().create([want])
    assert isinstance(lost, CallUnanswered)
    assert isinstance(again, AlreadyDone)
    assert [one["id"] for one in nova.servers()] == [again.native_id]


async def test_a_create_that_may_still_be_accepted_is_not_sent_again(
    make: MakeDriver, proxy: BreakingProxy, nova: NovaClient
) -> None:
    proxy.lose(BreakKind.LOST_REQUEST, CREATE)
    (want,) = new_machine_specs(1)
    outcomes = [(await make().create([want]))[0] for _ in range(3)]
    assert all(isinstance(outcome, CallUnanswered) for outcome in outcomes)
    assert (proxy.count_of(CREATE), nova.servers()) == (1, [])


async def test_a_create_that_was_lost_for_long_enough_is_sent_again(
    make: MakeDriver, proxy: BreakingProxy, nova: NovaClient
) -> None:
    proxy.lose(BreakKind.LOST_REQUEST, CREATE)
    driver, (want,) = make(settle_time="0"), new_machine_specs(1)
    outcomes = [(await driver.create([want]))[0] for _ in range(2)]
    assert [type(outcome) for outcome in outcomes] == [CallUnanswered, CallAccepted]
    assert len(nova.servers()) == 1


def test_a_create_without_an_answer_settles_with_time_or_with_an_answer() -> None:
    now = [0.0]
    guard = CreateGuard(lambda: now[0])
    guard.note("key", 60.0)
    guard.note("other", 60.0)
    guard.clear("other")
    assert (guard.may_be_accepted("key"), guard.may_be_accepted("other")) == (True, False)
    now[0] = 60.0
    assert not guard.may_be_accepted("key")


async def test_where_another_process_was_first_its_machine_stays_and_ours_goes(
    driver: OpenStackDriver, proxy: BreakingProxy, nova: NovaClient
) -> None:
    (want,) = new_machine_specs(1)
    server = {"name": "first", "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}
    document = {"server": {**server, "metadata": {"stateward:key": want.key}}}
    first: list[str] = []

    def be_first() -> None:
        first.append(nova.send("POST", "/compute/v2.1/servers", document).json()["server"]["id"])
        sleep(1.0)  # real time: the times of servers have whole seconds

    proxy.lose(BreakKind.LATE, CREATE, meanwhile=be_first)
    (outcome,) = await driver.create([want])
    assert outcome == AlreadyDone(want.key, first[0])
    assert [one.native_id for one in await wait_for_state(driver, [want.key])] == first


async def test_the_machine_of_another_process_is_found_before_its_host_has_begun_to_build_it(
    make: MakeDriver, proxy: BreakingProxy, nova: NovaClient, hold: Path
) -> None:
    driver, (want,) = make(read_timeout="600"), new_machine_specs(1)
    server = {"name": "first", "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}
    document = {"server": {**server, "metadata": {"stateward:key": want.key, "fake_hold_host": str(hold)}}}
    hold.touch()
    first: list[str] = []

    def be_first() -> None:
        first.append(nova.send("POST", "/compute/v2.1/servers", document).json()["server"]["id"])
        since = {"changes-since": "2000-01-01T00:00:00Z"}
        while nova.get("/compute/v2.1/servers/detail", **since)["servers"]:  # it is in no cell yet
            sleep(PAUSE_S)
        sleep(1.0)  # real time: the times of servers have whole seconds

    proxy.lose(BreakKind.LATE, CREATE, meanwhile=be_first)
    (outcome,) = await driver.create([want])
    assert outcome == AlreadyDone(want.key, first[0])
    hold.unlink()
    assert [one.native_id for one in await wait_for_state(driver, [want.key])] == first


async def test_a_key_whose_machine_was_deleted_by_somebody_else_makes_no_second_one(
    driver: OpenStackDriver, nova: NovaClient
) -> None:
    (want,) = new_machine_specs(1)
    await driver.create([want])
    (seen,) = await wait_for_state(driver, [want.key])
    nova.clear()
    await wait_until_gone(driver, want.key)
    (again,) = await driver.create([want])
    assert isinstance(again, CallRefused)
    assert (again.why, seen.native_id in again.message) == (RefusalReason.CONFLICT, True)


async def test_an_action_without_an_answer_is_done_already_when_it_is_repeated(
    driver: OpenStackDriver, proxy: BreakingProxy
) -> None:
    (handle,) = await create_machines(driver, 1)
    proxy.lose(BreakKind.LOST_ANSWER, r"POST .*/action")
    assert isinstance((await driver.act(MachineAction.SUSPEND, [handle]))[0], CallUnanswered)
    await wait_for_state(driver, [handle.key], MachineState.SUSPENDED)
    assert isinstance((await driver.act(MachineAction.SUSPEND, [handle]))[0], AlreadyDone)


@pytest.mark.parametrize("key", ["k" * 300])
async def test_a_key_that_nova_could_not_keep_is_refused(
    driver: OpenStackDriver, proxy: BreakingProxy, key: str
) -> None:
    (want,) = new_machine_specs(1)
    (outcome,) = await driver.create([type(want)(key, want.name, want.spec, want.image)])
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, proxy.count_of(CREATE)) == (RefusalReason.INVALID, 0)
