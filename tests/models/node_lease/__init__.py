"""The fence of a node's lease, to be explored: one instance, node a with its agent and watchdog, node b, a controller.

The controller and the agent decide with `lease_rules`, which is what really runs. Time is counted in ticks. The agent
may be paused, killed and started again, its network may be cut and healed, the controller may be restarted, the agent's
clock may lose a tick, and the watchdog may be a tick late. Messages of one connection keep their order; those of a
former one are dropped, as they really are. All times and numbers are relative, so that the search is finite without a
last tick.
"""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.systems.nodes.lease_rules import Watched, is_overdue, lease_end, watch_renewals
from stateward.testing.protocols import ModelParty, Predicate, Protocol, Step

LEASE, MARGIN = 2, 2
MAX_IN_FLIGHT = 2
NOT_DOUBLED = "the instance never runs on both nodes"
REST = "any state may be the last one: only the invariant counts"


class Rules(Struct, frozen=True):
    """The parts of the fence; a model without one of them must be found to be wrong."""

    margin: int = MARGIN
    stores_before_answer: bool = True
    loss_ends_connections: bool = True
    settles_after_welcome: bool = True
    has_watchdog: bool = True
    counts_from_sending: bool = True


class Faults(Struct, frozen=True):
    """What may still go wrong."""

    pauses: int = 1
    kills: int = 1
    cuts: int = 1
    restarts: int = 1
    skips: int = 1
    breaks: int = 1


class Sent(Struct, frozen=True):
    """A message over the connection `notify`: an inventory, a heartbeat or its answer, or an order."""

    what: str
    notify: int
    value: int = 0


class World(Struct, frozen=True):
    """Everything: the time, node a, node b, the network, and the controller."""

    now: int = 0
    # node a: its clock, and what its agent remembers
    clock: int = 0
    lease: int = LEASE
    late: bool = False  # the watchdog has used its tick
    beat_at: int = 0
    is_paused: bool = False
    connection: int = 1
    phase: str = "synced"  # apart, dialling, welcomed, synced
    is_ordered: bool = True
    is_deleting: bool = False
    runs_on_a: bool = True
    # the network
    is_cut: bool = False
    up: tuple[Sent, ...] = ()
    down: tuple[Sent, ...] = ()
    # the controller, and node b
    notify: int = 1
    is_lost: bool = False
    synced: int = 1  # the connection whose inventory has counted
    renewals: int = 0
    watched: Watched | None = None
    place: str = "a"
    runs_on_b: bool = False
    faults: Faults = Faults()


def protocol(rules: Rules, faults: Faults) -> Protocol:
    """Return the model with these rules and faults."""
    start = World(faults=faults)
    return Protocol(
        (ModelParty("world", start, lambda world: _steps(rules, world)),),
        Predicate(REST, ("world",), lambda _: True),
        (Predicate(NOT_DOUBLED, ("world",), lambda world: not (world.runs_on_a and world.runs_on_b)),),
    )


def _steps(rules: Rules, world: World) -> Iterator[Step[World]]:
    yield from (replace(one, state=_relative(rules, one.state)) for one in _absolute_steps(rules, world))


def _absolute_steps(rules: Rules, world: World) -> Iterator[Step[World]]:
    yield from _ticks(rules, world)
    yield from _troubles(world)
    if not world.is_paused:
        yield from _agent(rules, world)
    yield from _controller(rules, world)


def _relative(rules: Rules, world: World) -> World:
    """Return the world with times since now, and without what can make no difference any more."""
    seen = world.watched
    if seen is not None:
        age = min(world.now - seen.since, LEASE + rules.margin + 1)
        seen = Watched(0 if seen.renewals == world.renewals else -1, -age)
    current = world.notify
    return replace(
        world,
        now=0,
        clock=0,
        lease=max(world.lease - world.clock, 0),
        beat_at=max(world.beat_at - world.clock, -1),
        connection=1 if world.connection == current else -1 if world.connection else 0,
        up=tuple(_recent(one, world.clock) for one in world.up if one.notify == current),
        down=tuple(_recent(one, world.clock) for one in world.down if one.notify == world.connection == current),
        notify=1,
        synced=int(world.synced == current),
        renewals=0,
        watched=seen,
    )


def _recent(message: Sent, clock: int) -> Sent:
    value = max(message.value - clock, -LEASE - 1) if message.what in ("beat", "answer") else message.value
    return Sent(message.what, 1, value)


def _ticks(rules: Rules, world: World) -> Iterator[Step[World]]:
    after = _watched_by_dog(rules, replace(world, now=world.now + 1, clock=world.clock + 1))
    for one in after:
        yield Step(one, "a tick")
    if world.faults.skips:
        fewer = replace(world.faults, skips=world.faults.skips - 1)
        yield Step(replace(world, now=world.now + 1, faults=fewer), "a tick that the clock of node a loses")


def _watched_by_dog(rules: Rules, world: World) -> Iterator[World]:
    """Yield the worlds after a look of the watchdog, which may come a tick late."""
    if not rules.has_watchdog or world.clock < world.lease or not world.runs_on_a:
        yield replace(world, late=False)
        return
    yield replace(world, runs_on_a=False, late=False)
    if not world.late:
        yield replace(world, late=True)


def _troubles(world: World) -> Iterator[Step[World]]:
    left = world.faults
    if left.pauses and not world.is_paused:
        yield Step(replace(world, is_paused=True, faults=replace(left, pauses=left.pauses - 1)), "the agent is paused")
    if world.is_paused:
        yield Step(replace(world, is_paused=False), "the agent wakes up")
    if left.kills:
        fewer = replace(left, kills=left.kills - 1)
        yield Step(replace(_apart(world), is_paused=False, faults=fewer), "the agent is killed, and started again")
    if left.cuts and not world.is_cut:
        yield Step(replace(world, is_cut=True, faults=replace(left, cuts=left.cuts - 1)), "the network is cut")
    if world.is_cut:
        yield Step(replace(world, is_cut=False), "the network is healed")
    if left.restarts:
        fewer = replace(left, restarts=left.restarts - 1)
        yield Step(replace(world, watched=None, down=(), synced=0, faults=fewer), "the controller is restarted")


def _apart(world: World) -> World:
    """Return the world without a connection of the agent; messages to the controller may be on their way."""
    return replace(world, connection=0, phase="apart", down=())


def _settled(world: World) -> World:
    """Return the world after the agent has stopped everything, if its lease has ended."""
    return replace(world, is_ordered=False, runs_on_a=False) if world.clock >= world.lease else world


def _agent(rules: Rules, world: World) -> Iterator[Step[World]]:
    if world.connection and world.faults.breaks:
        fewer = replace(world.faults, breaks=world.faults.breaks - 1)
        yield Step(replace(_apart(world), faults=fewer), "the agent loses its connection")
    if world.phase == "apart":
        yield Step(replace(_settled(world), phase="dialling"), "the agent settles, and dials")
    if world.phase == "dialling" and not world.is_cut:
        welcomed = replace(world, notify=world.notify + 1, connection=world.notify + 1, phase="welcomed")
        yield Step(welcomed, "the agent is welcomed")
    if world.phase == "welcomed":
        settled = _settled(world) if rules.settles_after_welcome else world
        inventory = Sent("inventory", world.connection, int(settled.is_ordered))
        yield Step(replace(settled, phase="synced", up=(*world.up, inventory)), "the agent sends its inventory")
    if world.phase == "synced" and world.beat_at < world.clock and len(world.up) < MAX_IN_FLIGHT:
        beat = Sent("beat", world.connection, world.clock)
        yield Step(replace(world, up=(*world.up, beat), beat_at=world.clock), "the agent sends a heartbeat")
    if world.is_deleting:
        yield Step(replace(world, is_deleting=False, is_ordered=False, runs_on_a=False), "the agent has stopped it")
    if world.is_ordered and not world.runs_on_a and world.clock < world.lease:
        yield Step(replace(world, runs_on_a=True), "the supervisor starts the instance")
    if world.down and not world.is_cut:
        first, rest = world.down[0], world.down[1:]
        if first.notify == world.connection:
            yield Step(_received(rules, replace(world, down=rest), first), f"the agent gets {first.what}")


def _received(rules: Rules, world: World, message: Sent) -> World:
    if message.what == "create":
        return replace(world, is_ordered=True)
    if message.what == "delete":
        return replace(world, is_deleting=True)
    began = message.value if rules.counts_from_sending else world.clock
    return replace(world, lease=int(lease_end(began, LEASE, world.lease)))


def _controller(rules: Rules, world: World) -> Iterator[Step[World]]:
    for place, message in enumerate(world.up):
        is_first = all(one.notify != message.notify for one in world.up[:place])
        if is_first and not world.is_cut and len(world.down) < MAX_IN_FLIGHT:
            rest = replace(world, up=world.up[:place] + world.up[place + 1 :])
            yield Step(_handled(rules, rest, message), f"the controller gets {message.what} of {message.notify}")
    if not world.is_lost:
        watched = watch_renewals(world.watched, world.renewals, world.now)
        if watched != world.watched:
            yield Step(replace(world, watched=watched), "the controller looks")
        elif is_overdue(watched, world.now, LEASE, rules.margin):
            notify = world.notify + 1 if rules.loss_ends_connections else world.notify
            yield Step(replace(world, is_lost=True, notify=notify, place="b"), "node a is lost")
    if world.place == "b" and not world.runs_on_b:
        yield Step(replace(world, runs_on_b=True), "node b starts the instance")


def _handled(rules: Rules, world: World, message: Sent) -> World:
    if message.notify != world.notify:
        return world
    if message.what == "inventory":
        order = {("a", 0): "create", ("b", 1): "delete"}.get((world.place, message.value))
        sent = () if order is None else (Sent(order, message.notify),)
        return replace(
            world, is_lost=False, synced=message.notify, renewals=world.renewals + 1, down=(*world.down, *sent)
        )
    if world.is_lost or world.synced != message.notify:
        return world
    renewals = world.renewals + 1 if rules.stores_before_answer else world.renewals
    return replace(world, renewals=renewals, down=(*world.down, Sent("answer", message.notify, message.value)))
