"""The contract of all drivers."""

from tests.contract.drivers.action_contract import ActionContract
from tests.contract.drivers.adoption_contract import AdoptionContract
from tests.contract.drivers.bulk_contract import BulkContract
from tests.contract.drivers.create_contract import CreateContract
from tests.contract.drivers.listing_contract import ListingContract
from tests.contract.drivers.login_contract import LoginContract
from tests.contract.drivers.resource_contract import ResourceContract
from tests.contract.drivers.takeover_contract import TakeoverContract

REAL_MACHINES = frozenset(
    {
        "test_the_short_form_has_names_of_tests_alone",
        "test_a_machine_is_seen_by_its_key_and_comes_to_run",
        "test_concurrent_creates_with_one_key_make_one_machine",
        "test_two_drivers_on_one_place_make_one_machine_of_a_key",
        "test_a_key_whose_machine_was_terminated_makes_no_running_one",
        "test_what_does_not_exist_is_refused_by_the_check",
        "test_suspend_and_resume_reach_their_states",
        "test_a_second_reboot_with_another_token_is_a_second_reboot",
        "test_a_reboot_that_is_repeated_with_its_token_is_one_reboot",
        "test_a_listing_shows_which_reboot_was_done_where_the_driver_says_so",
        "test_rebooting_what_is_suspended_is_refused",
        "test_a_suspended_machine_can_be_terminated",
        "test_concurrent_deeds_of_every_sort_leave_a_machine_in_order",
        "test_machines_in_different_states_each_get_their_own_answer",
        "test_a_command_runs_where_there_is_a_way_in",
        "test_a_command_that_ends_badly_tells_its_status",
        "test_changes_are_hinted_at_where_there_are_events",
        "test_a_create_at_a_dead_provider_is_never_taken_for_done",
        "test_after_the_cut_everything_goes_on",
        "test_a_machine_that_died_behind_our_back_can_be_terminated",
    }
)
"""The tests of the suite on machines that are expensive to start; `make prove` runs all.

All tests always run on drivers that share their code: on simulated containers, and on machines that are process groups.
"""


class Conformance(
    CreateContract,
    ActionContract,
    ListingContract,
    BulkContract,
    ResourceContract,
    TakeoverContract,
    LoginContract,
    AdoptionContract,
):
    """Everything that holds for every driver."""
