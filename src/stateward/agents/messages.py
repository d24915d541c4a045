"""What agents and controllers say to each other, as records that are also the lines on the wire.

Every word names the connection it belongs to (`notify`), and every word about work the operation and the generation:
words travel, and come late, twice, or from an earlier life of the same name. The records are hashable, because the
explorer walks the protocol with these very records.
"""

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

PROTOCOL = 1
"""The version of what is said here; an agent that speaks another one is told so, and leaves."""


class OrderAction(StrEnum):
    """What an agent can be asked to do."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


BEGUN = {OrderAction.CREATE: "creating", OrderAction.UPDATE: "updating", OrderAction.DELETE: "deleting"}
ENDED = {OrderAction.CREATE: "ready", OrderAction.UPDATE: "ready", OrderAction.DELETE: "deleted"}
FAILED = {work: f"{work} error" for work in OrderAction}
BUSY = "busy"

UPGRADING, UPGRADE_FAILED = "upgrading", "upgrade failed"

MAX_TEXT_CHARS = 10_000
"""How long what an agent tells people may be."""

MAX_HELD_NAMES = 1000
"""How many things a held agent names at most."""

Number = Annotated[int, Meta(ge=0, le=2**62)]
Name = Annotated[str, Meta(max_length=250, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
Text = Annotated[str, Meta(max_length=MAX_TEXT_CHARS, pattern=r"^[^\x00]*\Z")]
"""What an agent may say: nothing that a store could not keep."""

# --- what an agent says ----------------------------------------------------------------------------------------------


class Hello(Struct, frozen=True, tag="hello"):
    """The first word: which protocol, which software, and of which upgrade it is to be the heir (0: it serves).

    `installation` is the identity of the agent's folder; older agents have none. `things` names what exists at the
    site of an agent that was held before.
    """

    version: Name
    heir: Number = 0
    protocol: Number = PROTOCOL
    installation: Name = ""
    things: Annotated[tuple[Name, ...], Meta(max_length=MAX_HELD_NAMES)] = ()


class InventoryItem(Struct, frozen=True, tag="item"):
    """A line of the agent's list: what it works at (0: nothing), and what exists (generation 0: nothing).

    After the end of the list, an item tells that something has changed by itself. `latest` is the newest operation that
    the agent has seen for it.
    """

    operation: Number
    generation: Number
    whole: bool
    notify: Number
    name: Name = ""
    latest: Number = 0

    def __str__(self) -> str:
        work = f"works at operation {self.operation}" if self.operation else "idle"
        return f"item ({describe_existing(self.generation, self.whole)}, {work}, notify {self.notify})"


class InventoryEnd(Struct, frozen=True, tag="end"):
    """The end of the agent's list, and how many lines it has, since it may overtake them."""

    count: Number
    notify: Number

    def __str__(self) -> str:
        return f"end of list ({self.count}, notify {self.notify})"


class AgentReport(Struct, frozen=True, tag="report"):
    """What an agent says of its work, and of which operation, generation and connection it says so.

    A report without a name is about the agent itself: its upgrade, or that it could not gather what it has.
    """

    event: Name
    operation: Number
    generation: Number
    notify: Number
    name: Name = ""
    error: Text = ""

    def __str__(self) -> str:
        return f"{self.event!r} (operation {self.operation}, generation {self.generation}, notify {self.notify})"


class ProgressMessage(Struct, frozen=True, tag="progress"):
    """How far some work has come."""

    text: Text
    operation: Number
    generation: Number
    notify: Number
    name: Name = ""
    done: Number | None = None
    total: Number | None = None


MAX_LOAD = 1e12
"""The largest number that a load can have."""


class Load(Struct, frozen=True, tag="load"):
    """How much a thing has to do, all its nodes together."""

    notify: Number
    name: Name
    cpu: float = 0.0
    mem: float = 0.0
    connections: float = 0.0

    @property
    def is_in_range(self) -> bool:
        """Whether a site can have such a load at all."""
        return all(0 <= one <= MAX_LOAD for one in (self.cpu, self.mem, self.connections))


class Heartbeat(Struct, frozen=True, tag="beat"):
    """A sign of life; it is answered with the same."""

    notify: Number


# --- what a controller says ------------------------------------------------------------------------------------------


class Welcome(Struct, frozen=True, tag="welcome"):
    """The answer to a hello: the id of the connection, as what the agent is welcome, and how often it is to beat."""

    notify: int
    role: Literal["serving", "heir"] = "serving"
    beat: float = 10.0


class AgentOrder(Struct, frozen=True, tag="order"):
    """A request to the agent; `host` is the thing that this one is in, `id` names the operation to people."""

    work: OrderAction
    operation: int
    generation: int
    notify: int
    name: str = ""
    host: str = ""
    id: str = ""
    spec: str = ""

    def __str__(self) -> str:
        return f"{self.work} (operation {self.operation}, generation {self.generation}, notify {self.notify})"


class Upgrade(Struct, frozen=True, tag="upgrade"):
    """A request to start the successor: of which version, and how many seconds it has to come up."""

    version: str
    operation: int
    notify: int
    within: float = 60.0


class Goodbye(Struct, frozen=True, tag="goodbye"):
    """The agent is not wanted now; where that is `final`, it is to end rather than to dial again.

    `held` says that the cloudlet belongs to another installation, until an administrator hands it over.
    """

    reason: str
    final: bool = False
    held: bool = False


FromAgent: TypeAlias = Hello | InventoryItem | InventoryEnd | AgentReport | ProgressMessage | Load | Heartbeat
FromController: TypeAlias = Welcome | AgentOrder | Upgrade | Goodbye | Heartbeat

encode = msgspec.json.Encoder().encode
read_agent = msgspec.json.Decoder(FromAgent).decode
read_controller = msgspec.json.Decoder(FromController).decode


class Existing(Struct, frozen=True):
    """What exists of a thing (generation 0: nothing), and whether all of it does."""

    generation: int = 0
    whole: bool = True


def clip_text(text: str) -> str:
    """Return a text for people as it may be said."""
    return text.replace("\x00", "\ufffd")[:MAX_TEXT_CHARS]


def fulfils_order(generation: int, whole: bool, order: AgentOrder) -> bool:
    """Tell whether what exists is what an order asks for."""
    return generation == 0 if order.work is OrderAction.DELETE else (generation == order.generation and whole)


def describe_existing(generation: int, whole: bool) -> str:
    """Say what exists."""
    return f"has generation {generation}{'' if whole else ' in pieces'}" if generation else "has nothing"
