"""Deletion protection: a flag on an object or on a namespace, which refuses removals that people ask for.

A person who removes the wrong object cannot take that back. A protected object, whatever is below it, and everything in
a protected namespace is removed by nobody who asks for it, not even with force, before the flag is lifted. Work that
nobody asked for (a timer, a reconciler) goes on. So do the children of an operation that was accepted before, unless
their own object is protected. Nor is an object removed that takes a protected one along.

The flag of an object is a label, which only this module writes. So it needs no column, ends with the object, and can be
selected like any label. The flag of a namespace is a record of the deployment.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.engine.errors import NotFound, Occupied, Protected, blocker_of
from stateward.engine.kinds import Kind, Kinds
from stateward.engine.requests import EMPTY, Request
from stateward.engine.transitions import absent_object, journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import ADMIN, CONTROLLER, GONE, NEW, STABLE, USER, Move, State, declare, step
from stateward.naming import check_text
from stateward.store.filters import Selector
from stateward.store.port import Reader, Tx
from stateward.store.records import PROTECTED_LABEL, Key, Object, shown_labels, to_json

NO_REASON = "yes"
"""The stored reason of a flag that was set without one."""

PEOPLE = frozenset((USER, ADMIN))
"""The actors that act for people."""


class ProtectionState(State):
    """The states of a namespace's protection."""

    IN_FORCE = "in force", STABLE, "what is in the namespace is not removed"


P = ProtectionState

ROWS = (
    #    from        event     by                  to
    step(NEW,        "set",    ADMIN | CONTROLLER, P.IN_FORCE),
    step(P.IN_FORCE, "change", ADMIN | CONTROLLER, P.IN_FORCE),
    step(P.IN_FORCE, "lift",   ADMIN | CONTROLLER, GONE),
)  # fmt: skip

PROTECTION = declare(
    "engine.protection", ProtectionState, ROWS, ADMIN | CONTROLLER, about="the deletion protection of a namespace"
)


def protection_kind() -> Kind:
    """Return the kind of namespaces' flags, for an engine to know."""
    return Kind(PROTECTION, general=False)


class NamespaceFlag(Struct, frozen=True):
    """The spec of a namespace's flag."""

    reason: str


def flag_key(ns: str) -> Key:
    """Return the key of a namespace's flag, in the namespace that only administrators see."""
    return Key("(system)", f"protection-{ns}")


def flag_of(record: Object | None) -> str:
    """Return the reason of an object's own flag; empty if it has none."""
    if record is None or record.removed or PROTECTED_LABEL not in record.labels:
        return ""
    labels: dict[str, str] = msgspec.json.decode(record.labels)
    return labels.get(PROTECTED_LABEL, "")


def namespace_flag_in(record: Object | None) -> str:
    """Return the reason of a namespace's flag, given its record; empty if there is none."""
    return "" if record is None or record.removed else msgspec.json.decode(record.spec, type=NamespaceFlag).reason


async def load_protection(uow: UnitOfWork, kinds: Kinds, requests: Iterable[Request]) -> None:
    """Read the flags that these requests may meet, level by level; most requests remove nothing, and read nothing."""
    removals = [request for request in requests if request.action in kinds.removing_events and request.creates is None]
    records = [uow.objects.get(Key(request.ns, request.object)) for request in removals if request.actor in PEOPLE]
    wanted = {
        key
        for record in records
        if record is not None
        for key in (flag_key(record.ns), parent_key(record))
        if key is not None
    }
    read: set[Key] = set()
    while wanted:
        read |= wanted
        above = await _read_flags(uow, list(wanted))
        wanted = {key for record in above if record is not None and (key := parent_key(record)) is not None} - read


async def _read_flags(uow: UnitOfWork, keys: list[Key]) -> list[Object | None]:
    """Return objects with flags, which nobody sets before this transaction is committed."""
    await uow.share(keys)
    return await uow.peek(keys)


def parent_key(record: Object) -> Key | None:
    """Return the key of an object's parent."""
    return None if record.parent is None else Key(record.ns, record.parent)


async def require_unprotected(uow: UnitOfWork, kinds: Kinds, request: Request, record: Object, move: Move) -> None:
    """Refuse a removal that a person asks for, if a flag of the object, above or below it protects it."""
    kind = kinds.of(record)
    if request.creates is not None or not kind.removes(move):
        return
    if request.parent is None:
        if request.actor in PEOPLE:
            await require_no_flag(uow, request.action, record)
            if request.action in kind.rules.removes_below:
                below = await uow.peek_selected(Selector(record.ns, parent=(record.id,)))
                await require_no_flag_in(uow, request.action, record.key, below)
        return
    reason = flag_of(record)  # the first request was checked for flags above
    if reason and (request.actor in PEOPLE or await _is_asked_by_person(uow, Key(request.ns, request.parent))):
        raise Protected(request.action, record.ns, record.id, record.id, reason)


async def _is_asked_by_person(uow: UnitOfWork, operation: Key | None) -> bool:
    """Return whether a person asked for an operation, or for one that led to it."""
    while operation is not None:
        await uow.load_operations([operation])
        stored = uow.operations.get(operation)
        if stored is None or stored.actor in PEOPLE:
            return stored is not None
        operation = None if stored.parent is None else Key(stored.ns, stored.parent)
    return False


async def require_parts_unprotected(uow: UnitOfWork, request: Request, whole: Object, parts: Iterable[Object]) -> None:
    """Refuse what a person asks for if it would remove parts, and one of them or of what is below them is protected.

    For the guards of kinds that remove objects which are not below their own.
    """
    if request.actor in PEOPLE:
        await require_no_flag_in(uow, request.action, whole.key, parts)


async def require_no_flag_in(uow: UnitOfWork, action: str, whole: Key, parts: Iterable[Object]) -> None:
    """Raise if one of the parts that an action removes is protected, or anything below them."""
    level = list(parts)
    while level:
        for part in level:
            if reason := flag_of(part):
                raise Protected(action, whole.ns, whole.id, part.id, reason)
        level = await uow.peek_selected(Selector(whole.ns, parent=tuple(part.id for part in level)))


async def require_no_flag(uow: UnitOfWork, action: str, target: Object) -> None:
    """Raise if an object, an ancestor or the namespace is protected."""

    async def read(key: Key) -> Object | None:
        return (await _read_flags(uow, [key]))[0]

    if (refusal := await _find_flag(action, target, read)) is not None:
        raise refusal


async def _find_flag(action: str, target: Object, read: Callable[[Key], Awaitable[Object | None]]) -> Protected | None:
    """Return why nobody may remove an object: its own flag, or that of its namespace or of the nearest ancestor."""
    if reason := flag_of(target):
        return Protected(action, target.ns, target.id, target.id, reason)
    if reason := namespace_flag_in(await read(flag_key(target.ns))):
        return Protected(action, target.ns, target.id, None, reason)
    passed, key = {target.key}, parent_key(target)
    while key is not None and key not in passed:
        passed.add(key)
        above = await read(key)
        if reason := flag_of(above):
            return Protected(action, target.ns, target.id, key.id, reason)
        key = None if above is None else parent_key(above)
    return None


# --- setting and lifting ---------------------------------------------------------------------------------------------


def _as_reason(reason: str) -> str:
    if reason:
        check_text("reason", reason, 1, 250)
    return reason or NO_REASON


async def set_object_flag(tx: Tx, kinds: Kinds, key: Key, reason: str | None, actor: str, who: str) -> Object:
    """Set the flag of an object, or lift it (None); an object that is being removed can't be protected any more."""
    uow = UnitOfWork(tx)
    await uow.exclude([key])
    await uow.load([key])
    record = uow.objects.get(key)
    if record is None or record.removed:
        raise NotFound(*key)
    former: dict[str, str] = msgspec.json.decode(record.labels)
    labels = shown_labels(former) | ({} if reason is None else {PROTECTED_LABEL: _as_reason(reason)})
    if labels == former:
        return record
    if reason is not None and record.op is not None:
        await uow.load_operations([Key(record.ns, record.op)])
        operation = uow.operations[Key(record.ns, record.op)]
        is_known = not kinds.unknown_words(record, operation)
        if is_known and kinds.of(record).is_removal(operation.action, operation.desired):
            raise Occupied(_event(reason), blocker_of(operation))
    text = msgspec.json.encode(labels, order="sorted").decode()
    changed = replace(record, labels=text, version=uow.next_version(key))
    uow.save_object(key, changed)
    journal(uow, record, None, actor, who, _event(reason), reason=labels.get(PROTECTED_LABEL))
    await uow.apply()
    return changed


async def set_namespace_flag(tx: Tx, ns: str, reason: str | None, actor: str, who: str) -> str:
    """Set the flag of a namespace, or lift it (None); returns the reason that is stored now."""
    uow, key = UnitOfWork(tx), flag_key(ns)
    await uow.exclude([key])
    await uow.load([key])
    former = uow.objects.get(key)
    now = "" if reason is None else _as_reason(reason)
    if namespace_flag_in(former) == now:
        return now
    known = former or absent_object(key, PROTECTION, uow.now)
    state = P.IN_FORCE if now else GONE
    spec = to_json(NamespaceFlag(now)) if now else EMPTY
    uow.save_object(
        key, replace(known, state=state.word, spec=spec, removed=not now, since=uow.now, version=uow.next_version(key))
    )
    journal(uow, known, None, actor, who, _event(reason), known.state, state.word, now or None)
    await uow.apply()
    return now


def _event(reason: str | None) -> str:
    return "unprotect" if reason is None else "protect"


async def namespace_flag(reader: Reader, ns: str) -> str:
    """Return the reason of a namespace's flag; empty if it has none."""
    return namespace_flag_in(await reader.object(flag_key(ns)))


async def effective_flag(reader: Reader, record: Object) -> Protected | None:
    """Return why nobody may remove an object: its own flag, or that of its namespace or of the nearest ancestor."""
    return await _find_flag("", record, reader.object)


async def protected_parents(reader: Reader, members: Iterable[Object]) -> set[str]:
    """Return the parents of some objects of a namespace that are protected, or are below a protected object."""
    parents = {key for member in members if (key := parent_key(member)) is not None}
    known: dict[Key, Object] = {}
    wanted, read = parents, set[Key]()
    while wanted:
        read |= wanted
        known |= await reader.objects(wanted)
        wanted = {key for record in known.values() if (key := parent_key(record)) is not None} - read
    flagged = {key for key, record in known.items() if flag_of(record)}
    while more := {key for key, record in known.items() if parent_key(record) in flagged} - flagged:
        flagged |= more
    return {key.id for key in parents & flagged}


def keep_flag(record: Object, labels: Mapping[str, str]) -> dict[str, str]:
    """Return new labels of an object with the flag that it has; they must not name the flag themselves."""
    if PROTECTED_LABEL in labels:
        raise BadInput("labels", dict(labels), f"labels without {PROTECTED_LABEL}, which `stateward protect` sets")
    reason = flag_of(record)
    return {**labels, **({PROTECTED_LABEL: reason} if reason else {})}
