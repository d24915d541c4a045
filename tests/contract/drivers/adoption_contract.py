"""The contract of drivers that can adopt: our key goes on machines of others, and off again."""

from stateward.drivers import (
    AlreadyDone,
    Driver,
    MachineAction,
    MachineAdopter,
    MachineHandle,
    MachineState,
    Observation,
    RefusalReason,
)
from tests.contract.drivers.driver_case import (
    MAX_LISTINGS,
    DriverCase,
    accepted,
    find,
    is_done,
    refused,
    start_machine,
    wait_for_state,
    wait_until_gone,
)


class AdoptionContract:
    """What holds where machines can be adopted."""

    async def test_a_machine_without_a_key_is_adopted_and_controlled_by_its_new_one(self, case: DriverCase) -> None:
        driver = case.driver()
        if not isinstance(driver, MachineAdopter):
            return
        native = await _start_unmarked(driver, case)
        key = case.machine_spec().key
        assert accepted([await driver.adopt(MachineHandle(key, native))]) == native
        assert (await wait_for_state(driver, case, key, MachineState.RUNNING)).native_id == native
        assert await _unmarked(driver, case, native, wanted=False) is None
        assert isinstance(await driver.adopt(MachineHandle(key, native)), AlreadyDone)  # the answer may have been lost
        accepted(await driver.act(MachineAction.TERMINATE, [MachineHandle(key)]))
        await wait_until_gone(driver, case, key)
        assert refused(await driver.adopt(MachineHandle(case.machine_spec().key, native)), RefusalReason.NOT_FOUND)

    async def test_a_released_machine_stays_as_it_is_and_carries_no_key(self, case: DriverCase) -> None:
        driver = case.driver()
        if not isinstance(driver, MachineAdopter):
            return
        handle = await start_machine(driver, case)
        assert is_done(await driver.release(handle))
        assert await find(driver, case, handle.key) is None
        shown = await _unmarked(driver, case, handle.native_id or "")
        assert shown is not None
        assert (shown.key, shown.state) == ("", MachineState.RUNNING)
        assert is_done(await driver.release(handle))

    async def test_a_machine_with_another_key_is_not_adopted(self, case: DriverCase) -> None:
        driver = case.driver()
        if not isinstance(driver, MachineAdopter):
            return
        handle = await start_machine(driver, case)
        outcome = await driver.adopt(MachineHandle(case.machine_spec().key, handle.native_id))
        assert refused(outcome, RefusalReason.CONFLICT), outcome
        assert handle.key in getattr(outcome, "message", "")
        assert (await wait_for_state(driver, case, handle.key, MachineState.RUNNING)).native_id == handle.native_id

    async def test_a_key_of_no_machine_releases_nothing(self, case: DriverCase) -> None:
        driver = case.driver()
        if not isinstance(driver, MachineAdopter):
            return
        handle = await start_machine(driver, case)
        assert is_done(await driver.release(MachineHandle("no-such-key", handle.native_id)))
        assert await find(driver, case, handle.key) is not None


async def _start_unmarked(driver: Driver, case: DriverCase) -> str:
    """Start a machine that carries no key; return its native id."""
    assert isinstance(driver, MachineAdopter)
    handle = await start_machine(driver, case)
    assert is_done(await driver.release(handle))
    native = handle.native_id or ""
    assert await _unmarked(driver, case, native) is not None
    return native


async def _unmarked(
    driver: MachineAdopter, case: DriverCase, native: str, *, wanted: bool = True
) -> Observation | None:
    """Return a machine without a key, after listings until it is shown or not, as it is wanted."""
    for _ in range(MAX_LISTINGS):
        listing = await driver.list_unmarked()
        found = next((one for one in listing.machines if one.native_id == native), None)
        if (found is not None) == wanted and listing.complete:
            return found
        await case.pause()
    return found
