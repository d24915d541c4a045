"""The contract of logins: a machine's keys open it, no other key does, and its host key is the listed one."""

import asyncssh
import pytest

from stateward.drivers import MachineState
from tests.contract.drivers.driver_case import DriverCase, accepted, find, wait_for_state
from tests.integration.drivers.local.ssh_logins import KEY, OTHER_KEY, log_in, public_text


class LoginContract:
    """What holds for machines that one can log in to; one machine for all of it, because some take long to start."""

    async def test_a_machine_can_be_logged_in_to_with_its_keys_and_with_no_other(self, case: DriverCase) -> None:
        second = asyncssh.generate_private_key("ssh-ed25519")
        machine_spec = case.login_spec([public_text(KEY), public_text(second)])
        if machine_spec is None:
            return
        driver = case.driver()
        accepted(await driver.create([machine_spec]))
        seen = await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        assert seen.ssh_port
        assert seen.host_key.startswith("ssh-")
        user = machine_spec.user or "anna"
        for key in (KEY, second):
            async with log_in(seen, key, user) as connection:  # it accepts the listed host key alone
                assert (await connection.run("echo in")).stdout == "in\n"
        with pytest.raises(asyncssh.PermissionDenied):
            async with log_in(seen, OTHER_KEY, user):
                pass
        again = await find(case.driver(), case, seen.key)  # as a restarted server sees it
        assert again is not None
        assert (again.ssh_port, again.host_key) == (seen.ssh_port, seen.host_key)
