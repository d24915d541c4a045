"""Sequences: several requests about one object, of which one transaction accepts all or none.

Objects of some kinds are registered first and created then. With two transactions, another request can come between:
the parent is removed, the second request is refused, and the first one was written all the same. Here each request is
decided on the changes of those before it. If one is refused, only the refusal is written, under its keys.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest

from stateward.engine.accept import accept
from stateward.engine.accept.idempotency import RefusedBefore
from stateward.engine.errors import KeyReused
from stateward.engine.kinds import Kinds
from stateward.engine.requests import Accepted, Request
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.errors import StatewardError
from stateward.store.changes import Changes
from stateward.store.errors import StoreError
from stateward.store.port import Store, Tx
from stateward.store.records import IdempotencyRecord, Key

RequestSequence = Sequence[Request]
"""Requests about one object, in order. The last one begins an operation, by which a repeated run is recognized."""


async def accept_sequences(
    store: Store, kinds: Kinds, batch: Sequence[RequestSequence]
) -> list[Accepted | StatewardError]:
    """Accept a batch in one transaction; if one of several is refused, raises, and each is to be submitted alone."""
    if len(batch) > 1:
        return [*await store.transact(lambda tx: _accept_all(tx, kinds, batch))]
    return [await _accept_or_refuse(store, kinds, batch[0])]


async def _accept_or_refuse(store: Store, kinds: Kinds, steps: RequestSequence) -> Accepted | StatewardError:
    while True:
        try:
            return (await store.transact(lambda tx: _accept_all(tx, kinds, [steps])))[0]
        except StoreError:
            raise
        except StatewardError as error:
            refusal = error
        if steps[-1].key is None or isinstance(refusal, KeyReused | RefusedBefore):
            return refusal
        if await store.transact(partial(_store_refusal, steps=steps, error=refusal)):
            return refusal


async def _accept_all(tx: Tx, kinds: Kinds, batch: Sequence[RequestSequence]) -> list[Accepted]:
    """Accept all requests and return the verdicts on the last ones; or raise the first refusal, and write nothing."""
    uow = UnitOfWork(tx)
    firsts = [steps[0] for steps in batch]
    lock_set = chain.from_iterable(kinds.lock_set(request, None) for request in firsts)
    # All at once, so that rows are locked in one order: locking an object first and then its parent could deadlock.
    await uow.load(
        {*(Key(request.ns, request.object) for request in firsts), *lock_set, *accept.admission_keys(kinds, firsts)}
    )
    await uow.load_operations({Key(steps[-1].ns, steps[-1].op) for steps in batch})
    answers = {steps[-1].op: accept.accepted_before(uow, steps[-1]) for steps in batch}
    new = [steps for steps in batch if answers[steps[-1].op] is None]
    await _find_answers(tx, [request for steps in new for request in steps])
    for step in zip_longest(*new):
        requests = [request for request in step if request is not None]
        for request, verdict in zip(requests, await accept.admit_all(uow, kinds, requests), strict=True):
            if isinstance(verdict, StatewardError):
                raise verdict
            answers[request.op] = verdict
    await promote_waiters(uow)
    await uow.apply()
    return [answer for steps in batch if (answer := answers[steps[-1].op]) is not None]


async def _store_refusal(tx: Tx, steps: RequestSequence, error: StatewardError) -> bool:
    """Store the refusal of a sequence under the keys of its requests, unless the last one has a verdict meanwhile."""
    answers = await _find_answers(tx, steps)
    if answers.get(Key(steps[-1].ns, steps[-1].key or "")) is not None:
        return False
    new = [request for request in steps if request.key is not None and Key(request.ns, request.key) not in answers]
    await tx.apply(Changes(idempotency_records=[accept.refusal_record(request, error, tx.now) for request in new]))
    return True


async def _find_answers(tx: Tx, requests: Sequence[Request]) -> Mapping[Key, IdempotencyRecord]:
    """Return the idempotency records of requests; raises if any of them was refused before."""
    keys = {key for request in requests for key in accept.possible_keys(request)}
    answers = await tx.idempotency_records(keys) if keys else {}
    for request in requests:
        accept.find_answer(request, answers)
    return answers
