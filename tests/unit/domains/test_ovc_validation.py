"""The tables of the ovc design, as triples, against what is derived from the declared rows."""

import pytest

from stateward.domains.ovc.compat import validate_transition
from stateward.domains.ovc.lifecycle import LIFECYCLES
from stateward.domains.ovc.model import OBJECT_TYPES, TRANSITION_STATES
from stateward.errors import UnknownName
from stateward.lifecycle import ADMIN, NEW, USER, Meaning

TRIPLES = {
    "vm": """
        VIRTUAL DEPLOYING RUNNING; VIRTUAL DESTROYING DESTROYED; ERROR DEPLOYING RUNNING;
        RUNNING PAUSING PAUSED; PAUSED RESUMING RUNNING;
        HALTED STARTING RUNNING; RUNNING STOPPING HALTED; PAUSED STOPPING HALTED;
        RUNNING DELETING DELETED; PAUSED DELETING DELETED; HALTED DELETING DELETED;
        RUNNING DESTROYING DESTROYED; PAUSED DESTROYING DESTROYED; HALTED DESTROYING DESTROYED;
        DELETED DESTROYING DESTROYED; ERROR DESTROYING DESTROYED; DELETED RESTORING HALTED;
        RUNNING REBOOTING RUNNING; PAUSED REBOOTING RUNNING; RUNNING RESETTING RUNNING;
        RUNNING ADDING_DISK RUNNING; RUNNING ATTACHING_DISK RUNNING; RUNNING DETACHING_DISK RUNNING;
        PAUSED ADDING_DISK PAUSED; PAUSED ATTACHING_DISK PAUSED; PAUSED DETACHING_DISK PAUSED;
        HALTED ADDING_DISK HALTED; HALTED ATTACHING_DISK HALTED; HALTED DETACHING_DISK HALTED""",
    "cloudspace": """
        VIRTUAL DEPLOYING DEPLOYED; VIRTUAL DESTROYING DESTROYED; ERROR DEPLOYING DEPLOYED;
        DEPLOYED DISABLING DISABLED; DISABLED ENABLING DEPLOYED;
        DEPLOYED DELETING DELETED; DISABLED DELETING DELETED; PAUSED DELETING DELETED; DELETED RESTORING DEPLOYED;
        DELETED DESTROYING DESTROYED; DEPLOYED DESTROYING DESTROYED; DISABLED DESTROYING DESTROYED;
        PAUSED DESTROYING DESTROYED; ERROR DESTROYING DESTROYED; DEPLOYED PAUSING PAUSED; PAUSED RESUMING DEPLOYED;
        DEPLOYED RESETTING DEPLOYED; PAUSED RESETTING DEPLOYED""",
    "account": """
        (new) CREATING CONFIRMED; ERROR CREATING CONFIRMED; CONFIRMED DISABLING DISABLED; DISABLED ENABLING CONFIRMED;
        CONFIRMED DESTROYING DESTROYED; DISABLED DESTROYING DESTROYED; DELETED DESTROYING DESTROYED;
        ERROR DESTROYING DESTROYED; CONFIRMED DELETING DELETED; DISABLED DELETING DELETED;
        DELETED RESTORING CONFIRMED""",
    "disk": """
        MODELED CREATING CREATED; ERROR CREATING CREATED; MODELED ASSIGNING ASSIGNED; ERROR ASSIGNING ASSIGNED;
        MODELED DESTROYING DESTROYED; CREATED ATTACHING ASSIGNED;
        ASSIGNED DETACHING CREATED; CREATED DELETING DELETED; ASSIGNED DELETING TOBEDELETED;
        CREATED DESTROYING DESTROYED; ASSIGNED DESTROYING DESTROYED; DELETED RESTORING CREATED;
        DELETED DESTROYING DESTROYED; TOBEDELETED RESTORING ASSIGNED; TOBEDELETED DESTROYING DESTROYED;
        ERROR DESTROYING DESTROYED""",
    "image": """
        VIRTUAL CREATING CREATED; VIRTUAL DESTROYING DESTROYED; ERROR CREATING CREATED;
        CREATED DISABLING DISABLED; DISABLED ENABLING CREATED;
        CREATED DELETING DELETED; DISABLED DELETING DELETED; CREATED DESTROYING DESTROYED;
        DISABLED DESTROYING DESTROYED; DELETED RESTORING CREATED; DELETED DESTROYING DESTROYED;
        ERROR DESTROYING DESTROYED""",
    "node": """
        (new) REGISTERING ENABLED; ENABLED PUTTING_IN_MAINTENANCE MAINTENANCE; MAINTENANCE ENABLING ENABLED;
        ERROR ENABLING ENABLED; ENABLED DECOMMISSIONING DECOMMISSIONED; MAINTENANCE DECOMMISSIONING DECOMMISSIONED;
        ERROR DECOMMISSIONING DECOMMISSIONED""",
}  # fmt: skip


def triples(object_type: str) -> set[tuple[str, ...]]:
    return {tuple(triple.split()) for triple in TRIPLES[object_type].split(";")}


@pytest.mark.parametrize("object_type", TRIPLES)
def test_the_declared_actions_are_exactly_the_designs_triples(object_type: str) -> None:
    moves = OBJECT_TYPES[object_type].every_move()
    declared = {
        (m.source.word, m.target.word, m.desired.word) for m in moves if m.meaning is Meaning.ACTION and m.desired
    }
    assert declared == triples(object_type)


@pytest.mark.parametrize("object_type", TRIPLES)
def test_validate_transition_agrees_with_the_triples_for_all_pairs_of_states(object_type: str) -> None:
    states = [state.word for state in OBJECT_TYPES[object_type].declaration.states]
    pairs = {(start, end) for start, _, end in triples(object_type)}
    for start in states:
        for end in states:
            assert validate_transition(object_type, start, end) == ((start, end) in pairs), (start, end)


@pytest.mark.parametrize("object_type", TRIPLES)
def test_the_precise_form_is_keyed_on_the_transition(object_type: str) -> None:
    states = [state.word for state in OBJECT_TYPES[object_type].declaration.states]
    for start, via, end in triples(object_type):
        assert validate_transition(object_type, start, end, through=via)
        assert not any(validate_transition(object_type, start, other, through=via) for other in states if other != end)


def test_the_precise_form_takes_the_action_too() -> None:
    assert validate_transition("vm", "RUNNING", "RUNNING", through="reboot")
    assert not validate_transition("vm", "RUNNING", "RUNNING", through="stop")


@pytest.mark.parametrize("object_type", TRIPLES)
def test_no_transition_leads_from_or_to_a_state_that_is_not_there(object_type: str) -> None:
    known = next(iter(triples(object_type)))[0]
    for pair in (("NOPE", known), (known, "NOPE"), ("", ""), ("NOPE", "NOPE")):
        assert validate_transition(object_type, *pair) is False


def test_a_hidden_migration_is_no_transition() -> None:
    assert not validate_transition("vm", "RUNNING", "RUNNING", through="migrate")


def test_transition_states_are_the_middle_column_of_all_tables() -> None:
    assert set(TRANSITION_STATES) == {via for object_type in TRIPLES for _, via, _ in triples(object_type)}


def test_pausing_a_cloudspace_is_for_administrators_only() -> None:
    moves = [move for move in OBJECT_TYPES["cloudspace"].every_move() if move.event in ("pause", "resume", "reset")]
    assert {move.actor for move in moves} == {ADMIN}


def test_only_the_new_and_the_defined_can_be_created_by_a_user() -> None:
    begun = {move.event for one in LIFECYCLES for move in one.every_move() if move.source == NEW and move.actor == USER}
    assert begun == {"define", "create"}


def test_an_unknown_object_type_is_an_error_that_lists_what_exists() -> None:
    with pytest.raises(UnknownName, match="did you mean 'disk'"):
        validate_transition("dsk", "CREATED", "DELETED")
