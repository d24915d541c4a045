"""Group actions: one action on a composite object (the whole) and all of its members, accepted in one transaction.

Each member that allows the action begins it, with an operation of its own; the verdict lists the others, each with the
reason. The operation of the whole is their parent, and runs when they have all ended.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.engine.accept import accept
from stateward.engine.errors import NoneAllowed, NotFound, Protected
from stateward.engine.kinds import Kinds
from stateward.engine.requests import Accepted, Request
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.errors import BadInput, StatewardError
from stateward.store.changes import Changes
from stateward.store.errors import WriteConflict
from stateward.store.filters import Selector
from stateward.store.port import Tx
from stateward.store.records import Key, to_json


class GroupVerdict(Struct, frozen=True):
    """The verdict on a group action: of the whole, of the members that began, and why the others were skipped."""

    whole: Accepted | None
    begun: list[Accepted]
    skipped: dict[str, StatewardError]
    group: str | None = None  # the operation by which all are found: that of the whole, or the first of the members
    again: bool = False  # the same request was accepted before


def keyed_request(whole: Request | None, members: Selector, each: Request) -> Request:
    """Return the request that a group's idempotency key belongs to; without a whole, its object is the selector."""
    return whole if whole is not None else replace(each, object=to_json(members))


async def accept_group(
    tx: Tx,
    kinds: Kinds,
    whole: Request | None,
    members: Selector,
    each: Request,
    new_id: Callable[[], str],
    *,
    acts_alone: bool = False,
) -> GroupVerdict:
    """Accept an action on a whole and its members; if the whole denies it, or no member allows it, nothing changes.

    Nor if it would remove a protected member. A whole that `acts_alone` can begin the action without members.
    """
    uow = UnitOfWork(tx)
    uow.is_bulk = whole is None
    await uow.load(accept.admission_keys(kinds, [each]))
    chosen = await tx.select(members)
    await uow.load((), chosen)
    if whole is not None:  # after its members, in the order in which reports lock them too
        await uow.load([Key(whole.ns, whole.object)])
        if await tx.count_selected(members) != len(chosen):
            raise WriteConflict("members were added before the whole was locked")
    asked = keyed_request(whole, members, each)
    before = await _previous_verdict(uow, whole, asked)
    if before is not None:
        return before
    parent = None if whole is None else whole.op
    requests = [replace(each, object=member.id, op=new_id(), parent=parent, key=None) for member in chosen]
    verdicts = await accept.admit_all(uow, kinds, requests)
    begun = [verdict for verdict in verdicts if isinstance(verdict, Accepted)]
    skipped: dict[str, StatewardError] = {
        member.id: why for member, why in zip(chosen, verdicts, strict=True) if isinstance(why, StatewardError)
    }
    if whole is not None and (flag := next((why for why in skipped.values() if isinstance(why, Protected)), None)):
        raise flag
    known_ids = {member.id for member in chosen}
    skipped |= {id_: NotFound(each.ns, id_) for id_ in members.ids or () if id_ not in known_ids}
    if not begun and (skipped or not acts_alone):
        for shared in (BadInput, Protected, NotFound):  # the caller's mistake, or one flag: not the members' state
            if skipped and all(isinstance(why, shared) for why in skipped.values()):
                raise next(iter(skipped.values()))
        raise NoneAllowed(each.action, skipped)
    operations = [accepted.operation.id for accepted in begun if accepted.operation is not None]
    answer: Accepted | None = None
    if whole is not None:
        (verdict,) = await accept.admit_all(uow, kinds, [replace(whole, children=len(operations))])
        if isinstance(verdict, StatewardError):
            raise verdict
        answer = verdict
        operations = [verdict.operation.id, *operations] if verdict.operation is not None else operations
    group = next(iter(operations), None)
    if whole is None and each.key is not None:
        uow.changes.idempotency_records.append(accept.acceptance_record(asked, group, uow.now))
    await promote_waiters(uow)
    await uow.apply()
    return GroupVerdict(answer, begun, skipped, group)


class BulkChoice(Struct, frozen=True, array_like=True):
    """The objects that the first request with an idempotency key chose: composites, and all others."""

    composites: tuple[str, ...]
    others: tuple[str, ...]


async def choose_once(tx: Tx, members: Selector, each: Request, choice: BulkChoice) -> BulkChoice | None:
    """Return what the first request with this key chose, and store the choice if this is the first one.

    None if no composite is or was chosen, so that one transaction accepts the whole group; raises a stored refusal.
    """
    asked = keyed_request(None, members, each)
    answer = accept.find_answer(asked, await tx.idempotency_records(accept.possible_keys(asked)))
    if answer is not None:  # the record of a group without composites has its selector there
        return msgspec.json.decode(answer.object, type=BulkChoice) if answer.object.startswith("[") else None
    if not choice.composites:
        return None
    record = replace(accept.acceptance_record(asked, None, tx.now), object=to_json(choice))
    await tx.apply(Changes(idempotency_records=[record]))
    return choice


async def _previous_verdict(uow: UnitOfWork, whole: Request | None, asked: Request) -> GroupVerdict | None:
    """Return the verdict that the same request got before, by its operation's id or by its key; raises a refusal."""
    answer = accept.find_answer(asked, await uow.tx.idempotency_records(accept.possible_keys(asked)))
    if whole is None:
        return None if answer is None else GroupVerdict(None, [], {}, answer.op, again=True)
    key = Key(whole.ns, whole.op if answer is None or answer.op is None else answer.op)
    operation = (await uow.tx.operations([key])).get(key)
    if answer is None and operation is None:
        return None
    record = uow.objects.get(Key(whole.ns, whole.object))
    if record is None:
        raise NotFound(whole.ns, whole.object)
    return GroupVerdict(
        Accepted(record, operation, again=True), [], {}, None if operation is None else key.id, again=True
    )


async def store_group_refusal(
    tx: Tx, kinds: Kinds, whole: Request | None, asked: Request, error: StatewardError
) -> GroupVerdict | StatewardError:
    """Store the refusal of a group under its key and return it, unless the key was answered meanwhile."""
    uow = UnitOfWork(tx)
    await uow.load([] if whole is None else [Key(whole.ns, whole.object)])
    before = await _previous_verdict(uow, whole, asked)
    if before is not None:
        return before
    if whole is not None and isinstance(error, NoneAllowed):
        error = await explain_none_allowed(tx, kinds, whole, error)
    await tx.apply(Changes(idempotency_records=[accept.refusal_record(asked, error, tx.now)]))
    return error


async def explain_none_allowed(tx: Tx, kinds: Kinds, whole: Request, error: NoneAllowed) -> StatewardError:
    """Return the error to report if no member allows an action: the whole's own refusal says more, if it refuses too.

    The whole is planned without its key: under its key the refusal of the group may be stored by now.
    """
    (alone,) = await accept.plan(tx, kinds, [replace(whole, key=None)])
    return alone if isinstance(alone, StatewardError) else error
