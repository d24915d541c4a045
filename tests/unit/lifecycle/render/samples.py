"""Lifecycles to draw: a machine whose every state can be left by force, an instance that an agent works on, and ones in
which states and events are called anything at all.
"""

from typing import Any

from hypothesis import strategies as st

from stateward.lifecycle import (
    ADMIN,
    AGENT,
    BACK,
    CANCELLED,
    CLOCK,
    FAILED,
    FINAL,
    FORCE,
    GONE,
    MINUTE,
    NEW,
    PROVIDER,
    STABLE,
    SUCCEEDED,
    TIMED_OUT,
    TRANSITIONAL,
    UNKNOWN,
    USER,
    Lifecycle,
    State,
    action,
    declare,
    every,
    failure,
    hidden,
    request,
    step,
    success,
    timeout,
)


class MachineState(State):
    CREATING = "Creating", TRANSITIONAL, "is being made"
    RUNNING = "Running", STABLE, "up and reachable"
    SUSPENDING = "Suspending", TRANSITIONAL
    SUSPENDED = "Suspended", STABLE, "kept, but not running"
    RESUMING = "Resuming", TRANSITIONAL
    REBOOTING = "Rebooting", TRANSITIONAL
    TERMINATING = "Terminating", TRANSITIONAL
    TERMINATED = "Terminated", FINAL
    FAILED = "Failed", STABLE, "needs somebody to look"
    UNDEFINED = "Undefined", STABLE, "nobody can say"


M = MachineState
MACHINE = declare(
    "sample.machine",
    MachineState,
    (
        action(NEW, "create", USER, M.CREATING, M.RUNNING, M.FAILED, 10 * MINUTE),
        action(M.RUNNING, "suspend", USER, M.SUSPENDING, M.SUSPENDED, M.FAILED, 5 * MINUTE),
        action(M.SUSPENDED, "resume", USER, M.RESUMING, M.RUNNING, M.FAILED, 5 * MINUTE),
        action(M.RUNNING, "reboot", USER, M.REBOOTING, M.RUNNING, M.FAILED, 5 * MINUTE),
        action(M.RUNNING | M.SUSPENDED, "terminate", USER, M.TERMINATING, M.TERMINATED, M.FAILED, 5 * MINUTE),
        action(every(M), "terminate", USER, M.TERMINATING, M.TERMINATED, M.FAILED, 5 * MINUTE, needs=FORCE),
        step(M.FAILED | M.UNDEFINED, "seen running", PROVIDER, M.RUNNING),
        step(M.TERMINATED, "forget", CLOCK, GONE),
    ),
    by=USER | PROVIDER | CLOCK,
    unknown=M.UNDEFINED,
    about="A machine that is asked for, used and given back.",
)


class InstanceState(State):
    ABSENT = "NotPresent", STABLE
    REQUESTED = "CreateRequested", TRANSITIONAL
    CREATING = "Creating", TRANSITIONAL
    READY = "Ready", STABLE
    UPDATING = "Updating", TRANSITIONAL
    BROKEN = "CreateError", STABLE


I = InstanceState  # noqa: E741
INSTANCE = declare(
    "sample.instance",
    InstanceState,
    (
        request(I.ABSENT | I.BROKEN, "create", USER, I.REQUESTED, I.READY, I.BROKEN, 5 * MINUTE),
        step(I.REQUESTED, "creating", AGENT, I.CREATING, within=5 * MINUTE),
        success(I.REQUESTED | I.CREATING, "ready", AGENT, I.READY),
        failure(I.REQUESTED | I.CREATING, "failed", AGENT, I.BROKEN),
        timeout(I.REQUESTED | I.CREATING, I.BROKEN),
        action(I.READY, "update", USER, I.UPDATING, BACK, BACK, 5 * MINUTE),
        hidden(I.READY, "migrate", ADMIN, 5 * MINUTE),
        step(I.READY, "vanished", AGENT, I.ABSENT),
    ),
    by=USER | AGENT | ADMIN,
    initial=I.ABSENT,
)


def named(words: list[str], events: list[str]) -> Lifecycle:
    """A lifecycle with every shape and arrow that a drawing has, in which states and events have these names."""
    classes = (TRANSITIONAL, STABLE, TRANSITIONAL, FINAL, STABLE)
    make_enum: Any = State
    states = make_enum("Named", {f"S{n}": member for n, member in enumerate(zip(words, classes, strict=True))})
    making, there, changing, over, broken = states
    make, change, end, lose = events
    rows = (
        action(NEW, make, USER, making, there, broken, MINUTE),
        action(there | broken, change, USER, changing, BACK, BACK, MINUTE),
        step(there | making | changing | broken, end, AGENT, over, needs=FORCE),
        step(there, lose, AGENT, broken),
        step(over, end, CLOCK, GONE),
    )
    return declare("any.words", states, rows, USER | AGENT | CLOCK)


RESERVED = {NEW.word, GONE.word, SUCCEEDED, FAILED, TIMED_OUT, CANCELLED, UNKNOWN}
words = st.text(min_size=1, max_size=12).filter(lambda word: word not in RESERVED)
any_lifecycle = st.builds(
    named,
    st.lists(words, min_size=5, max_size=5, unique=True),
    st.lists(words, min_size=4, max_size=4, unique=True),
)
"""Lifecycles whose states and events have any names."""
