"""What a move of the table does to the controller's record.

Three rules keep late words harmless. Every user's wish is a new operation. A new spec gets a generation that was never
used, not even by a spec that failed or by an earlier life of the same name: here, the number of its operation. And an
error begins its undo in the same write, as an operation of its own: from then on, nothing that is said about what
failed counts any more.
"""

from msgspec.structs import replace

from stateward.domains.edge.protocol.rules import Rules
from stateward.domains.edge.protocol.words import Book, S, Work
from stateward.lifecycle import Move

ERRORS = (S.CREATE_ERROR, S.UPDATE_ERROR, S.DELETE_ERROR)
TRIES = 2
"""How often the agent is asked to do the same work, and how many undos of one error are begun, before it is left."""


def after(rules: Rules, book: Book, move: Move) -> Book:
    """Return the record after a move."""
    to = move.target
    if move.begins:
        return _begun(book, move)
    if to == S.READY:
        return replace(book, state=to, operation=0, confirmed=book.generation, origin=None, forced=False, tries=0)
    if to == S.NOT_PRESENT:
        return Book(state=to, issued=book.issued, notify=book.notify)
    if to in ERRORS:
        return undoing(rules, replace(book, state=to, origin=None, forced=False, tries=0))
    return replace(book, state=to)


def undoing(rules: Rules, book: Book) -> Book:
    """Begin an undo, the first or a further one; what never was Ready cannot be brought back."""
    aim = book.generation if book.state == S.CREATE_ERROR else book.confirmed
    if book.tries == TRIES or not aim:
        return replace(book, operation=0, tries=0)
    operation = rules.undo(book)
    issued = max(book.issued, operation)
    return replace(book, operation=operation, issued=issued, generation=aim, tries=book.tries + 1)


def _begun(book: Book, move: Move) -> Book:
    operation = book.issued + 1
    numbers = replace(book, operation=operation, issued=operation, tries=0, missing=False, forced=move.preempts)
    if move.event == Work.DELETE:
        return replace(numbers, state=move.target, origin=move.source)
    return replace(numbers, state=move.target, origin=None, generation=operation)
