"""Objects in responses: their state, the actions that they allow, and the state that they had."""

from msgspec import Struct

from stateward.schemas.params import Json, Moment
from stateward.state_class import StateClass


class ObjectView(Struct, frozen=True):
    """An object: its spec, its last observation (`seen`), and the operation that holds its state."""

    ns: str
    id: str
    kind: str
    state: str
    state_class: StateClass | None
    since: Moment
    version: int
    generation: int
    op: str | None
    queue: str
    parent: str | None
    spec: Json
    seen: Json
    labels: dict[str, str]
    error: str | None
    created: Moment
    protected: str = ""  # the reason of its own deletion protection, `yes` without one; empty: it has none


class ProtectionView(Struct, frozen=True):
    """The deletion protection of a namespace: its reason, `yes` without one; empty if there is none."""

    ns: str
    protected: str


class ObjectPage(Struct, frozen=True):
    """A page of objects in the order of their ids; `next` continues it, null at the end."""

    items: list[ObjectView]
    next: str | None


class GroupCount(Struct, frozen=True):
    """The number of objects that have the same values in the fields of `by`; null stands for a missing value."""

    values: list[str | None]
    count: int


class ObjectCounts(Struct, frozen=True):
    """The number of objects by the values of some fields, and of all of them together."""

    by: list[str]
    rows: list[GroupCount]
    total: int


class NamespaceView(Struct, frozen=True):
    """A namespace, with the number of its objects by kind and state."""

    ns: str
    counts: dict[str, dict[str, int]]


class Possible(Struct, frozen=True):
    """An action or event of an object: whether it is allowed, the facts it needs, and the states it leads to."""

    event: str
    allowed: bool
    why_not: str | None
    needs: list[str]
    target: str | None
    desired: str | None
    within: float | None

    @property
    def end(self) -> str | None:
        """The last state that it leads to."""
        return self.desired or self.target


class AllowedView(Struct, frozen=True):
    """The actions that the caller may request of an object now, and the reasons against the others."""

    state: str
    state_class: StateClass | None
    actions: list[Possible]


class StateView(Struct, frozen=True):
    """The state of an object at a past time; null if it did not exist then, or if its history was pruned (`known`)."""

    time: Moment
    state: str | None
    state_class: StateClass | None
    known: bool
