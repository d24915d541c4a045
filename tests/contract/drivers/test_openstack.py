"""The driver for OpenStack under the suite, through openstacksdk: against a real Nova in one process, or a real cloud.

The driver has never been run against a whole cloud. `real_accounts.py` says how to do that. The project must have one
network that machines get without asking for it, and a hypervisor that can suspend.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from stateward.drivers import Driver, Observation, ProviderRegion
from stateward.drivers.openstack import OpenStackDriver, listing
from tests.contract.drivers.conformance import Conformance
from tests.contract.drivers.driver_case import DriverCase
from tests.contract.drivers.fault_contract import BreakableDriverCase, FaultContract
from tests.contract.drivers.real_accounts import ACCOUNT_TEST_TIMEOUT_S, AccountCase, has_account, open_account
from tests.integration.drivers.openstack.breaking_proxy import BreakingProxy, BreakKind, breaking_proxy
from tests.integration.drivers.openstack.nova_server import PAGE, REGION, NovaServer
from tests.integration.drivers.openstack.nova_worlds import IMAGE, PAUSE_S, SPEC, set_login

CHANGING = r"(POST .*/(servers|action)|DELETE .*/servers/.*)"


SHORT_FORM = frozenset(
    {
        "test_the_short_form_has_names_of_tests_alone",
        # create
        "test_a_new_world_has_no_machines",
        "test_two_drivers_on_one_place_make_one_machine_of_a_key",
        "test_what_exists_passes_the_check",
        "test_what_does_not_exist_is_refused_by_the_check",
        "test_a_check_makes_nothing",
        # act
        "test_suspend_and_resume_reach_their_states",
        "test_a_reboot_that_is_repeated_with_its_token_is_one_reboot",
        "test_a_machine_that_is_just_being_made_can_be_terminated",
        "test_deeds_on_unknown_machines_find_nothing",
        # list
        "test_a_look_at_an_unknown_key_is_complete_and_empty",
        # resources
        "test_a_part_that_is_ensured_twice_is_made_once",
        "test_concurrent_ensures_of_one_part_make_one",
        "test_parts_are_listed_by_their_keys_for_as_long_as_they_are_there",
        "test_a_new_key_pair_tells_its_secret_once",
        "test_a_security_group_gets_exactly_the_wanted_rules",
        "test_bad_rules_are_refused_and_change_nothing",
        "test_a_part_that_is_removed_twice_is_already_gone",
        "test_a_part_that_never_was_is_already_gone",
        "test_a_part_is_removed_by_its_key_where_its_id_is_not_known",
        "test_a_network_that_has_a_subnet_cannot_be_removed",
        "test_a_subnet_of_no_network_is_refused",
        "test_what_a_machine_stands_on_cannot_be_removed_until_it_is_gone",
        # many at once
        "test_nothing_asked_is_nothing_answered",
        # the next driver
        "test_a_key_that_another_driver_used_makes_no_second_machine",
        "test_closing_twice_is_closing_once",
        "test_a_command_does_not_run_on_a_machine_that_is_not_there",
        # faults
        "test_a_create_at_a_dead_provider_is_never_taken_for_done",
        "test_a_machine_that_died_behind_our_back_is_not_shown_as_running",
    }
)
"""The tests of the suite; `make prove` runs the others, too."""


class OpenStackCase(BreakableDriverCase):
    """A new project in Nova, behind a proxy that can break calls."""

    spec = SPEC
    image = IMAGE

    def __init__(self, server: NovaServer, proxy: BreakingProxy, project: str) -> None:
        super().__init__()
        self._proxy, self._nova = proxy, server.client(project)

    def make(self) -> Driver:
        region = ProviderRegion("openstack", REGION, credential="env:TEST_CLOUD", options={"settle_time": "1"})
        return OpenStackDriver(region, self.count)

    async def pause(self) -> None:
        # real time: between two listings of a loop
        await asyncio.sleep(PAUSE_S)

    def reboots(self, seen: Observation) -> int:
        return self._nova.actions(seen.native_id).count("reboot")

    async def cut(self) -> None:
        self._proxy.cut = True

    async def mend(self) -> None:
        self._proxy.cut = False

    async def kill(self, key: str) -> None:
        self._nova.kill(key)

    async def lose_next_answer(self) -> bool:
        self._proxy.lose(BreakKind.LOST_ANSWER, CHANGING)
        return True

    async def close(self) -> None:
        await super().close()
        self._nova.close()  # the machines stay, in a project that nobody looks at: to delete them takes half the time


class TestOpenStack(Conformance, FaultContract):
    """All of it; in the suite the short form, because this Nova makes about one machine in a second."""

    short_form = SHORT_FORM

    def test_the_short_form_has_names_of_tests_alone(self) -> None:
        assert [name for name in SHORT_FORM if not hasattr(self, name)] == []

    @pytest.fixture
    async def case(self, nova_server: NovaServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenStackCase]:
        project = nova_server.new_project()
        with breaking_proxy(nova_server.url) as proxy:
            set_login(monkeypatch, proxy.url, project)
            monkeypatch.setattr(listing, "LEAST_PAGE_SIZE", PAGE)
            case = OpenStackCase(nova_server, proxy, project)
            yield case
            await case.close()


class OpenStackAccountCase(AccountCase):
    """A real project."""

    def make(self) -> Driver:
        return OpenStackDriver(self.account.provider_region, self.count)


@pytest.mark.timeout(ACCOUNT_TEST_TIMEOUT_S)
class TestOpenStackAccount(Conformance):
    """The suite in a real project, if there is one."""

    __test__ = has_account("openstack")

    @pytest.fixture
    async def case(self) -> AsyncIterator[DriverCase]:
        case = OpenStackAccountCase(open_account("openstack"))
        async with case.cleared():
            yield case
