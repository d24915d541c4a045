"""Bodies of requests. Unknown fields are refused, and so is a number given as text."""

from typing import Annotated

from msgspec import Meta, Struct, field

from stateward.access import Role
from stateward.access.quotas import Most
from stateward.locks.modes import Mode
from stateward.schemas.params import (
    Args,
    Facts,
    Json,
    Labels,
    Namespace,
    Part,
    Plain,
    Priority,
    Spec,
    Text,
    Time,
    TokenName,
)


class Body(Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all bodies."""


class NewObject(Body, frozen=True, kw_only=True):
    """A new object."""

    id: Plain
    kind: Text
    action: Text | None = None
    spec: Spec | None = None
    labels: Labels | None = None
    parent: Part | None = None
    queue: Part | None = None
    args: Args | None = None
    facts: Facts = []
    priority: Priority = 0
    not_before: Time | None = None


class NewLabels(Body, frozen=True):
    """The labels of an object; they replace all that it has."""

    labels: Labels


class NewProtection(Body, frozen=True):
    """The deletion protection of an object or a namespace, with the reason for it."""

    protected: bool
    reason: Annotated[str, Meta(max_length=250)] = ""


class Forget(Body, frozen=True):
    """A request to remove the record of an object whose plug-in is gone."""

    kind: Annotated[str, Meta(min_length=1, max_length=250, description="the object's kind, as a confirmation")]


class WishedLock(Body, frozen=True):
    """An intention lock that the action must hold on its tree."""

    path: Text
    mode: Mode


class NewSignal(Body, frozen=True):
    """A signal to an operation."""

    payload: Json = None


class Ask(Body, frozen=True, kw_only=True):
    """A request for an action."""

    args: Args | None = None
    spec: Spec | None = None
    facts: Facts = []
    priority: Priority = 0
    not_before: Time | None = None
    tree: Part | None = None
    locks: Annotated[list[WishedLock], Meta(max_length=100)] = []
    wait_for_locks: bool = False


class Planned(Ask, frozen=True, kw_only=True):
    """A request for an action, to be planned only; with a `kind`, the action would create the object."""

    object: Part
    action: Text
    kind: Text | None = None
    labels: Labels | None = None
    parent: Part | None = None


class Plan(Body, frozen=True):
    """Requests to be planned, one after the other."""

    requests: Annotated[list[Planned], Meta(min_length=1, max_length=1000)]


class Chosen(Body, frozen=True, kw_only=True):
    """The objects of a group action; a field that is not given matches all."""

    kind: Text | None = None
    parent: Part | None = None
    states: Annotated[list[Text], Meta(max_length=100)] | None = None
    labels: Labels | None = None
    q: Text | None = None


class Whole(Body, frozen=True):
    """The composite that the group belongs to, and the action on it."""

    object: Part
    action: Text


class GroupAsk(Body, frozen=True, kw_only=True):
    """A request for an action on all chosen objects, and on their composite: by a selector, or by their ids."""

    selector: Chosen | None = None
    objects: Annotated[list[Part], Meta(min_length=1, max_length=10_000)] | None = None
    facts: Facts = []
    args: Args | None = None
    priority: Priority = 0
    whole: Whole | None = None


class LaneLimit(Body, frozen=True):
    """The capacity of a lane."""

    grp: Text
    capacity: Most


class GroupLimit(Body, frozen=True):
    """The number of lanes of a group that may be active at once."""

    lanes: Most


class Prune(Body, frozen=True, kw_only=True):
    """A request to prune: the history of what ended more than `older` seconds ago."""

    older: Annotated[int, Meta(ge=3_600, le=10**10, description="seconds: an hour at least")]
    dry_run: Annotated[bool, Meta(description="only say how much it would be")] = False
    after: Annotated[int, Meta(ge=0, le=10**15, description="`next` of the call before")] = 0


class NewToken(Body, frozen=True, kw_only=True):
    """A new token."""

    name: TokenName
    role: Role
    namespaces: Annotated[list[Namespace], Meta(min_length=1, max_length=1000)]
    expires: Time | None = None


class NewSession(Body, frozen=True):
    """The token of somebody who signs in."""

    token: Annotated[str, Meta(min_length=1, max_length=200)]


class NewQuota(Body, frozen=True, kw_only=True):
    """Limits of a namespace; a field that is not given sets no limit."""

    objects: Annotated[dict[Text, Most], Meta(max_length=1000)] = field(default_factory=dict)
    operations: Most | None = None
