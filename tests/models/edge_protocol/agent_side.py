"""The agent's side: it executes one order at a time, reports, and reconnects."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from stateward.agents.messages import (
    BEGUN,
    BUSY,
    ENDED,
    FAILED,
    AgentOrder,
    AgentReport,
    InventoryEnd,
    InventoryItem,
    OrderAction,
)
from stateward.agents.order_admission import InstanceMemory, OrderVerdict
from stateward.lifecycle import AGENT, CONTROLLER
from stateward.testing.protocols import ModelMessage, ModelParty, Step
from tests.models.edge_protocol.parties import Agent, Dialled, Rules, Site

TWO_AT_ONCE = "two changes are never at work at once"
APPLIED_TWICE = "an operation is applied once, and never after a newer one"


def agent_party(rules: Rules, start: Agent) -> ModelParty[Agent]:
    """Return the agent as a party that connects to the controller, and whose site outlives its crashes."""
    side = _AgentSide(rules)
    return ModelParty(AGENT, start, side.acts, side.hears, _left_by_crash, calls=CONTROLLER, moot=side.moot)


class _AgentSide:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def acts(self, now: Agent) -> Iterator[Step[Agent]]:
        yield _dialled(now)
        work = now.memory.work
        if work is not None:
            yield _finished(now, work)
            yield _ended(now, work, FAILED[work.work], "fails")
            yield _ended(replace(now, site=_halfway(now.site, work)), work, FAILED[work.work], "fails halfway")

    def hears(self, now: Agent, order: AgentOrder) -> Iterable[Step[Agent]]:
        admission = self.rules.admit(now, order)
        match admission:
            case OrderVerdict.BEGIN:
                return (_begun(now, order),)
            case OrderVerdict.DONE:
                return (_ended(now, order, ENDED[order.work], admission.value),)
            case OrderVerdict.REPEAT:
                return (Step(now, admission.value, _report(now, now.memory.answer, order)),)
            case OrderVerdict.BUSY:
                return (Step(now, admission.value, _report(now, BUSY, order)),)
        return (Step(now, admission.value),)

    def moot(self, now: Agent, order: AgentOrder) -> bool:
        return self.rules.admit(now, order) is OrderVerdict.STALE


def _dialled(now: Agent) -> Step[Agent]:
    """Connect, and send the inventory with its end message."""
    connection = now.site.dialled + 1
    after = Agent(replace(now.site, dialled=connection), replace(now.memory, connection=connection))
    at = now.memory.work.operation if now.memory.work is not None else 0
    items = (InventoryItem(at, now.site.generation, now.site.whole, connection),) if at or now.site.generation else ()
    messages = tuple(ModelMessage(CONTROLLER, line) for line in (*items, InventoryEnd(len(items), connection)))
    return Step(after, "connects and sends its list", messages, Dialled(now.memory.connection))


def _begun(now: Agent, order: AgentOrder) -> Step[Agent]:
    breach = TWO_AT_ONCE if now.memory.work is not None else None
    at_work = replace(now, memory=replace(now.memory, work=order))
    return Step(at_work, OrderVerdict.BEGIN.value, _report(now, BEGUN[order.work], order), breach=breach)


def _finished(now: Agent, order: AgentOrder) -> Step[Agent]:
    made = 0 if order.work is OrderAction.DELETE else order.generation
    breach = APPLIED_TWICE if order.operation <= now.site.applied else None
    site = replace(now.site, generation=made, whole=True, applied=order.operation)
    return replace(_ended(replace(now, site=site), order, ENDED[order.work], "finishes"), breach=breach)


def _ended(now: Agent, order: AgentOrder, event: str, note: str) -> Step[Agent]:
    memory = InstanceMemory(now.memory.connection, None, order.operation, event)
    return Step(replace(now, memory=memory), f"{note}, says {event!r}", _report(now, event, order))


def _report(now: Agent, event: str, order: AgentOrder) -> tuple[ModelMessage, ...]:
    return (ModelMessage(CONTROLLER, AgentReport(event, order.operation, order.generation, now.memory.connection)),)


def _halfway(site: Site, order: AgentOrder) -> Site:
    """Return a site with a partial result; an interrupted delete of nothing leaves nothing."""
    pieces = site.generation if order.work is OrderAction.DELETE else order.generation
    return replace(site, generation=pieces, whole=not pieces)


def _left_by_crash(now: Agent) -> Iterable[Agent]:
    """Forget all but the site; an interrupted order has done nothing, or half of it."""
    yield Agent(now.site)
    if now.memory.work is not None:
        yield Agent(_halfway(now.site, now.memory.work))
