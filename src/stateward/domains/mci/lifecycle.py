"""Lifecycles of the mci domain: MCIs, VMs, resources and records.

The table of a VM is the transition matrix; `force` skips it and pre-empts the running operation. The design calls
`Failed` final, but terminate with force leaves it, so here it is a stable state. A VM about which nothing is known is
Undefined, and so is a VM whose action timed out: no answer is not an answer.

The controller moves an MCI without an operation to the state that its VMs roll up to. `Partial` stands for all mixed
states; the status string names the dominant one (`status_rollup`).
"""

from stateward.lifecycle import (
    BACK, CLOCK, CONTROLLER, DAY, FINAL, FORCE, GONE, HEALER, HOUR, MINUTE, NEW, PROVIDER, STABLE, TRANSITIONAL, USER,
    WORKER, State, action, cancellation, declare, every, failure, hidden, request, resting, step, success, timeout,
)

HOLD = "hold"  # the create was asked to stop at Prepared
RECONCILE = "reconcile"  # somebody asked to take over what the provider shows
TERMINATE_FIRST = "option=terminate"  # what a delete, or the removal of a subnet, does with VMs that live
FORGET = "option=force"


class VmState(State):
    """The states of a VM."""

    CREATING    = "Creating",    TRANSITIONAL, "being provisioned"
    RUNNING     = "Running",     STABLE,       "up and reachable"
    SUSPENDING  = "Suspending",  TRANSITIONAL, "being stopped, to be resumed later"
    SUSPENDED   = "Suspended",   STABLE,       "stopped, can be resumed"
    RESUMING    = "Resuming",    TRANSITIONAL, "being started again"
    REBOOTING   = "Rebooting",   TRANSITIONAL, "being restarted"
    TERMINATING = "Terminating", TRANSITIONAL, "being deleted at the provider"
    TERMINATED  = "Terminated",  FINAL,        "deleted at the provider"
    FAILED      = "Failed",      STABLE,       "creation or an action failed; the error is kept with it"
    UNDEFINED   = "Undefined",   STABLE,       "nobody can say what it is now"


V = VmState

VM_ROWS = (
    #      from                      event              by                 through         to            on error   within
    action(NEW,                      "create",          USER,              V.CREATING,     V.RUNNING,    V.FAILED,  30 * MINUTE),
    action(NEW,                      "adopt",           USER,              V.CREATING,     V.RUNNING,    V.FAILED,  15 * MINUTE),
    success(V.CREATING,              "adopted suspended", CONTROLLER,                      V.SUSPENDED),
    action(V.RUNNING,                "suspend",         USER,              V.SUSPENDING,   V.SUSPENDED,  V.FAILED,  15 * MINUTE),
    action(V.SUSPENDED,              "resume",          USER,              V.RESUMING,     V.RUNNING,    V.FAILED,  15 * MINUTE),
    action(V.RUNNING,                "reboot",          USER,              V.REBOOTING,    V.RUNNING,    V.FAILED,  15 * MINUTE),
    action(V.RUNNING | V.SUSPENDED,  "terminate",       USER,              V.TERMINATING,  V.TERMINATED, V.FAILED,  30 * MINUTE),
    # with force: from any state that is not the end
    action(every(V),                 "suspend",         USER,              V.SUSPENDING,   V.SUSPENDED,  V.FAILED,  15 * MINUTE, FORCE),
    action(every(V),                 "resume",          USER,              V.RESUMING,     V.RUNNING,    V.FAILED,  15 * MINUTE, FORCE),
    action(every(V),                 "reboot",          USER,              V.REBOOTING,    V.RUNNING,    V.FAILED,  15 * MINUTE, FORCE),
    action(every(V),                 "terminate",       USER,              V.TERMINATING,  V.TERMINATED, V.FAILED,  30 * MINUTE, FORCE),
    # what the provider shows, behind our back or when asked again
    step(  V.SUSPENDED | V.UNDEFINED,             "shows running",    PROVIDER,            V.RUNNING),
    step(  V.RUNNING | V.UNDEFINED,               "shows suspended",  PROVIDER,            V.SUSPENDED),
    step(  V.RUNNING | V.SUSPENDED | V.UNDEFINED, "shows terminated", PROVIDER,            V.TERMINATED),
    step(  V.RUNNING | V.SUSPENDED | V.UNDEFINED, "shows failed",     PROVIDER,            V.FAILED),
    step(  V.RUNNING | V.SUSPENDED,               "cannot say",       PROVIDER,            V.UNDEFINED),
    hidden(V.FAILED | V.UNDEFINED,   "reconcile",       USER,                                                       5 * MINUTE),
    step(  V.FAILED,                 "shows running",    PROVIDER,                         V.RUNNING,    needs=RECONCILE),
    step(  V.FAILED,                 "shows suspended",  PROVIDER,                         V.SUSPENDED,  needs=RECONCILE),
    step(  V.FAILED,                 "shows terminated", PROVIDER,                         V.TERMINATED, needs=RECONCILE),
    # terminated at the provider first; then the record goes
    request(V.RUNNING | V.SUSPENDED | V.FAILED | V.UNDEFINED, "delete", USER, V.TERMINATING, GONE,       V.FAILED,  30 * MINUTE),
    request(every(V),                "delete",          USER,              V.TERMINATING,  GONE,         V.FAILED,  30 * MINUTE, FORCE),
    success(V.TERMINATING,           "deleted",         CONTROLLER,                        GONE),
    # the record goes; the journal stays
    step(  V.TERMINATED | V.FAILED,  "remove",          USER | CONTROLLER,                 GONE),
    step(  every(V) | V.TERMINATED,  "remove",          USER | CONTROLLER,                 GONE,         needs=FORCE),
)


class MciState(State):
    """The states of an MCI."""

    PREPARING   = "Preparing",   TRANSITIONAL, "networks, security groups and keys are being made"
    PREPARED    = "Prepared",    TRANSITIONAL, "all is there for its VMs; goes on by itself, unless held"
    CREATING    = "Creating",    TRANSITIONAL, "VMs are being provisioned"
    RUNNING     = "Running",     STABLE,       "all VMs are running"
    SUSPENDING  = "Suspending",  TRANSITIONAL, "VMs are being suspended"
    SUSPENDED   = "Suspended",   STABLE,       "all VMs are suspended"
    RESUMING    = "Resuming",    TRANSITIONAL, "VMs are being resumed"
    REBOOTING   = "Rebooting",   TRANSITIONAL, "VMs are being rebooted"
    TERMINATING = "Terminating", TRANSITIONAL, "VMs are being terminated"
    TERMINATED  = "Terminated",  FINAL,        "all VMs are terminated"
    FAILED      = "Failed",      STABLE,       "its creation failed, or all its VMs have"
    UNDEFINED   = "Undefined",   STABLE,       "nobody can say what its VMs are"
    PARTIAL     = "Partial",     STABLE,       "its VMs are in different states"
    EMPTY       = "Empty",       STABLE,       "it has no VMs"


M = MciState

WORKING = M.CREATING | M.SUSPENDING | M.RESUMING | M.REBOOTING | M.TERMINATING
LIVING = M.RUNNING | M.SUSPENDED | M.PARTIAL | M.UNDEFINED | M.FAILED

MCI_ROWS = (
    #       from                       event             by          through         to             on error     within
    request(NEW,                       "create",         USER,       M.PREPARING,    M.RUNNING,     M.FAILED,    30 * MINUTE),
    step(   M.PREPARING,               "prepared",       CONTROLLER,                 M.PREPARED,    within=30 * MINUTE),
    step(   M.PREPARING,               "prepared",       CONTROLLER,                 M.PREPARED,    within=7 * DAY, needs=HOLD),
    step(   M.PREPARED,                "provision",      CONTROLLER,                 M.CREATING,    within=HOUR),
    step(   M.PREPARED,                "continue",       USER,                       M.CREATING,    within=HOUR,    needs=HOLD),
    request(M.PREPARED,                "withdraw",       USER,       M.TERMINATING,  GONE,          M.FAILED,    30 * MINUTE, HOLD),
    failure(M.PREPARING | M.PREPARED,  "failed",         CONTROLLER,                 M.FAILED),
    timeout(M.PREPARING | M.PREPARED,                                                M.FAILED),
    # one action at a time, on every VM whose state allows it
    request(M.RUNNING | M.PARTIAL,     "suspend",        USER,       M.SUSPENDING,   M.SUSPENDED,   M.PARTIAL,   HOUR),
    request(M.SUSPENDED | M.PARTIAL,   "resume",         USER,       M.RESUMING,     M.RUNNING,     M.PARTIAL,   HOUR),
    request(M.RUNNING | M.PARTIAL,     "reboot",         USER,       M.REBOOTING,    M.RUNNING,     M.PARTIAL,   HOUR),
    request(M.RUNNING | M.SUSPENDED | M.PARTIAL, "terminate", USER,  M.TERMINATING,  M.TERMINATED,  M.PARTIAL,   HOUR),
    request(every(M),                  "suspend",        USER,       M.SUSPENDING,   M.SUSPENDED,   M.PARTIAL,   HOUR,        FORCE),
    request(every(M),                  "resume",         USER,       M.RESUMING,     M.RUNNING,     M.PARTIAL,   HOUR,        FORCE),
    request(every(M),                  "reboot",         USER,       M.REBOOTING,    M.RUNNING,     M.PARTIAL,   HOUR,        FORCE),
    request(every(M),                  "terminate",      USER,       M.TERMINATING,  M.TERMINATED,  M.PARTIAL,   HOUR,        FORCE),
    request(LIVING | M.EMPTY,          "scale out",      USER,       M.CREATING,     M.RUNNING,     M.PARTIAL,   HOUR),
    request(LIVING,                    "scale in",       USER,       M.TERMINATING,  BACK,          M.PARTIAL,   HOUR),
    # machines that others have created; and VMs whose machines stay at their providers
    request(NEW,                       "adopt",          USER,       M.CREATING,     M.RUNNING,     M.FAILED,    HOUR),
    request(LIVING | M.EMPTY,          "adopt",          USER,       M.CREATING,     M.RUNNING,     M.PARTIAL,   HOUR),
    hidden( resting(M),                "deregister",     USER,                                                   HOUR),
    hidden( resting(M),                "refine",         USER,                                                   HOUR),
    hidden( LIVING,                    "reconcile",      USER,                                                   5 * MINUTE),
    # what the VMs add up to when the work is done
    success(WORKING,                   "all running",    CONTROLLER,                 M.RUNNING),
    success(WORKING,                   "all suspended",  CONTROLLER,                 M.SUSPENDED),
    success(WORKING,                   "all terminated", CONTROLLER,                 M.TERMINATED),
    success(WORKING,                   "mixed",          CONTROLLER,                 M.PARTIAL),
    success(WORKING,                   "none left",      CONTROLLER,                 M.EMPTY),
    failure(WORKING,                   "all failed",     CONTROLLER,                 M.FAILED),
    failure(WORKING,                   "none can say",   CONTROLLER,                 M.UNDEFINED),
    failure(M.CREATING,                "undone",         CONTROLLER,                 BACK),
    timeout(WORKING,                                                                 M.UNDEFINED),
    # and at rest, when a VM has changed on its own
    step(   resting(M),                "all running",    CONTROLLER,                 M.RUNNING),
    step(   resting(M),                "all suspended",  CONTROLLER,                 M.SUSPENDED),
    step(   resting(M),                "all terminated", CONTROLLER,                 M.TERMINATED),
    step(   resting(M),                "mixed",          CONTROLLER,                 M.PARTIAL),
    step(   resting(M),                "none left",      CONTROLLER,                 M.EMPTY),
    step(   resting(M),                "all failed",     CONTROLLER,                 M.FAILED),
    step(   resting(M),                "none can say",   CONTROLLER,                 M.UNDEFINED),
    # the record goes; the journal stays
    step(   M.TERMINATED | M.FAILED | M.EMPTY | M.PARTIAL, "delete", USER,           GONE),
    request(LIVING,                    "delete",         USER,       M.TERMINATING,  GONE,          M.PARTIAL,   HOUR,        TERMINATE_FIRST),
    step(   every(M) | M.TERMINATED,   "delete",         USER,                       GONE,          needs=FORGET),
    success(M.TERMINATING,             "deleted",        CONTROLLER,                 GONE),
)

VM  = declare("mci.vm",  VmState,  VM_ROWS,  USER | CONTROLLER | PROVIDER, unknown=VmState.UNDEFINED, about="a virtual machine at a provider")
MCI = declare("mci.mci", MciState, MCI_ROWS, USER | CONTROLLER | CLOCK,                               about="a group of VMs over many clouds, controlled as one")


class ResourceState(State):
    """The states of resources: networks, security groups, keys."""

    CONFIGURING = "Configuring", TRANSITIONAL, "being made at the provider"
    AVAILABLE   = "Available",   STABLE,       "there, to be used"
    DELETING    = "Deleting",    TRANSITIONAL, "being removed at the provider"
    ERROR       = "Error",       STABLE,       "could not be made, is no longer there, or nobody knows"


P = ResourceState
ANYONE = USER | CONTROLLER

PART_ROWS = (
    #      from                    event     by      through        to           on error  within
    action(NEW,                    "create", ANYONE, P.CONFIGURING, P.AVAILABLE, P.ERROR,  10 * MINUTE),
    action(P.ERROR,                "repair", ANYONE, P.CONFIGURING, P.AVAILABLE, P.ERROR,  10 * MINUTE),
    action(P.AVAILABLE | P.ERROR,  "delete", ANYONE, P.DELETING,    GONE,        BACK,     10 * MINUTE),
    step(  every(P),               "forget", USER,                  GONE,        needs=FORCE),
    step(  P.AVAILABLE,            "describe", ANYONE,              P.AVAILABLE),  # other words, the same resource
    step(  P.ERROR,                "describe", ANYONE,              P.ERROR),
    # what the provider shows, behind our back
    step(  P.AVAILABLE,            "shows none",  PROVIDER,         P.ERROR),
    step(  P.ERROR,                "shows again", PROVIDER,         P.AVAILABLE),
)
RESHAPED_ROWS = (
    *PART_ROWS,
    action(P.AVAILABLE,            "reshape", ANYONE, P.CONFIGURING, P.AVAILABLE, BACK,    10 * MINUTE),  # other subnets or rules
)
PARTIES = USER | CONTROLLER | PROVIDER

VNET           = declare("mci.vnet",          ResourceState, RESHAPED_ROWS, PARTIES, unknown=P.ERROR, about="a virtual network with its subnets")
SECURITY_GROUP = declare("mci.securitygroup", ResourceState, RESHAPED_ROWS, PARTIES, unknown=P.ERROR, about="a group of firewall rules")
SSH_KEY        = declare("mci.sshkey",        ResourceState, PART_ROWS,     PARTIES, unknown=P.ERROR, about="a key pair to reach VMs with")


class MciRecordState(State):
    """The only state of passive records."""

    REGISTERED = "Registered", STABLE, "can be used"


R = MciRecordState

RECORD_ROWS = (
    #    from          event       by      to
    step(NEW,          "register", ANYONE, R.REGISTERED),
    step(R.REGISTERED, "change",   ANYONE, R.REGISTERED),
    step(R.REGISTERED, "remove",   ANYONE, GONE),
)

NAMESPACE  = declare("mci.namespace",  MciRecordState, RECORD_ROWS, USER | CONTROLLER, about="a namespace of MCIs and their resources")
CONNECTION = declare("mci.connection", MciRecordState, RECORD_ROWS, USER | CONTROLLER, about="a way to a provider's region, with a driver behind it")
SPEC       = declare("mci.spec",       MciRecordState, RECORD_ROWS, USER | CONTROLLER, about="a size of machine")
IMAGE      = declare("mci.image",      MciRecordState, RECORD_ROWS, USER | CONTROLLER, about="what a machine starts from")
CLAIM      = declare("mci.claim",      MciRecordState, RECORD_ROWS, USER | CONTROLLER, about="which VM has adopted a machine of a provider")
CALL       = declare("mci.call",       MciRecordState, RECORD_ROWS, USER | CONTROLLER, about="what became of a request, for whoever lost the answer")

SETTING    = declare("mci.setting",    MciRecordState, RECORD_ROWS, USER | CONTROLLER, about="a setting of Tumblebug's own server, which its clients store; it steers nothing here")



class CommandState(State):
    """The states of a command on VMs."""

    RUNNING   = "Running",   TRANSITIONAL, "runs on its VMs, or waits to"
    SUCCEEDED = "Succeeded", FINAL,        "ended on every VM, with exit status 0"
    FAILED    = "Failed",    FINAL,        "failed on some VM, or could not run there"
    CANCELLED = "Cancelled", FINAL,        "its processes were ended"


C = CommandState
ENDED_COMMAND = C.SUCCEEDED | C.FAILED | C.CANCELLED

COMMAND_ROWS = (
    #            from           event        by               through    to           on error  within
    request(     NEW,           "run",       USER,            C.RUNNING, C.SUCCEEDED, C.FAILED, 25 * HOUR),
    success(     C.RUNNING,     "succeeded", WORKER | HEALER,            C.SUCCEEDED),
    failure(     C.RUNNING,     "failed",    WORKER | HEALER,            C.FAILED),
    cancellation(C.RUNNING,     "cancelled", WORKER | HEALER,            C.CANCELLED),
    timeout(     C.RUNNING,                                              C.FAILED),
    step(        ENDED_COMMAND, "forget",    CONTROLLER,                 GONE),
)

COMMAND = declare("mci.command", CommandState, COMMAND_ROWS, USER | WORKER | HEALER | CLOCK | CONTROLLER, about="commands on VMs, or a file that is copied there")

LIFECYCLES = (MCI, VM, COMMAND, VNET, SECURITY_GROUP, SSH_KEY, NAMESPACE, CONNECTION, SPEC, IMAGE, CLAIM, CALL, SETTING)
