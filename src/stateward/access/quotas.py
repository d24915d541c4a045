"""Quotas: how much a namespace may hold and have under way at once.

A quota is an object of the engine beside the tokens, so that every change of it stands in the journal. Each namespace
has one row for it: a transaction that accepts a request there locks that row first, so that the counts stay true until
the request is written, whatever other processes accept.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from stateward.access.tokens import SYSTEM
from stateward.engine import AlreadyExists, Denied, Engine, Kind, Request, Rules
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import ADMIN, CONTROLLER, GONE, NEW, STABLE, USER, State, declare, step
from stateward.store.filters import Page, Selector
from stateward.store.records import Key, Object


class QuotaState(State):
    """The states of a quota."""

    IN_FORCE = "in force", STABLE, "holds for every request that is accepted from now on"


Q = QuotaState

ROWS = (
    #    from        event     by                  to
    step(NEW,        "set",    ADMIN | CONTROLLER, Q.IN_FORCE),
    step(Q.IN_FORCE, "change", ADMIN | CONTROLLER, Q.IN_FORCE),
    step(Q.IN_FORCE, "lift",   ADMIN | CONTROLLER, GONE),
)  # fmt: skip

QUOTA = declare("access.quota", QuotaState, ROWS, ADMIN | CONTROLLER, about="the quota of a namespace")

HELD = frozenset((USER, ADMIN))
"""The actors whose requests are subject to quotas."""

Most = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Quota(Struct, frozen=True):
    """How many objects of each kind, and how many operations under way, a namespace may have; None: any number."""

    ns: str
    objects: dict[str, Most]
    operations: Most | None


class QuotaExceeded(Denied, code="quota"):
    """The namespace has as many objects of a kind, or operations in progress, as its quota allows."""

    ns: str
    what: str
    limit: int
    retry: bool = False
    text = "namespace {ns!r} may have no more than {limit} {what}"


class QuotaGuard:
    """Checks requests of users against quotas; requests of timers and domains are never refused."""

    def needs(self, request: Request) -> Key | None:
        """Return the key of the quota that applies to a request."""
        return quota_key(request.ns) if request.actor in HELD and request.ns != SYSTEM else None

    async def check(self, uow: UnitOfWork, request: Request, record: Object, *, begins: bool) -> None:
        """Raise if the request would exceed the quota."""
        key = self.needs(request)
        quota = None if key is None else quota_in(uow.objects.get(key))
        if quota is None:
            return
        ns, counts = request.ns, uow.admission_counts
        most = quota.objects.get(record.kind) if request.creates is not None else None
        if most is not None:
            if (ns, record.kind) not in counts:
                counts[ns, record.kind] = await uow.tx.count_objects(ns, record.kind, most)
            if counts[ns, record.kind] >= most:
                raise QuotaExceeded(ns, f"objects of kind {record.kind}", most, retry=False)
        if quota.operations is not None and _adds(record, begins=begins):
            if (ns,) not in counts:
                counts[ns,] = await uow.tx.count_open_operations(ns, quota.operations)
            if counts[ns,] >= quota.operations:
                raise QuotaExceeded(ns, "operations under way", quota.operations, retry=True)

    def accepted(self, uow: UnitOfWork, request: Request, record: Object, *, begins: bool) -> None:
        """Count an accepted request."""
        if request.creates is not None and (request.ns, record.kind) in uow.admission_counts:
            uow.admission_counts[request.ns, record.kind] += 1
        if (request.ns,) in uow.admission_counts and _adds(record, begins=begins):
            uow.admission_counts[request.ns,] += 1


def _adds(record: Object, *, begins: bool) -> bool:
    """Return whether the request adds an open operation: one that pre-empts another replaces it."""
    return begins and record.op is None


def quota_kind() -> Kind:
    """Return the kind of quotas, for an engine to know."""
    return Kind(QUOTA, spec_actions=("change",), general=False, rules=Rules(names_namespace=quota_key))


def quota_key(ns: str) -> Key:
    """Return the key of a namespace's quota."""
    return Key(SYSTEM, f"quota-{ns}")


def quota_in(record: Object | None) -> Quota | None:
    """Return the quota in an object; None if it is not in force."""
    if record is None or record.removed:
        return None
    return msgspec.json.decode(record.spec, type=Quota)


class Quotas:
    """Sets, finds and lists quotas."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def set(self, quota: Quota, who: str = "") -> Quota:
        """Set a quota, or replace the former one."""
        key, spec = quota_key(quota.ns), msgspec.to_builtins(quota)
        try:
            await self._engine.create(*key, QUOTA.kind, "set", spec=spec, actor=CONTROLLER, who=who)
        except AlreadyExists:
            await self._engine.act(*key, "change", spec=spec, actor=CONTROLLER, who=who)
        return quota

    async def of(self, ns: str) -> Quota | None:
        """Return the quota of a namespace, if it has one."""
        return quota_in(await self._engine.store.reader.object(quota_key(ns)))

    async def list(self, after: str | None = None, limit: int = 1000) -> list[Quota]:
        """Return the quotas, in the order of their namespaces."""
        behind = None if after is None else quota_key(after).id
        records = await self._engine.store.reader.list_objects(Selector(SYSTEM, kind=QUOTA.kind), Page(behind, limit))
        return [quota for record in records if (quota := quota_in(record)) is not None]
