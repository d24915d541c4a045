"""The upgrade of a cloudlet's agent, to be explored: a controller, a machine with two agents on it, a user, a clock.

The controller decides with `succession`, which is what really runs. The two agents are processes of one machine: that
one starts or ends the other is certain and at once; what they say goes over the network. A supervisor starts an agent
again when none is left: the new one if it has taken over, the old one otherwise.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.messages import UPGRADE_FAILED, UPGRADING
from stateward.domains.edge.lifecycle import CLOUDLET, SERVED
from stateward.domains.edge.lifecycle import UPGRADING as UPGRADE
from stateward.domains.edge.records import agent_upgrade
from stateward.domains.edge.records.agent_upgrade import (
    AgentRejection,
    AgentSlots,
    C,
    CloudletEvent,
    SlotsUpdate,
    is_upgrade_due,
    must_disconnect,
    on_agent_report,
    on_connect,
    on_disconnect,
)
from stateward.lifecycle import ADMIN, AGENT, CLOCK, CONTROLLER, NO_FACTS, TIMED_OUT, USER, Move, decide
from stateward.testing.protocols import NETWORK, ModelMessage, ModelParty, Predicate, Protocol, Step

OLD, NEW = "v1", "v2"
SUCCESS_IS_TRUE = "an upgrade that has succeeded is true: the new agent has taken over"
ONE_SERVES = "no two agents serve at once"
LATE_START = "late start"
AT_REST = "the cloudlet is ready with a connected agent, or its upgrade has failed and is left"


class Dial(Struct, frozen=True):
    """An agent connects; `connection` is the one that it believes to have, `unwanted` that it expects a refusal."""

    version: str
    connection: int
    successor_of: int = 0
    unwanted: bool = False


class Gathered(Struct, frozen=True):
    """An agent's inventory is complete."""

    version: str
    notify: int


class Said(Struct, frozen=True):
    """A report of the old agent about the upgrade."""

    event: str
    operation: int
    notify: int


class Start(Struct, frozen=True):
    """The order to start the successor."""

    operation: int
    notify: int


class ModelController(Struct, frozen=True):
    """The controller: the slots, and in memory its connections and the one that the order was sent to."""

    slots: AgentSlots = AgentSlots(C.READY, OLD, serving=1, issued=1)
    lines: frozenset[int] = frozenset({1})
    sent: int = 0
    succeeded: bool = False  # for the proof only

    def __str__(self) -> str:
        return f"{self.slots}, {len(self.lines)} connected"


class Process(Struct, frozen=True):
    """An agent's process: whether it runs, its connection, and the upgrade that it runs or is the successor of."""

    runs: bool = False
    connection: int = 0
    work: int = 0


class Machine(Struct, frozen=True):
    """The cloudlet's machine: both processes, whether the new one has taken over, and the number of connections."""

    old: Process = Process(runs=True, connection=1)
    new: Process = Process()
    taken: bool = False
    dialled: int = 1

    def __str__(self) -> str:
        return f"old {'runs' if self.old.runs else 'is dead'}, new {'runs' if self.new.runs else 'is dead'}"


Steps: TypeAlias = Iterable[Step[ModelController]]
Gather: TypeAlias = Callable[[AgentSlots, int, str], SlotsUpdate | AgentRejection]


def upgrade_protocol(
    asks: int = 1, *, patient: bool = False, late_starts: int = 0, gathered: Gather = agent_upgrade.on_inventory
) -> Protocol:
    """Return the protocol of an upgrade; with `patient`, it must end without time-outs."""
    parties = (_controller(gathered), _machine(), _user(asks), _clock(patient, late_starts))
    return Protocol(parties, Predicate(AT_REST, (CONTROLLER, AGENT, NETWORK), _at_rest), INVARIANTS)


def gathering(message: ModelMessage) -> bool:
    """Tell whether a message is an inventory; losing one is the same as losing the connection."""
    return isinstance(message.body, Gathered)


# --- the controller --------------------------------------------------------------------------------------------------


def _controller(gathered: Gather) -> ModelParty[ModelController]:
    def hears(now: ModelController, message: Dial | Gathered | Said | str) -> Steps:
        match message:
            case Dial():
                return _dialled(now, message)
            case Gathered():
                return _judged(now, gathered(now.slots, message.notify, message.version))
            case Said():
                return _judged(now, on_agent_report(now.slots, message.notify, OLD, message.event, message.operation))
        return _asked(now, message)

    return ModelParty(CONTROLLER, ModelController(), _orders, hears, _forgotten, moot=_moot_to_controller)


def _forgotten(now: ModelController) -> Iterable[ModelController]:
    yield replace(now, lines=frozenset(), sent=0)


def _moot_to_controller(now: ModelController, message: Gathered | Said) -> bool:
    return message.notify not in (now.slots.serving, now.slots.successor) and message.notify <= now.slots.issued


def _orders(now: ModelController) -> Iterator[Step[ModelController]]:
    for notify in sorted(now.lines):
        if must_disconnect(now.slots, notify):
            yield Step(replace(now, lines=now.lines - {notify}), f"closes connection {notify}")
    for notify in sorted({now.slots.serving, now.slots.successor} - now.lines - {0}):
        yield _moved(now, on_disconnect(now.slots, notify), f"misses connection {notify}")
    if (
        is_upgrade_due(now.slots, now.slots.serving)
        and now.slots.serving in now.lines
        and now.sent != now.slots.serving
    ):
        order = Start(now.slots.operation, now.slots.serving)
        yield Step(replace(now, sent=now.slots.serving), "sends the order", (ModelMessage(AGENT, order),))


def _dialled(now: ModelController, dial: Dial) -> Steps:
    found = on_connect(now.slots, dial.version, dial.successor_of)
    if dial.connection in now.lines or isinstance(found, AgentRejection) != dial.unwanted:
        return ()
    if isinstance(found, AgentRejection):
        return (Step(now, f"turns it away, {found}"),)
    moved = _moved(replace(now, lines=now.lines | {found.slots.issued}), found, f"welcomes it as {found.role}")
    if moved.state.slots.state == C.INIT:  # the acknowledgement is in the same write
        moved = _moved(
            moved.state, SlotsUpdate(moved.state.slots, CloudletEvent("acknowledge", CONTROLLER)), moved.note
        )
    return (moved,)


def _judged(now: ModelController, found: SlotsUpdate | AgentRejection) -> Steps:
    return (Step(now, f"rejects it, {found}") if isinstance(found, AgentRejection) else _moved(now, found, "agrees"),)


def _asked(now: ModelController, message: str) -> Steps:
    actor = {"upgrade": USER, "fix": ADMIN, TIMED_OUT: CLOCK, LATE_START: CLOCK}[message]
    if actor == CLOCK and now.slots.is_upgrading != (message == TIMED_OUT):
        return ()
    facts = frozenset({UPGRADE}) if now.slots.is_upgrading else NO_FACTS
    if now.slots.serving:
        facts |= {SERVED}
    move = _decided(now.slots, CloudletEvent(TIMED_OUT if actor == CLOCK else message, actor, facts))
    if not isinstance(move, Move):
        return ()
    slots = replace(now.slots, state=move.target, is_upgrading=message == "upgrade", successor=0)
    if message == "upgrade":
        slots = replace(slots, operation=slots.operation + 1, target=NEW)
    return (Step(replace(now, slots=slots, sent=0), f"{message}, {slots.state}"),)


def _moved(now: ModelController, found: SlotsUpdate, note: str) -> Step[ModelController]:
    if found.event is None:
        return Step(replace(now, slots=found.slots), note)
    move = _decided(now.slots, found.event)
    if not isinstance(move, Move):
        return Step(replace(now, slots=replace(found.slots, is_upgrading=now.slots.is_upgrading)), f"{note}, no move")
    done = now.succeeded or (now.slots.is_upgrading and move.target == C.READY)
    after = replace(now, slots=replace(found.slots, state=move.target), succeeded=done)
    return Step(after, f"{note}, {move.target}")


def _decided(slots: AgentSlots, event: CloudletEvent) -> object:
    return decide(CLOUDLET, slots.state, event.name, event.actor, event.facts)


# --- the machine -----------------------------------------------------------------------------------------------------


def _machine() -> ModelParty[Machine]:
    def moot(now: Machine, order: Start) -> bool:
        return order.notify != now.old.connection and order.notify <= now.dialled

    return ModelParty(AGENT, Machine(), _acts, _hears, _left_by_crash, calls=CONTROLLER, moot=moot)


def _acts(now: Machine) -> Iterator[Step[Machine]]:
    if now.old.runs:
        yield _dials(now, "old", OLD)
        yield from _watches(now)
    if now.new.runs:
        yield _dials(now, "new", NEW)
        if not now.taken:
            dial = Dial(NEW, now.new.connection, now.new.work, unwanted=True)
            yield Step(replace(now, new=Process()), "new agent is told to go", call_argument=dial)
            if now.new.connection:
                yield _takes_over(now)
    if not now.old.runs and not now.new.runs:
        started = replace(now, new=Process(runs=True)) if now.taken else replace(now, old=Process(runs=True))
        yield Step(started, "supervisor starts an agent")


def _dials(now: Machine, which: str, version: str) -> Step[Machine]:
    """Connect; the serving agent sends its inventory at once, a successor takes over first."""
    process: Process = getattr(now, which)
    notify = now.dialled + 1
    after = replace(now, dialled=notify, **{which: replace(process, connection=notify)})
    serves = version == OLD or now.taken
    sent = (ModelMessage(CONTROLLER, Gathered(version, notify)),) if serves else ()
    successor_of = 0 if serves else process.work
    return Step(after, f"{which} agent connects", sent, Dial(version, process.connection, successor_of))


def _watches(now: Machine) -> Iterator[Step[Machine]]:
    """Yield the old agent's report of a failed successor, which it has killed."""
    work = now.old.work
    if work:
        failed = ModelMessage(CONTROLLER, Said(UPGRADE_FAILED, work, now.old.connection))
        yield Step(replace(now, old=replace(now.old, work=0), new=Process()), "old agent gives the new up", (failed,))


def _takes_over(now: Machine) -> Step[Machine]:
    after = replace(now, taken=True, old=Process())
    done = ModelMessage(CONTROLLER, Gathered(NEW, now.new.connection))
    return Step(after, "new agent has gathered and ends the old", (done,))


def _hears(now: Machine, order: Start) -> Iterable[Step[Machine]]:
    if not now.old.runs or order.notify != now.old.connection or now.old.work == order.operation:
        return ()
    new = Process(runs=True, work=order.operation)
    after = replace(now, old=replace(now.old, work=order.operation), new=new)
    return (
        Step(
            after,
            "old agent starts the new",
            (ModelMessage(CONTROLLER, Said(UPGRADING, order.operation, order.notify)),),
        ),
    )


def _left_by_crash(now: Machine) -> Iterable[Machine]:
    if now.old.runs:
        yield replace(now, old=Process())
    if now.new.runs:
        yield replace(now, new=Process())
    if now.old.runs and now.new.runs:
        yield replace(now, old=Process(), new=Process())


# --- around them -----------------------------------------------------------------------------------------------------


def _user(asks: int) -> ModelParty[int]:
    def acts(left: int) -> list[Step[int]]:
        return [Step(left - 1, f"asks for {request}", call_argument=request) for request in ("upgrade", "fix") if left]

    return ModelParty(USER, asks, acts, calls=CONTROLLER, free=True)


def _clock(patient: bool, late_starts: int) -> ModelParty[int]:
    """Return the clock: it ends upgrades as often as it likes, and starts of an agent only so many times."""

    def acts(left: int) -> list[Step[int]]:
        rings = [Step(left, "rings", call_argument=TIMED_OUT)]
        return rings + ([Step(left - 1, "rings for a start", call_argument=LATE_START)] if left else [])

    return ModelParty(CLOCK, late_starts, acts, calls=CONTROLLER, free=patient)


def _at_rest(controller: ModelController, machine: Machine, flying: tuple[ModelMessage, ...]) -> bool:
    if flying or controller.slots.state not in (C.READY, C.UPDATE_ERROR):
        return False
    if controller.slots.state == C.UPDATE_ERROR:
        return True
    serving = machine.new if machine.taken else machine.old
    return serving.runs and serving.connection in controller.lines


def _success_is_true(controller: ModelController, machine: Machine) -> bool:
    return not controller.succeeded or machine.taken


def _one_serves(_: ModelController, machine: Machine) -> bool:
    return not (machine.taken and machine.old.runs)


INVARIANTS = (
    Predicate(SUCCESS_IS_TRUE, (CONTROLLER, AGENT), _success_is_true),
    Predicate(ONE_SERVES, (CONTROLLER, AGENT), _one_serves),
)
