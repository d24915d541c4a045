"""Replies to requests that start operations: the operation, its end if the caller waits, and skipped VMs."""

from collections.abc import Sequence

from msgspec import Struct

from stateward.domains.mci.shared_schemas import PossibleOrphan
from stateward.engine import Accepted, Engine
from stateward.store.records import Operation


class OperationReply(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The operation that a request has started, and its status."""

    message: str
    operation: str | None = None
    operation_status: str | None = None
    error: str | None = None
    skipped: "list[SkippedVm] | None" = None


class ResourceDeletion(Struct, frozen=True, rename="camel"):
    """What became of one resource of a request that deletes several."""

    resource_type: str
    resource_id: str
    success: bool
    message: str


class ResourceDeletions(Struct, frozen=True, rename="camel"):
    """The reply to a request that deletes several resources; older clients read its messages in `output`."""

    output: list[str]
    results: list[ResourceDeletion]
    total: int
    success_count: int
    failed_count: int


class SkippedVm(Struct, frozen=True):
    """A VM that an action skipped, with the reason."""

    vm: str
    status: str
    code: str
    reason: str


def operation_id(accepted: Accepted) -> str | None:
    """Return the id of the accepted operation, or of the operation that was waiting for the event."""
    return accepted.object.op if accepted.operation is None else accepted.operation.id


async def wait_for_end(engine: Engine, ns: str, op: str | None, seconds: float | None) -> Operation | None:
    """Wait for the end of an operation; None if it takes longer."""
    if op is None or seconds is None:
        return None
    return await engine.wait_record_or_none(ns, op, seconds)


def resource_deletions(results: list[ResourceDeletion]) -> ResourceDeletions:
    """Return the reply with its counts."""
    done = sum(result.success for result in results)
    return ResourceDeletions([result.message for result in results], results, len(results), done, len(results) - done)


def with_possible_orphans(answer: dict[str, object], left: Sequence[PossibleOrphan]) -> dict[str, object]:
    """Return a reply with the machines that may be left at their providers, if there are any."""
    return {**answer, "remains": [orphan.key for orphan in left], "left": list(left)} if left else answer
