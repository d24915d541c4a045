"""Endings: waiting for what was begun, for as long as the caller likes, and telling what came of it."""

from collections.abc import Sequence

from msgspec import Struct

from stateward.domains.mci.control.orphan_machines import PossibleOrphan
from stateward.engine import Accepted, Engine
from stateward.store.records import Operation


class OperationReply(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a request has begun: the operation, and where it is."""

    message: str
    operation: str | None = None
    operation_status: str | None = None
    error: str | None = None
    skipped: "list[SkippedVm] | None" = None


class SkippedVm(Struct, frozen=True):
    """A VM that an action passed over, and why."""

    vm: str
    status: str
    code: str
    reason: str


def operation_id(accepted: Accepted) -> str | None:
    """Return the operation that works on what was accepted: its own, or the one that was waiting for it."""
    return accepted.object.op if accepted.operation is None else accepted.operation.id


async def wait_for_end(engine: Engine, ns: str, op: str | None, seconds: float | None) -> Operation | None:
    """Wait for the end of an operation; None if it takes longer."""
    if op is None or seconds is None:
        return None
    return await engine.wait_or_none(ns, op, seconds)


def with_possible_orphans(answer: dict[str, object], left: Sequence[PossibleOrphan]) -> dict[str, object]:
    """Return an answer with the machines that may be left, if there are any."""
    return {**answer, "remains": [one.key for one in left], "left": list(left)} if left else answer
