"""Messages of the user and the clock, and the state of each party of the model."""

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from stateward.agents import order_admission
from stateward.agents.connection import belongs_to_connection, is_inventory_complete
from stateward.agents.messages import AgentOrder, Existing, InventoryEnd, InventoryItem, describe_existing
from stateward.agents.order_admission import InstanceMemory, OrderVerdict
from stateward.domains.edge.lifecycle import IGNORE_TRANSIENT
from stateward.domains.edge.records import instance_record
from stateward.domains.edge.records.instance_record import InstanceRecord
from stateward.lifecycle import ADMIN, NO_FACTS, USER


class Dialled(Struct, frozen=True):
    """The agent connects; `connection` is the one that it believes to have."""

    connection: int


class UserRequest(Struct, frozen=True):
    """A request of a user or an administrator."""

    event: str
    actor: str = USER
    facts: frozenset[str] = NO_FACTS


class ClockEvent(StrEnum):
    """An event of the clock: the deadline of a state, or the retry of an unanswered undo."""

    DEADLINE = "deadline"
    RETRY = "retry"


USER_REQUESTS = (UserRequest("create"), UserRequest("update"), UserRequest("delete"))
FORCED_DELETE = UserRequest("delete", ADMIN, frozenset({IGNORE_TRANSIENT}))


class Link(Struct, frozen=True):
    """The controller's memory: its connection (0: none), the inventory so far, and whether the order was sent."""

    notify: int = 0
    items: tuple[InventoryItem, ...] = ()
    expected: int | None = None
    settled: bool = False
    sent: bool = False


class Controller(Struct, frozen=True):
    """The controller's state for one instance."""

    record: InstanceRecord = InstanceRecord()
    link: Link = Link()

    def __str__(self) -> str:
        link = "not connected" if not self.link.notify else "settled" if self.link.settled else "waits for the list"
        return f"{self.record}, {link}"


class Site(Existing, frozen=True):
    """What really exists; `applied` and `dialled` are kept for the proof only."""

    applied: int = 0
    dialled: int = 0


class Agent(Struct, frozen=True):
    """The agent, and the site that it works at."""

    site: Site = Site()
    memory: InstanceMemory = InstanceMemory()

    def __str__(self) -> str:
        work = f"works at {self.memory.work}" if self.memory.work is not None else "idle"
        return f"{describe_existing(self.site.generation, self.site.whole)}, {work}"


def admit(agent: Agent, order: AgentOrder) -> OrderVerdict:
    """Return the verdict of the agent's admission."""
    return order_admission.judge_order(agent.site, agent.memory, order)


class Rules(instance_record.DecisionRules, frozen=True):
    """The production decisions; a test replaces some of them."""

    heeds: Callable[[Link, InventoryItem | InventoryEnd], bool] = belongs_to_connection
    listed: Callable[[Link], bool] = is_inventory_complete
    admit: Callable[[Agent, AgentOrder], OrderVerdict] = admit
