"""The upgrade of an agent, explored: controller, two agents, loss, duplication, crashes of any of them."""

import pytest

from stateward.agents.messages import UPGRADE_FAILED, UPGRADING
from stateward.domains.edge.records.agent_upgrade import (
    AgentRejection,
    AgentSlots,
    C,
    CloudletEvent,
    SlotsUpdate,
    is_held,
    must_disconnect,
    on_agent_report,
    on_connect,
    on_disconnect,
    on_inventory,
)
from stateward.lifecycle import AGENT, CONTROLLER
from stateward.testing.protocols import Bounds, FaultBudget, ViolationKind, explore
from tests.models.edge_protocol.upgrade_protocol import (
    AT_REST,
    NEW,
    OLD,
    SUCCESS_IS_TRUE,
    gathering,
    upgrade_protocol,
)

BOUNDS = Bounds(copies=1)
BOTH: dict[str, int] = {AGENT: 1, CONTROLLER: 1}
READY = AgentSlots(C.READY, OLD, serving=4, issued=4)
ASKED = AgentSlots(C.UPDATE_REQUESTED, OLD, NEW, is_upgrading=True, operation=7, serving=4, issued=4)
AGREED = AgentSlots(C.INIT_OK, OLD, NEW, is_upgrading=True, operation=7, serving=4, successor=5, issued=5)
LEFT = AgentSlots(C.UPDATE_ERROR, OLD, NEW, operation=7, serving=4, issued=5)


@pytest.mark.parametrize(
    ("asks", "late", "faults"),
    [
        pytest.param(2, 0, FaultBudget(2, 2, spared=gathering), id="asked twice, with loss"),
        pytest.param(1, 2, FaultBudget(1, 1, spared=gathering), id="starts that take too long"),
        pytest.param(1, 0, FaultBudget(0, 1, BOTH), id="crashes of either side"),
        pytest.param(1, 0, FaultBudget(0, 0, {AGENT: 2}), id="both agents crash"),
        pytest.param(1, 0, FaultBudget(1, 0, BOTH, spared=gathering), id="loss and crashes"),
    ],
)
def test_an_upgrade_ends_well_or_is_left_whatever_happens(asks: int, late: int, faults: FaultBudget) -> None:
    result = explore(upgrade_protocol(asks, late_starts=late), faults, BOUNDS)
    assert result.violation is None, str(result)
    assert result.complete


def test_a_ready_of_the_old_version_must_not_end_an_upgrade() -> None:
    def any_version(slots: AgentSlots, notify: int, version: str) -> SlotsUpdate | AgentRejection:
        right = on_inventory(slots, notify, version)
        if slots.is_upgrading and isinstance(right, SlotsUpdate) and right.event is None:
            return SlotsUpdate(slots, CloudletEvent("ready", "new agent", frozenset({"upgrading"})))
        return right

    violation = explore(upgrade_protocol(gathered=any_version), FaultBudget(crashes=BOTH), BOUNDS).violation
    assert violation is not None
    assert (violation.kind, violation.name) == (ViolationKind.BROKEN, SUCCESS_IS_TRUE)


def test_without_the_clock_an_upgrade_whose_agents_are_both_silent_waits_for_ever() -> None:
    faults = FaultBudget(losses=1, spared=gathering)
    violation = explore(upgrade_protocol(patient=True), faults, BOUNDS).violation
    assert violation is not None
    assert violation.name == AT_REST


def test_a_connection_gets_a_number_that_only_grows() -> None:
    first = on_connect(READY, OLD)
    assert isinstance(first, SlotsUpdate)
    assert (first.slots.issued, first.slots.serving) == (5, 5)
    assert first.event == CloudletEvent("start", AGENT)


def test_in_an_upgrade_init_counts_only_from_the_new_version() -> None:
    successor = on_connect(ASKED, NEW, 7)
    assert isinstance(successor, SlotsUpdate)
    assert (successor.role, successor.event, successor.slots.serving) == (
        "heir",
        CloudletEvent("acknowledge", CONTROLLER),
        4,
    )
    back = on_connect(ASKED, OLD)
    assert isinstance(back, SlotsUpdate)
    assert (back.role, back.event) == ("serving", None)
    assert on_connect(ASKED, "v3") is AgentRejection.FOREIGN


def test_an_heir_of_an_upgrade_that_is_over_is_turned_away() -> None:
    assert on_connect(LEFT, NEW, 7) is AgentRejection.GIVEN_UP
    assert on_connect(READY, NEW, 7) is AgentRejection.GIVEN_UP
    assert on_connect(ASKED, NEW, 6) is AgentRejection.GIVEN_UP


def test_a_cloudlet_that_is_being_deleted_lets_its_agent_in_for_what_is_left_to_do() -> None:
    back = on_connect(AgentSlots(C.DELETE_PREPARE, OLD, issued=4), OLD)
    assert back == SlotsUpdate(AgentSlots(C.DELETE_PREPARE, OLD, issued=5, serving=5))
    assert on_inventory(back.slots, 5, OLD) == back


def test_the_acknowledgement_counts_only_from_the_old_version_and_for_this_upgrade() -> None:
    word = on_agent_report(ASKED, 4, OLD, UPGRADING, 7)
    assert isinstance(word, SlotsUpdate)
    assert word.event == CloudletEvent(UPGRADING, "old agent")
    assert on_agent_report(ASKED, 4, OLD, UPGRADING, 6) is AgentRejection.OTHER_UPGRADE
    assert on_agent_report(AGREED, 5, NEW, UPGRADE_FAILED, 7) is AgentRejection.OTHER_VERSION
    assert on_agent_report(ASKED, 3, OLD, UPGRADING, 7) is AgentRejection.OLD_CONNECTION


def test_a_connection_that_is_gone_makes_the_cloudlet_offline_unless_a_newer_one_is_there() -> None:
    assert on_disconnect(READY, 4).event == CloudletEvent("disconnected", CONTROLLER)
    assert on_disconnect(READY, 3) == SlotsUpdate(READY)
    assert on_disconnect(AGREED, 5).slots.successor == 0
    assert on_disconnect(AGREED, 4).event is None


def test_a_connection_that_is_not_current_is_closed() -> None:
    assert must_disconnect(READY, 3)
    assert not must_disconnect(READY, 4)
    assert must_disconnect(AgentSlots(C.OFFLINE, OLD, serving=4, issued=4), 4)


@pytest.mark.parametrize(
    ("owner", "installation", "is_served", "is_heir", "held"),
    [
        pytest.param(None, "a", False, False, False, id="the first with an identity becomes the owner"),
        pytest.param(None, "", True, False, False, id="without identities the newest connection serves"),
        pytest.param(None, "a", True, False, True, id="none takes the place of one without an identity that serves"),
        pytest.param(None, "a", True, True, False, id="an heir with an identity follows one without"),
        pytest.param("a", "a", True, False, False, id="the owner comes back"),
        pytest.param("a", "b", True, False, True, id="another one while the owner serves"),
        pytest.param("a", "b", False, False, True, id="another one while nobody knows of the owner"),
        pytest.param("a", "", False, False, True, id="one without an identity"),
        pytest.param("a", "", True, True, False, id="an heir of a version without identities"),
        pytest.param("a", "b", True, True, True, id="an heir from another folder"),
        pytest.param("", "a", False, False, True, id="handed over to one without an identity"),
    ],
)
def test_a_cloudlet_belongs_to_one_installation(
    owner: str | None, installation: str, is_served: bool, is_heir: bool, held: bool
) -> None:
    assert is_held(owner, installation, is_served=is_served, is_heir=is_heir) is held
