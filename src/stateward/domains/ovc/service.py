"""The service of the ovc domain: create objects, submit actions on them, and read them."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.ovc import model
from stateward.domains.ovc.errors import NotNow, OtherAction
from stateward.domains.ovc.guards.common_guard import STATUS_FACT
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, NODE, VM, NodeState
from stateward.domains.ovc.queuer import KINDS, Queuer
from stateward.engine import Accepted, Engine, NotFound, Refused, Request
from stateward.engine.accept.idempotency import RefusedBefore, bare_key, scope_key, was_created_by
from stateward.engine.bounded_reads import read_all
from stateward.engine.privacy import Disclosure
from stateward.engine.queries import Recovered, list_all
from stateward.engine.requests import Creation
from stateward.errors import BadInput
from stateward.lifecycle import NO_FACTS, PROVIDER, Lifecycle, Meaning, RefusalCode
from stateward.naming import new_id
from stateward.schemas.caller import Caller
from stateward.store.filters import JournalFilter, Selector
from stateward.store.port import StuckWork
from stateward.store.records import Key, Object, to_json

DONE_STATES = {
    "delete": ("DELETED", "TOBEDELETED", "DESTROYED"),
    "destroy": ("DESTROYED",),
    "decommission": ("DECOMMISSIONED",),
}
"""States in which repeating the action is a success."""

CREATIONS: Mapping[type[model.OvcSpec], tuple[Lifecycle, tuple[str, ...], str]] = {
    model.AccountSpec:    (ACCOUNT,    ("create",),           ""),
    model.CloudspaceSpec: (CLOUDSPACE, ("define", "deploy"),  "account"),
    model.OvcVmSpec:      (VM,         ("define", "deploy"),  "cloudspace"),
    model.DiskSpec:       (DISK,       ("define", "create"),  "account"),
    model.ImageSpec:      (IMAGE,      ("define", "create"),  "account"),
    model.NodeSpec:       (NODE,       ("register",),         ""),
}  # fmt: skip
"""The kind of a new object, its first actions, and the field of its spec that names the parent."""

MAX_ENTRIES = 1000


class OvcCaller(Caller, frozen=True, kw_only=True):
    """A caller with its token: the idempotency key names the object that it creates, so the service scopes it."""

    token: str = ""


class HealingReport(Struct, frozen=True):
    """Stuck work, and what was recovered since a time by the healer, a timer, or drift detection.

    `orphans` are the present ones, by node.
    """

    stuck: list[StuckWork]
    healed: list[Recovered]
    orphans: list[tuple[str, model.OvcOrphan]]


class Service:
    """The service of the ovc domain, for the API and for library users."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.queuer = Queuer(engine)

    # --- creation ----------------------------------------------------------------------------------------------------

    async def create(
        self, ns: str, spec: model.OvcSpec, caller: OvcCaller, key: str | None = None, *, deploy: bool = True
    ) -> Accepted:
        """Create an object and submit its first actions in one transaction; a refusal leaves nothing.

        Without `deploy`, it is only described.
        """
        lifecycle, actions, parent = CREATIONS[type(spec)]
        key, plain = scope_key(caller.token, key), msgspec.to_builtins(spec)
        if key is None:
            id_ = f"{model.short_kind(lifecycle.kind)}-{new_id()[-12:]}"
        else:
            mine, before = _id_for_key(ns, lifecycle.kind, key), _id_for_key(ns, lifecycle.kind, bare_key(key))
            former = before != mine and await was_created_by(self.engine.store.reader, Key(ns, before), caller.who)
            id_ = before if former else mine
        labels = {"name": spec.name, **({"account": spec.account} if isinstance(spec, model.DiskSpec) else {})}
        creates = Creation(lifecycle.kind, plain.get(parent), to_json(labels))
        is_on_host = isinstance(spec, model.NodeSpec) and spec.driver in model.HOST_DRIVERS
        facts = caller.facts if is_on_host else NO_FACTS
        first = self._request(ns, id_, actions[0], caller, key=key, spec=plain, creates=creates, facts=facts)
        rest = [self._request(ns, id_, action, caller, key=key) for action in actions[1:] if deploy]
        return await self.submit(first, *rest)

    def _request(self, ns: str, id_: str, action: str, caller: OvcCaller, **how: Any) -> Request:  # noqa: ANN401 - as engine
        key = how.pop("key", None)
        name = None if key is None else f"{key}/{action.replace(' ', '-')}"
        return self.engine.request(ns, id_, action, actor=caller.actor, who=caller.who, key=name, **how)

    # --- actions -----------------------------------------------------------------------------------------------------

    async def act(
        self,
        ns: str,
        kind: str,
        id_: str,
        action: str,
        caller: OvcCaller,
        *,
        args: dict[str, Any] | None = None,
        status: str | None = None,
        key: str | None = None,
    ) -> Accepted:
        """Submit an action on an object of a kind; `status` is the state that the caller expects."""
        await self.get(ns, kind, id_)
        key = scope_key(caller.token, key)
        facts = () if status is None else (f"{STATUS_FACT}{status}",)
        try:
            return await self.submit(self._request(ns, id_, action, caller, args=args or {}, facts=facts, key=key))
        except (Refused, RefusedBefore) as refused:
            # the state in which the table refused it, now or earlier for the same key
            state: str | None = None
            if isinstance(refused, Refused):
                state = refused.refusal.state.word
            elif refused.refusal.error == Refused.__name__:
                state = refused.refusal.state
            if status is not None and state not in (None, status):
                raise OtherAction(kind=model.short_kind(kind), id=id_, state=str(state), status=status) from refused
            if state in DONE_STATES.get(action, ()):
                return Accepted(await self.engine.record(ns, id_), None, again=True)
            raise

    async def submit(self, request: Request, *then: Request) -> Accepted:
        """Submit requests in one transaction; an object in transition is refused in the design's own words."""
        try:
            return await (self.engine.submit_sequence([request, *then]) if then else self.engine.submit(request))
        except Refused as refused:
            if refused.refusal.reason is RefusalCode.IN_TRANSITION:
                raise NotNow(refused.refusal, refused.blocker) from refused
            raise
        except RefusedBefore as refused:
            if refused.code == RefusalCode.IN_TRANSITION:
                text = f"{NotNow.begins}{refused.refusal.text}"
                raise RefusedBefore(replace(refused.refusal, text=text)) from refused
            raise

    async def update_status(
        self, ns: str, object_type: str, id_: str, status: str, new_status: str, caller: OvcCaller
    ) -> Accepted:
        """Submit the action that leads from a status to a transition status (the design's `update_status`).

        The object must have the first status; otherwise another action is happening, and the request is refused.
        """
        lifecycle = model.OBJECT_TYPES[object_type]
        begins = [
            transition
            for transition in lifecycle.allowed[lifecycle.state(status)]
            if transition.meaning is Meaning.ACTION
        ]
        ways = [transition.event for transition in begins if transition.target == new_status]
        if not ways:
            begun = sorted({transition.target for transition in begins})
            raise BadInput("new_status", new_status, f"a transition that begins in {status}: {', '.join(begun)}")
        return await self.act(ns, lifecycle.kind, id_, ways[0], caller, status=status)

    # --- queries -----------------------------------------------------------------------------------------------------

    async def get(self, ns: str, kind: str, id_: str) -> Object:
        """Return an object of this kind; raises NotFound."""
        record = await self.engine.record(ns, id_)
        if record.kind != kind:
            raise NotFound(ns, id_)
        return record

    async def disks_of(self, ns: str, vm: str) -> list[Object]:
        """Return the disks of a VM."""
        return [disk async for disk in list_all(self.engine.store.reader, Selector(ns, DISK.kind, vm))]

    async def healing(self, ns: str, since: float, disclosure: Disclosure | None = None) -> HealingReport:
        """Return stuck work, recoveries since a time, and orphans of a namespace, as far as the reader may see them."""
        disclosure = disclosure or self.engine.kinds.disclosure(internal=True)
        healed = [entry for entry in await self.engine.recovered(since, ns, disclosure.entry) if entry.kind in KINDS]
        settled = sorted([*healed, *await self._observed_changes(ns, since, disclosure)], key=lambda entry: entry.at)
        stuck = [entry for entry in await self.engine.stuck(namespaces=[ns]) if entry.kind in KINDS]
        shown = [entry for entry in stuck if not disclosure.hides_action(entry.kind, entry.action)]
        orphans = [
            (node.id, orphan)
            async for node in list_all(self.engine.store.reader, Selector(ns, NODE.kind))
            if node.state != NodeState.DECOMMISSIONED
            for orphan in model.node_seen(node).orphans
        ]
        return HealingReport(shown, settled, orphans)

    async def _observed_changes(self, ns: str, since: float, disclosure: Disclosure) -> list[Recovered]:
        """Return the changes that drift detection made."""
        chosen = JournalFilter(ns=ns, actor=PROVIDER, since=since)
        entries = [disclosure.entry(entry) for entry in await read_all(self.engine.store.reader, MAX_ENTRIES, chosen)]
        lines = [line for line in entries if line is not None and line.kind in KINDS and line.target is not None]
        return [
            Recovered(
                ns, line.object, line.kind, None, None, line.at, line.event, line.target, f"on {line.who or 'its node'}"
            )
            for line in lines
        ]


def _id_for_key(ns: str, kind: str, key: str) -> str:
    """Return the id of the object that an idempotency key creates."""
    return f"{model.short_kind(kind)}-{blake2b(f'{ns}/{kind}/{key}'.encode(), digest_size=6).hexdigest()}"
