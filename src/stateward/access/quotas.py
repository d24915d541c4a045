"""Quotas: how much a namespace may hold and have under way at once.

A quota is an object of the engine beside the tokens, so that every change of it stands in the journal. Each namespace
has one row for it: whoever accepts a request there locks that row first, so that what is counted stays true until the
request is written, whatever other processes accept.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from stateward.access.tokens import SYSTEM
from stateward.engine import AlreadyExists, Denied, Engine, Kind, Request
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
"""Whose requests count."""

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
    """Holds what users ask for to the quotas; what the clock and the domains do to finish it is never refused."""

    def needs(self, request: Request) -> Key | None:
        """Return the quota that a request is held to."""
        return quota_key(request.ns) if request.actor in HELD and request.ns != SYSTEM else None

    async def check(self, uow: UnitOfWork, request: Request, found: Object, *, begins: bool) -> None:
        """Refuse what would be one too many."""
        quota = self._quota(uow, request)
        if quota is None:
            return
        ns, tally = request.ns, uow.admission_counts
        most = quota.objects.get(found.kind) if request.creates is not None else None
        if most is not None:
            if (ns, found.kind) not in tally:
                tally[ns, found.kind] = await uow.tx.count_objects(ns, found.kind, most)
            if tally[ns, found.kind] >= most:
                raise QuotaExceeded(ns, f"objects of kind {found.kind}", most, retry=False)
        if quota.operations is not None and _adds(found, begins=begins):
            if (ns,) not in tally:
                tally[ns,] = await uow.tx.count_open_operations(ns, quota.operations)
            if tally[ns,] >= quota.operations:
                raise QuotaExceeded(ns, "operations under way", quota.operations, retry=True)

    def accepted(self, uow: UnitOfWork, request: Request, found: Object, *, begins: bool) -> None:
        """Count what was accepted."""
        if request.creates is not None and (request.ns, found.kind) in uow.admission_counts:
            uow.admission_counts[request.ns, found.kind] += 1
        if (request.ns,) in uow.admission_counts and _adds(found, begins=begins):
            uow.admission_counts[request.ns,] += 1

    def _quota(self, uow: UnitOfWork, request: Request) -> Quota | None:
        key = self.needs(request)
        return None if key is None else quota_in(uow.objects.get(key))


def _adds(found: Object, *, begins: bool) -> bool:
    """Tell whether one more operation is under way: what pre-empts another one takes its place."""
    return begins and found.op is None


def quota_kind() -> Kind:
    """Return the kind of quotas, for an engine to know."""
    return Kind(QUOTA)


def quota_key(ns: str) -> Key:
    """Return where the quota of a namespace is kept."""
    return Key(SYSTEM, f"quota-{ns}")


def quota_in(found: Object | None) -> Quota | None:
    """Return the quota that an object is, if there is one in force."""
    if found is None or found.removed:
        return None
    return msgspec.json.decode(found.spec, type=Quota)


class Quotas:
    """Sets, finds and lists quotas."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def set(self, quota: Quota, who: str = "") -> Quota:
        """Put a quota in force, in the place of the former one."""
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
        """Return the quotas there are, in the order of their namespaces."""
        behind = None if after is None else quota_key(after).id
        found = await self._engine.store.reader.list_objects(Selector(SYSTEM, kind=QUOTA.kind), Page(behind, limit))
        return [quota for one in found if (quota := quota_in(one)) is not None]
