"""The controller's side: the record changes by the table only, and orders follow from the record.

An order is sent only over a connection whose list is complete, because only then is it known what there is to do. The
order goes out in a step of its own: the controller may die between writing that it will ask, and asking. So does the
undo of what the clock has ended begin.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from stateward.agents.messages import AgentReport, InventoryEnd, InventoryItem
from stateward.domains.edge.records.instance_record import (
    ERROR_STATES,
    InstanceRecord,
    S,
    apply_move,
    begin_operation,
    begin_undo,
    decide_event,
    due_order,
    enter_error,
    fenced_fields,
    needs_undo,
)
from stateward.domains.edge.records.reconcile import NOT_LISTED, ReconcileStep, on_inventory_item, on_report
from stateward.lifecycle import AGENT, CLOCK, CONTROLLER, TIMED_OUT, TRANSITIONAL, Move
from stateward.testing.protocols import ModelMessage, ModelParty, Step
from tests.models.edge_protocol.parties import ClockEvent, Controller, Dialled, Link, Rules, UserRequest

Steps: TypeAlias = Iterable[Step[Controller]]

ILLEGAL = "the state changes by the table alone"
ORPHAN = "nothing is left at the site that the record does not know"


def controller_party(rules: Rules, start: Controller) -> ModelParty[Controller]:
    """Return the controller as a party that forgets its connection when it crashes."""
    side = _ControllerSide(rules)
    return ModelParty(CONTROLLER, start, side.acts, side.hears, _left_by_crash, moot=side.moot)


class _ControllerSide:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.legal = {(move.source, move.target) for move in rules.lifecycle.every_move()}

    def acts(self, now: Controller) -> Iterator[Step[Controller]]:
        if now.record.state == S.DELETE_PREPARE:
            yield from self._decided(now, "prepared", CONTROLLER)
            yield from self._decided(now, "in use", CONTROLLER)
        if needs_undo(now.record):
            yield self._became(now, begin_undo(self.rules, now.record), "begins the undo")
        order = due_order(now.record, now.link.notify)
        if order is not None and now.link.settled and not now.link.sent:
            yield Step(_with(now, sent=True), f"sends {order}", (ModelMessage(AGENT, order),))

    def hears(
        self, now: Controller, message: UserRequest | ClockEvent | Dialled | InventoryItem | InventoryEnd | AgentReport
    ) -> Steps:
        match message:
            case UserRequest():
                return self._requested(now, message)
            case ClockEvent.DEADLINE:
                return self._decided(now, TIMED_OUT, CLOCK) if now.record.state.state_class is TRANSITIONAL else ()
            case ClockEvent.RETRY:
                return _retried(now)
            case Dialled():
                return self._connected(now, message)
            case InventoryItem() | InventoryEnd():
                return self._listed(now, message)
            case AgentReport():
                return (self._turned(now, on_report(self.rules, now.record, message)),)

    def moot(self, now: Controller, message: InventoryItem | InventoryEnd | AgentReport) -> bool:
        if isinstance(message, AgentReport):
            return self.rules.fence(fenced_fields(now.record), message) is not None
        return not self.rules.heeds(now.link, message)

    def _requested(self, now: Controller, request: UserRequest) -> Steps:
        move = decide_event(self.rules, replace(now.record, facts=request.facts), request.event, request.actor)
        if not isinstance(move, Move):
            return ()
        return (self._became(now, begin_operation(now.record, move, request.facts), request.event),)

    def _decided(self, now: Controller, event: str, actor: str) -> Steps:
        move = decide_event(self.rules, now.record, event, actor)
        if not isinstance(move, Move):
            return ()
        # The clock ends an operation without knowing of undos: that one begins in a step of its own.
        late = actor == CLOCK and move.target in ERROR_STATES
        record = enter_error(now.record, move.target) if late else apply_move(self.rules, now.record, move)
        return (self._became(now, record, event),)

    def _turned(self, now: Controller, step: ReconcileStep) -> Step[Controller]:
        if step.must_resend or step.is_working:
            return Step(_with(now, sent=step.is_working), step.note)
        if step.record == now.record:
            return Step(now, step.note, breach=ORPHAN if step.is_orphan else None)
        return self._became(now, step.record, step.note)

    def _became(self, now: Controller, record: InstanceRecord, why: str) -> Step[Controller]:
        """Write a new record; the order of a new operation is still to be sent."""
        new = record.operation != now.record.operation
        link = replace(now.link, sent=False) if new else now.link
        note = f"{why}, {record.state}" + (f", operation {record.operation}" if new and record.operation else "")
        legal = now.record.state == record.state or (now.record.state, record.state) in self.legal
        return Step(Controller(record, link), note, breach=None if legal else ILLEGAL)

    def _connected(self, now: Controller, dialled: Dialled) -> Steps:
        if now.link.notify and dialled.connection == now.link.notify:
            return ()
        notify = now.record.notify + 1
        connected = Controller(replace(now.record, notify=notify), Link(notify=notify))
        return (self._settled_if_listed(connected, f"gives notify id {notify}"),)

    def _listed(self, now: Controller, line: InventoryItem | InventoryEnd) -> Steps:
        link = now.link
        if link.settled or line in link.items or not self.rules.heeds(link, line):
            return ()
        link = (
            replace(link, expected=line.count)
            if isinstance(line, InventoryEnd)
            else replace(link, items=(*link.items, line))
        )
        return (self._settled_if_listed(replace(now, link=link), "notes it"),)

    def _settled_if_listed(self, now: Controller, note: str) -> Step[Controller]:
        if not self.rules.listed(now.link):
            return Step(now, note)
        item = now.link.items[0] if now.link.items else NOT_LISTED
        listed = replace(now, link=Link(now.link.notify, settled=True))
        return self._turned(listed, on_inventory_item(self.rules, now.record, item))


def _left_by_crash(now: Controller) -> Iterable[Controller]:
    yield Controller(now.record)


def _retried(now: Controller) -> Steps:
    if now.record.state in ERROR_STATES and now.record.operation and now.link.sent:
        return (Step(_with(now, sent=False), "will send the undo again"),)
    return ()


def _with(now: Controller, *, sent: bool) -> Controller:
    return replace(now, link=replace(now.link, sent=sent))
