"""The state machines of the edge domain: ClusterInst, AppInst, Cloudlet.

Users request, agents work and report, and the controller keeps the state; it acts in its own right only to prepare a
delete and to undo an error. Each state names the actors that may leave it, so no two of them can race. A report counts
only with the current operation and generation: `records.report_fencing` checks that before it looks up these tables.
"""

from stateward.lifecycle import (
    ABSENT, ADMIN, AGENT, BACK, CLOCK, CONTROLLER, GONE, MINUTE, NEW, STABLE, TRANSITIONAL, USER,
    Actor, Row, State, action, declare, failure, moving, request, step, success, timeout,
)

OLD_AGENT = Actor("old agent")  # the agent that is being upgraded
NEW_AGENT = Actor("new agent")  # its successor, of the target version

IGNORE_AGENT = "ignore agent"  # overrides that an administrator may put on a call
IGNORE_AGENT_ERRORS = "ignore agent errors"
IGNORE_TRANSIENT = "ignore transient state"
DEPENDENCIES = "dependencies"  # the AppInst's cluster must be made or reserved first
MISSING = "missing"  # the agent's inventory does not have it any more
WAS_READY = "was ready"  # it was Ready before it was re-created
NEVER_READY = "never ready"  # it was deleted before it had ever been Ready
SERVED = "served"  # an agent is connected to the cloudlet
UPGRADING = "upgrading"  # an upgrade of the cloudlet is under way
MAINTAINED = "maintained"  # the cloudlet was in maintenance when its upgrade began

OVERRIDES = frozenset({IGNORE_AGENT, IGNORE_AGENT_ERRORS, IGNORE_TRANSIENT})


class ClusterInstState(State):
    """The states of a ClusterInst."""

    NOT_PRESENT      = "NotPresent",      STABLE,       "does not exist on the cloudlet", ABSENT
    CREATE_REQUESTED = "CreateRequested", TRANSITIONAL, "the agent was asked to create it"
    CREATING         = "Creating",        TRANSITIONAL, "the agent creates it"
    CREATE_ERROR     = "CreateError",     STABLE,       "the create failed; the controller removes what is left"
    READY            = "Ready",           STABLE,       "exists and works as its spec says"
    UPDATE_REQUESTED = "UpdateRequested", TRANSITIONAL, "the agent was asked to change it"
    UPDATING         = "Updating",        TRANSITIONAL, "the agent changes it"
    UPDATE_ERROR     = "UpdateError",     STABLE,       "the update failed; the controller restores the previous spec"
    DELETE_PREPARE   = "DeletePrepare",   TRANSITIONAL, "the controller makes sure that nothing needs it any more"
    DELETE_REQUESTED = "DeleteRequested", TRANSITIONAL, "the agent was asked to delete it"
    DELETING         = "Deleting",        TRANSITIONAL, "the agent deletes it"
    DELETE_ERROR     = "DeleteError",     STABLE,       "the delete failed; the controller brings it back"


class AppInstState(State):
    """The states of an AppInst: those of a ClusterInst, and one for the cluster that it may need first."""

    NOT_PRESENT           = "NotPresent",           STABLE,       "does not exist on the cloudlet", ABSENT
    CREATING_DEPENDENCIES = "CreatingDependencies", TRANSITIONAL, "its cluster is being made or reserved"
    CREATE_REQUESTED      = "CreateRequested",      TRANSITIONAL, "the agent was asked to create it"
    CREATING              = "Creating",             TRANSITIONAL, "the agent creates it"
    CREATE_ERROR          = "CreateError",          STABLE,       "the create failed; the controller removes what is left"
    READY                 = "Ready",                STABLE,       "exists and works as its spec says"
    UPDATE_REQUESTED      = "UpdateRequested",      TRANSITIONAL, "the agent was asked to change it"
    UPDATING              = "Updating",             TRANSITIONAL, "the agent changes it"
    UPDATE_ERROR          = "UpdateError",          STABLE,       "the update failed; the controller restores the previous spec"
    DELETE_PREPARE        = "DeletePrepare",        TRANSITIONAL, "the controller makes sure that nothing needs it any more"
    DELETE_REQUESTED      = "DeleteRequested",      TRANSITIONAL, "the agent was asked to delete it"
    DELETING              = "Deleting",             TRANSITIONAL, "the agent deletes it"
    DELETE_ERROR          = "DeleteError",          STABLE,       "the delete failed; the controller brings it back"


class CloudletState(State):
    """The states of a Cloudlet, as the controller keeps them; a report of the agent is only an event."""

    OFFLINE          = "Offline",         STABLE,       "no agent is connected"
    INIT             = "Init",            TRANSITIONAL, "its agent has yet to connect, or has started and waits for the controller"
    INIT_OK          = "InitOk",          TRANSITIONAL, "the controller has agreed; the agent gathers what it has"
    READY            = "Ready",           STABLE,       "its agent is connected and serves"
    UPDATE_REQUESTED = "UpdateRequested", TRANSITIONAL, "the agent was asked to start its successor"
    UPDATING         = "Updating",        TRANSITIONAL, "the old agent brings up the new one"
    UPDATE_ERROR     = "UpdateError",     STABLE,       "the upgrade failed; an administrator retries or settles it"
    PREPARE_MAINTENANCE = "PrepareMaintenance", TRANSITIONAL, "apps with an auto-provisioning policy are moved to other cloudlets"
    MAINTENANCE      = "Maintenance",     STABLE,       "somebody works there: it gets no new instances"
    DELETE_PREPARE   = "DeletePrepare",   TRANSITIONAL, "the controller makes sure that nothing needs it any more"


def _instance_rows(s: type[ClusterInstState] | type[AppInstState]) -> tuple[Row, ...]:
    """Return the rows that ClusterInst and AppInst share."""
    errors = s.CREATE_ERROR | s.UPDATE_ERROR | s.DELETE_ERROR
    return (
        # Create. A missed "creating" is normal: CreateRequested may go to Ready at once.
        #       from                            event           by          through             to              on error        within
        request(s.NOT_PRESENT,                  "create",       USER,       s.CREATE_REQUESTED, s.READY,        s.CREATE_ERROR, 15 * MINUTE),
        step(   s.CREATE_REQUESTED | s.CREATING, "creating",     AGENT,                          s.CREATING,     within=15 * MINUTE),
        success(s.CREATE_REQUESTED | s.CREATING, "ready",        AGENT,                          s.READY),
        success(s.CREATE_REQUESTED | s.CREATING, "ready",        CONTROLLER,                     s.READY,        needs=IGNORE_AGENT),
        failure(s.CREATE_REQUESTED | s.CREATING, "create error", AGENT,                          s.CREATE_ERROR),
        success(s.CREATE_REQUESTED | s.CREATING, "create error", AGENT,                          s.READY,        needs=IGNORE_AGENT_ERRORS),
        failure(s.CREATE_REQUESTED | s.CREATING, "give up",      CONTROLLER,                     s.CREATE_ERROR),
        timeout(s.CREATE_REQUESTED | s.CREATING,                                                s.CREATE_ERROR),
        step(   s.CREATE_ERROR,                 "undone",       CONTROLLER,                     s.NOT_PRESENT),
        step(   s.CREATE_ERROR,                 "undone",       CONTROLLER,                     s.READY,        needs=WAS_READY),
        request(s.READY,                        "re-create",    CONTROLLER, s.CREATE_REQUESTED, s.READY,        s.CREATE_ERROR, 15 * MINUTE, MISSING),

        # Update. The previous spec is kept with the operation until the end, for the undo.
        request(s.READY | s.UPDATE_ERROR,       "update",       USER,       s.UPDATE_REQUESTED, s.READY,        s.UPDATE_ERROR, 15 * MINUTE),
        step(   s.UPDATE_REQUESTED | s.UPDATING, "updating",     AGENT,                          s.UPDATING,     within=15 * MINUTE),
        success(s.UPDATE_REQUESTED | s.UPDATING, "ready",        AGENT,                          s.READY),
        success(s.UPDATE_REQUESTED | s.UPDATING, "ready",        CONTROLLER,                     s.READY,        needs=IGNORE_AGENT),
        failure(s.UPDATE_REQUESTED | s.UPDATING, "update error", AGENT,                          s.UPDATE_ERROR),
        success(s.UPDATE_REQUESTED | s.UPDATING, "update error", AGENT,                          s.READY,        needs=IGNORE_AGENT_ERRORS),
        failure(s.UPDATE_REQUESTED | s.UPDATING, "give up",      CONTROLLER,                     s.UPDATE_ERROR),
        timeout(s.UPDATE_REQUESTED | s.UPDATING,                                                s.UPDATE_ERROR),
        step(   s.UPDATE_ERROR,                 "undone",       CONTROLLER,                     s.READY),

        # Delete. DeletePrepare refuses new dependents before the existing ones are listed.
        request(s.READY | errors,               "delete",       USER,       s.DELETE_PREPARE,   s.NOT_PRESENT,  s.DELETE_ERROR, 15 * MINUTE),
        request(moving(s),                      "delete",       ADMIN,      s.DELETE_PREPARE,   s.NOT_PRESENT,  s.DELETE_ERROR, 15 * MINUTE, IGNORE_TRANSIENT),
        request(s.READY,                        "expire",       CLOCK,      s.DELETE_PREPARE,   s.NOT_PRESENT,  s.DELETE_ERROR, 15 * MINUTE),
        step(   s.DELETE_PREPARE,               "prepared",     CONTROLLER,                     s.DELETE_REQUESTED, within=15 * MINUTE),
        failure(s.DELETE_PREPARE,               "in use",       CONTROLLER,                     BACK),
        failure(s.DELETE_PREPARE,               "in use",       CONTROLLER,                     s.DELETE_ERROR, needs=IGNORE_TRANSIENT),
        timeout(s.DELETE_PREPARE,                                                               BACK),
        timeout(s.DELETE_PREPARE,                                                               s.DELETE_ERROR, needs=IGNORE_TRANSIENT),
        step(   s.DELETE_REQUESTED | s.DELETING, "deleting",     AGENT,                          s.DELETING,     within=15 * MINUTE),
        success(s.DELETE_REQUESTED | s.DELETING, "deleted",      AGENT,                          s.NOT_PRESENT),
        success(s.DELETE_REQUESTED | s.DELETING, "deleted",      CONTROLLER,                     s.NOT_PRESENT,  needs=IGNORE_AGENT),
        failure(s.DELETE_REQUESTED | s.DELETING, "delete error", AGENT,                          s.DELETE_ERROR),
        success(s.DELETE_REQUESTED | s.DELETING, "delete error", AGENT,                          s.NOT_PRESENT,  needs=IGNORE_AGENT_ERRORS),
        failure(s.DELETE_REQUESTED | s.DELETING, "give up",      CONTROLLER,                     s.DELETE_ERROR),
        timeout(s.DELETE_REQUESTED | s.DELETING,                                                s.DELETE_ERROR),
        step(   s.DELETE_ERROR,                 "undone",       CONTROLLER,                     s.READY),
        step(   s.DELETE_ERROR,                 "undone",       CONTROLLER,                     s.NOT_PRESENT,  needs=NEVER_READY),
    )


A = AppInstState

APPINST_ROWS = (
    #       from                     event                 by          through                  to                  on error        within
    request(A.NOT_PRESENT,           "create",             USER,       A.CREATING_DEPENDENCIES, A.READY,            A.CREATE_ERROR, 30 * MINUTE, DEPENDENCIES),
    step(   A.CREATING_DEPENDENCIES, "dependencies ready",  CONTROLLER,                          A.CREATE_REQUESTED, within=15 * MINUTE),
    failure(A.CREATING_DEPENDENCIES, "dependencies failed", CONTROLLER,                          A.CREATE_ERROR),
    timeout(A.CREATING_DEPENDENCIES,                                                            A.CREATE_ERROR),
    *_instance_rows(AppInstState),
)

C = CloudletState

CLOUDLET_ROWS = (
    # Creation, and an agent that starts (again). "start" counts only with a new notify id.
    #       from                               event            by          through             to               on error        within
    request(NEW | C.OFFLINE,                   "create",        USER,       C.INIT,             C.READY,         C.OFFLINE,      15 * MINUTE),
    step(   C.OFFLINE,                         "start",         AGENT,                          C.INIT,          within=5 * MINUTE),
    step(   C.READY | C.INIT | C.INIT_OK,      "start",         AGENT,                          C.INIT,          within=5 * MINUTE),
    step(   C.INIT,                            "acknowledge",   CONTROLLER,                     C.INIT_OK,       within=5 * MINUTE),
    success(C.INIT_OK,                         "ready",         AGENT,                          C.READY),
    failure(C.INIT | C.INIT_OK,                "gather failed", AGENT,                          C.OFFLINE),
    failure(C.INIT | C.INIT_OK,                "disconnected",  CONTROLLER,                     C.OFFLINE),
    step(   C.READY,                           "disconnected",  CONTROLLER,                     C.OFFLINE),
    timeout(C.INIT | C.INIT_OK,                                                                 C.OFFLINE),

    # Upgrade. The acknowledgement counts only from the old version, "ready" only from the new one.
    request(C.READY | C.UPDATE_ERROR,          "upgrade",       USER,       C.UPDATE_REQUESTED, C.READY,         C.UPDATE_ERROR, 15 * MINUTE),
    request(C.MAINTENANCE,                     "upgrade",       USER,       C.UPDATE_REQUESTED, C.MAINTENANCE,   C.UPDATE_ERROR, 15 * MINUTE),
    step(   C.UPDATE_REQUESTED,                "upgrading",     OLD_AGENT,                      C.UPDATING,      within=15 * MINUTE),
    step(   C.UPDATE_REQUESTED | C.UPDATING,   "acknowledge",   CONTROLLER,                     C.INIT_OK,       within=15 * MINUTE),
    success(C.UPDATE_REQUESTED | C.UPDATING,   "ready",         NEW_AGENT,                      C.READY),
    success(C.UPDATE_REQUESTED | C.UPDATING,   "ready",         NEW_AGENT,                      C.MAINTENANCE,   needs=MAINTAINED),
    success(C.INIT_OK,                         "ready",         NEW_AGENT,                      C.READY,         needs=UPGRADING),
    success(C.INIT_OK,                         "ready",         NEW_AGENT,                      C.MAINTENANCE,   needs=(UPGRADING, MAINTAINED)),
    failure(C.UPDATE_REQUESTED | C.UPDATING,   "upgrade failed", OLD_AGENT,                      C.UPDATE_ERROR),
    failure(C.INIT_OK,                         "upgrade failed", OLD_AGENT,                      C.UPDATE_ERROR,  needs=UPGRADING),
    timeout(C.UPDATE_REQUESTED | C.UPDATING,                                                    C.UPDATE_ERROR),
    timeout(C.INIT_OK,                                                                          C.UPDATE_ERROR,  needs=UPGRADING),
    step(   C.UPDATE_ERROR,                    "serve on",      OLD_AGENT,                      C.UPDATE_ERROR),
    step(   C.UPDATE_ERROR,                    "fix",           ADMIN,                          C.READY,         needs=SERVED),
    step(   C.UPDATE_ERROR,                    "fix",           ADMIN,                          C.MAINTENANCE,   needs=(SERVED, MAINTAINED)),
    step(   C.UPDATE_ERROR,                    "fix",           ADMIN,                          C.OFFLINE),

    # Hand-over to another installation of the agent; the one before is disconnected.
    step(   C.READY | C.OFFLINE,               "handover",      ADMIN,                          C.OFFLINE),
    step(   C.MAINTENANCE,                     "handover",      ADMIN,                          C.MAINTENANCE),

    # The policies for missing instances and orphans may be changed while no agent starts.
    step(   C.READY,                           "change",        USER,                           C.READY),
    step(   C.OFFLINE,                         "change",        USER,                           C.OFFLINE),
    step(   C.MAINTENANCE,                     "change",        USER,                           C.MAINTENANCE),

    # Maintenance. Agents may come and go meanwhile; a cancelled preparation leaves what it has moved where it is.
    action( C.READY | C.OFFLINE,               "maintain",      USER,       C.PREPARE_MAINTENANCE, C.MAINTENANCE, BACK,          60 * MINUTE),
    step(   C.MAINTENANCE,                     "resume",        USER,                           C.READY,         needs=SERVED),
    step(   C.MAINTENANCE,                     "resume",        USER,                           C.OFFLINE),

    # Delete. In Init no agent serves the cloudlet, so an administrator need not wait for one.
    request(C.READY | C.OFFLINE | C.UPDATE_ERROR | C.MAINTENANCE, "delete", USER, C.DELETE_PREPARE, GONE,         BACK,           5 * MINUTE),
    request(C.INIT,                            "delete",        ADMIN,      C.DELETE_PREPARE,   GONE,            C.OFFLINE,      5 * MINUTE, IGNORE_TRANSIENT),
    success(C.DELETE_PREPARE,                  "deleted",       CONTROLLER,                     GONE),
    failure(C.DELETE_PREPARE,                  "in use",        CONTROLLER,                     BACK),
    failure(C.DELETE_PREPARE,                  "in use",        CONTROLLER,                     C.OFFLINE,       needs=IGNORE_TRANSIENT),
    timeout(C.DELETE_PREPARE,                                                                   BACK),
    timeout(C.DELETE_PREPARE,                                                                   C.OFFLINE,       needs=IGNORE_TRANSIENT),
)


class EdgeRecordState(State):
    """The one state of passive records: flavors, apps, policies."""

    DEFINED = "Defined", STABLE, "can be used"


class ControllerState(State):
    """The one state of a controller: a process that agents are connected to."""

    LISTENING = "Listening", STABLE, "agents may be connected to it"


class MeasuresState(State):
    """The one state of a cloudlet's measures."""

    KEPT = "Kept", STABLE, "has the last loads that the agent reported"


R, L, M = EdgeRecordState, ControllerState, MeasuresState

RECORD_ROWS = (
    #    from       event     by                 to
    step(NEW,       "create", USER | CONTROLLER, R.DEFINED),
    step(R.DEFINED, "update", USER | CONTROLLER, R.DEFINED),
    step(R.DEFINED, "delete", USER,              GONE),
)

CONTROLLER_ROWS = (
    #    from         event     by          to
    step(NEW,         "listen", CONTROLLER, L.LISTENING),
    step(L.LISTENING, "leave",  CONTROLLER, GONE),
    step(L.LISTENING, "lapse",  CLOCK,      GONE),
)

MEASURES_ROWS = (
    #    from    event      by          to
    step(NEW,    "measure", CONTROLLER, M.KEPT),
    step(M.KEPT, "forget",  CONTROLLER, GONE),
)

INSTANCE_ACTORS = USER | AGENT | CONTROLLER | CLOCK
RECORD_ACTORS = USER | CONTROLLER

CLUSTERINST = declare("edge.clusterinst", ClusterInstState, _instance_rows(ClusterInstState), INSTANCE_ACTORS, initial=ClusterInstState.NOT_PRESENT, about="a cluster on a cloudlet")
APPINST     = declare("edge.appinst",     AppInstState,     APPINST_ROWS,                     INSTANCE_ACTORS, initial=AppInstState.NOT_PRESENT,     about="an app in a cluster")
CLOUDLET    = declare("edge.cloudlet",    CloudletState,    CLOUDLET_ROWS,                    INSTANCE_ACTORS | OLD_AGENT | NEW_AGENT,              about="an edge site, worked by its agent")
FLAVOR      = declare("edge.flavor",      EdgeRecordState,  RECORD_ROWS,                      RECORD_ACTORS,                                        about="a size of node")
APP         = declare("edge.app",         EdgeRecordState,  RECORD_ROWS,                      RECORD_ACTORS,                                        about="what an app instance runs")
AUTOSCALE   = declare("edge.autoscale",   EdgeRecordState,  RECORD_ROWS,                      RECORD_ACTORS,                                        about="how many nodes a cluster has, by its load")
AUTOPROV    = declare("edge.autoprov",    EdgeRecordState,  RECORD_ROWS,                      RECORD_ACTORS,                                        about="on which cloudlets an app is deployed, by demand")
LISTENER    = declare("edge.controller",  ControllerState,  CONTROLLER_ROWS,                  CONTROLLER | CLOCK,                                 about="a process that agents are connected to")
MEASURES    = declare("edge.measures",    MeasuresState,    MEASURES_ROWS,                    CONTROLLER,                                           about="the loads on a cloudlet, as its agent measured them")

LIFECYCLES = (CLUSTERINST, APPINST, CLOUDLET, FLAVOR, APP, AUTOSCALE, AUTOPROV, LISTENER, MEASURES)
