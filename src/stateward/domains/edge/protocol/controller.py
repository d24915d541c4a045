"""The controller's side: the record changes by the table alone, and what is asked of the agent follows from the record.

An order is sent only over a connection whose list is complete, because only then is it known what there is to do. The
order goes out in a step of its own: the controller may die between writing that it will ask, and asking.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from stateward.domains.edge.guard import Record, Rejected, Report
from stateward.domains.edge.lifecycle import IGNORE_TRANSIENT
from stateward.domains.edge.protocol.record import ERRORS, TRIES, after, undoing
from stateward.domains.edge.protocol.rules import Rules
from stateward.domains.edge.protocol.words import (
    BUSY,
    ENDED,
    FAILED,
    Bell,
    Book,
    Controller,
    End,
    Hello,
    Item,
    Link,
    Order,
    S,
    Wish,
    Work,
    fulfils,
)
from stateward.lifecycle import AGENT, CLOCK, CONTROLLER, NO_FACTS, TIMED_OUT, TRANSITIONAL, Move, State, decide
from stateward.lifecycle.explore import Message, Party, Step

Steps: TypeAlias = Iterable[Step[Controller]]

ILLEGAL = "the state changes by the table alone"
ORPHAN = "nothing is left at the site that the record does not know"

ASKED: dict[State, Work] = {
    S.CREATE_REQUESTED: Work.CREATE,
    S.CREATING: Work.CREATE,
    S.CREATE_ERROR: Work.DELETE,
    S.UPDATE_REQUESTED: Work.UPDATE,
    S.UPDATING: Work.UPDATE,
    S.UPDATE_ERROR: Work.UPDATE,
    S.DELETE_REQUESTED: Work.DELETE,
    S.DELETING: Work.DELETE,
    S.DELETE_ERROR: Work.CREATE,
}
"""What is asked of the agent in each state while an operation is under way; in an error state that is the undo."""

AT_WORK = (S.CREATING, S.UPDATING, S.DELETING)


def controller_party(rules: Rules, start: Controller) -> Party[Controller]:
    """Return the controller as a party that forgets its connection when it crashes."""
    side = _ControllerSide(rules)
    return Party(CONTROLLER, start, side.acts, side.hears, _left_by_crash, moot=side.moot)


class _ControllerSide:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.legal = {(move.source, move.target) for move in rules.lifecycle.every_move()}

    def acts(self, now: Controller) -> Iterator[Step[Controller]]:
        if now.book.state == S.DELETE_PREPARE:
            yield from self._decided(now, "prepared", CONTROLLER)
            yield from self._decided(now, "in use", CONTROLLER)
        if _due(now) and now.link.settled and not now.link.sent:
            order = _order(now)
            yield Step(_with(now, sent=True), f"sends {order}", (Message(AGENT, order),))

    def hears(self, now: Controller, word: Wish | Bell | Hello | Item | End | Report) -> Steps:
        match word:
            case Wish():
                return self._decided(now, word.event, word.actor, word.facts)
            case Bell.DEADLINE:
                return self._decided(now, TIMED_OUT, CLOCK) if now.book.state.state_class is TRANSITIONAL else ()
            case Bell.RETRY:
                return _retried(now)
            case Hello():
                return self._connected(now, word)
            case Item() | End():
                return self._listed(now, word)
            case Report():
                return self._reported(now, word)

    def moot(self, now: Controller, word: Item | End | Report) -> bool:
        if isinstance(word, Report):
            return self.rules.fence(_record(now), word) is not None
        return not self.rules.heeds(now.link, word)

    def _decided(self, now: Controller, event: str, actor: str, facts: frozenset[str] = NO_FACTS) -> Steps:
        known = facts | {IGNORE_TRANSIENT} if now.book.forced else facts
        move = decide(self.rules.lifecycle, now.book.state, event, actor, known, now.book.origin)
        return (self._moved(now, move, event),) if isinstance(move, Move) else ()

    def _moved(self, now: Controller, move: Move, why: str) -> Step[Controller]:
        return self._became(now, after(self.rules, now.book, move), why)

    def _became(self, now: Controller, book: Book, why: str) -> Step[Controller]:
        """Write a new record; the order of a new operation is still to be sent."""
        new = book.operation != now.book.operation
        link = replace(now.link, sent=False) if new else now.link
        note = f"{why}, {book.state}" + (f", operation {book.operation}" if new and book.operation else "")
        legal = now.book.state == book.state or (now.book.state, book.state) in self.legal
        return Step(Controller(book, link), note, breach=None if legal else ILLEGAL)

    def _reported(self, now: Controller, report: Report) -> Steps:
        book, record = now.book, _record(now)
        rejected = self.rules.fence(record, report)
        if rejected is None and report.event == BUSY:
            return (Step(_with(now, sent=False), "will ask again"),)
        verdict = rejected or self.rules.weigh(self.rules.lifecycle, record, report)
        if isinstance(verdict, Move):
            return (self._moved(now, verdict, "agrees"),)
        if isinstance(verdict, Rejected):
            return (Step(now, f"rejects it, {verdict.why}"),)
        if book.state in ERRORS and report.event in FAILED.values():
            return (self._became(now, undoing(self.rules, book), "the undo failed"),)
        return (Step(now, "refuses it"),)

    def _connected(self, now: Controller, hello: Hello) -> Steps:
        if now.link.connection and hello.connection == now.link.connection:
            return ()
        notify = now.book.notify + 1
        connected = Controller(replace(now.book, notify=notify), Link(connection=notify))
        return (self._settled_if_listed(connected, f"gives notify id {notify}"),)

    def _listed(self, now: Controller, line: Item | End) -> Steps:
        link = now.link
        if link.settled or line in link.items or not self.rules.heeds(link, line):
            return ()
        link = replace(link, expected=line.count) if isinstance(line, End) else replace(link, items=(*link.items, line))
        return (self._settled_if_listed(replace(now, link=link), "notes it"),)

    def _settled_if_listed(self, now: Controller, note: str) -> Step[Controller]:
        if not self.rules.listed(now.link):
            return Step(now, note)
        item = now.link.items[0] if now.link.items else Item(0, 0, True, now.link.connection)
        return self._settled(replace(now, link=Link(now.link.connection, settled=True)), item)

    def _settled(self, now: Controller, item: Item) -> Step[Controller]:
        """Settle what the agent has against the record; of what it is still at work on, its reports will tell."""
        book = now.book
        if item.operation and book.operation in (0, item.operation):
            return Step(_with(now, sent=True), "settles: the agent is at work on it")
        if book.state == S.READY:
            missing = not fulfils(item.generation, item.whole, Order(Work.CREATE, 0, book.generation, 0))
            return Step(replace(now, book=replace(book, missing=missing)), "settles")
        if book.state == S.NOT_PRESENT and item.generation:
            return Step(now, "settles: an orphan", breach=ORPHAN)
        return self._resumed(now, item) if book.state in AT_WORK else Step(now, "settles")

    def _resumed(self, now: Controller, item: Item) -> Step[Controller]:
        """The agent lost the work: it is done all the same, or done again, or given up."""
        order = _order(now)
        if fulfils(item.generation, item.whole, order):
            return next(iter(self._decided(now, ENDED[order.work], AGENT)))
        if now.book.tries + 1 < TRIES:
            return Step(replace(now, book=replace(now.book, tries=now.book.tries + 1)), "settles: once more")
        return next(iter(self._decided(now, "give up", CONTROLLER)))


def _left_by_crash(now: Controller) -> Iterable[Controller]:
    yield Controller(now.book)


def _record(now: Controller) -> Record:
    book = now.book
    return Record(book.state, book.operation or None, book.generation, book.notify)


def _retried(now: Controller) -> Steps:
    if now.book.state in ERRORS and now.book.operation and now.link.sent:
        return (Step(_with(now, sent=False), "will send the undo again"),)
    return ()


def _with(now: Controller, *, sent: bool) -> Controller:
    return replace(now, link=replace(now.link, sent=sent))


def _due(now: Controller) -> bool:
    return bool(now.book.operation) and now.book.state in ASKED


def _order(now: Controller) -> Order:
    return Order(ASKED[now.book.state], now.book.operation, now.book.generation, now.link.connection)
