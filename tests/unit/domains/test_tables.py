"""The declared tables against the published designs, written down here a second time and in another form."""

import pytest

from stateward.domains.edge.lifecycle import (
    APPINST,
    CLOUDLET,
    CLUSTERINST,
    IGNORE_TRANSIENT,
    NEW_AGENT,
    OLD_AGENT,
    SERVED,
    UPGRADING,
)
from stateward.domains.leases.lifecycle import EVENT, LEASE, RESERVATION
from stateward.domains.mci.lifecycle import VM
from stateward.domains.systems.lifecycle import SYSTEM
from stateward.errors import UnknownName
from stateward.lifecycle import (
    ADMIN,
    AGENT,
    CLOCK,
    CONTROLLER,
    FORCE,
    GONE,
    NEW,
    TRANSITIONAL,
    USER,
    Lifecycle,
    Move,
    Refusal,
    State,
    check,
    decide,
)
from stateward.plugin.registry import installed

KINDS = [
    "mci.mci",
    "mci.vm",
    "mci.command",
    "mci.vnet",
    "mci.securitygroup",
    "mci.sshkey",
    "mci.namespace",
    "mci.connection",
    "mci.spec",
    "mci.image",
    "mci.claim",
    "mci.call",
    "mci.setting",
    "edge.clusterinst",
    "edge.appinst",
    "edge.cloudlet",
    "edge.flavor",
    "edge.app",
    "edge.autoscale",
    "edge.autoprov",
    "edge.controller",
    "edge.measures",
    "ovc.vm",
    "ovc.cloudspace",
    "ovc.account",
    "ovc.disk",
    "ovc.image",
    "ovc.node",
    "leases.lease",
    "leases.reservation",
    "leases.event",
    "leases.host",
    "leases.property",
    "leases.notice",
    "systems.system",
    "systems.service",
    "systems.nodepool",
    "systems.deploy",
    "systems.teardown",
    "systems.secret",
    "systems.rotation",
    "systems.job",
    "systems.jobrun",
    "systems.node",
    "systems.instance",
    "systems.address",
    "systems.usage",
]


def target(lifecycle: Lifecycle, state: str, event: str, actor: str, *facts: str) -> State | None:
    answer = decide(lifecycle, state, event, actor, frozenset(facts))
    return answer.target if isinstance(answer, Move) else None


def test_every_kind_of_the_five_designs_is_declared() -> None:
    assert [lifecycle.kind for lifecycle in installed().lifecycles] == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_can_get_stuck(kind: str) -> None:
    assert check(installed().lifecycle_of(kind)) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_every_state_of_an_object_at_work_has_a_deadline_on_every_way_in(kind: str) -> None:
    for move in installed().lifecycle_of(kind).every_move():
        if move.target.state_class is TRANSITIONAL:
            assert move.within, f"{kind}: {move.source} -> {move.target}"


def test_an_unknown_kind_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'ovc\.vm'"):
        installed().lifecycle_of("ovc.vn")


# --- mci: the transition matrix ------------------------------------------------------------------------------------

YES, NO, WITH_FORCE = "yes", "no", "force"

MATRIX = {
    # status          suspend     resume      reboot      terminate
    "Running":       (YES,        WITH_FORCE, YES,        YES),
    "Suspended":     (WITH_FORCE, YES,        WITH_FORCE, YES),
    "Creating":      (WITH_FORCE, WITH_FORCE, WITH_FORCE, WITH_FORCE),
    "Suspending":    (WITH_FORCE, WITH_FORCE, WITH_FORCE, WITH_FORCE),
    "Resuming":      (WITH_FORCE, WITH_FORCE, WITH_FORCE, WITH_FORCE),
    "Rebooting":     (WITH_FORCE, WITH_FORCE, WITH_FORCE, WITH_FORCE),
    "Terminating":   (WITH_FORCE, WITH_FORCE, WITH_FORCE, WITH_FORCE),
    "Failed":        (WITH_FORCE, WITH_FORCE, WITH_FORCE, WITH_FORCE),
    "Undefined":     (WITH_FORCE, WITH_FORCE, WITH_FORCE, WITH_FORCE),
    "Terminated":    (NO,         NO,         NO,         NO),
}  # fmt: skip


@pytest.mark.parametrize("status", MATRIX)
def test_the_vm_matrix_holds_with_and_without_force(status: str) -> None:
    for action, verdict in zip(("suspend", "resume", "reboot", "terminate"), MATRIX[status], strict=True):
        assert (target(VM, status, action, USER) is not None) == (verdict == YES), (status, action)
        assert (target(VM, status, action, USER, FORCE) is not None) == (verdict != NO), (status, action)


def test_a_vm_whose_action_timed_out_is_undefined_and_never_guessed() -> None:
    assert target(VM, "Terminating", "timed out", CLOCK) == "Undefined"


# --- edge: who may move what ---------------------------------------------------------------------------------------

INSTANCE = [
    # state              actor       event           next
    ("NotPresent",       USER,       "create",       "CreateRequested"),
    ("CreateRequested",  AGENT,      "creating",     "Creating"),
    ("CreateRequested",  AGENT,      "ready",        "Ready"),
    ("CreateRequested",  AGENT,      "create error", "CreateError"),
    ("Creating",         AGENT,      "ready",        "Ready"),
    ("Creating",         AGENT,      "create error", "CreateError"),
    ("CreateError",      CONTROLLER, "undone",       "NotPresent"),
    ("Ready",            USER,       "update",       "UpdateRequested"),
    ("UpdateRequested",  AGENT,      "updating",     "Updating"),
    ("UpdateRequested",  AGENT,      "ready",        "Ready"),
    ("UpdateRequested",  AGENT,      "update error", "UpdateError"),
    ("Updating",         AGENT,      "ready",        "Ready"),
    ("Updating",         AGENT,      "update error", "UpdateError"),
    ("UpdateError",      CONTROLLER, "undone",       "Ready"),
    ("Ready",            USER,       "delete",       "DeletePrepare"),
    ("DeletePrepare",    CONTROLLER, "prepared",     "DeleteRequested"),
    ("DeleteRequested",  AGENT,      "deleting",     "Deleting"),
    ("DeleteRequested",  AGENT,      "deleted",      "NotPresent"),
    ("DeleteRequested",  AGENT,      "delete error", "DeleteError"),
    ("Deleting",         AGENT,      "deleted",      "NotPresent"),
    ("Deleting",         AGENT,      "delete error", "DeleteError"),
    ("DeleteError",      CONTROLLER, "undone",       "Ready"),
    ("CreateError",      USER,       "delete",       "DeletePrepare"),
    ("UpdateError",      USER,       "delete",       "DeletePrepare"),
    ("DeleteError",      USER,       "delete",       "DeletePrepare"),
    ("UpdateError",      USER,       "update",       "UpdateRequested"),
    ("CreateRequested",  CLOCK,      "timed out",    "CreateError"),
    ("Updating",         CLOCK,      "timed out",    "UpdateError"),
    ("Deleting",         CLOCK,      "timed out",    "DeleteError"),
]  # fmt: skip


@pytest.mark.parametrize("lifecycle", [CLUSTERINST, APPINST], ids=str)
@pytest.mark.parametrize(("state", "actor", "event", "following"), INSTANCE)
def test_an_instance_moves_as_designed_and_only_for_its_actor(
    lifecycle: Lifecycle, state: str, actor: str, event: str, following: str
) -> None:
    assert target(lifecycle, state, event, actor) == following
    others = {USER, AGENT, CONTROLLER, CLOCK} - {actor}
    assert not any(target(lifecycle, state, event, other) for other in others)


def test_a_failed_preparation_returns_to_the_state_before() -> None:
    for origin in ("Ready", "CreateError", "UpdateError", "DeleteError"):
        answer = decide(CLUSTERINST, "DeletePrepare", "in use", CONTROLLER, origin=origin)
        assert isinstance(answer, Move)
        assert answer.target == origin


CLOUDLET_TABLE = [
    # state             actor       event             next
    ("Offline",         USER,       "create",         "Init"),
    ("Offline",         AGENT,      "start",          "Init"),
    ("Ready",           AGENT,      "start",          "Init"),
    ("Init",            AGENT,      "start",          "Init"),
    ("InitOk",          AGENT,      "start",          "Init"),
    ("Init",            CONTROLLER, "acknowledge",    "InitOk"),
    ("InitOk",          AGENT,      "ready",          "Ready"),
    ("InitOk",          AGENT,      "gather failed",  "Offline"),
    ("Ready",           CONTROLLER, "disconnected",   "Offline"),
    ("Ready",           USER,       "upgrade",        "UpdateRequested"),
    ("UpdateRequested", OLD_AGENT,  "upgrading",      "Updating"),
    ("UpdateRequested", CONTROLLER, "acknowledge",    "InitOk"),
    ("UpdateRequested", OLD_AGENT,  "upgrade failed", "UpdateError"),
    ("UpdateRequested", NEW_AGENT,  "ready",          "Ready"),
    ("Updating",        CONTROLLER, "acknowledge",    "InitOk"),
    ("Updating",        NEW_AGENT,  "ready",          "Ready"),
    ("Updating",        OLD_AGENT,  "upgrade failed", "UpdateError"),
    ("UpdateError",     OLD_AGENT,  "serve on",       "UpdateError"),
    ("UpdateError",     USER,       "upgrade",        "UpdateRequested"),
    ("UpdateError",     ADMIN,      "fix",            "Offline"),
    ("Updating",        CLOCK,      "timed out",      "UpdateError"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "actor", "event", "following"), CLOUDLET_TABLE)
def test_a_cloudlet_moves_as_designed(state: str, actor: str, event: str, following: str) -> None:
    assert target(CLOUDLET, state, event, actor) == following


def test_a_failed_upgrade_that_is_settled_is_ready_only_where_an_agent_serves() -> None:
    assert target(CLOUDLET, "UpdateError", "fix", ADMIN, SERVED) == "Ready"


def test_a_stale_ready_of_the_old_agent_does_not_end_an_upgrade() -> None:
    assert target(CLOUDLET, "Updating", "ready", OLD_AGENT) is None
    assert target(CLOUDLET, "Updating", "ready", AGENT) is None


def test_an_administrator_may_delete_a_cloudlet_that_waits_for_its_agent() -> None:
    assert target(CLOUDLET, "Init", "delete", ADMIN) is None
    assert target(CLOUDLET, "Init", "delete", USER, IGNORE_TRANSIENT) is None
    assert target(CLOUDLET, "Init", "delete", ADMIN, IGNORE_TRANSIENT) == "DeletePrepare"
    assert target(CLOUDLET, "DeletePrepare", "in use", CONTROLLER, IGNORE_TRANSIENT) == "Offline"
    assert target(CLOUDLET, "DeletePrepare", "timed out", CLOCK, IGNORE_TRANSIENT) == "Offline"


def test_init_ok_ends_differently_in_an_upgrade() -> None:
    assert target(CLOUDLET, "InitOk", "timed out", CLOCK) == "Offline"
    assert target(CLOUDLET, "InitOk", "timed out", CLOCK, UPGRADING) == "UpdateError"
    assert target(CLOUDLET, "InitOk", "ready", NEW_AGENT, UPGRADING) == "Ready"


# --- leases and systems --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [state.word for state in LEASE.declaration.states])
def test_delete_always_wins(status: str) -> None:
    assert target(LEASE, status, "delete", USER) == "DELETING"


def test_a_lease_leaves_error_only_to_what_was_derived() -> None:
    assert target(LEASE, "ERROR", "recover", USER) is None
    assert target(LEASE, "ERROR", "recover", USER, "derived=ACTIVE") == "ACTIVE"


def test_only_the_clock_starts_and_ends_a_lease() -> None:
    assert target(LEASE, "PENDING", "start", CLOCK) == "STARTING"
    assert isinstance(decide(LEASE, "PENDING", "start", USER), Refusal)
    assert target(LEASE, "ACTIVE", "end", CLOCK) == "TERMINATING"


EDGES = {
    RESERVATION: "(new)>pending pending>active pending>deleted pending>error active>deleted active>error error>deleted",
    EVENT: "(new)>UNDONE UNDONE>IN_PROGRESS IN_PROGRESS>DONE IN_PROGRESS>ERROR IN_PROGRESS>UNDONE DONE>UNDONE",
}


@pytest.mark.parametrize("lifecycle", EDGES, ids=str)
def test_reservations_and_events_have_exactly_the_designed_edges(lifecycle: Lifecycle) -> None:
    assert {f"{move.source}>{move.target}" for move in lifecycle.every_move()} == set(EDGES[lifecycle].split())


def test_a_living_system_moves_freely_between_its_four_states() -> None:
    living = ("stable", "updating", "scaling", "degraded")
    assert all(target(SYSTEM, here, there, CONTROLLER) == there for here in living for there in living if here != there)


@pytest.mark.parametrize("state", ["pending", "failed", "stable", "updating", "scaling", "degraded", "deleting"])
def test_a_system_may_be_deleted_at_any_point(state: str) -> None:
    answer = decide(SYSTEM, state, "delete", USER)
    assert isinstance(answer, Move)
    assert answer.desired == GONE
    assert target(SYSTEM, NEW, "create", USER) == "pending"
