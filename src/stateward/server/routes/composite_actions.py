"""Actions on composites: an action on a composite is an action on all of its parts, such as suspending a group of VMs.

The plug-ins of the domains declare these actions. The composite and the parts that allow the action begin it in one
transaction. The composite's operation is the parent of the parts' operations, and ends after them.
"""

from collections.abc import Iterable
from hashlib import blake2b

from msgspec.structs import replace

from stateward.engine import Accepted, Engine, Request
from stateward.engine.accept.idempotency import bare_key
from stateward.engine.errors import KeyReused, NoneAllowed
from stateward.plugin.runtime import CompositeParts, DomainRuntime
from stateward.store.filters import Selector
from stateward.store.records import Key


class CompositeActions:
    """The actions of composites that are actions on all parts."""

    def __init__(self, runtimes: Iterable[DomainRuntime] = ()) -> None:
        self._parts: CompositeParts = {
            pair: kind for runtime in runtimes for pair, kind in runtime.composite_parts.items()
        }
        self._actions = {action for _, action in self._parts}

    async def submit(self, engine: Engine, request: Request) -> Accepted:
        """Submit a request on one object, or on a composite and its parts."""
        if request.action not in self._actions:
            return await engine.submit(request)
        found = await engine.store.reader.object(Key(request.ns, request.object))
        kind = None if found is None else self._parts.get((found.kind, request.action))
        return await (engine.submit(request) if kind is None else _on_all(engine, request, kind))


async def _on_all(engine: Engine, whole: Request, kind: str) -> Accepted:
    if whole.key is not None:  # a repeated request is recognized by the operation's id, and submits no member again
        whole = replace(whole, op=await _named(engine, whole))
    each = engine.request(
        whole.ns, "", whole.action, actor=whole.actor, who=whole.who, facts=whole.facts, priority=whole.priority
    )
    try:
        verdict = await engine.group(whole, Selector(whole.ns, kind, whole.object), each)
    except NoneAllowed as error:
        raise await engine.explain_none_allowed(whole, error) from None
    assert verdict.whole is not None
    return verdict.whole if whole.key is None else _same(verdict.whole, whole)


async def _named(engine: Engine, whole: Request) -> str:
    """Return the operation id for an idempotency key; earlier versions derived it from the key without the caller."""
    mine, before = (_hash(whole.ns, key) for key in (str(whole.key), bare_key(str(whole.key))))
    found = await engine.store.reader.operation(Key(whole.ns, before)) if before != mine else None
    return before if found is not None and found.who == whole.who else mine


def _hash(ns: str, key: str) -> str:
    return blake2b(f"{ns}\n{key}".encode(), digest_size=16).hexdigest()


def _same(accepted: Accepted, whole: Request) -> Accepted:
    """Return the accepted request; raises if the key was used for another request."""
    operation = accepted.operation
    if operation is not None and (operation.object, operation.action) != (whole.object, whole.action):
        raise KeyReused(bare_key(str(whole.key)))
    return accepted
