"""The protocol of one instance: its parties, its invariants, and its states of rest."""

from msgspec import Struct

from stateward.agents.messages import InventoryEnd, InventoryItem
from stateward.domains.edge.records.instance_record import ERROR_STATES, InstanceRecord, S, needs_undo
from stateward.lifecycle import AGENT, CLOCK, CONTROLLER, USER
from stateward.testing.protocols import NETWORK, ModelMessage, ModelParty, Predicate, Protocol, Step
from tests.models.edge_protocol.agent_side import agent_party
from tests.models.edge_protocol.controller_side import controller_party
from tests.models.edge_protocol.parties import USER_REQUESTS, Agent, ClockEvent, Controller, Rules, Site, UserRequest

READY_IS_TRUE = "what is Ready exists at the site, whole and of that generation"
ABSENT_IS_TRUE = "what is NotPresent does not exist at the site"
MISSING_IS_TRUE = "what is marked missing is missing"
AT_REST = "all agree, and nothing is under way"

READY_BOOKED = Controller(InstanceRecord(S.READY, generation=1, confirmed=1, issued=1))
READY_AT_SITE = Agent(Site(generation=1, applied=1))


class Scenario(Struct, frozen=True):
    """What is tried: where the instance is at the start, what the user may ask for and how often, what the clock does.

    With `patient` the clock is not counted on: everything must come to rest by the parties' own doing.
    """

    ready: bool = False
    asks: int = 2
    requests: tuple[UserRequest, ...] = USER_REQUESTS
    clock_events: tuple[ClockEvent, ...] = tuple(ClockEvent)
    patient: bool = False


def instance_protocol(scenario: Scenario, rules: Rules | None = None) -> Protocol:
    """Return the protocol for one instance, with the production rules or with others."""
    chosen = rules or Rules()
    parties = (
        controller_party(chosen, READY_BOOKED if scenario.ready else Controller()),
        agent_party(chosen, READY_AT_SITE if scenario.ready else Agent()),
        _user(scenario),
        _clock(scenario),
    )
    return Protocol(parties, Predicate(AT_REST, (CONTROLLER, AGENT, NETWORK), _at_rest), INVARIANTS)


def listing(message: ModelMessage) -> bool:
    """Tell whether a message is part of an inventory; losing one is the same as losing the connection."""
    return isinstance(message.body, InventoryItem | InventoryEnd)


def _user(scenario: Scenario) -> ModelParty[int]:
    def acts(left: int) -> list[Step[int]]:
        return [
            Step(left - 1, f"asks for {request.event}", call_argument=request) for request in scenario.requests if left
        ]

    return ModelParty(USER, scenario.asks, acts, calls=CONTROLLER, free=True)


def _clock(scenario: Scenario) -> ModelParty[str]:
    rings = [Step("ticks", f"rings: {clock_event}", call_argument=clock_event) for clock_event in scenario.clock_events]
    return ModelParty(CLOCK, "ticks", lambda _: rings, calls=CONTROLLER, free=scenario.patient)


def _ready_is_true(controller: Controller, agent: Agent) -> bool:
    site, record = agent.site, controller.record
    return (
        record.state != S.READY
        or record.missing
        or (site.generation == record.generation and site.whole and _idle(agent))
    )


def _absent_is_true(controller: Controller, agent: Agent) -> bool:
    return controller.record.state != S.NOT_PRESENT or (agent.site.generation == 0 and _idle(agent))


def _missing_is_true(controller: Controller, agent: Agent) -> bool:
    return not controller.record.missing or agent.site.generation != controller.record.generation


def _at_rest(controller: Controller, agent: Agent, flying: tuple[ModelMessage, ...]) -> bool:
    record, link = controller.record, controller.link
    left = record.state in ERROR_STATES and not record.operation and not needs_undo(record)
    still = left or record.state in (S.READY, S.NOT_PRESENT)
    return still and link.settled and link.notify == agent.memory.connection and _idle(agent) and not flying


def _idle(agent: Agent) -> bool:
    return agent.memory.work is None


INVARIANTS = (
    Predicate(READY_IS_TRUE, (CONTROLLER, AGENT), _ready_is_true),
    Predicate(ABSENT_IS_TRUE, (CONTROLLER, AGENT), _absent_is_true),
    Predicate(MISSING_IS_TRUE, (CONTROLLER, AGENT), _missing_is_true),
)
"""Invariants of every state."""
