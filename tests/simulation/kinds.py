"""The kinds of the simulated world: four, which together use every word of lifecycle tables."""

from collections.abc import Sequence

from stateward.engine.handlers import Handler
from stateward.engine.job import Job
from stateward.engine.kinds import Kind, Route
from stateward.engine.requests import Creation, Request
from stateward.lifecycle import (
    AGENT,
    BACK,
    CLOCK,
    CONTROLLER,
    FINAL,
    FORCE,
    GONE,
    NEW,
    STABLE,
    TRANSITIONAL,
    USER,
    Lifecycle,
    State,
    action,
    check,
    declare,
    failure,
    hidden,
    moving,
    request,
    resting,
    step,
    success,
    timeout,
)
from tests.simulation.cloud import Cloud


class Box(State):
    """A machine in the cloud."""

    CREATING = "Creating", TRANSITIONAL
    UP = "Up", STABLE
    STOPPING = "Stopping", TRANSITIONAL
    DOWN = "Down", STABLE
    STARTING = "Starting", TRANSITIONAL
    GROWING = "Growing", TRANSITIONAL
    REBUILDING = "Rebuilding", TRANSITIONAL
    BROKEN = "Broken", STABLE
    UNCLEAR = "Unclear", STABLE
    TERMINATING = "Terminating", TRANSITIONAL
    TERMINATED = "Terminated", FINAL


class Site(State):
    """A whole that boxes are members of."""

    OPEN = "Open", STABLE
    CLOSING = "Closing", TRANSITIONAL
    CLOSED = "Closed", STABLE
    OPENING = "Opening", TRANSITIONAL
    FILLING = "Filling", TRANSITIONAL


class Number(State):
    """A phone number, ported by a carrier: somebody else's work."""

    IDLE = "Idle", STABLE
    PORTING = "Porting", TRANSITIONAL
    VERIFYING = "Verifying", TRANSITIONAL
    ACTIVE = "Active", STABLE
    FIXING = "Fixing", TRANSITIONAL
    LOST = "Lost", STABLE


class Image(State):
    """An image, built by a handler in phases."""

    FETCHING = "Fetching", TRANSITIONAL
    BUILDING = "Building", TRANSITIONAL
    READY = "Ready", STABLE
    FAILED = "Failed", STABLE


B, S, N, I = Box, Site, Number, Image  # noqa: E741 - as in the tables of the domains

# fmt: off
BOX = declare("box", Box, (
    action(NEW,                  "create",    USER,         B.CREATING,    B.UP,         B.BROKEN, 8.0),
    action(B.UP,                 "stop",      USER | CLOCK, B.STOPPING,    B.DOWN,       BACK,     6.0),
    action(B.DOWN,               "start",     USER | CLOCK, B.STARTING,    B.UP,         BACK,     6.0),
    action(B.UP | B.DOWN,        "grow",      USER,         B.GROWING,     BACK,         BACK,     6.0),
    action(B.BROKEN | B.UNCLEAR, "rebuild",   USER,         B.REBUILDING,  B.UP,         B.BROKEN, 8.0),
    hidden(B.UP | B.DOWN,        "migrate",   CONTROLLER,                                          6.0),
    action(resting(Box),         "terminate", USER,         B.TERMINATING, B.TERMINATED, B.BROKEN, 8.0),
    action(moving(Box),          "terminate", USER,         B.TERMINATING, B.TERMINATED, B.BROKEN, 8.0, needs=FORCE),
    step(  B.TERMINATED,         "remove",    USER,                        GONE),
), by=USER | CLOCK | CONTROLLER, unknown=B.UNCLEAR)

SITE = declare("site", Site, (
    step(  NEW,                  "found",     USER,                        S.OPEN),
    action(S.OPEN,               "close",     USER,         S.CLOSING,     S.CLOSED,     S.OPEN,   20.0),
    action(S.CLOSED,             "open",      USER,         S.OPENING,     S.OPEN,       S.CLOSED, 20.0),
    action(S.OPEN,               "fill",      USER,         S.FILLING,     S.OPEN,       S.OPEN,   40.0),
), by=USER)

NUMBER = declare("number", Number, (
    step(   NEW,                     "register", USER,                     N.IDLE),
    request(N.IDLE | N.LOST,         "port",     USER,      N.PORTING,     N.ACTIVE,     N.IDLE,   8.0),
    step(   N.PORTING | N.VERIFYING, "accepted", AGENT,                    N.VERIFYING,            within=8.0),
    success(N.PORTING | N.VERIFYING, "ported",   AGENT,                    N.ACTIVE),
    failure(N.PORTING | N.VERIFYING, "rejected", AGENT,                    N.IDLE),
    timeout(N.PORTING | N.VERIFYING,                                       N.LOST),
    step(   N.PORTING | N.VERIFYING, "abort",    USER,                     N.IDLE,                 needs=FORCE),
    step(   N.ACTIVE,                "degrade",  CONTROLLER,               N.FIXING,               within=5.0),
    success(N.FIXING,                "fixed",    CONTROLLER,               N.ACTIVE),
    failure(N.FIXING,                "given up", CONTROLLER,               N.LOST),
    timeout(N.FIXING,                                                      N.LOST),
    step(   N.ACTIVE | N.LOST,       "reset",    USER | CLOCK,             N.IDLE),
    step(   N.IDLE,                  "remove",   USER,                     GONE),
), by=USER | AGENT | CLOCK | CONTROLLER)

IMAGE = declare("image", Image, (
    request(NEW,                     "build",    USER,      I.FETCHING,    I.READY,      I.FAILED, 8.0),
    request(I.READY | I.FAILED,      "rebuild",  USER,      I.FETCHING,    I.READY,      I.FAILED, 8.0),
    step(   I.FETCHING,              "fetched",  CONTROLLER,               I.BUILDING,             within=8.0),
    success(I.BUILDING,              "built",    CONTROLLER,               I.READY),
    failure(I.FETCHING | I.BUILDING, "spoilt",   CONTROLLER | AGENT,       I.FAILED),
    timeout(I.FETCHING | I.BUILDING,                                       I.FAILED),
), by=USER | CONTROLLER | AGENT | CLOCK)
# fmt: on

LIFECYCLES: dict[str, Lifecycle] = {one.kind: one for one in (BOX, SITE, NUMBER, IMAGE)}
CLAIMS: dict[str, str] = {B.UP: "up", B.DOWN: "down", B.TERMINATED: "absent", GONE: "absent"}
"""What a state says about the cloud; the other states claim to know nothing."""


def check_tables() -> None:
    """Raise if one of the tables has a fault."""
    faults = [fault for lifecycle in LIFECYCLES.values() for fault in check(lifecycle)]
    assert not faults, faults


def make_kinds(cloud: Cloud, lanes: Sequence[str]) -> list[Kind]:
    """Return the kinds with their handlers, all of which talk to one cloud; boxes are spread over these lanes."""

    async def simply(job: Job) -> None:
        await cloud.call(job, job.action)

    async def with_notes(job: Job) -> str:
        await job.progress("begun", 0, 2)
        await cloud.call(job, job.action)
        await job.progress("done", 2, 2)
        return job.object

    async def in_phases(job: Job) -> str:
        await job.once("fetch", lambda: cloud.call(job, "fetch", "fetch"))
        await job.phase("fetched")
        await job.once("build", lambda: cloud.call(job, "build", "build"))
        return job.object

    async def of_the_whole(job: Job) -> None:
        await cloud.pause()

    async def by_children(job: Job) -> list[str]:
        first = job.claim.object.version % 8
        names = [f"b{(first + number) % 8}" for number in range(3)]
        denied = await job.spawn("boxes", [_new_box(name, job.object) for name in names])
        await cloud.pause()
        denied |= await job.spawn("stop", [Request(job.ns, name, "stop", "") for name in names])
        return sorted(denied)

    boxes = {name: Handler(simply, cloud.look) for name in ("stop", "start", "grow", "rebuild", "terminate")}
    boxes |= {"create": Handler(with_notes, cloud.look), "migrate": Handler(simply, cloud.look, attempts=3)}
    phased = Handler(in_phases)
    sites = {"close": Handler(of_the_whole), "open": Handler(of_the_whole), "fill": Handler(by_children)}
    images = {"build": phased, "rebuild": phased}
    return [
        Kind(BOX, boxes, lambda box, _action: _route(lanes[int(box.id[1:]) % len(lanes)]), spec_actions=BOX.events),
        Kind(SITE, sites, spec_actions=SITE.events),
        Kind(NUMBER, spec_actions=NUMBER.events),
        Kind(IMAGE, images, lambda _object, _action: _route("east/images"), spec_actions=IMAGE.events),
    ]


def _new_box(name: str, site: str) -> Request:
    return Request("n", name, "create", "", creates=Creation("box", site, queue="b0" if name in ("b6", "b7") else None))


LANES = {"east/1": "east", "east/2": "east", "east/images": "east", "west/1": "west", "": ""}


WIDE, NARROW = ("east/1", "", "east/2", "west/1"), ("east/1", "east/2")
"""The lanes that boxes have: where there are few, there is always somebody who waits for a place."""


def _route(lane: str) -> Route:
    return Route(LANES[lane], lane)
