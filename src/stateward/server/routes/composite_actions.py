"""Actions on composites: an action on a composite is an action on all of its parts, such as suspending a group of VMs.

The plug-ins of the domains declare these actions. The composite and the parts that allow the action begin it in one
transaction. The composite's operation is the parent of the parts' operations, and ends after them.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from msgspec.structs import replace

from stateward.engine import Accepted, Engine, Request
from stateward.engine.accept.groups import BulkChoice, GroupVerdict
from stateward.engine.accept.idempotency import bare_key
from stateward.engine.errors import Denied, KeyReused, NoneAllowed, NotFound
from stateward.engine.queries import list_all
from stateward.errors import StatewardError
from stateward.naming import new_id
from stateward.plugin.runtime import CompositeParts, DomainRuntime, ExpectedChange, PartAction
from stateward.store.filters import Selector
from stateward.store.records import Key, Object

OTHERS = "(others)"
"""The part of an idempotency key, in place of an id, for the chosen objects that are no composites."""


class CompositeActions:
    """The actions of composites that are actions on all parts."""

    def __init__(self, runtimes: Iterable[DomainRuntime] = ()) -> None:
        self._runtimes = tuple(runtimes)
        self._parts: CompositeParts = {
            pair: kind for runtime in self._runtimes for pair, kind in runtime.composite_parts.items()
        }
        self._actions = {action for _, action in self._parts}

    async def submit(self, engine: Engine, request: Request) -> Accepted:
        """Submit a request on one object, or on a composite and its parts."""
        if request.action not in self._actions:
            return await engine.submit(request)
        record = await engine.store.reader.object(Key(request.ns, request.object))
        if record is None or (record.kind, request.action) not in self._parts:
            return await engine.submit(request)
        return await self._on_all(engine, request, record)

    async def submit_group(
        self, engine: Engine, whole: Request | None, chosen: Selector, each: Request
    ) -> GroupVerdict:
        """Submit a request on many objects; on a composite among them, it is an action on its parts.

        Each composite has its own acceptance and operation. A request that is repeated under its key is one on the
        objects that the first one chose, each of which has its first verdict.
        """
        choice = None if whole is not None else await self._choose(engine, chosen, each)
        if choice is None:
            return await engine.group(whole, chosen, each)
        begun: list[Accepted] = []
        skipped: dict[str, StatewardError] = {}
        records = await engine.store.reader.objects({Key(each.ns, name) for name in choice.composites})
        for name in choice.composites:
            asked = replace(each, object=name, op=new_id(), key=_key_for(each, name))
            known = records.get(Key(each.ns, name))
            try:
                if known is None or (known.kind, each.action) not in self._parts:  # it was chosen earlier, and is gone
                    raise NotFound(each.ns, name)
                begun.append(await self._on_all(engine, asked, known))
            except Denied as error:
                skipped[name] = error
        group = next((accepted.operation.id for accepted in begun if accepted.operation is not None), None)
        is_repeated = all(accepted.again for accepted in begun)
        if choice.others:
            try:
                others = replace(each, key=_key_for(each, OTHERS))
                verdict = await engine.group(None, Selector(chosen.ns, ids=choice.others), others)
            except NoneAllowed as error:
                skipped |= error.skipped
            except Denied as error:  # all of them for one reason
                skipped |= dict.fromkeys(choice.others, error)
            else:
                begun, skipped = begun + verdict.begun, skipped | verdict.skipped
                group, is_repeated = group or verdict.group, is_repeated and verdict.again
        if group is None and not begun:
            raise next(iter(skipped.values())) if len(skipped) == 1 else NoneAllowed(each.action, skipped)
        return GroupVerdict(None, begun, skipped, group if len(begun) == 1 else None, is_repeated)

    async def _choose(self, engine: Engine, chosen: Selector, each: Request) -> BulkChoice | None:
        """Return the objects of a bulk action if some are composites; those of the first request with this key."""
        if each.action not in self._actions:
            return None
        composites = await self.find_composites(engine, chosen, each.action)
        others = await self.without_composites(engine, chosen, composites) if composites else None
        ids = () if others is None else others.ids or ()
        choice = BulkChoice(tuple(composite.id for composite in composites), ids)
        if each.key is not None:
            return await engine.choose_once(chosen, each, choice)
        return choice if composites else None

    async def find_composites(self, engine: Engine, chosen: Selector, action: str) -> list[Object]:
        """Return the chosen objects on which the action is one on their parts."""
        kinds = [kind for kind, named in self._parts if named == action and chosen.kind in (None, kind)]
        return [
            composite for kind in kinds async for composite in list_all(engine.store.reader, replace(chosen, kind=kind))
        ]

    async def without_composites(
        self, engine: Engine, chosen: Selector, composites: Sequence[Object]
    ) -> Selector | None:
        """Return the selector of all other chosen objects, without the parts of these composites; None if none is."""
        if chosen.kind is not None:
            return None
        asked = {composite.id for composite in composites}
        parents = {record.id: record.parent async for record in list_all(engine.store.reader, chosen)}
        others = [id_ for id_, parent in parents.items() if id_ not in asked and parent not in asked]
        others += (id_ for id_ in chosen.ids or () if id_ not in parents)  # the verdict says that they do not exist
        return Selector(chosen.ns, ids=tuple(others)) if others else None

    def __contains__(self, pair: tuple[str, str]) -> bool:
        """Return whether an action on a composite of a kind is one on all of its parts, given as (kind, action)."""
        return pair in self._parts

    def needs_parts(self, request: Request, record: Object) -> bool:
        """Return whether an action on an object is refused if none of its parts allows it."""
        return (record.kind, request.action) in self._parts and not self._acts_without_parts(request, record)

    def _acts_without_parts(self, request: Request, record: Object) -> bool:
        return any(runtime.acts_without_parts(request, record) for runtime in self._runtimes)

    async def find_part_actions(self, request: Request, record: Object) -> list[PartAction]:
        """Return the actions on parts that an action on an object leads to."""
        return [action for runtime in self._runtimes for action in await runtime.find_part_actions(request, record)]

    async def describe_effects(self, request: Request, changes: Sequence[ExpectedChange]) -> list[str]:
        """Return the sentences of all domains on the effects of a planned action."""
        return [text for runtime in self._runtimes for text in await runtime.describe_effects(request, changes)]

    async def _on_all(self, engine: Engine, whole: Request, record: Object) -> Accepted:
        if whole.key is not None:  # a repeated request is recognized by the operation's id, and submits no member again
            whole = replace(whole, op=await _named(engine, whole))
        each = engine.request(
            whole.ns, "", whole.action, actor=whole.actor, who=whole.who, facts=whole.facts, priority=whole.priority
        )
        parts = Selector(whole.ns, self._parts[record.kind, whole.action], whole.object)
        try:
            verdict = await engine.group(whole, parts, each, acts_alone=self._acts_without_parts(whole, record))
        except NoneAllowed as error:
            raise await engine.explain_none_allowed(whole, error) from None
        assert verdict.whole is not None
        return verdict.whole if whole.key is None else _same(verdict.whole, whole)


def _key_for(each: Request, name: str) -> str | None:
    return None if each.key is None else f"{each.key} {name}"


async def _named(engine: Engine, whole: Request) -> str:
    """Return the operation id for an idempotency key; earlier versions derived it from the key without the caller."""
    mine, before = (_hash(whole.ns, key) for key in (str(whole.key), bare_key(str(whole.key))))
    operation = await engine.store.reader.operation(Key(whole.ns, before)) if before != mine else None
    return before if operation is not None and operation.who == whole.who else mine


def _hash(ns: str, key: str) -> str:
    return blake2b(f"{ns}\n{key}".encode(), digest_size=16).hexdigest()


def _same(accepted: Accepted, whole: Request) -> Accepted:
    """Return the accepted request; raises if the key was used for another request."""
    operation = accepted.operation
    if operation is not None and (operation.object, operation.action) != (whole.object, whole.action):
        raise KeyReused(bare_key(str(whole.key)))
    return accepted
