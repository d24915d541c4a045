"""The state machines of the systems domain: systems with their parts, changes and jobs, secrets, nodes.

A living system follows its services (`rollup`): its `updating` and `scaling` end when theirs do, and theirs have a
deadline, so the system's own is a net below the net. A service follows what the controller observes of its instances.
"""

from stateward.lifecycle import (
    ADMIN, AGENT, CLOCK, CONTROLLER, DAY, GONE, HEALER, HOUR, MINUTE, NEW, USER, WORKER,
    State, StateClass, action, cancellation, declare, every, failure, request, step, success, timeout,
)


class SystemState(State):
    """The states of a system."""

    PENDING  = "pending",  StateClass.TRANSITIONAL, "being validated and initialised"
    FAILED   = "failed",   StateClass.STABLE,       "could not be initialised"
    STABLE   = "stable",   StateClass.STABLE,       "all services are as they were defined"
    UPDATING = "updating", StateClass.TRANSITIONAL, "a service takes on a new definition"
    SCALING  = "scaling",  StateClass.TRANSITIONAL, "a service has more or fewer instances than it is to have"
    DEGRADED = "degraded", StateClass.STABLE,       "a service is not as it should be"
    DELETING = "deleting", StateClass.TRANSITIONAL, "being torn down and removed"


Y = SystemState

LIVING = Y.STABLE | Y.UPDATING | Y.SCALING | Y.DEGRADED

SYSTEM_ROWS = (
    #       from                   event       by          through      to          on error   within
    action( NEW,                   "create",   USER,       Y.PENDING,   Y.STABLE,   Y.FAILED,  10 * MINUTE),
    action( Y.FAILED,              "retry",    USER,       Y.PENDING,   Y.STABLE,   Y.FAILED,  10 * MINUTE),
    action( every(Y),              "delete",   USER,       Y.DELETING,  GONE,       Y.FAILED,  HOUR),
    # what the services add up to
    step(   LIVING,                "updating", CONTROLLER,              Y.UPDATING, within=2 * HOUR),
    step(   LIVING,                "scaling",  CONTROLLER,              Y.SCALING,  within=2 * HOUR),
    success(Y.UPDATING | Y.SCALING, "stable",  CONTROLLER,              Y.STABLE),
    failure(Y.UPDATING | Y.SCALING, "degraded", CONTROLLER,             Y.DEGRADED),
    timeout(Y.UPDATING | Y.SCALING,                                     Y.DEGRADED),
    step(   Y.STABLE | Y.DEGRADED, "stable",   CONTROLLER,              Y.STABLE),
    step(   Y.STABLE | Y.DEGRADED, "degraded", CONTROLLER,              Y.DEGRADED),
)


class ServiceState(State):
    """The states of a service."""

    PENDING  = "pending",  StateClass.TRANSITIONAL, "defined, not observed yet"
    UPDATING = "updating", StateClass.TRANSITIONAL, "its instances take on a new definition, or wait for what they need"
    SCALING  = "scaling",  StateClass.TRANSITIONAL, "has more or fewer instances than it is to have"
    STABLE   = "stable",   StateClass.STABLE,       "as defined"
    DEGRADED = "degraded", StateClass.STABLE,       "an instance has crashed or is unhealthy"
    FAILED   = "failed",   StateClass.STABLE,       "made no progress in time"
    DELETING = "deleting", StateClass.TRANSITIONAL, "its instances are being stopped"


V = ServiceState

MOVING = V.PENDING | V.UPDATING | V.SCALING
ALIVE = MOVING | V.STABLE | V.DEGRADED | V.FAILED

SERVICE_ROWS = (
    #       from                             event        by          through      to          on error   within
    step(   NEW,                             "define",    CONTROLLER,              V.PENDING,  within=15 * MINUTE),
    step(   ALIVE,                           "updating",  CONTROLLER,              V.UPDATING, within=30 * MINUTE),
    step(   ALIVE,                           "scaling",   CONTROLLER,              V.SCALING,  within=30 * MINUTE),
    success(MOVING,                          "stable",    CONTROLLER,              V.STABLE),
    failure(MOVING,                          "degraded",  CONTROLLER,              V.DEGRADED),
    timeout(MOVING,                                                                V.FAILED),
    step(   V.STABLE | V.DEGRADED | V.FAILED, "stable",   CONTROLLER,              V.STABLE),
    step(   V.STABLE | V.DEGRADED | V.FAILED, "degraded", CONTROLLER,              V.DEGRADED),
    action( every(V),                        "delete",    CONTROLLER, V.DELETING,  GONE,       V.FAILED,  30 * MINUTE),
)


class NodePoolState(State):
    """The states of a node pool."""

    PENDING  = "pending",  StateClass.TRANSITIONAL, "defined, not observed yet"
    SCALING  = "scaling",  StateClass.TRANSITIONAL, "has more or fewer nodes than it is to have"
    UPDATING = "updating", StateClass.TRANSITIONAL, "its nodes take on a new definition"
    STABLE   = "stable",   StateClass.STABLE,       "as defined"
    FAILED   = "failed",   StateClass.STABLE,       "made no progress in time"
    DELETING = "deleting", StateClass.TRANSITIONAL, "its nodes are being released"


N = NodePoolState

BUSY = N.PENDING | N.SCALING | N.UPDATING

NODEPOOL_ROWS = (
    #       from                     event       by          through      to          on error   within
    step(   NEW,                     "define",   CONTROLLER,              N.PENDING,  within=15 * MINUTE),
    step(   BUSY | N.STABLE | N.FAILED, "updating", CONTROLLER,           N.UPDATING, within=30 * MINUTE),
    step(   BUSY | N.STABLE | N.FAILED, "scaling", CONTROLLER,            N.SCALING,  within=30 * MINUTE),
    success(BUSY,                    "stable",   CONTROLLER,              N.STABLE),
    failure(BUSY,                    "failed",   CONTROLLER,              N.FAILED),
    timeout(BUSY,                                                         N.FAILED),
    step(   N.STABLE | N.FAILED,     "stable",   CONTROLLER,              N.STABLE),
    action( every(N),                "delete",   CONTROLLER, N.DELETING,  GONE,       N.FAILED,  30 * MINUTE),
)


class DeployState(State):
    """The states of a deploy."""

    PENDING     = "pending",     StateClass.TRANSITIONAL, "asked for"
    ACCEPTED    = "accepted",    StateClass.TRANSITIONAL, "holds its locks, waits to be worked"
    IN_PROGRESS = "in progress", StateClass.TRANSITIONAL, "its subtree takes on the definition"
    SUCCEEDED   = "succeeded",   StateClass.FINAL
    FAILED      = "failed",      StateClass.FINAL
    CANCELLED   = "cancelled",   StateClass.FINAL


P = DeployState

OPEN_DEPLOY = P.PENDING | P.ACCEPTED | P.IN_PROGRESS

STARTED = P.ACCEPTED | P.IN_PROGRESS

DEPLOY_ROWS = (
    #       from           event        by               through    to             on error  within
    request(NEW,           "deploy",    USER,            P.PENDING, P.SUCCEEDED,   P.FAILED, 5 * MINUTE),
    step(   P.PENDING,     "accepted",  CONTROLLER,                 P.ACCEPTED,    within=30 * MINUTE),
    step(   STARTED,       "started",   WORKER,                     P.IN_PROGRESS, within=2 * HOUR),
    success(P.IN_PROGRESS, "succeeded", WORKER | HEALER,            P.SUCCEEDED),
    failure(OPEN_DEPLOY,   "failed",    WORKER | HEALER | CONTROLLER, P.FAILED),
    timeout(OPEN_DEPLOY,                                            P.FAILED),
    failure(P.PENDING,     "gave up",   CLOCK,                      P.FAILED),
    cancellation(P.PENDING, "cancel",   USER,                       P.CANCELLED),
    # one that has begun goes back to the definition before, and only then is cancelled
    step(   STARTED,       "cancel",    USER,                       P.IN_PROGRESS, within=2 * HOUR),
    cancellation(STARTED,  "cancelled", WORKER | HEALER,            P.CANCELLED),
    # records are not kept for ever
    step(   P.SUCCEEDED | P.FAILED | P.CANCELLED, "forget", CONTROLLER, GONE),
)


class TeardownState(State):
    """The states of a teardown."""

    PENDING     = "pending",     StateClass.TRANSITIONAL, "holds the system's lock, waits to be worked"
    IN_PROGRESS = "in progress", StateClass.TRANSITIONAL, "services are being stopped"
    SUCCEEDED   = "succeeded",   StateClass.FINAL
    FAILED      = "failed",      StateClass.FINAL


T = TeardownState

TEARDOWN_ROWS = (
    #       from                       event        by               through    to             on error  within
    request(NEW,                       "teardown",  USER,            T.PENDING, T.SUCCEEDED,   T.FAILED, 30 * MINUTE),
    step(   T.PENDING,                 "started",   WORKER,                     T.IN_PROGRESS, within=HOUR),
    success(T.IN_PROGRESS,             "succeeded", WORKER | HEALER,            T.SUCCEEDED),
    failure(T.PENDING | T.IN_PROGRESS, "failed",    WORKER | HEALER,            T.FAILED),
    timeout(T.PENDING | T.IN_PROGRESS,                                          T.FAILED),
    failure(T.PENDING,                 "gave up",   CLOCK,                      T.FAILED),
    step(   T.SUCCEEDED | T.FAILED,    "forget",    CONTROLLER,                 GONE),
)


class SecretState(State):
    """The states of a secret."""

    STORED = "stored", StateClass.STABLE, "its value is encrypted in the database"


S = SecretState

SECRET_ROWS = (
    #    from      event        by          to
    step(NEW,      "create",    ADMIN,      S.STORED),
    step(S.STORED, "update",    ADMIN,      S.STORED),
    step(S.STORED, "reencrypt", CONTROLLER, S.STORED),  # the same value, with another key
    step(S.STORED, "delete",    ADMIN,      GONE),
)


class RotationState(State):
    """The states of the key rotation of a namespace."""

    ROTATING = "rotating", StateClass.TRANSITIONAL, "secrets are being encrypted with the first key"
    ROTATED  = "rotated",  StateClass.STABLE,       "all secrets were encrypted with the first key"
    FAILED   = "failed",   StateClass.STABLE,       "a secret could not be decrypted"


K = RotationState

ROTATION_ROWS = (
    #      from                  event     by     through      to         on error   within
    action(NEW,                  "rotate", ADMIN, K.ROTATING,  K.ROTATED, K.FAILED,  HOUR),
    action(K.ROTATED | K.FAILED, "rotate", ADMIN, K.ROTATING,  K.ROTATED, K.FAILED,  HOUR),
    step(  K.ROTATED | K.FAILED, "delete", ADMIN,              GONE),
)


class JobState(State):
    """The states of a job; they do not count for the state of its system."""

    ACTIVE    = "active",    StateClass.STABLE,       "runs by its schedule, with deploys, and on request"
    SUSPENDED = "suspended", StateClass.STABLE,       "runs on request alone"
    DELETING  = "deleting",  StateClass.TRANSITIONAL, "its runs are being ended and removed"


J = JobState

JOB_ROWS = (
    #       from         event      by                 through      to           on error     within
    step(   NEW,         "define",  CONTROLLER,                     J.ACTIVE),
    step(   J.ACTIVE,    "change",  CONTROLLER,                     J.ACTIVE),
    step(   J.SUSPENDED, "change",  CONTROLLER,                     J.SUSPENDED),
    step(   J.ACTIVE,    "fire",    CLOCK,                          J.ACTIVE),
    step(   J.ACTIVE,    "suspend", USER | CONTROLLER,              J.SUSPENDED),
    step(   J.SUSPENDED, "resume",  USER | CONTROLLER,              J.ACTIVE),
    action( every(J),    "delete",  CONTROLLER,        J.DELETING,  GONE,        J.SUSPENDED, 30 * MINUTE),
)


class JobRunState(State):
    """The states of a run of a job."""

    PENDING   = "pending",   StateClass.TRANSITIONAL, "waits to be worked, or for the end of a run that it replaces"
    RUNNING   = "running",   StateClass.TRANSITIONAL, "its instances run, or are being stopped"
    SUCCEEDED = "succeeded", StateClass.FINAL
    FAILED    = "failed",    StateClass.FINAL,        "too many instances failed, or it passed its deadline"
    CANCELLED = "cancelled", StateClass.FINAL


R = JobRunState

OPEN_RUN = R.PENDING | R.RUNNING
ENDED_RUN = R.SUCCEEDED | R.FAILED | R.CANCELLED

# A job says itself how long its runs may take: at most seven days, and the table has one more.
JOBRUN_ROWS = (
    #            from       event        by                         through    to           on error  within
    request(     NEW,       "run",       USER | CONTROLLER | CLOCK, R.PENDING, R.SUCCEEDED, R.FAILED, 8 * DAY),
    step(        R.PENDING, "started",   WORKER,                               R.RUNNING,   within=8 * DAY),
    step(        R.RUNNING, "observed",  CONTROLLER,                           R.RUNNING,   within=8 * DAY),
    success(     R.RUNNING, "succeeded", WORKER | HEALER,                      R.SUCCEEDED),
    failure(     OPEN_RUN,  "failed",    WORKER | HEALER,                      R.FAILED),
    timeout(     OPEN_RUN,                                                     R.FAILED),
    cancellation(R.PENDING, "cancel",    USER | CONTROLLER | CLOCK,            R.CANCELLED),
    # one that has begun stops its instances, and only then is cancelled
    step(        R.RUNNING, "cancel",    USER | CONTROLLER | CLOCK,            R.RUNNING,   within=HOUR),
    cancellation(OPEN_RUN,  "cancelled", WORKER | HEALER,                      R.CANCELLED),
    step(        ENDED_RUN, "forget",    CONTROLLER,                           GONE),
)


class SystemNodeState(State):
    """The states of a node."""

    REGISTERED = "registered", StateClass.STABLE,       "its agent has yet to connect"
    READY      = "ready",      StateClass.STABLE,       "its agent has connected, and it takes instances"
    DRAINING   = "draining",   StateClass.TRANSITIONAL, "its instances are being moved to other nodes"
    CORDONED   = "cordoned",   StateClass.STABLE,       "takes no new instances"
    LOST       = "lost",       StateClass.STABLE,       "did not renew its lease; its instances are replaced elsewhere"


H = SystemNodeState

SERVING = H.READY | H.DRAINING | H.CORDONED

NODE_ROWS = (
    #       from                     event       by          through      to          on error     within
    step(   NEW,                     "register", ADMIN,                   H.REGISTERED),
    step(   H.REGISTERED | H.LOST,   "ready",    CONTROLLER,              H.READY),
    step(   H.LOST,                  "cordoned", CONTROLLER,              H.CORDONED),  # it was so before
    step(   H.READY | H.CORDONED,    "lost",     CONTROLLER,              H.LOST),
    request(H.READY | H.CORDONED,    "drain",    ADMIN,      H.DRAINING,  H.CORDONED, H.CORDONED,  2 * HOUR),
    success(H.DRAINING,              "drained",  CONTROLLER,              H.CORDONED),
    failure(H.DRAINING,              "lost",     CONTROLLER,              H.LOST),
    timeout(H.DRAINING,                                                   H.CORDONED),
    cancellation(H.DRAINING,         "uncordon", ADMIN,                   H.READY),
    step(   H.CORDONED,              "uncordon", ADMIN,                   H.READY),
    step(   H.REGISTERED | H.READY | H.CORDONED | H.LOST, "delete", ADMIN, GONE),
)


class InstanceState(State):
    """The states of an instance on a node: what is wanted of it; its agent reports how it is."""

    PLACED  = "placed",  StateClass.STABLE, "is to run on its node"
    HALTING = "halting", StateClass.STABLE, "an instance of a job: is to be stopped on its node, which keeps its log"
    KEPT    = "kept",    StateClass.STABLE, "an instance of a job: has ended, and its node keeps its log"
    LEAVING = "leaving", StateClass.STABLE, "is to be stopped and removed on its node"


I = InstanceState  # noqa: E741 - the initials of the tables

TAKES_ROOM = I.PLACED | I.HALTING | I.LEAVING
"""The states in which an instance has a slot of its node, and its resources."""

INSTANCE_ROWS = (
    #    from                                        event     by          to
    step(NEW,                                        "place",  CONTROLLER, I.PLACED),
    step(I.PLACED,                                   "report", AGENT,      I.PLACED),
    step(I.PLACED,                                   "halt",   CONTROLLER, I.HALTING),
    step(I.PLACED | I.HALTING,                       "keep",   CONTROLLER, I.KEPT),
    step(I.PLACED | I.KEPT,                          "stop",   CONTROLLER, I.LEAVING),
    step(I.PLACED | I.HALTING | I.KEPT | I.LEAVING,  "gone",   CONTROLLER, GONE),
)

class AddressState(State):
    """The states of an address: a port of a host, which one service has, whichever namespace it is in."""

    HELD = "held", StateClass.STABLE, "services have it, or open deploys want it"


A = AddressState

ADDRESS_ROWS = (
    #    from    event      by          to
    step(NEW,    "hold",    CONTROLLER, A.HELD),
    step(A.HELD, "hold",    CONTROLLER, A.HELD),
    step(A.HELD, "release", CONTROLLER, GONE),
)

class UsageState(State):
    """The states of a usage: how many instances a system or a namespace has at most."""

    COUNTED = "counted", StateClass.STABLE, "deploys add to it, and count again before it reaches a limit"


U = UsageState

USAGE_ROWS = (
    #    from       event     by          to
    step(NEW,       "count",  CONTROLLER, U.COUNTED),
    step(U.COUNTED, "count",  CONTROLLER, U.COUNTED),
    step(U.COUNTED, "forget", CONTROLLER, GONE),
)

CREW = USER | CONTROLLER | WORKER | HEALER | CLOCK

SYSTEM   = declare("systems.system",   SystemState,   SYSTEM_ROWS,   CREW, about="a tree of services")
SERVICE  = declare("systems.service",  ServiceState,  SERVICE_ROWS,  CREW, about="a service and its instances")
NODEPOOL = declare("systems.nodepool", NodePoolState, NODEPOOL_ROWS, CREW, about="the machines that services run on")
DEPLOY   = declare("systems.deploy",   DeployState,   DEPLOY_ROWS,   CREW, about="a change of a subtree's definition")
TEARDOWN = declare("systems.teardown", TeardownState, TEARDOWN_ROWS, CREW, about="the removal of all services of a system")
SECRET   = declare("systems.secret",   SecretState,   SECRET_ROWS,   ADMIN | CONTROLLER, about="a value that only instances get")
ROTATION = declare("systems.rotation", RotationState, ROTATION_ROWS, ADMIN | CREW, about="the change of the key of all secrets")
JOB      = declare("systems.job",      JobState,      JOB_ROWS,      CREW, about="a command that runs to its end, and its schedule")
JOBRUN   = declare("systems.jobrun",   JobRunState,   JOBRUN_ROWS,   CREW, about="a run of a job")
NODE     = declare("systems.node",     SystemNodeState, NODE_ROWS,     ADMIN | CREW, about="a host whose agent runs instances")
INSTANCE = declare("systems.instance", InstanceState, INSTANCE_ROWS, AGENT | CONTROLLER, about="an instance on a node")
ADDRESS  = declare("systems.address",  AddressState,  ADDRESS_ROWS,  CONTROLLER, about="a port that services have")
USAGE    = declare("systems.usage",    UsageState,    USAGE_ROWS,    CONTROLLER, about="how many instances there are at most")

LIFECYCLES = (SYSTEM, SERVICE, NODEPOOL, DEPLOY, TEARDOWN, SECRET, ROTATION, JOB, JOBRUN, NODE, INSTANCE, ADDRESS, USAGE)
