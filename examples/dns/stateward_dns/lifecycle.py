"""The state machines of zones and records.

No answer is never gone: a call without an answer ends in `unknown`, and only what the server itself shows leads out of
it (`shows ...`, by the provider). The same observations find drift: what the server serves against what is recorded.
"""

from stateward.lifecycle import (
    BACK, GONE, MINUTE, NEW, PROVIDER, STABLE, TRANSITIONAL, USER, State, action, declare, step,
)


class ZoneState(State):
    """The states of a zone."""

    CREATING = "creating", TRANSITIONAL, "being added to the server's catalog"
    READY    = "ready",    STABLE,       "served; records can be created"
    UNKNOWN  = "unknown",  STABLE,       "the server has not answered"
    LOST     = "lost",     STABLE,       "the server says that it does not serve the zone any more"
    FAILED   = "failed",   STABLE,       "could not be added"
    DELETING = "deleting", TRANSITIONAL, "being removed from the catalog"


Z = ZoneState

ZONE_ROWS = (
    #      from                           event            by        through     to         on error  within
    action(NEW,                           "create",        USER,     Z.CREATING, Z.READY,   Z.FAILED, 5 * MINUTE),
    action(Z.FAILED | Z.LOST,             "retry",         USER,     Z.CREATING, Z.READY,   BACK,     5 * MINUTE),
    action(Z.READY | Z.UNKNOWN | Z.LOST | Z.FAILED, "delete", USER,  Z.DELETING, GONE,      BACK,     5 * MINUTE),
    # what the server shows
    step(  Z.UNKNOWN | Z.LOST,            "shows it",      PROVIDER,             Z.READY),
    step(  Z.READY | Z.UNKNOWN,           "shows nothing", PROVIDER,             Z.LOST),
    step(  Z.READY,                       "no answer",     PROVIDER,             Z.UNKNOWN),
)


class RecordState(State):
    """The states of a record."""

    CREATING  = "creating",  TRANSITIONAL, "being written to the server"
    ACTIVE    = "active",    STABLE,       "served as recorded"
    CHANGING  = "changing",  TRANSITIONAL, "being replaced on the server"
    DISABLING = "disabling", TRANSITIONAL, "being taken from the server; the record stays"
    DISABLED  = "disabled",  STABLE,       "recorded, not served"
    DRIFTED   = "drifted",   STABLE,       "the server serves something else, or nothing"
    UNKNOWN   = "unknown",   STABLE,       "the server has not answered: nobody knows what it serves"
    FAILED    = "failed",    STABLE,       "could not be created"
    DELETING  = "deleting",  TRANSITIONAL, "being taken from the server for good"


R = RecordState

RECORD_ROWS = (
    #      from                           event            by        through      to          on error  within
    action(NEW,                           "create",        USER,     R.CREATING,  R.ACTIVE,   R.FAILED, 5 * MINUTE),
    action(R.FAILED | R.DISABLED,         "enable",        USER,     R.CREATING,  R.ACTIVE,   BACK,     5 * MINUTE),
    action(R.ACTIVE | R.DRIFTED,          "change",        USER,     R.CHANGING,  R.ACTIVE,   BACK,     5 * MINUTE),
    action(R.DRIFTED,                     "repair",        USER,     R.CHANGING,  R.ACTIVE,   BACK,     5 * MINUTE),
    action(R.ACTIVE | R.DRIFTED,          "disable",       USER,     R.DISABLING, R.DISABLED, BACK,     5 * MINUTE),
    action(R.ACTIVE | R.DISABLED | R.DRIFTED | R.UNKNOWN | R.FAILED, "delete", USER, R.DELETING, GONE, BACK, 5 * MINUTE),
    # what the server shows
    step(  R.DRIFTED | R.DISABLED | R.UNKNOWN, "shows it",     PROVIDER,              R.ACTIVE),
    step(  R.ACTIVE,                      "shows nothing", PROVIDER,              R.DRIFTED),
    step(  R.UNKNOWN,                     "shows nothing", PROVIDER,              R.DISABLED),
    step(  R.ACTIVE | R.DISABLED | R.UNKNOWN, "shows other", PROVIDER,            R.DRIFTED),
)

ZONE   = declare("dns.zone",   ZoneState,   ZONE_ROWS,   USER | PROVIDER, unknown=Z.UNKNOWN, about="a zone on the DNS server")
RECORD = declare("dns.record", RecordState, RECORD_ROWS, USER | PROVIDER, unknown=R.UNKNOWN, about="a name's records of one type")
