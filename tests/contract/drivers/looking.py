"""Looking: what a listing shows, and when absence means something."""

from stateward.drivers import MachineAction, MachineHandle, MachineState
from tests.contract.drivers.case import Case, look, running, until, until_gone


class Looking:
    """What `observe` keeps to."""

    async def test_a_look_at_some_keys_shows_those_alone(self, case: Case) -> None:
        driver = case.driver()
        wants = [case.want() for _ in range(3)]
        await driver.create(wants)
        for want in wants:
            await until(driver, case, want.key, MachineState.RUNNING)
        chosen = {wants[0].key, wants[2].key}
        assert {one.key for one in (await look(driver, case, chosen)).machines} == chosen
        assert {one.key for one in (await look(driver, case)).machines} == {want.key for want in wants}

    async def test_a_look_at_an_unknown_key_is_complete_and_empty(self, case: Case) -> None:
        listing = await look(case.driver(), case, ["no-such-key"])
        assert (list(listing.machines), listing.complete) == ([], True)

    async def test_a_look_at_no_keys_shows_nothing(self, case: Case) -> None:
        driver = case.driver()
        await running(driver, case)
        listing = await look(driver, case, [])
        assert (list(listing.machines), listing.complete) == ([], True)

    async def test_no_machine_is_listed_twice(self, case: Case) -> None:
        driver = case.driver()
        await driver.create([case.want() for _ in range(4)])
        seen = (await look(driver, case)).machines
        assert len({one.key for one in seen}) == len({one.native_id for one in seen}) == len(seen)

    async def test_an_observation_tells_the_name_the_provider_s_own_word_and_where_to_log_in(self, case: Case) -> None:
        driver, want = case.driver(), case.want()
        await driver.create([want])
        seen = await until(driver, case, want.key, MachineState.RUNNING)
        assert seen.name in (want.name, want.key)
        assert seen.native_state
        assert seen.ssh_port == case.ssh_port

    async def test_a_terminated_machine_is_shown_as_such_or_no_longer_at_all(self, case: Case) -> None:
        driver = case.driver()
        ref = await running(driver, case)
        await driver.act(MachineAction.TERMINATE, [MachineHandle(ref.key)])
        await until_gone(driver, case, ref.key)
        assert all(one.state is MachineState.TERMINATED for one in (await look(driver, case)).machines)
