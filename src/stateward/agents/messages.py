"""Messages between agents and controllers, as they go over the wire.

Every message has the notify id of its connection, and every message about an order has its operation and generation:
messages arrive late, twice, or from a deleted thing of the same name. The records are hashable, because the explorer
checks the protocol with the same records.
"""

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from stateward.agents.measure_messages import Measures
from stateward.agents.message_types import NAME_TEXT, Name, Number, Text
from stateward.agents.node_messages import (
    ImageAnswer,
    ImageRequest,
    SecretAnswer,
    SecretRequest,
    VolumeRemoval,
    VolumesRemoved,
)
from stateward.agents.published_ports import Addresses

PROTOCOL = 1
"""The protocol version; a controller refuses an agent with another one."""


class SiteBackend(StrEnum):
    """The form in which an agent runs things."""

    PROCESS = "process"
    CONTAINER = "container"


class OrderAction(StrEnum):
    """The action that an order requests."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


BEGUN = {OrderAction.CREATE: "creating", OrderAction.UPDATE: "updating", OrderAction.DELETE: "deleting"}
ENDED = {OrderAction.CREATE: "ready", OrderAction.UPDATE: "ready", OrderAction.DELETE: "deleted"}
FAILED = {work: f"{work} error" for work in OrderAction}
BUSY = "busy"

UPGRADING, UPGRADE_FAILED = "upgrading", "upgrade failed"

MAX_HELD_NAMES = 1000
"""The number of things that a held agent may name."""

MAX_BACKENDS = 20

# --- from agents -----------------------------------------------------------------------------------------------------


class Hello(Struct, frozen=True, tag="hello"):
    """The first message: protocol, software version, and the upgrade that the agent is the successor of (`heir`).

    `heir` is 0 for an agent that serves. `installation` is the identity of the agent's folder; older agents have none.
    `things` names what exists at the site of a held agent. `answers`: it knows requests for logs and commands, which
    older agents cannot read. `cores` and `memory` (bytes) are the capacity of the site; 0 is unknown, and is no limit.
    `backends` are those that the agent offers. The agent of a node also tells for how many instances it has `slots`,
    at which address other hosts reach them, and whether its connection is private enough for values of `secrets`.
    """

    version: Name
    heir: Number = 0
    protocol: Number = PROTOCOL
    installation: Name = ""
    things: Annotated[tuple[Name, ...], Meta(max_length=MAX_HELD_NAMES)] = ()
    answers: bool = False
    cores: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    memory: Number = 0
    backends: Annotated[tuple[Name, ...], Meta(max_length=MAX_BACKENDS)] = (SiteBackend.PROCESS,)
    slots: Annotated[int, Meta(ge=0, le=100_000)] = 0
    address: Name = ""
    secrets: bool = False


class InventoryItem(Struct, frozen=True, tag="item"):
    """A thing in the agent's inventory: the running operation (0: none), and the generation that exists (0: none).

    After the end of the inventory, an item tells that a thing has changed by itself. `latest` is the newest operation
    that the agent has seen for it. `problem` tells what of a thing that is not whole does not run. `ports` are the
    published ones.
    """

    operation: Number
    generation: Number
    whole: bool
    notify: Number
    name: Name = ""
    latest: Number = 0
    problem: Text = ""
    ports: Addresses = ()

    def __str__(self) -> str:
        work = f"works at operation {self.operation}" if self.operation else "idle"
        return f"item ({describe_existing(self.generation, self.whole)}, {work}, notify {self.notify})"


class InventoryEnd(Struct, frozen=True, tag="end"):
    """The end of the inventory, with the number of items, since it may overtake them."""

    count: Number
    notify: Number

    def __str__(self) -> str:
        return f"end of list ({self.count}, notify {self.notify})"


class AgentReport(Struct, frozen=True, tag="report"):
    """An event of an order, with its operation, generation and connection; after its end, the ports that are published.

    A report without a name is about the agent itself: its upgrade, or an inventory that failed.
    """

    event: Name
    operation: Number
    generation: Number
    notify: Number
    name: Name = ""
    error: Text = ""
    ports: Addresses = ()

    def __str__(self) -> str:
        return f"{self.event!r} (operation {self.operation}, generation {self.generation}, notify {self.notify})"


class ProgressMessage(Struct, frozen=True, tag="progress"):
    """A line of progress of an order."""

    text: Text
    operation: Number
    generation: Number
    notify: Number
    name: Name = ""
    done: Number | None = None
    total: Number | None = None


class StatusMessage(Struct, frozen=True, tag="status"):
    """The state of a thing that exists, as JSON; what it says is up to the domain."""

    status: Text
    generation: Number
    notify: Number
    name: Name = ""


class Heartbeat(Struct, frozen=True, tag="beat"):
    """A heartbeat; the controller answers it with one of the same number.

    An agent with a lease counts from the moment at which it sent the heartbeat that was answered.
    """

    notify: Number
    number: Number = 0


# --- logs and commands of an instance: answers of agents --------------------------------------------------------------

MAX_ANSWER_CHARS = 262_144
"""The length limit of the texts in one answer."""

MAX_PIECE_CHARS = 8_000
"""The length of a piece of an answer: the controller reads no message of more than 64 KiB."""

MAX_PIECES = 500
"""The number of pieces of the longest answer: most of its characters may be escaped."""

MAX_LOG_PARTS = 100
Output = Annotated[str, Meta(max_length=MAX_ANSWER_CHARS)]
Cursor = Annotated[str, Meta(max_length=100, pattern=NAME_TEXT)]


class LogPart(Struct, frozen=True, omit_defaults=True):
    """What a part of an instance has written after a cursor, and the cursor of what comes next."""

    part: Name
    text: Output
    next: Cursor


class LogAnswer(Struct, frozen=True, tag="log"):
    """The answer to a request for logs; `error` tells why there is none."""

    request: Number
    notify: Number
    parts: Annotated[tuple[LogPart, ...], Meta(max_length=MAX_LOG_PARTS)] = ()
    error: Text = ""


class CommandAnswer(Struct, frozen=True, tag="command end"):
    """The end of a command: its exit status, and the last of its output; `error` tells why it did not run.

    `omitted` is the number of bytes of output before those that are kept. The agent of a node tells apart what went to
    standard error (`errors`), keeps the beginning of the output (`is_cut`: there was more), and has no status for a
    command that did not end in time.
    """

    request: Number
    notify: Number
    status: Annotated[int, Meta(ge=0, le=255)] | None = None
    written: Output = ""
    omitted: Number = 0
    error: Text = ""
    errors: Output = ""
    is_cut: bool = False


class AnswerPiece(Struct, frozen=True, tag="answer"):
    """A piece of an answer's JSON; the pieces of one answer come in order."""

    request: Number
    notify: Number
    text: Annotated[str, Meta(max_length=MAX_PIECE_CHARS)]
    is_last: bool = True


# --- from controllers ------------------------------------------------------------------------------------------------


class Welcome(Struct, frozen=True, tag="welcome"):
    """The answer to a hello: the connection's notify id, the agent's role, and its heartbeat interval in seconds.

    `measures` is the interval of measurements in seconds; older controllers understand none, and 0 requests none.
    `backend` is the one that the site runs on.
    With a `lease`, what the agent runs must end so many seconds after the last heartbeat that was answered.
    """

    notify: int
    role: Literal["serving", "heir"] = "serving"
    beat: float = 10.0
    measures: float = 0.0
    backend: str = SiteBackend.PROCESS
    lease: float = 0.0


class AgentOrder(Struct, frozen=True, tag="order"):
    """A request to the agent; `host` is the name of the containing thing, `id` the id of the operation for people.

    `keep_data`: a delete that nobody asked for, the undo of a re-create that failed. What runs ends, and the data of
    the thing, which is to be created again, stays. Agents of 0.1.0 do not know it; they keep no data.
    """

    work: OrderAction
    operation: int
    generation: int
    notify: int
    name: str = ""
    host: str = ""
    id: str = ""
    spec: str = ""
    keep_data: bool = False

    def __str__(self) -> str:
        return f"{self.work} (operation {self.operation}, generation {self.generation}, notify {self.notify})"


class Upgrade(Struct, frozen=True, tag="upgrade"):
    """A request to start the successor of a version, which has `within` seconds to connect."""

    version: str
    operation: int
    notify: int
    within: float = 60.0


class Goodbye(Struct, frozen=True, tag="goodbye"):
    """The refusal or dismissal of an agent; if it is `final`, the agent ends instead of reconnecting.

    `held`: the site belongs to another installation, until an administrator hands it over.
    """

    reason: str
    final: bool = False
    held: bool = False


class LogRequest(Struct, frozen=True, tag="read log"):
    """A request for the logs of an instance: of one part or all, after a cursor or the last `most` characters."""

    request: int
    notify: int
    name: str
    part: str = ""
    after: str = ""
    most: int = 10_000


class CommandRequest(Struct, frozen=True, tag="run command"):
    """A request to run a command where a part of an instance runs (empty: its first), for at most `within` seconds."""

    request: int
    notify: int
    name: str
    argv: tuple[str, ...]
    part: str = ""
    within: float = 60.0


class RequestCancelled(Struct, frozen=True, tag="cancel"):
    """Nobody waits for the answer to a request any more; its command is to end."""

    request: int
    notify: int


Answer: TypeAlias = LogAnswer | CommandAnswer | ImageAnswer | VolumesRemoved
FromAgent: TypeAlias = (
    Hello
    | InventoryItem
    | InventoryEnd
    | AgentReport
    | ProgressMessage
    | Measures
    | StatusMessage
    | Heartbeat
    | AnswerPiece
    | SecretRequest
)
FromController: TypeAlias = (
    Welcome
    | AgentOrder
    | Upgrade
    | Goodbye
    | Heartbeat
    | LogRequest
    | CommandRequest
    | ImageRequest
    | VolumeRemoval
    | RequestCancelled
    | SecretAnswer
)

encode = msgspec.json.Encoder().encode
read_agent = msgspec.json.Decoder(FromAgent).decode
read_controller = msgspec.json.Decoder(FromController).decode
read_answer = msgspec.json.Decoder(Answer).decode


class Existing(Struct, frozen=True):
    """The generation of a thing that exists (0: none), whether it is whole, and what of it does not run if not.

    `ports` are those that it has published.
    """

    generation: int = 0
    whole: bool = True
    problem: str = ""
    ports: Addresses = ()


def answer_pieces(answer: Answer) -> list[AnswerPiece]:
    """Return the pieces of an answer."""
    text = encode(answer).decode()
    begins = range(0, len(text), MAX_PIECE_CHARS)
    return [
        AnswerPiece(answer.request, answer.notify, text[at : at + MAX_PIECE_CHARS], is_last=at == begins[-1])
        for at in begins
    ]


def fulfils_order(generation: int, whole: bool, order: AgentOrder) -> bool:
    """Tell whether what exists already is what an order requests."""
    return generation == 0 if order.work is OrderAction.DELETE else (generation == order.generation and whole)


def describe_existing(generation: int, whole: bool) -> str:
    """Describe what exists."""
    return f"has generation {generation}{'' if whole else ' in pieces'}" if generation else "has nothing"
