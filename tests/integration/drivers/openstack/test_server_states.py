"""The states of servers: every combination has one meaning, and none on its way is taken for one that has arrived."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.drivers import MachineState
from stateward.drivers.openstack.states import HARMLESS_TASKS, STABLE, TASKS, machine_state, native_state, observation

ARRIVED = {MachineState.RUNNING, MachineState.SUSPENDED, MachineState.FAILED}
EXAMPLES = [
    ("building", "", MachineState.PENDING),
    ("building", "scheduling", MachineState.PENDING),
    ("building", "block_device_mapping", MachineState.PENDING),
    ("building", "deleting", MachineState.TERMINATING),
    ("active", "", MachineState.RUNNING),
    ("active", "suspending", MachineState.SUSPENDING),
    ("active", "pausing", MachineState.SUSPENDING),
    ("active", "powering-off", MachineState.SUSPENDING),
    ("active", "reboot_started", MachineState.REBOOTING),
    ("active", "image_uploading", MachineState.RUNNING),
    ("paused", "unpausing", MachineState.RESUMING),
    ("stopped", "powering-on", MachineState.RESUMING),
    ("stopped", "deleting", MachineState.TERMINATING),
    ("error", "", MachineState.FAILED),
    ("error", "deleting", MachineState.TERMINATING),
    ("deleted", "", MachineState.TERMINATED),
    ("active", "a new task", MachineState.OTHER),
    ("shelved_offloaded", "", MachineState.OTHER),
    ("a new state", "", MachineState.OTHER),
]


@pytest.mark.parametrize(("vm_state", "task_state", "state"), EXAMPLES)
def test_two_states_of_nova_are_one_of_ours(vm_state: str, task_state: str, state: MachineState) -> None:
    assert machine_state(vm_state, task_state) is state


@given(st.sampled_from(sorted(STABLE)), st.sampled_from(sorted(TASKS)))
def test_a_server_with_a_task_has_never_arrived(vm_state: str, task: str) -> None:
    assert machine_state(vm_state, task) not in ARRIVED


@given(st.sampled_from(sorted(set(STABLE) - {"building", "deleted", "soft-delete"})), st.text(min_size=1))
def test_a_task_that_nobody_knows_is_never_guessed(vm_state: str, task: str) -> None:
    if task not in TASKS and task not in HARMLESS_TASKS:
        assert machine_state(vm_state, task) is MachineState.OTHER


@given(st.text(), st.text())
def test_the_provider_s_own_words_are_kept(vm_state: str, task: str) -> None:
    assert vm_state in native_state(vm_state, task)
    assert task in native_state(vm_state, task)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Quota exceeded for instances: Requested 1, but already used 10 of 10 instances", "quota"),
        ("No valid host was found. ", "capacity"),
        ("No valid host was found. There are not enough hosts available.", "capacity"),
        ("Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures", "capacity"),
        ("Build of instance 1 aborted: volume is gone", None),
    ],
)
def test_the_fault_of_a_server_tells_its_cause(text: str, cause: str | None) -> None:
    seen = observation({"id": "1", "status": "ERROR", "fault": {"message": text}})
    assert (seen.state, seen.details["reason"], seen.details.get("cause")) == (MachineState.FAILED, text.strip(), cause)


def test_where_a_policy_hides_the_extended_states_the_status_counts() -> None:
    assert observation({"id": "1", "status": "SHUTOFF"}).state is MachineState.SUSPENDED
    assert observation({"id": "1", "status": "MIGRATING"}).state is MachineState.OTHER


def test_addresses_are_told_apart_and_ipv4_counts_first() -> None:
    fixed = [
        {"version": 6, "addr": "fd00::7", "OS-EXT-IPS:type": "fixed"},
        {"version": 4, "addr": "10.0.0.7", "OS-EXT-IPS:type": "fixed"},
    ]
    floating = [{"version": 4, "addr": "203.0.113.7", "OS-EXT-IPS:type": "floating"}]
    seen = observation({"id": "1", "status": "ACTIVE", "addresses": {"net": fixed + floating}})
    assert (seen.private_ip, seen.public_ip) == ("10.0.0.7", "203.0.113.7")
