"""The presenter: views of stored records for one caller.

Every route that shows an object, an operation or a journal entry uses the presenter of its request. So the fields that
a kind declares as internal or secret are hidden in all routes."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from stateward.access import Grant
from stateward.access.roles import ACTORS
from stateward.access.tokens import SYSTEM
from stateward.engine.errors import NoSuchOperation
from stateward.engine.privacy import Disclosure
from stateward.engine.requests import Accepted
from stateward.lifecycle import ADMIN
from stateward.schemas.journal import LineView
from stateward.schemas.objects import ObjectView
from stateward.schemas.operations import AcceptedView, OperationView
from stateward.server.views import StateClasses, journal_entry_view, object_view, operation_view
from stateward.store.records import JournalEntry, Key, Object, Operation

T = TypeVar("T")
V = TypeVar("V")


def sees_internal(grant: Grant) -> bool:
    """Return whether a grant shows internal fields: administrators see them."""
    return ACTORS[grant.role] == ADMIN


class Presenter(Struct, frozen=True):
    """Creates the views for one group of readers."""

    disclosure: Disclosure
    classes: StateClasses

    def object(self, record: Object) -> ObjectView:
        """Return the view of an object."""
        return object_view(self.disclosure.object(record), self.classes)

    def operation(self, operation: Operation) -> OperationView | None:
        """Return the view of an operation; None if it is hidden."""
        shown = self.disclosure.operation(operation)
        return None if shown is None else operation_view(shown)

    def operations(self, operations: Iterable[Operation]) -> list[OperationView]:
        """Return the views of the operations that are not hidden."""
        return [shown for operation in operations if (shown := self.operation(operation)) is not None]

    def required(self, key: Key, operation: Operation | None) -> OperationView:
        """Return the view of an operation; raises if there is none, or it is hidden."""
        shown = None if operation is None else self.operation(operation)
        if shown is None:
            raise NoSuchOperation(*key)
        return shown

    def accepted(self, accepted: Accepted) -> AcceptedView:
        """Return the view of an accepted request."""
        operation = None if accepted.operation is None else self.operation(accepted.operation)
        return AcceptedView(self.object(accepted.object), operation)

    def entries(self, entries: Iterable[JournalEntry]) -> list[LineView]:
        """Return the views of the journal entries that are not hidden."""
        return [shown for entry in entries if (shown := entry_view_for(self.disclosure, entry)) is not None]


def entry_view_for(disclosure: Disclosure, entry: JournalEntry) -> LineView | None:
    """Return the view of a journal entry; None if it is hidden. The specs of tokens are never shown."""
    shown = disclosure.entry(entry)
    return None if shown is None else journal_entry_view(shown, bare=entry.ns == SYSTEM)


async def list_visible(
    read: Callable[[int], Awaitable[Sequence[T]]], show: Callable[[T], V | None], limit: int, most: int
) -> list[V]:
    """Return the first `limit` visible records; hidden records do not count, unless there are very many."""
    page = await read(limit)
    shown = [view for item in page if (view := show(item)) is not None]
    if len(shown) < len(page) == limit < most:
        shown = [view for item in await read(most) if (view := show(item)) is not None]
    return shown[:limit]
