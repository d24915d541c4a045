"""Accepting: decide, compare and set, enqueue, journal, all in one transaction.

A batch of requests is one program. Each request is decided on what the ones before it left on the desk; one that is
denied has changed nothing, and the others go on. Of racing requests exactly one wins, because the objects' rows are
locked while it is decided, and their versions are compared when they are written.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import count

import msgspec
from msgspec.structs import replace

from stateward.engine.begin import begin, permit
from stateward.engine.change import change_state, fence
from stateward.engine.desk import Desk
from stateward.engine.endings import advance
from stateward.engine.following import follow
from stateward.engine.hands import Hands
from stateward.engine.kinds import Kind, Kinds
from stateward.engine.promotion import bring_forward
from stateward.engine.requests import (
    EMPTY,
    Accepted,
    AlreadyExists,
    Blocker,
    KeyReused,
    NotFound,
    Refused,
    Request,
    VersionMismatch,
    blocker_of,
)
from stateward.engine.verdicts import RefusedBefore, bare_key, fingerprint_of, read_refusal, with_refusal
from stateward.errors import BadInput, StatewardError
from stateward.lifecycle import TRANSITIONAL, Meaning, Move, decide
from stateward.store.errors import StoreError
from stateward.store.port import Program, Tx
from stateward.store.records import Answer, Key, Object

Verdict = Accepted | StatewardError

STRIDE = 64
"""After how many requests of a batch the store is offered what was decided so far."""


def accepting(kinds: Kinds, requests: Sequence[Request], hands: Hands | None = None) -> Program[list[Verdict]]:
    """Return a batch of requests as a program; what free hands can take at once is theirs.

    Hardly any request was accepted before. So the program looks for that only when it cannot be accepted now: when it
    is denied, or when its operation's id is taken, by which the program fails and is run again.
    """
    runs = count()

    async def program(tx: Tx) -> list[Verdict]:
        return await accept(tx, kinds, requests, hands, repeated=next(runs) > 0)

    return program


async def accept(
    tx: Tx, kinds: Kinds, requests: Sequence[Request], hands: Hands | None = None, *, repeated: bool = True
) -> list[Verdict]:
    """Decide a batch of requests and write what was accepted; the answers are in the order of the requests."""
    desk = Desk(tx)
    if repeated:
        await _recall(desk, kinds, requests)
    verdicts = await admit_all(desk, kinds, requests)
    if not repeated and any(isinstance(verdict, StatewardError) for verdict in verdicts):
        verdicts = await _reconsidered(desk, kinds, requests, verdicts)
    await bring_forward(desk)
    if hands is not None:
        hands.take(desk)
    await desk.apply()
    return verdicts


async def plan(tx: Tx, kinds: Kinds, requests: Sequence[Request]) -> list[Verdict]:
    """Decide a batch of requests and write nothing: what would happen, and what is in the way."""
    desk = Desk(tx, dry=True)
    await _recall(desk, kinds, requests)
    return await admit_all(desk, kinds, requests)


async def _recall(desk: Desk, kinds: Kinds, requests: Sequence[Request]) -> None:
    """Load what became of these requests if they were accepted before: their objects first, so that it stays so."""
    await _load(desk, kinds, requests)
    await desk.load_operations({Key(one.ns, one.op) for one in requests})


async def _reconsidered(
    desk: Desk, kinds: Kinds, requests: Sequence[Request], verdicts: Sequence[Verdict]
) -> list[Verdict]:
    """Take back the denial of what was accepted before."""
    answered = list(zip(requests, verdicts, strict=True))
    await _recall(desk, kinds, [one for one, verdict in answered if isinstance(verdict, StatewardError)])
    return [
        (_before(desk, one) or verdict) if isinstance(verdict, StatewardError) else verdict for one, verdict in answered
    ]


async def admit_all(desk: Desk, kinds: Kinds, requests: Sequence[Request]) -> list[Verdict]:
    """Put a batch of requests onto the desk."""
    await _load(desk, kinds, requests)
    keys = {key for one in requests for key in stored_keys(one)}
    answers = await desk.tx.answers(keys) if keys else {}
    await desk.load_operations({Key(one.ns, one.op) for one in answers.values() if one.op is not None})
    verdicts: list[Verdict] = []
    for place, request in enumerate(requests, 1):
        if not place % STRIDE:
            await desk.ahead()
        try:
            verdicts.append(await _admit(desk, kinds, request, answers))
        except StoreError:
            raise  # a guard's look was in somebody's way: that is no verdict, and the program is run again
        except StatewardError as error:
            verdicts.append(_refuse(desk, request, answers, error))
        except msgspec.DecodeError as error:  # a domain reads specs strictly, whoever wrote them
            unfit = BadInput("spec", request.spec or EMPTY, f"what its kind expects ({error})")
            verdicts.append(_refuse(desk, request, answers, unfit))
    await follow(desk, kinds)
    return verdicts


async def _load(desk: Desk, kinds: Kinds, requests: Sequence[Request]) -> None:
    keys = {Key(one.ns, one.object) for one in requests}
    births = {Key(one.ns, one.birth.queue) for one in requests if one.birth is not None and one.birth.queue}
    beside = {Key(one.ns, name) for one in requests for name in one.beside}
    await desk.load(keys | births | beside | needed(kinds, requests))
    if kinds.have_company:  # after their subjects, and all at once: in one order
        company = (kinds.company(one, desk.objects.get(Key(one.ns, one.object))) for one in requests)
        await desk.load({key for keys in company for key in keys})
    holders = {Key(one.ns, one.op) for one in desk.objects.values() if one.op is not None}
    await desk.load_operations(holders | desk.standing())  # whoever is refused is told by whom
    asked = {Key(one.ns, one.tree) for one in requests if one.tree is not None}
    held = {Key(one.ns, one.tree) for one in desk.operations.values() if one.tree is not None}
    await desk.load_locks(asked | held)
    await desk.load_operations({Key(lock.ns, lock.op) for tree in asked for lock in desk.locks(tree)})  # here too


def needed(kinds: Kinds, requests: Iterable[Request]) -> set[Key]:
    """Return the objects that a condition on all kinds is about."""
    admission = kinds.admission
    return set() if admission is None else {key for one in requests if (key := admission.needs(one)) is not None}


async def _admit(desk: Desk, kinds: Kinds, request: Request, answers: dict[Key, Answer]) -> Accepted:
    before = _answered(desk, request, answers)
    if before is not None:
        return before
    stored = desk.objects.get(Key(request.ns, request.object))
    found = _born(desk, kinds, request, stored) if request.birth is not None else _present(request, stored)
    kind = kinds[found.kind]
    move = _decided(desk, kind, request, found)
    # A step from rest into a transitional state begins something too: it must end in time.
    begins = move.begins or (found.op is None and move.target.state_class is TRANSITIONAL)
    if kinds.admission is not None:
        await kinds.admission.check(desk, request, found, begins=begins)
    locks = permit(desk, request, found, move) if begins else ()
    asked = request
    if kind.guard is not None:
        request = await kind.guard(desk, request, found) or request
        found = found if request.birth is not None else desk.objects[found.key]  # it may have been changed
    accepted = begin(desk, kind, request, found, move, locks) if begins else _step(desk, request, found, move)
    if kinds.admission is not None:
        kinds.admission.accepted(desk, request, found, begins=begins)
    if request.key is not None:
        op = accepted.operation.id if accepted.operation else None
        answer = Answer(request.ns, request.key, _fingerprint(asked), op, request.object, desk.now)
        answers[Key(request.ns, request.key)] = answer
        desk.changes.answers.append(answer)
    return accepted


def _refuse(desk: Desk, request: Request, answers: dict[Key, Answer], error: StatewardError) -> StatewardError:
    """Return a refusal; under a key it is stored, so that the same request gets the same verdict again."""
    if request.key is not None and not isinstance(error, KeyReused | RefusedBefore):
        answer = refused_answer(request, error, desk.now)
        answers[Key(request.ns, request.key)] = answer
        desk.changes.answers.append(answer)
    return error


def refused_answer(request: Request, error: StatewardError, now: float) -> Answer:
    """Return the refusal of a request as the answer to its key."""
    assert request.key is not None
    return Answer(request.ns, request.key, with_refusal(_fingerprint(request), error), None, request.object, now)


def stored_keys(request: Request) -> set[Key]:
    """Return the keys under which the answer to a request may be stored: its caller's, or a bare one of before."""
    return set() if request.key is None else {Key(request.ns, request.key), Key(request.ns, bare_key(request.key))}


def find_answer(request: Request, answers: Mapping[Key, Answer]) -> Answer | None:
    """Return the answer to a request's key; raises if the key was used for another request, or refused before."""
    if request.key is None:
        return None
    answer = answers.get(Key(request.ns, request.key))
    if answer is None:
        bare = answers.get(Key(request.ns, bare_key(request.key)))
        return bare if bare is not None and fingerprint_of(bare) == _fingerprint(request) else None
    if fingerprint_of(answer) != _fingerprint(request):
        raise KeyReused(bare_key(answer.key))
    if (refusal := read_refusal(answer)) is not None:
        raise refusal
    return answer


def _answered(desk: Desk, request: Request, answers: dict[Key, Answer]) -> Accepted | None:
    """Return the answer that this very request got before: by its idempotency key, or by its operation's id."""
    before = _before(desk, request)
    if before is not None:
        return before
    answer = find_answer(request, answers)
    if answer is None:
        return None
    found = desk.objects.get(Key(request.ns, request.object))
    if found is None:
        raise NotFound(request.ns, request.object)
    operation = desk.operations.get(Key(request.ns, answer.op)) if answer.op else None
    return Accepted(found, operation, again=True)


def _before(desk: Desk, request: Request) -> Accepted | None:
    done = desk.operations.get(Key(request.ns, request.op))
    found = desk.objects.get(Key(request.ns, request.object)) if done is not None else None
    return None if found is None else Accepted(found, done, again=True)


def _present(request: Request, found: Object | None) -> Object:
    if found is None or found.removed:
        raise NotFound(request.ns, request.object)
    if request.version is not None and request.version != found.version:
        raise VersionMismatch(request.object, request.version, found.version)
    return found


def _born(desk: Desk, kinds: Kinds, request: Request, former: Object | None) -> Object:
    """Return the object as it is before its first move; a removed one of the same name begins its next life."""
    assert request.birth is not None
    if former is not None and not former.removed:
        raise AlreadyExists(request.ns, request.object, former.state)
    return Object(
        ns=request.ns,
        id=request.object,
        kind=request.birth.kind,
        state=kinds[request.birth.kind].lifecycle.initial.word,
        since=desk.now,
        version=former.version if former else 0,
        generation=former.generation if former else 0,
        op=None,
        queue=request.birth.queue or request.object,
        parent=request.birth.parent,
        spec=EMPTY,
        labels=request.birth.labels,
        error=None,
        created=desk.now,
    )


def _decided(desk: Desk, kind: Kind, request: Request, found: Object) -> Move:
    holder = desk.operations.get(Key(found.ns, found.op)) if found.op is not None else None
    origin = holder.origin if holder is not None else None
    verdict = decide(kind.lifecycle, found.state, request.action, request.actor, request.facts, origin)
    if not isinstance(verdict, Move):
        raise Refused(verdict, _holder(desk, found))
    return verdict


def _holder(desk: Desk, found: Object) -> Blocker | None:
    holder = desk.operations.get(Key(found.ns, found.op)) if found.op is not None else None
    return None if holder is None else blocker_of(holder, desk.work(holder.key))


def _step(desk: Desk, request: Request, found: Object, move: Move) -> Accepted:
    """Change a state at once; an operation that held the object goes on with it, or is over."""
    if found.op is not None and (move.meaning is not Meaning.STEP or move.target.state_class is TRANSITIONAL):
        advance(desk, found, desk.operations[Key(found.ns, found.op)], move, request.who, seen=request.seen)
        return Accepted(desk.objects[found.key], None)
    fence(desk, found, f"{request.action} by {request.actor}")
    return Accepted(change_state(desk, found, move, request.who, found.op, spec=request.spec, seen=request.seen), None)


def _fingerprint(request: Request) -> str:
    """Return what makes two requests the same, their ids aside."""
    named = replace(request, op="", key=None, actor=str(request.actor), facts=frozenset(), children=0, beside=())
    return blake2b(msgspec.json.encode((named, sorted(request.facts))), digest_size=16).hexdigest()
