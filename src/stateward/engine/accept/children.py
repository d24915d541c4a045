"""Handing on: a step of a composite action that is the work of other operations.

The children are accepted in the same transaction in which the work is put down and the step is noted. So nothing is
begun twice, whatever is killed when; and nobody is kept busy with waiting: the work can be claimed again when the last
child has ended.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.engine.accept.accept import admit_all
from stateward.engine.handlers import Fenced
from stateward.engine.kinds import Kinds
from stateward.engine.requests import Accepted, Request
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.errors import StatewardError
from stateward.store.port import Tx
from stateward.store.records import Claim, Key, to_json


async def spawn(
    tx: Tx, kinds: Kinds, owner: str, claim: Claim, epoch: int, step: str, requests: Sequence[Request]
) -> tuple[int, dict[str, Any]]:
    """Begin the children of a step; returns how many there are, and the steps done so far, this one included."""
    operation = claim.operation
    uow = UnitOfWork(tx)
    named = {Key(one.ns, name) for one in requests for name in (one.object, *one.also_locks)}
    await uow.load({Key(operation.ns, operation.object), *named})
    work = uow.work(operation.key)
    if work is None or work.fenced or work.cancelled or (work.owner, work.epoch) != (owner, epoch):
        raise Fenced(operation.id)  # what is cancelled begins nothing new: whoever claims it next says how it ended
    children = [
        replace(one, op=_child_id(operation.id, step, number), parent=operation.id)
        for number, one in enumerate(requests)
    ]
    verdicts = await admit_all(uow, kinds, children)
    begun = sum(isinstance(one, Accepted) and one.operation is not None for one in verdicts)
    denied = {
        one.object: str(verdict)
        for one, verdict in zip(requests, verdicts, strict=True)
        if isinstance(verdict, StatewardError)
    }
    steps = await _steps_of(tx, operation.key) | {step: denied}
    uow.changes.steps.append((operation.key, to_json(steps)))
    if begun:
        uow.update_work(replace(work, owner=None, children=begun))
    await promote_waiters(uow)
    await uow.apply()
    return begun, steps


def _child_id(parent: str, step: str, number: int) -> str:
    """Return the id of a child's operation: always the same for the same place in the same step."""
    return blake2b(f"{parent}/{step}/{number}".encode(), digest_size=16).hexdigest()


async def _steps_of(tx: Tx, key: Key) -> dict[str, Any]:
    """Return the steps as they are stored: a phase may have added one since the work was claimed."""
    steps: dict[str, Any] = msgspec.json.decode((await tx.operations([key]))[key].steps)
    return steps
