"""Two versions of one kind: the later one has another spec, and more states and actions."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from stateward.engine import Handler, Job, Kind, ObservedOutcome
from stateward.lifecycle import (
    AGENT,
    BACK,
    CLOCK,
    GONE,
    MINUTE,
    NEW,
    STABLE,
    TRANSITIONAL,
    USER,
    State,
    action,
    declare,
    request,
    step,
    success,
    timeout,
)

Run = Callable[[Job], Awaitable[None]]


class OldRecord(State):
    MAKING = "making", TRANSITIONAL
    SERVED = "served", STABLE
    TOUCHING = "touching", TRANSITIONAL
    REMOVING = "removing", TRANSITIONAL
    FAILED = "failed", STABLE


class NewRecord(State):
    MAKING = "making", TRANSITIONAL
    SERVED = "served", STABLE
    TOUCHING = "touching", TRANSITIONAL
    MOVING = "moving", TRANSITIONAL
    SIGNED = "signed", STABLE
    CHECKING = "checking", TRANSITIONAL
    REMOVING = "removing", TRANSITIONAL
    FAILED = "failed", STABLE


OR, N = OldRecord, NewRecord

OLD = declare(
    "dns.record",
    OldRecord,
    (
        action(NEW, "create", USER, OR.MAKING, OR.SERVED, OR.FAILED, MINUTE),
        action(OR.SERVED, "touch", USER | CLOCK, OR.TOUCHING, BACK, OR.FAILED, MINUTE),
        action(OR.SERVED | OR.FAILED, "delete", USER, OR.REMOVING, GONE, OR.FAILED, MINUTE),
    ),
    USER | AGENT | CLOCK,
)
LATER = declare(
    "dns.record",
    NewRecord,
    (
        action(NEW, "create", USER, N.MAKING, N.SERVED, N.FAILED, MINUTE),
        action(N.SERVED | N.SIGNED, "touch", USER | CLOCK, N.TOUCHING, BACK, N.FAILED, MINUTE),
        action(N.SERVED, "move", USER, N.MOVING, N.SERVED, N.FAILED, MINUTE),
        step(N.SERVED, "sign", USER | CLOCK, N.SIGNED),
        request(N.SIGNED, "check", USER, N.CHECKING, N.SIGNED, N.FAILED, MINUTE),
        success(N.CHECKING, "checked", AGENT, N.SIGNED),
        timeout(N.CHECKING, N.FAILED),
        action(N.SERVED | N.SIGNED | N.FAILED, "delete", USER, N.REMOVING, GONE, N.FAILED, MINUTE),
    ),
    USER | AGENT | CLOCK,
)


class OldSpec(Struct):
    ip: str


class LaterSpec(Struct):
    address: str


def old_kind(run: Run) -> Kind:
    """Return the former version of the kind."""
    return Kind(OLD, _handlers(run, "create", "touch", "delete"), spec=OldSpec)


def later_kind(run: Run) -> Kind:
    """Return the later version of the kind."""
    return Kind(
        LATER,
        _handlers(run, "create", "touch", "move", "delete"),
        spec=LaterSpec,
        spec_version=2,
        upgrade=lambda spec, _version: {"address": spec["ip"]},
        spec_actions=("touch",),
    )


def _handlers(run: Run, *actions: str) -> dict[str, Handler]:
    async def observe(_: Job) -> ObservedOutcome:
        return ObservedOutcome.NOT_DONE

    return {name: Handler(run, observe) for name in actions}


class Marker(State):
    MAKING = "making", TRANSITIONAL
    MADE = "made", STABLE


MARKER = declare(
    "test.marker",
    Marker,
    (action(NEW, "create", USER, Marker.MAKING, Marker.MADE, Marker.MADE, MINUTE),),
    USER,
)


async def nothing(_: Job) -> None:
    """Do nothing."""


def marker_kind() -> Kind:
    """Return a kind that all processes know."""
    return Kind(MARKER, {"create": Handler(nothing)})
