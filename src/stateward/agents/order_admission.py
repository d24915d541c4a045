"""Admission of orders: the agent's own guard.

The agent never runs two orders at once on one thing, nor on a thing and its container. It executes no operation twice,
and none older than the newest it has seen. It answers an order that conflicts with a running one with `busy`.
"""

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from stateward.agents.messages import AgentOrder, Existing, fulfils_order


class OrderVerdict(Enum):
    """The agent's verdict on an order."""

    BEGIN = "begins"
    DONE = "finds it done"
    REPEAT = "answers as before"
    RUNNING = "is at it already"
    BUSY = "is busy"
    STALE = "drops it as stale"
    IGNORED = "ignores it"


class InstanceMemory(Struct, frozen=True):
    """The agent's memory of a thing: the connection (0: none), the running order, and the last report."""

    connection: int = 0
    work: AgentOrder | None = None
    operation: int = 0  # the last one finished
    answer: str = ""

    @property
    def latest(self) -> int:
        """The newest operation seen."""
        return self.work.operation if self.work is not None else self.operation


def judge_order(
    existing: Existing, memory: InstanceMemory, order: AgentOrder, *, crowded: bool = False
) -> OrderVerdict:
    """Return the verdict on an order; `crowded`: an order runs on its container, or on a thing inside."""
    if order.notify != memory.connection or order.operation < memory.latest:
        return OrderVerdict.STALE
    if memory.work is not None:
        return OrderVerdict.RUNNING if order.operation == memory.latest else OrderVerdict.BUSY
    if order.operation == memory.latest:
        return OrderVerdict.REPEAT
    if fulfils_order(existing.generation, existing.whole, order):
        return OrderVerdict.DONE
    return OrderVerdict.BUSY if crowded else OrderVerdict.BEGIN


def has_related_work(order: AgentOrder, works: Iterable[AgentOrder]) -> bool:
    """Tell whether an order runs on the container of this order's thing, or on a thing inside it."""
    return any(other.name == order.host or other.host == order.name for other in works if other.name != order.name)
