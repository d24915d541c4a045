"""What the controller makes of an agent's words, and how it settles an agent's list against its records.

Pure, and walked by the explorer: a record and a word in, the record after it out, with what there is to do.
"""

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.messages import BEGUN, BUSY, ENDED, FAILED, Item, Order, Work
from stateward.domains.edge.records.instance_record import (
    AT_WORK,
    ERRORS,
    TRIES,
    Book,
    Rules,
    S,
    after,
    asked,
    decided,
    known_facts,
    record_of,
    undoing,
)
from stateward.domains.edge.records.report_fencing import Rejected, Report
from stateward.lifecycle import AGENT, CONTROLLER, Move, Refusal

NOTHING = Item(0, 0, True, 0)
"""What is not in a complete list."""


class Turn(Struct, frozen=True):
    """What a word makes of a record: the record after it, by which move, and what is to follow.

    `again`: the order is to be sent again. `at_work`: the agent has the order already. `orphan`: something exists that
    should not.
    """

    book: Book
    note: str
    move: Move | None = None
    refused: Rejected | Refusal | None = None
    again: bool = False
    at_work: bool = False
    orphan: bool = False


def heard(rules: Rules, book: Book, report: Report) -> Turn:
    """Take an agent's report: it moves the record, asks for patience, or does not count."""
    record = record_of(book)
    rejected = rules.fence(record, report)
    if rejected is None and report.event == BUSY:
        return Turn(book, "will ask again", again=True)
    verdict = rejected or rules.weigh(rules.lifecycle, record, report, known_facts(book))
    if isinstance(verdict, Move):
        return Turn(after(rules, book, verdict), "agrees", verdict)
    if isinstance(verdict, Refusal) and book.state in ERRORS and report.event in FAILED.values():
        return Turn(undoing(rules, book), "the undo failed")
    if isinstance(verdict, Refusal) and _begins_undo(book, report):
        return Turn(book, "the undo has begun")
    return Turn(book, f"rejects it, {verdict.why}" if isinstance(verdict, Rejected) else "refuses it", refused=verdict)


def _begins_undo(book: Book, report: Report) -> bool:
    """Tell whether an agent says that it has begun the undo it was asked for: the state waits for its end."""
    work = asked(book)
    return book.state in ERRORS and work is not None and report.event == BEGUN[work]


def settled(rules: Rules, book: Book, item: Item) -> Turn:
    """Settle what the agent has against the record; of what it is still at work on, its reports will tell."""
    if item.operation and book.operation in (0, item.operation):
        return Turn(book, "settles: the agent is at work on it", at_work=True)
    if book.state == S.READY:
        missing = not rules.fulfils(item.generation, item.whole, Order(Work.CREATE, 0, book.generation, 0))
        return Turn(replace(book, missing=missing), "settles")
    if book.state == S.NOT_PRESENT and item.generation:
        return Turn(book, "settles: an orphan", orphan=True)
    return _resumed(rules, book, item) if book.state in AT_WORK else Turn(book, "settles")


def _resumed(rules: Rules, book: Book, item: Item) -> Turn:
    """The agent lost the work: it is done all the same, or done again, or given up."""
    work = asked(book)
    assert work is not None
    if rules.fulfils(item.generation, item.whole, Order(work, book.operation, book.generation, 0)):
        return _moved(rules, book, ENDED[work], AGENT)
    if book.tries + 1 < TRIES:
        return Turn(replace(book, tries=book.tries + 1), "settles: once more")
    return _moved(rules, book, "give up", CONTROLLER)


def _moved(rules: Rules, book: Book, event: str, actor: str) -> Turn:
    move = decided(rules, book, event, actor)
    assert isinstance(move, Move), move
    return Turn(after(rules, book, move), f"settles: {event}", move)
