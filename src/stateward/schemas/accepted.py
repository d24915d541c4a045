"""Responses to accepted requests, and to requests that were only planned."""

from msgspec import Struct

from stateward.schemas.objects import ObjectView
from stateward.schemas.operations import OperationView
from stateward.schemas.problems import Problem


class AcceptedView(Struct, frozen=True):
    """What was accepted: the object as it is now, and the operation, unless the state was changed at once."""

    object: ObjectView
    operation: OperationView | None


class GroupView(Struct, frozen=True):
    """What became of a group action: the whole, the members that began, and those skipped, each with its problem."""

    whole: AcceptedView | None
    begun: list[AcceptedView]
    skipped: dict[str, Problem]


class Prospect(Struct, frozen=True):
    """What would become of a request: the state that the object would be in, or the problem."""

    would: str
    state: str | None = None
    problem: Problem | None = None
