"""Making machines: each key makes one, however often and by however many it is asked for."""

import asyncio

import pytest

from stateward.drivers import AlreadyDone, CallAccepted, MachineAction, MachineHandle, MachineState, RefusalReason
from tests.contract.drivers.case import Case, accepted, agreed, find, look, refused, until, until_gone


class Creating:
    """What `check` and `create` keep to."""

    async def test_a_new_world_has_no_machines(self, case: Case) -> None:
        listing = await look(case.driver(), case)
        assert list(listing.machines) == []

    async def test_a_machine_is_seen_by_its_key_and_comes_to_run(self, case: Case) -> None:
        driver, want = case.driver(), case.want()
        native_id = accepted(await driver.create([want]))
        seen = await until(driver, case, want.key, MachineState.RUNNING)
        assert seen.native_id
        assert seen.native_id == native_id or not native_id
        assert seen.native_state

    async def test_a_created_machine_is_in_the_listing_of_all(self, case: Case) -> None:
        driver, want = case.driver(), case.want()
        await driver.create([want])
        await until(driver, case, want.key, MachineState.RUNNING)
        assert [one.key for one in (await look(driver, case)).machines] == [want.key]

    async def test_the_same_key_again_makes_no_second_machine(self, case: Case) -> None:
        driver, want = case.driver(), case.want()
        first = accepted(await driver.create([want]))
        (again,) = await driver.create([want])
        assert isinstance(again, (AlreadyDone, CallAccepted))
        assert again.native_id == first
        await until(driver, case, want.key, MachineState.RUNNING)
        assert len((await look(driver, case)).machines) == 1

    async def test_the_same_key_makes_no_second_machine_when_the_first_runs(self, case: Case) -> None:
        driver, want = case.driver(), case.want()
        first = accepted(await driver.create([want]))
        await until(driver, case, want.key, MachineState.RUNNING)
        (again,) = await driver.create([want])
        assert isinstance(again, (AlreadyDone, CallAccepted))
        assert again.native_id == first
        assert len((await look(driver, case)).machines) == 1

    async def test_concurrent_creates_with_one_key_make_one_machine(self, case: Case) -> None:
        driver, want = case.driver(), case.want()
        outcomes = [outcome for (outcome,) in await asyncio.gather(*(driver.create([want]) for _ in range(5)))]
        assert any(agreed(outcome) for outcome in outcomes)
        ids = {outcome.native_id for outcome in outcomes if isinstance(outcome, (CallAccepted, AlreadyDone))}
        seen = await until(driver, case, want.key, MachineState.RUNNING)
        assert ids - {""} <= {seen.native_id}
        assert len((await look(driver, case)).machines) == 1

    async def test_two_drivers_on_one_place_make_one_machine_of_a_key(self, case: Case) -> None:
        one, other, want = case.driver(), case.driver(), case.want()
        await asyncio.gather(one.create([want]), other.create([want]))
        await until(one, case, want.key, MachineState.RUNNING)
        assert len((await look(other, case)).machines) == 1

    async def test_one_call_that_names_a_key_twice_makes_one_machine(self, case: Case) -> None:
        driver, want = case.driver(), case.want()
        outcomes = await driver.create([want, want])
        assert len(outcomes) == 2
        assert all(agreed(outcome) for outcome in outcomes)
        await until(driver, case, want.key, MachineState.RUNNING)
        assert len((await look(driver, case)).machines) == 1

    async def test_a_key_whose_machine_was_terminated_makes_no_running_one(self, case: Case) -> None:
        driver, want = case.driver(), case.want()
        native_id = accepted(await driver.create([want]))
        await until(driver, case, want.key, MachineState.RUNNING)
        await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key, native_id)])
        await until_gone(driver, case, want.key)
        await driver.create([want])
        seen = await find(driver, case, want.key)
        assert seen is None or seen.state is MachineState.TERMINATED

    async def test_what_exists_passes_the_check(self, case: Case) -> None:
        assert await case.driver().check(case.spec, case.image) is None

    @pytest.mark.parametrize("odd", ["spec", "image"])
    async def test_what_does_not_exist_is_refused_by_the_check(self, case: Case, odd: str) -> None:
        spec, image = {"spec": ("no-such-spec", case.image), "image": (case.spec, "no-such-image")}[odd]
        assert refused(await case.driver().check(spec, image), RefusalReason.INVALID, RefusalReason.NOT_FOUND)

    async def test_a_check_makes_nothing(self, case: Case) -> None:
        driver = case.driver()
        await driver.check(case.spec, case.image)
        await driver.check("no-such-spec", "no-such-image")
        assert list((await look(driver, case)).machines) == []
