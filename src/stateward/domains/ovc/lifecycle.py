"""The state machines of the ovc domain: VM, cloudspace, account, disk, image, node.

An object whose action fails returns to its former state, with the error. If the action cannot be undone (a deploy or a
destroy that is half done), the object goes to ERROR, where both can be tried again. An object that was described and
never created can be destroyed; otherwise it would outlive its parent. The controller acts for a parent whose children are
deleted, restored or destroyed with it, the clock for the retention of the recycle bin.

A VM at rest follows the power that its node shows: one that lost its power is HALTED. A cloudspace has a virtual
firewall, which is a machine too. A move or a restart of the firewall does not change the state of the cloudspace.
"""

from stateward.lifecycle import (
    ADMIN, BACK, CLOCK, CONTROLLER, FINAL, HOUR, MINUTE, NEW, PROVIDER, STABLE, TRANSITIONAL, USER,
    State, action, declare, hidden, step,
)

ASKED = USER | CONTROLLER
"""The actors of most actions: the owner, or the controller for the parent."""

DUE = USER | CONTROLLER | CLOCK
"""The actors that destroy an object in the recycle bin: the same, or the timer of its retention."""


class OvcVmState(State):
    """The states of a virtual machine."""

    VIRTUAL        = "VIRTUAL",        STABLE,       "described, not deployed yet"
    DEPLOYING      = "DEPLOYING",      TRANSITIONAL
    RUNNING        = "RUNNING",        STABLE
    PAUSING        = "PAUSING",        TRANSITIONAL
    PAUSED         = "PAUSED",         STABLE,       "frozen in memory"
    RESUMING       = "RESUMING",       TRANSITIONAL
    STOPPING       = "STOPPING",       TRANSITIONAL
    HALTED         = "HALTED",         STABLE,       "powered off"
    STARTING       = "STARTING",       TRANSITIONAL
    REBOOTING      = "REBOOTING",      TRANSITIONAL
    RESETTING      = "RESETTING",      TRANSITIONAL
    ADDING_DISK    = "ADDING_DISK",    TRANSITIONAL
    ATTACHING_DISK = "ATTACHING_DISK", TRANSITIONAL
    DETACHING_DISK = "DETACHING_DISK", TRANSITIONAL
    DELETING       = "DELETING",       TRANSITIONAL
    DELETED        = "DELETED",        STABLE,       "in the recycle bin"
    RESTORING      = "RESTORING",      TRANSITIONAL
    DESTROYING     = "DESTROYING",     TRANSITIONAL
    DESTROYED      = "DESTROYED",      FINAL,        "gone for good"
    ERROR          = "ERROR",          STABLE,       "half done; deploy or destroy again"


V = OvcVmState

VM_ROWS = (
    #      from                            action         by                  through           to           on error   within
    step(  NEW,                            "define",      ASKED,                                V.VIRTUAL),
    action(V.VIRTUAL | V.ERROR,            "deploy",      ASKED,              V.DEPLOYING,      V.RUNNING,   V.ERROR,   30 * MINUTE),
    action(V.RUNNING,                      "pause",       ASKED,              V.PAUSING,        V.PAUSED,    BACK,      5 * MINUTE),
    action(V.PAUSED,                       "resume",      ASKED,              V.RESUMING,       V.RUNNING,   BACK,      5 * MINUTE),
    action(V.HALTED,                       "start",       ASKED,              V.STARTING,       V.RUNNING,   BACK,      10 * MINUTE),
    action(V.RUNNING | V.PAUSED,           "stop",        ASKED,              V.STOPPING,       V.HALTED,    BACK,      10 * MINUTE),
    action(V.RUNNING | V.PAUSED,           "reboot",      ASKED,              V.REBOOTING,      V.RUNNING,   BACK,      10 * MINUTE),
    action(V.RUNNING,                      "reset",       ASKED,              V.RESETTING,      V.RUNNING,   BACK,      10 * MINUTE),
    action(V.RUNNING | V.PAUSED | V.HALTED, "add disk",    ASKED,              V.ADDING_DISK,    BACK,        BACK,      10 * MINUTE),
    action(V.RUNNING | V.PAUSED | V.HALTED, "attach disk", ASKED,              V.ATTACHING_DISK, BACK,        BACK,      10 * MINUTE),
    action(V.RUNNING | V.PAUSED | V.HALTED, "detach disk", ASKED,              V.DETACHING_DISK, BACK,        BACK,      10 * MINUTE),
    action(V.RUNNING | V.PAUSED | V.HALTED, "delete",      ASKED,              V.DELETING,       V.DELETED,   BACK,      15 * MINUTE),
    action(V.DELETED,                      "restore",     ASKED,              V.RESTORING,      V.HALTED,    BACK,      15 * MINUTE),
    action(V.VIRTUAL | V.RUNNING | V.PAUSED | V.HALTED | V.ERROR, "destroy", ASKED, V.DESTROYING,     V.DESTROYED, V.ERROR,   30 * MINUTE),
    action(V.DELETED,                      "destroy",     DUE,                V.DESTROYING,     V.DESTROYED, V.ERROR,   30 * MINUTE),
    hidden(V.RUNNING | V.PAUSED | V.HALTED, "migrate",     ADMIN | CONTROLLER,                                          HOUR),
    # drift: the power that its node shows
    step(  V.RUNNING | V.PAUSED,           "shows off",    PROVIDER,                            V.HALTED),
    step(  V.RUNNING,                      "shows frozen", PROVIDER,                            V.PAUSED),
    step(  V.PAUSED,                       "shows on",     PROVIDER,                            V.RUNNING),
)


class CloudspaceState(State):
    """The states of a cloudspace."""

    VIRTUAL    = "VIRTUAL",    STABLE,       "described, not deployed yet"
    DEPLOYING  = "DEPLOYING",  TRANSITIONAL
    DEPLOYED   = "DEPLOYED",   STABLE
    DISABLING  = "DISABLING",  TRANSITIONAL
    DISABLED   = "DISABLED",   STABLE
    ENABLING   = "ENABLING",   TRANSITIONAL
    PAUSING    = "PAUSING",    TRANSITIONAL
    PAUSED     = "PAUSED",     STABLE,       "an administrator has stopped its virtual firewall"
    RESUMING   = "RESUMING",   TRANSITIONAL
    RESETTING  = "RESETTING",  TRANSITIONAL
    DELETING   = "DELETING",   TRANSITIONAL
    DELETED    = "DELETED",    STABLE,       "in the recycle bin"
    RESTORING  = "RESTORING",  TRANSITIONAL
    DESTROYING = "DESTROYING", TRANSITIONAL
    DESTROYED  = "DESTROYED",  FINAL,        "gone for good"
    ERROR      = "ERROR",      STABLE,       "half done; deploy or destroy again"


S = CloudspaceState

CLOUDSPACE_ROWS = (
    #      from                                action      by      through        to           on error   within
    step(  NEW,                                "define",   ASKED,                 S.VIRTUAL),
    action(S.VIRTUAL | S.ERROR,                "deploy",   ASKED,  S.DEPLOYING,   S.DEPLOYED,  S.ERROR,   30 * MINUTE),
    action(S.DEPLOYED,                         "disable",  ASKED,  S.DISABLING,   S.DISABLED,  BACK,      10 * MINUTE),
    action(S.DISABLED,                         "enable",   ASKED,  S.ENABLING,    S.DEPLOYED,  BACK,      10 * MINUTE),
    action(S.DEPLOYED,                         "pause",    ADMIN,  S.PAUSING,     S.PAUSED,    BACK,      10 * MINUTE),
    action(S.PAUSED,                           "resume",   ADMIN,  S.RESUMING,    S.DEPLOYED,  BACK,      10 * MINUTE),
    action(S.DEPLOYED | S.PAUSED,              "reset",    ADMIN,  S.RESETTING,   S.DEPLOYED,  BACK,      10 * MINUTE),
    action(S.DEPLOYED | S.DISABLED | S.PAUSED, "delete",   ASKED,  S.DELETING,    S.DELETED,   BACK,      30 * MINUTE),
    action(S.DELETED,                          "restore",  ASKED,  S.RESTORING,   S.DEPLOYED,  BACK,      30 * MINUTE),
    action(S.VIRTUAL | S.DEPLOYED | S.DISABLED | S.PAUSED | S.ERROR, "destroy", ASKED, S.DESTROYING, S.DESTROYED, S.ERROR, HOUR),
    action(S.DELETED,                          "destroy",  DUE,    S.DESTROYING,  S.DESTROYED, S.ERROR,   HOUR),
    hidden(S.DEPLOYED | S.DISABLED,            "place firewall", ADMIN | CONTROLLER,                       10 * MINUTE),
)


class AccountState(State):
    """The states of an account."""

    CREATING   = "CREATING",   TRANSITIONAL
    CONFIRMED  = "CONFIRMED",  STABLE
    DISABLING  = "DISABLING",  TRANSITIONAL
    DISABLED   = "DISABLED",   STABLE
    ENABLING   = "ENABLING",   TRANSITIONAL
    DELETING   = "DELETING",   TRANSITIONAL
    DELETED    = "DELETED",    STABLE,       "in the recycle bin"
    RESTORING  = "RESTORING",  TRANSITIONAL
    DESTROYING = "DESTROYING", TRANSITIONAL
    DESTROYED  = "DESTROYED",  FINAL,        "gone for good"
    ERROR      = "ERROR",      STABLE,       "half done; create or destroy again"


A = AccountState

ACCOUNT_ROWS = (
    #      from                                action      by      through        to           on error   within
    action(NEW | A.ERROR,                      "create",   ASKED,  A.CREATING,    A.CONFIRMED, A.ERROR,   10 * MINUTE),
    action(A.CONFIRMED,                        "disable",  ASKED,  A.DISABLING,   A.DISABLED,  BACK,      10 * MINUTE),
    action(A.DISABLED,                         "enable",   ASKED,  A.ENABLING,    A.CONFIRMED, BACK,      10 * MINUTE),
    action(A.CONFIRMED | A.DISABLED,           "delete",   ASKED,  A.DELETING,    A.DELETED,   BACK,      HOUR),
    action(A.DELETED,                          "restore",  ASKED,  A.RESTORING,   A.CONFIRMED, BACK,      HOUR),
    action(A.CONFIRMED | A.DISABLED | A.ERROR, "destroy",  ASKED,  A.DESTROYING,  A.DESTROYED, A.ERROR,   HOUR),
    action(A.DELETED,                          "destroy",  DUE,    A.DESTROYING,  A.DESTROYED, A.ERROR,   HOUR),
)


class DiskState(State):
    """The states of a disk."""

    MODELED     = "MODELED",     STABLE,       "described, no storage behind it yet"
    CREATING    = "CREATING",    TRANSITIONAL
    CREATED     = "CREATED",     STABLE,       "exists, attached to no VM"
    ASSIGNING   = "ASSIGNING",   TRANSITIONAL
    ASSIGNED    = "ASSIGNED",    STABLE,       "attached to a VM"
    ATTACHING   = "ATTACHING",   TRANSITIONAL
    DETACHING   = "DETACHING",   TRANSITIONAL
    DELETING    = "DELETING",    TRANSITIONAL
    DELETED     = "DELETED",     STABLE,       "in the recycle bin, attached to no VM"
    TOBEDELETED = "TOBEDELETED", STABLE,       "in the recycle bin together with its VM"
    RESTORING   = "RESTORING",   TRANSITIONAL
    DESTROYING  = "DESTROYING",  TRANSITIONAL
    DESTROYED   = "DESTROYED",   FINAL,        "gone for good"
    ERROR       = "ERROR",       STABLE,       "half done; create or destroy again"


D = DiskState

DISK_ROWS = (
    #      from                               action      by      through        to             on error   within
    step(  NEW,                               "define",   ASKED,                 D.MODELED),
    action(D.MODELED | D.ERROR,               "create",   ASKED,  D.CREATING,    D.CREATED,     D.ERROR,   10 * MINUTE),
    action(D.MODELED | D.ERROR,               "assign",   ASKED,  D.ASSIGNING,   D.ASSIGNED,    D.ERROR,   10 * MINUTE),
    action(D.CREATED,                         "attach",   ASKED,  D.ATTACHING,   D.ASSIGNED,    BACK,      10 * MINUTE),
    action(D.ASSIGNED,                        "detach",   ASKED,  D.DETACHING,   D.CREATED,     BACK,      10 * MINUTE),
    action(D.CREATED,                         "delete",   ASKED,  D.DELETING,    D.DELETED,     BACK,      15 * MINUTE),
    action(D.ASSIGNED,                        "delete",   ASKED,  D.DELETING,    D.TOBEDELETED, BACK,      15 * MINUTE),
    action(D.DELETED,                         "restore",  ASKED,  D.RESTORING,   D.CREATED,     BACK,      15 * MINUTE),
    action(D.TOBEDELETED,                     "restore",  ASKED,  D.RESTORING,   D.ASSIGNED,    BACK,      15 * MINUTE),
    action(D.MODELED | D.CREATED | D.ASSIGNED | D.ERROR, "destroy", ASKED, D.DESTROYING,  D.DESTROYED,   D.ERROR,   15 * MINUTE),
    action(D.DELETED | D.TOBEDELETED,         "destroy",  DUE,    D.DESTROYING,  D.DESTROYED,   D.ERROR,   15 * MINUTE),
)


class ImageState(State):
    """The states of an image."""

    VIRTUAL    = "VIRTUAL",    STABLE,       "described, not created yet"
    CREATING   = "CREATING",   TRANSITIONAL
    CREATED    = "CREATED",    STABLE
    DISABLING  = "DISABLING",  TRANSITIONAL
    DISABLED   = "DISABLED",   STABLE
    ENABLING   = "ENABLING",   TRANSITIONAL
    DELETING   = "DELETING",   TRANSITIONAL
    DELETED    = "DELETED",    STABLE,       "in the recycle bin"
    RESTORING  = "RESTORING",  TRANSITIONAL
    DESTROYING = "DESTROYING", TRANSITIONAL
    DESTROYED  = "DESTROYED",  FINAL,        "gone for good"
    ERROR      = "ERROR",      STABLE,       "half done; create or destroy again"


I = ImageState  # noqa: E741

IMAGE_ROWS = (
    #      from                              action      by      through        to           on error   within
    step(  NEW,                              "define",   ASKED,                 I.VIRTUAL),
    action(I.VIRTUAL | I.ERROR,              "create",   ASKED,  I.CREATING,    I.CREATED,   I.ERROR,   HOUR),
    action(I.CREATED,                        "disable",  ASKED,  I.DISABLING,   I.DISABLED,  BACK,      10 * MINUTE),
    action(I.DISABLED,                       "enable",   ASKED,  I.ENABLING,    I.CREATED,   BACK,      10 * MINUTE),
    action(I.CREATED | I.DISABLED,           "delete",   ASKED,  I.DELETING,    I.DELETED,   BACK,      15 * MINUTE),
    action(I.DELETED,                        "restore",  ASKED,  I.RESTORING,   I.CREATED,   BACK,      15 * MINUTE),
    action(I.VIRTUAL | I.CREATED | I.DISABLED | I.ERROR, "destroy", ASKED, I.DESTROYING,  I.DESTROYED, I.ERROR,   15 * MINUTE),
    action(I.DELETED,                        "destroy",  DUE,    I.DESTROYING,  I.DESTROYED, I.ERROR,   15 * MINUTE),
)


class NodeState(State):
    """The states of a node, the machine that carries VMs."""

    REGISTERING            = "REGISTERING",            TRANSITIONAL
    ENABLED                = "ENABLED",                STABLE
    PUTTING_IN_MAINTENANCE = "PUTTING_IN_MAINTENANCE", TRANSITIONAL, "its VMs are being moved away or stopped"
    MAINTENANCE            = "MAINTENANCE",            STABLE
    ENABLING               = "ENABLING",               TRANSITIONAL
    DECOMMISSIONING        = "DECOMMISSIONING",        TRANSITIONAL
    DECOMMISSIONED         = "DECOMMISSIONED",         FINAL
    ERROR                  = "ERROR",                  STABLE,       "half done; enable or decommission again"


N = NodeState

NODE_ROWS = (
    #      from                               action          by      through                   to                on error  within
    action(NEW,                               "register",     ADMIN,  N.REGISTERING,            N.ENABLED,        N.ERROR,  10 * MINUTE),
    action(N.ENABLED,                         "maintenance",  ADMIN,  N.PUTTING_IN_MAINTENANCE, N.MAINTENANCE,    BACK,     2 * HOUR),
    action(N.MAINTENANCE,                     "enable",       ADMIN,  N.ENABLING,               N.ENABLED,        BACK,     2 * HOUR),
    action(N.ERROR,                           "enable",       ADMIN,  N.ENABLING,               N.ENABLED,        N.ERROR,  2 * HOUR),
    hidden(N.ENABLED,                         "enable",       ADMIN,                                                      2 * HOUR),
    action(N.ENABLED | N.MAINTENANCE | N.ERROR, "decommission", ADMIN, N.DECOMMISSIONING,        N.DECOMMISSIONED, N.ERROR,  2 * HOUR),
)

VM         = declare("ovc.vm",         OvcVmState,         VM_ROWS,         DUE | ADMIN | PROVIDER, about="a virtual machine")
CLOUDSPACE = declare("ovc.cloudspace", CloudspaceState, CLOUDSPACE_ROWS, DUE | ADMIN, about="a private network with its VMs")
ACCOUNT    = declare("ovc.account",    AccountState,    ACCOUNT_ROWS,    DUE,         about="the owner of cloudspaces, disks and images")
DISK       = declare("ovc.disk",       DiskState,       DISK_ROWS,       DUE,         about="a disk, attached to a VM or not")
IMAGE      = declare("ovc.image",      ImageState,      IMAGE_ROWS,      DUE,         about="what a VM is deployed from")
NODE       = declare("ovc.node",       NodeState,       NODE_ROWS,       USER | ADMIN, about="a machine that carries VMs")

LIFECYCLES = (VM, CLOUDSPACE, ACCOUNT, DISK, IMAGE, NODE)
