import pytest

from stateward.cli.commands.create import NotClear, find_removing_action
from stateward.schemas.objects import Possible

ENDS = {"Terminated", "(gone)"}


def way(event: str, end: str | None, *needs: str) -> Possible:
    return Possible(event, not needs and end is not None, None, list(needs), None, end, None)


TERMINATE = way("terminate", "Terminated")
SUSPEND = way("suspend", "Suspended")
REMOVE_BY_FORCE = way("remove", "(gone)", "force")
TERMINATE_BY_FORCE = way("terminate", "Terminated", "force")


def test_the_only_action_that_ends_an_object_removes_it() -> None:
    assert find_removing_action("m1", "Running", [SUSPEND, TERMINATE, REMOVE_BY_FORCE], ENDS, []) == "terminate"


def test_an_action_called_delete_is_the_one_that_is_meant() -> None:
    assert find_removing_action("m1", "Running", [TERMINATE, way("delete", None)], ENDS, []) == "delete"


def test_where_several_could_they_are_listed_with_where_they_lead() -> None:
    with pytest.raises(NotClear, match=r"terminate, to Terminated; remove \(needs force\), to \(gone\)"):
        find_removing_action("m1", "Running", [TERMINATE, REMOVE_BY_FORCE], ENDS, ["force"])


def test_where_none_can_as_it_is_the_needs_are_told() -> None:
    with pytest.raises(NotClear, match=r"remove \(needs force\), to \(gone\)"):
        find_removing_action("m1", "Creating", [REMOVE_BY_FORCE, TERMINATE_BY_FORCE], ENDS, [])


def test_where_nothing_ends_it_that_is_said() -> None:
    with pytest.raises(NotClear, match="no action removes m1 while it is Running"):
        find_removing_action("m1", "Running", [SUSPEND, way("terminate", None)], ENDS, [])
