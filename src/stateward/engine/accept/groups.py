"""Group actions: one action on a composite object (the whole) and all of its members, accepted in one transaction.

Each member that allows the action begins it, with an operation of its own; the verdict lists the others, each with the
reason. The operation of the whole is their parent, and runs when they have all ended.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from stateward.engine.accept.accept import (
    Verdict,
    admission_keys,
    admit_all,
    find_answer,
    plan,
    possible_keys,
    refusal_record,
)
from stateward.engine.errors import NoneAllowed, NotFound
from stateward.engine.kinds import Kinds
from stateward.engine.requests import Accepted, Request
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.errors import BadInput, StatewardError
from stateward.store.changes import Changes
from stateward.store.filters import Selector
from stateward.store.port import Tx
from stateward.store.records import Key


class GroupVerdict(Struct, frozen=True):
    """The verdict on a group action: of the whole, of the members that began, and why the others were skipped."""

    whole: Accepted | None
    begun: list[Accepted]
    skipped: dict[str, StatewardError]


async def accept_group(
    tx: Tx, kinds: Kinds, whole: Request | None, members: Selector, each: Request, new_id: Callable[[], str]
) -> GroupVerdict:
    """Accept an action on a whole and its members; if the whole denies it, or no member allows it, nothing changes."""
    uow = UnitOfWork(tx)
    await uow.load(admission_keys(kinds, [each]))
    chosen = await tx.select(members)
    await uow.load((), chosen)
    if whole is not None:  # after its members, in the order in which reports lock them too
        await uow.load([Key(whole.ns, whole.object)])
        before = await _previous_verdict(uow, whole)
        if before is not None:
            return before
    parent = None if whole is None else whole.op
    verdicts = await admit_all(uow, kinds, [replace(each, object=one.id, op=new_id(), parent=parent) for one in chosen])
    begun = [verdict for verdict in verdicts if isinstance(verdict, Accepted)]
    skipped = {one.id: why for one, why in zip(chosen, verdicts, strict=True) if isinstance(why, StatewardError)}
    if not begun:
        unfit = [why for why in skipped.values() if isinstance(why, BadInput)]
        if unfit and len(unfit) == len(skipped):  # it is the caller's mistake, and not the members' state
            raise unfit[0]
        raise NoneAllowed(each.action, skipped)
    answer = await _accept_whole(uow, kinds, whole, sum(one.operation is not None for one in begun))
    await promote_waiters(uow)
    await uow.apply()
    return GroupVerdict(answer, begun, skipped)


async def _previous_verdict(uow: UnitOfWork, whole: Request) -> GroupVerdict | None:
    """Return the verdict that the same request got before, by its operation's id or by its key; raises a refusal."""
    answer = find_answer(whole, await uow.tx.idempotency_records(possible_keys(whole)))
    key = Key(whole.ns, whole.op if answer is None or answer.op is None else answer.op)
    operation = (await uow.tx.operations([key])).get(key)
    if answer is None and operation is None:
        return None
    found = uow.objects.get(Key(whole.ns, whole.object))
    if found is None:
        raise NotFound(whole.ns, whole.object)
    return GroupVerdict(Accepted(found, operation, again=True), [], {})


async def _accept_whole(uow: UnitOfWork, kinds: Kinds, whole: Request | None, children: int) -> Accepted | None:
    if whole is None:
        return None
    verdict: Verdict = (await admit_all(uow, kinds, [replace(whole, children=children)]))[0]
    if isinstance(verdict, StatewardError):
        raise verdict
    return verdict


async def store_group_refusal(
    tx: Tx, kinds: Kinds, whole: Request, error: StatewardError
) -> GroupVerdict | StatewardError:
    """Store the refusal of a group under its key and return it, unless the key was answered meanwhile."""
    uow = UnitOfWork(tx)
    await uow.load([Key(whole.ns, whole.object)])
    before = await _previous_verdict(uow, whole)
    if before is not None:
        return before
    if isinstance(error, NoneAllowed):
        error = await explain_none_allowed(tx, kinds, whole, error)
    await tx.apply(Changes(idempotency_records=[refusal_record(whole, error, tx.now)]))
    return error


async def explain_none_allowed(tx: Tx, kinds: Kinds, whole: Request, error: NoneAllowed) -> StatewardError:
    """Return the error to report if no member allows an action: the whole's own refusal says more, if it refuses too.

    The whole is planned without its key: under its key the refusal of the group may be stored by now.
    """
    (alone,) = await plan(tx, kinds, [replace(whole, key=None)])
    return alone if isinstance(alone, StatewardError) else error
