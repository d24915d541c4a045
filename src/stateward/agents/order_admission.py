"""What an agent does with an order: the agent's own guard.

It never runs two changes on one thing at once, nor on a thing and the one that it is in; it does no operation twice,
and nothing that is older than what it has seen. An order in the way of a running one is answered `busy`, not dropped.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from msgspec import Struct

from stateward.agents.messages import AgentOrder, fulfils_order


class OrderVerdict(Enum):
    """What an agent does with an order."""

    BEGIN = "begins"
    DONE = "finds it done"
    REPEAT = "answers as before"
    RUNNING = "is at it already"
    BUSY = "is busy"
    STALE = "drops it as stale"
    IGNORED = "ignores it"


class InstanceMemory(Struct, frozen=True):
    """What the agent has in memory of a thing: its connection (0: none), its work, and the last answer it gave."""

    connection: int = 0
    work: AgentOrder | None = None
    operation: int = 0  # the last one finished
    answer: str = ""

    @property
    def latest(self) -> int:
        """The newest operation that was seen."""
        return self.work.operation if self.work is not None else self.operation


class ObservedThing(Protocol):
    """What exists of a thing."""

    @property
    def generation(self) -> int:
        """The generation of it; 0: nothing exists."""

    @property
    def whole(self) -> bool:
        """Whether all of it exists."""


def judge_order(
    site: ObservedThing, memory: InstanceMemory, order: AgentOrder, *, crowded: bool = False
) -> OrderVerdict:
    """Decide what to do with an order; `crowded` says that work on a thing around it, or in it, is under way."""
    if order.notify != memory.connection or order.operation < memory.latest:
        return OrderVerdict.STALE
    if memory.work is not None:
        return OrderVerdict.RUNNING if order.operation == memory.latest else OrderVerdict.BUSY
    if order.operation == memory.latest:
        return OrderVerdict.REPEAT
    if fulfils_order(site.generation, site.whole, order):
        return OrderVerdict.DONE
    return OrderVerdict.BUSY if crowded else OrderVerdict.BEGIN


def has_related_work(order: AgentOrder, works: Iterable[AgentOrder]) -> bool:
    """Tell whether something is at work on the thing that this one is in, or on one that is in it."""
    return any(other.name == order.host or other.host == order.name for other in works if other.name != order.name)
