"""What a server answers with, as records. A field that a newer server adds is passed over."""

from datetime import datetime
from typing import Any, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")

ENDED = frozenset({"succeeded", "failed", "cancelled"})


class Listed(Struct, Generic[T], frozen=True):
    """A page of a listing, and where the next one begins."""

    items: list[T]
    next: str | None = None


class ObjectInfo(Struct, frozen=True, kw_only=True):
    """An object."""

    ns: str
    id: str
    kind: str
    state: str
    state_class: str | None = None
    since: datetime
    version: int
    generation: int = 0
    op: str | None = None
    queue: str | None = None
    parent: str | None = None
    spec: Any = None
    seen: Any = None
    labels: dict[str, str] = {}
    error: str | None = None
    created: datetime | None = None


class OperationInfo(Struct, frozen=True, kw_only=True):
    """An operation."""

    ns: str
    id: str
    object: str
    kind: str
    action: str
    status: str
    actor: str = ""
    who: str = ""
    facts: list[str] = []
    args: Any = None
    origin: str = ""
    via: str = ""
    desired: str = ""
    failing: str = ""
    hidden: bool = False
    within: float | None = None
    generation: int = 0
    parent: str | None = None
    tree: str | None = None
    attempts: int = 0
    steps: Any = None
    result: Any = None
    error: str | None = None
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.status in ENDED


class Accepted(Struct, frozen=True):
    """An accepted request."""

    object: ObjectInfo
    operation: OperationInfo | None = None


Problem = dict[str, Any]


class GroupAccepted(Struct, frozen=True):
    """What became of a group action."""

    begun: list[Accepted]
    skipped: dict[str, Problem] = {}
    whole: Accepted | None = None


class Line(Struct, frozen=True, kw_only=True):
    """A line of the journal."""

    seq: int
    ns: str
    object: str
    kind: str
    at: datetime
    actor: str
    event: str
    op: str | None = None
    who: str = ""
    source: str | None = None
    target: str | None = None
    reason: str | None = None
    spec: Any = None


class LineList(Struct, frozen=True):
    """A page of the journal, where the next one begins, and up to which number some lines are gone."""

    items: list[Line]
    next: str | None = None
    pruned: int | None = None


class JournalPage(Struct, frozen=True):
    """Lines of the journal, the number to go on from, and whether there is more already."""

    lines: list[Line]
    after: int
    more: bool
    pruned: int | None = None  # of the lines up to this number some are gone


class Progress(Struct, frozen=True):
    """What an operation says of its progress."""

    text: str
    done: int | None = None
    total: int | None = None


class Possible(Struct, frozen=True, kw_only=True):
    """Something that can be done to an object, or why not."""

    event: str
    allowed: bool
    why_not: str | None = None
    needs: list[str] = []
    target: str | None = None
    desired: str | None = None
    within: float | None = None

    @property
    def end(self) -> str | None:
        """The state that it leads to in the end."""
        return self.desired or self.target


class Allowed(Struct, frozen=True):
    """What can be done to an object now."""

    state: str
    state_class: str | None
    actions: list[Possible]


class Planned(Struct, frozen=True, kw_only=True):
    """What a request would lead to."""

    would: str
    state: str | None = None
    problem: Problem | None = None


class Lane(Struct, frozen=True, kw_only=True):
    """A lane with its limit and its load."""

    lane: str
    grp: str
    capacity: int
    running: int = 0
    waiting: bool = False
    back_off: datetime | None = None
    throttled: int = 0


class LaneGroup(Struct, frozen=True):
    """A group of lanes with its limit."""

    grp: str
    lanes: int


class Lanes(Struct, frozen=True):
    """All lanes and groups."""

    groups: list[LaneGroup]
    lanes: list[Lane]


class Token(Struct, frozen=True, kw_only=True):
    """A token as it may be shown; its text is there only where it was just made."""

    id: str
    name: str
    role: str
    namespaces: list[str]
    state: str
    created: datetime
    expires: datetime | None = None


class NewToken(Struct, frozen=True):
    """A token that was just made, with its text."""

    token: str
    info: Token


class Namespace(Struct, frozen=True, kw_only=True):
    """A namespace with what is in it: how many of each kind in each state."""

    ns: str
    counts: dict[str, dict[str, int]] = {}


class Queued(Struct, frozen=True, kw_only=True):
    """A piece of work in a queue, and what it waits for."""

    op: str
    object: str
    reason: str
    text: str
    position: int = 0
    action: str = ""
    who: str = ""
    lane: str = ""
    grp: str = ""
    priority: int = 0
    attempts: int = 0
    owner: str | None = None
    not_before: datetime | None = None
    deadline: datetime | None = None


class HeldLock(Struct, frozen=True, kw_only=True):
    """An intention lock, held or waited for."""

    tree: str
    path: str
    mode: str
    op: str
    waiting: bool


class Parent(Struct, frozen=True, kw_only=True):
    """An object further up."""

    id: str
    kind: str
    state: str
    state_class: str | None = None
    operation: OperationInfo | None = None


class Why(Struct, frozen=True, kw_only=True):
    """What an object waits for."""

    id: str
    kind: str
    state: str
    text: str
    state_class: str | None = None
    reason: str | None = None
    operation: OperationInfo | None = None
    queue: list[Queued] = []
    lane: Lane | None = None
    locks: list[HeldLock] = []
    children: list[OperationInfo] = []
    parents: list[Parent] = []


class Healed(Struct, frozen=True):
    """What the healer did: work put back that dead workers held, and overdue work settled or hurried on."""

    freed: int
    settled: int


class Pruned(Struct, frozen=True):
    """What has gone of the history, or would go; `next` is where to go on, if there is more."""

    before: datetime
    operations: int
    objects: int
    lines: int
    answers: int
    next: int | None = None


class Stuck(Struct, frozen=True, kw_only=True):
    """Work that does not end."""

    ns: str
    object: str
    op: str
    action: str
    state: str
    why: str
    deadline: datetime | None = None
    owner: str | None = None
    attempts: int = 0


class Worker(Struct, frozen=True, kw_only=True):
    """A process that claims work."""

    id: str
    host: str
    pid: int
    lease: float
    seen: datetime
    alive: bool
