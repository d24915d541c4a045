"""The decisions on which the protocol rests, each by itself, so that a test can plant a wrong one and see it found."""

from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from stateward.domains.edge.guard import Record, Rejected, Report, fence, weigh
from stateward.domains.edge.lifecycle import CLUSTERINST
from stateward.domains.edge.protocol.words import Agent, Book, End, Item, Link, Order, fulfils
from stateward.lifecycle import Lifecycle, Move, Refusal


class Admission(Enum):
    """What an agent does with an order."""

    BEGIN = "begins"
    DONE = "finds it done"
    AGAIN = "answers as before"
    AT_IT = "is at it already"
    BUSY = "is busy"
    STALE = "drops it as stale"
    IGNORED = "ignores it"


def admit(agent: Agent, order: Order) -> Admission:
    """Decide what to do with an order: never two at once, no operation twice, nothing older than what was done."""
    mind = agent.mind
    latest = mind.work.operation if mind.work is not None else mind.operation
    if order.notify != mind.connection or order.operation < latest:
        return Admission.STALE
    if mind.work is not None:
        return Admission.AT_IT if order.operation == latest else Admission.BUSY
    if order.operation == latest:
        return Admission.AGAIN
    return Admission.DONE if fulfils(agent.site.generation, agent.site.whole, order) else Admission.BEGIN


def of_this_connection(link: Link, line: Item | End) -> bool:
    """Tell whether a line of a list counts: a list is about the connection on which it was sent."""
    return line.notify == link.connection


def all_listed(link: Link) -> bool:
    """Tell whether the agent's list is complete: only then is absence known."""
    return len(link.items) == link.expected


def own_operation(book: Book) -> int:
    """Number an undo: an operation of its own."""
    return book.issued + 1


class Rules(Struct, frozen=True):
    """The right decisions; a variant replaces some of them."""

    lifecycle: Lifecycle = CLUSTERINST
    fence: Callable[[Record, Report], Rejected | None] = fence
    weigh: Callable[[Lifecycle, Record, Report], Move | Refusal | Rejected] = weigh
    heeds: Callable[[Link, Item | End], bool] = of_this_connection
    listed: Callable[[Link], bool] = all_listed
    admit: Callable[[Agent, Order], Admission] = admit
    undo: Callable[[Book], int] = own_operation
