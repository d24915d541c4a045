"""Lifecycles as data: declared once, and everything else derived. Pure: no I/O, no clock, no asyncio."""

from stateward.lifecycle.actors import (
    ADMIN,
    AGENT,
    CLOCK,
    CONTROLLER,
    HEALER,
    PROVIDER,
    USER,
    WORKER,
    Actor,
    Actors,
)
from stateward.lifecycle.check import check
from stateward.lifecycle.decide import decide
from stateward.lifecycle.declaration import Code, Declaration, DeclarationError, Fault
from stateward.lifecycle.moves import NO_FACTS, Allowed, Move, Reason, Refusal
from stateward.lifecycle.rows import (
    CANCELLED,
    DAY,
    FAILED,
    FORCE,
    HOUR,
    MINUTE,
    SECOND,
    SUCCEEDED,
    TIMED_OUT,
    UNKNOWN,
    Meaning,
    Row,
    action,
    failure,
    request,
    step,
    success,
    timeout,
)
from stateward.lifecycle.states import (
    BACK,
    FINAL,
    GONE,
    NEW,
    STABLE,
    TRANSITIONAL,
    Back,
    State,
    StateClass,
    States,
    every,
    moving,
    resting,
)
from stateward.lifecycle.table import Lifecycle, declare
