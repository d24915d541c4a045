"""Child operations: a step of a composite action that other operations carry out.

One transaction accepts the children, stores the step and requeues the parent. So no child begins twice, whatever
crashes when, and no worker slot is used for waiting: the parent can be claimed again when the last child has ended.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.engine.accept.accept import admit_all
from stateward.engine.job_steps import CHILDREN
from stateward.engine.kinds import Kinds
from stateward.engine.requests import Accepted, Request
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.engine.work_errors import Fenced
from stateward.errors import StatewardError
from stateward.store.port import Tx
from stateward.store.records import Claim, Key, to_json


async def spawn(
    tx: Tx,
    kinds: Kinds,
    owner: str,
    claim: Claim,
    epoch: int,
    step: str,
    requests: Sequence[Request],
    calls: Mapping[str, Any],
) -> tuple[int, dict[str, Any]]:
    """Accept the children of a step; returns how many began, and all finished steps, this one included.

    `calls` are the records of the provider calls that the parent has made so far.
    """
    operation = claim.operation
    uow = UnitOfWork(tx)
    locked = {Key(request.ns, name) for request in requests for name in (request.object, *request.also_locks)}
    await uow.load({Key(operation.ns, operation.object), *locked})
    work = uow.work(operation.key)
    if work is None or work.fenced or work.cancelled or (work.owner, work.epoch) != (owner, epoch):
        raise Fenced(operation.id)  # a cancelled operation begins no children: its next attempt says how it ended
    children = [
        replace(request, op=_child_id(operation.id, step, number), parent=operation.id)
        for number, request in enumerate(requests)
    ]
    verdicts = await admit_all(uow, kinds, children)
    begun = sum(isinstance(verdict, Accepted) and verdict.operation is not None for verdict in verdicts)
    denied = {
        request.object: str(verdict)
        for request, verdict in zip(requests, verdicts, strict=True)
        if isinstance(verdict, StatewardError)
    }
    steps = await _steps_of(tx, operation.key) | {**calls, step: denied, f"{CHILDREN}{step}": len(requests)}
    uow.changes.steps.append((operation.key, to_json(steps)))
    if begun:
        uow.update_work(replace(work, owner=None, children=begun))
    await promote_waiters(uow)
    await uow.apply()
    return begun, steps


def child_ids(parent: str, step: str, count: int) -> list[str]:
    """Return the operation ids of a step's children; those of denied requests do not exist."""
    return [_child_id(parent, step, number) for number in range(count)]


def _child_id(parent: str, step: str, number: int) -> str:
    """Return the operation id of a child, which is the same whenever the step is repeated."""
    return blake2b(f"{parent}/{step}/{number}".encode(), digest_size=16).hexdigest()


async def _steps_of(tx: Tx, key: Key) -> dict[str, Any]:
    """Return the stored steps: a phase may have added one since the work was claimed."""
    steps: dict[str, Any] = msgspec.json.decode((await tx.operations([key]))[key].steps)
    return steps
