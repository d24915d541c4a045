"""Accepting requests: decide, compare and set, enqueue and journal, all in one transaction.

A batch of requests is one transaction. Each request is decided on the changes of the requests before it. A denied
request has changed nothing, and does not stop the others. Of racing requests exactly one wins: the rows of the objects
are locked while it is decided, and their versions are compared when they are written.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import count

import msgspec
from msgspec.structs import replace

from stateward.engine import errors
from stateward.engine.accept.begin import begin_operation, check_can_begin
from stateward.engine.accept.eager_claims import EagerClaims
from stateward.engine.accept.idempotency import RefusedBefore, add_refusal, bare_key, fingerprint_of, read_refusal
from stateward.engine.finish.completion import advance
from stateward.engine.kinds import Kind, Kinds, run_end_hooks
from stateward.engine.protection import load_protection, require_unprotected
from stateward.engine.requests import EMPTY, REASON, Accepted, Request
from stateward.engine.transitions import change_state, fence_operation
from stateward.engine.typed_values import check_depth
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.errors import BadInput, StatewardError
from stateward.lifecycle import TRANSITIONAL, Meaning, Move, decide
from stateward.naming import check_new_object
from stateward.store.errors import StoreError
from stateward.store.port import Tx, TxFunction
from stateward.store.records import IdempotencyRecord, Key, Object
from stateward.validation_texts import bad_input

Verdict = Accepted | StatewardError

FLUSH_EVERY_REQUESTS = 64
"""After how many requests of a batch the store may write the changes so far."""


def accept_function(
    kinds: Kinds, requests: Sequence[Request], eager: EagerClaims | None = None
) -> TxFunction[list[Verdict]]:
    """Return the transaction function that accepts a batch of requests, and claims new work eagerly.

    Hardly any request was accepted before. So the function looks for earlier verdicts only in two cases: a request is
    denied, or an operation with its id exists, in which case the transaction fails and the function runs again.
    """
    runs = count()

    async def program(tx: Tx) -> list[Verdict]:
        return await accept(tx, kinds, requests, eager, repeated=next(runs) > 0)

    return program


async def accept(
    tx: Tx, kinds: Kinds, requests: Sequence[Request], eager: EagerClaims | None = None, *, repeated: bool = True
) -> list[Verdict]:
    """Decide a batch of requests and write the accepted ones; the verdicts are in the order of the requests."""
    uow = UnitOfWork(tx)
    if repeated:
        await _load_earlier_operations(uow, kinds, requests)
    verdicts = await admit_all(uow, kinds, requests)
    answered = list(zip(requests, verdicts, strict=True))
    denied = [request for request, verdict in answered if isinstance(verdict, StatewardError)]
    if not repeated and denied:  # some may have been accepted before
        await _load_earlier_operations(uow, kinds, denied)
        verdicts = [
            (accepted_before(uow, request) or verdict) if isinstance(verdict, StatewardError) else verdict
            for request, verdict in answered
        ]
    await promote_waiters(uow)
    if eager is not None:
        eager.claim_new_work(uow)
    await uow.apply()
    return verdicts


async def plan(tx: Tx, kinds: Kinds, requests: Sequence[Request]) -> list[Verdict]:
    """Decide a batch of requests and write nothing: returns what would happen, or what is in the way."""
    uow = UnitOfWork(tx, dry=True)
    await _load_earlier_operations(uow, kinds, requests)
    return await admit_all(uow, kinds, requests)


async def _load_earlier_operations(uow: UnitOfWork, kinds: Kinds, requests: Sequence[Request]) -> None:
    """Load the operations that these requests have if they were accepted before; their objects are locked first."""
    await _load(uow, kinds, requests)
    await uow.load_operations({Key(request.ns, request.op) for request in requests})


async def admit_all(uow: UnitOfWork, kinds: Kinds, requests: Sequence[Request]) -> list[Verdict]:
    """Decide a batch of requests in a unit of work, which is not written yet."""
    await _load(uow, kinds, requests)
    await load_protection(uow, kinds, requests)
    keys = {key for request in requests for key in possible_keys(request)}
    answers = await uow.tx.idempotency_records(keys) if keys else {}
    await uow.load_operations({Key(answer.ns, answer.op) for answer in answers.values() if answer.op is not None})
    verdicts: list[Verdict] = []
    for place, request in enumerate(requests, 1):
        if not place % FLUSH_EVERY_REQUESTS:
            await uow.flush_early()
        try:
            verdicts.append(await _admit(uow, kinds, request, answers))
        except StoreError:
            raise  # a guard's read has conflicted: that is no verdict, and the function runs again
        except StatewardError as error:
            verdicts.append(_refuse(uow, request, answers, error))
        except msgspec.DecodeError as error:  # domains read specs strictly
            unfit = bad_input(error, None, "spec")
            verdicts.append(_refuse(uow, request, answers, unfit))
    await run_end_hooks(uow, kinds)
    return verdicts


async def _load(uow: UnitOfWork, kinds: Kinds, requests: Sequence[Request]) -> None:
    keys = {Key(request.ns, request.object) for request in requests}
    queues = {
        Key(request.ns, request.creates.queue)
        for request in requests
        if request.creates is not None and request.creates.queue
    }
    also_locked = {Key(request.ns, name) for request in requests for name in request.also_locks}
    await uow.load(keys | queues | also_locked | admission_keys(kinds, requests))
    if kinds.any_lock_set:  # after the objects themselves, and all at once, so that rows are locked in one order
        lock_sets = (kinds.lock_set(request, uow.objects.get(Key(request.ns, request.object))) for request in requests)
        await uow.lock({key for keys in lock_sets for key in keys})
    await uow.load_blockers()
    requested = {Key(request.ns, request.tree) for request in requests if request.tree is not None}
    held = {Key(operation.ns, operation.tree) for operation in uow.operations.values() if operation.tree is not None}
    await uow.load_locks(requested | held)
    await uow.load_operations({Key(lock.ns, lock.op) for tree in requested for lock in uow.locks(tree)})


def admission_keys(kinds: Kinds, requests: Iterable[Request]) -> set[Key]:
    """Return the objects that the admission check of these requests needs locked."""
    admission = kinds.admission
    return (
        set() if admission is None else {key for request in requests if (key := admission.needs(request)) is not None}
    )


async def _admit(uow: UnitOfWork, kinds: Kinds, request: Request, answers: dict[Key, IdempotencyRecord]) -> Accepted:
    before = _answer_before(uow, request, answers)
    if before is not None:
        return before
    check_depth("args", request.args)
    if request.spec is not None:
        check_depth("spec", request.spec)
    if request.creates is not None:
        check_depth("labels", request.creates.labels)
    stored = uow.objects.get(Key(request.ns, request.object))
    record = (
        _initial_object(uow, kinds, request, stored)
        if request.creates is not None
        else _require_object(request, stored)
    )
    kind = kinds.of(record)
    if request.creates is None:
        kinds.require_known(record)
    move = _decide_move(uow, kind, request, record)
    if move.event in kinds.removing_events:
        await require_unprotected(uow, kinds, request, record, move)
    kind.check_spec_right(request, record.state)
    original = request  # the fingerprint is that of the request as it came
    if kind.types is not None:
        request = kind.types.check(request, record.state)
    # A step from a stable into a transitional state begins an operation too, because it must end in time.
    begins = move.begins or (record.op is None and move.target.state_class is TRANSITIONAL)
    if kinds.admission is not None:
        await kinds.admission.check(uow, request, record, begins=begins)
    locks = check_can_begin(uow, request, record, move) if begins else ()
    if kind.guard is not None:
        try:
            request = await kind.guard(uow, request, record) or request
        except errors.NothingToDo:
            return _remember(uow, original, answers, Accepted(record, None))
        except SystemExit as error:  # it would end the process
            raise RuntimeError(f"the guard of {kind.name} has called sys.exit") from error
        if request.creates is None:
            record = uow.objects[record.key]  # the guard may have changed it
        else:  # or named the parent of a new object, and its labels
            record = replace(record, parent=request.creates.parent, labels=request.creates.labels)
    if kind.types is not None:
        request = kind.types.stamp(request)
    accepted = (
        begin_operation(uow, kind, request, record, move, locks) if begins else _apply_step(uow, request, record, move)
    )
    if kinds.admission is not None:
        kinds.admission.accepted(uow, request, record, begins=begins)
    return _remember(uow, original, answers, accepted)


def _remember(uow: UnitOfWork, request: Request, answers: dict[Key, IdempotencyRecord], accepted: Accepted) -> Accepted:
    """Store an acceptance under the request's key, and return it."""
    if request.key is not None:
        answer = acceptance_record(request, accepted.operation.id if accepted.operation else None, uow.now)
        answers[Key(request.ns, request.key)] = answer
        uow.changes.idempotency_records.append(answer)
    return accepted


def _refuse(
    uow: UnitOfWork, request: Request, answers: dict[Key, IdempotencyRecord], error: StatewardError
) -> StatewardError:
    """Return a refusal, and store it under the request's key, so that a repeated request gets the same verdict.

    Another process may know a kind that this one does not, so that is no verdict to be kept.
    """
    if request.key is not None and not isinstance(error, errors.KeyReused | RefusedBefore | errors.UnknownKind):
        answer = refusal_record(request, error, uow.now)
        answers[Key(request.ns, request.key)] = answer
        uow.changes.idempotency_records.append(answer)
    return error


def acceptance_record(request: Request, op: str | None, now: float) -> IdempotencyRecord:
    """Return the idempotency record of an accepted request."""
    assert request.key is not None
    return IdempotencyRecord(request.ns, request.key, _fingerprint(request), op, request.object, now)


def refusal_record(request: Request, error: StatewardError, now: float) -> IdempotencyRecord:
    """Return the idempotency record of a refused request."""
    assert request.key is not None
    return IdempotencyRecord(
        request.ns, request.key, add_refusal(_fingerprint(request), error), None, request.object, now
    )


def possible_keys(request: Request) -> set[Key]:
    """Return the keys under which a request's record may be stored: the caller's own, or a bare one."""
    return set() if request.key is None else {Key(request.ns, request.key), Key(request.ns, bare_key(request.key))}


def find_answer(request: Request, answers: Mapping[Key, IdempotencyRecord]) -> IdempotencyRecord | None:
    """Return the record of a request's key; raises if the key was used for another request, or refused before."""
    if request.key is None:
        return None
    answer = answers.get(Key(request.ns, request.key))
    if answer is None:
        bare = answers.get(Key(request.ns, bare_key(request.key)))
        return bare if bare is not None and fingerprint_of(bare) == _fingerprint(request) else None
    if fingerprint_of(answer) != _fingerprint(request):
        raise errors.KeyReused(bare_key(answer.key))
    if (refusal := read_refusal(answer)) is not None:
        raise refusal
    return answer


def _answer_before(uow: UnitOfWork, request: Request, answers: dict[Key, IdempotencyRecord]) -> Accepted | None:
    """Return the verdict that the same request got before, by its idempotency key or by its operation's id."""
    before = accepted_before(uow, request)
    if before is not None:
        return before
    answer = find_answer(request, answers)
    if answer is None:
        return None
    record = uow.objects.get(Key(request.ns, request.object))
    if record is None:
        raise errors.NotFound(request.ns, request.object)
    operation = uow.operations.get(Key(request.ns, answer.op)) if answer.op else None
    return Accepted(record, operation, again=True)


def accepted_before(uow: UnitOfWork, request: Request) -> Accepted | None:
    """Return the verdict on a request whose operation exists already."""
    done = uow.operations.get(Key(request.ns, request.op))
    record = uow.objects.get(Key(request.ns, request.object)) if done is not None else None
    return None if record is None else Accepted(record, done, again=True)


def _require_object(request: Request, record: Object | None) -> Object:
    if record is None or record.removed:
        raise errors.NotFound(request.ns, request.object)
    if request.version is not None and request.version != record.version:
        raise errors.VersionMismatch(request.object, request.version, record.version)
    return record


def _initial_object(uow: UnitOfWork, kinds: Kinds, request: Request, former: Object | None) -> Object:
    """Return a new object before its first transition; the versions of a removed object of the same name go on."""
    assert request.creates is not None
    if former is not None and not former.removed:
        raise errors.AlreadyExists(request.ns, request.object, former.state)
    check_new_object(request.ns, request.object)
    queue = request.creates.queue or request.object
    if queue != request.object:  # it must exist: on PostgreSQL, nothing else would keep two writers of it apart
        host = uow.objects.get(Key(request.ns, queue))
        if host is None or host.removed:
            raise BadInput("queue", queue, "the id of an existing object")
    return Object(
        ns=request.ns,
        id=request.object,
        kind=request.creates.kind,
        state=kinds[request.creates.kind].lifecycle.initial.word,
        since=uow.now,
        version=former.version if former else 0,
        generation=former.generation if former else 0,
        op=None,
        queue=queue,
        parent=request.creates.parent,
        spec=EMPTY,
        labels=request.creates.labels,
        error=None,
        created=uow.now,
    )


def _decide_move(uow: UnitOfWork, kind: Kind, request: Request, record: Object) -> Move:
    holder = uow.operations.get(Key(record.ns, record.op)) if record.op is not None else None
    origin = holder.origin if holder is not None else None
    verdict = decide(kind.lifecycle, record.state, request.action, request.actor, request.facts, origin)
    if not isinstance(verdict, Move):
        raise errors.Refused(verdict, None if holder is None else errors.blocker_of(holder, uow.work(holder.key)))
    return verdict


def _apply_step(uow: UnitOfWork, request: Request, record: Object, move: Move) -> Accepted:
    """Change a state without an operation; the operation that holds the object is advanced, or ended."""
    if record.op is not None and (move.meaning is not Meaning.STEP or move.target.state_class is TRANSITIONAL):
        operation = uow.operations[Key(record.ns, record.op)]
        fails = move.meaning not in (Meaning.SUCCESS, Meaning.STEP)
        reason = msgspec.json.decode(request.args).get(REASON) if fails else None  # the event may say why it ends it
        error = reason if isinstance(reason, str) else None
        advance(uow, record, operation, move, request.who, error=error, seen=request.seen)
        return Accepted(uow.objects[record.key], None)
    fence_operation(uow, record, f"{request.action} by {request.actor}")
    return Accepted(change_state(uow, record, move, request.who, record.op, spec=request.spec, seen=request.seen), None)


def _fingerprint(request: Request) -> str:
    """Return a digest that two requests share if they differ in nothing but their ids."""
    named = replace(
        request,
        op="",
        key=None,
        actor=str(request.actor),
        facts=frozenset(),
        children=0,
        also_locks=(),
    )
    return blake2b(msgspec.json.encode((named, sorted(request.facts))), digest_size=16).hexdigest()
