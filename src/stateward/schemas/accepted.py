"""Responses to accepted requests, and to requests that were only planned."""

from msgspec import Struct

from stateward.schemas.objects import ObjectView
from stateward.schemas.operations import OperationView
from stateward.schemas.problems import Problem


class AcceptedView(Struct, frozen=True):
    """An accepted request: the object as it is now, and its operation; null if the state was changed at once."""

    object: ObjectView
    operation: OperationView | None


class GroupView(Struct, frozen=True):
    """The result of a group action: the composite, the members that began, and the skipped ones with their problems."""

    whole: AcceptedView | None
    begun: list[AcceptedView]
    skipped: dict[str, Problem]


class Prospect(Struct, frozen=True):
    """The outcome that a request would have: the state of the object after it, or the problem."""

    would: str
    state: str | None = None
    problem: Problem | None = None
