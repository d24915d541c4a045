"""The service for leases: create, list, update, delete and recover.

The service searches hosts in memory; the commit that accepts the lease books them. If another lease has booked a host
first, the commit is refused and the service searches again on fresh data. Of two clients that want the last host, one
gets it and the other one is refused.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar
from uuid import NAMESPACE_URL, uuid4, uuid5

from msgspec.structs import replace

from stateward.domains.leases import lease_parts
from stateward.domains.leases.allocation import AllocationPlan, host_allocator
from stateward.domains.leases.combination import derived_status
from stateward.domains.leases.context import LeaseContext
from stateward.domains.leases.enforcement import PolicyQuestion
from stateward.domains.leases.errors import HostsTaken, LeaseActionFailed, LeaseBeingDeleted, NotRecoverable
from stateward.domains.leases.host_pool import HostPool
from stateward.domains.leases.lease_specs import read_changed_spec, read_new_spec
from stateward.domains.leases.lifecycle import LEASE, LeaseState
from stateward.domains.leases.list_pages import read_page
from stateward.domains.leases.model import EventType, Lease, LeaseSeen, LeaseSpec, ReservationSeen, read_lease
from stateward.engine import Accepted, Engine, NotFound
from stateward.engine.errors import VersionMismatch
from stateward.engine.queries import list_all
from stateward.engine.requests import Creation
from stateward.schemas.caller import Caller
from stateward.store.filters import Selector
from stateward.store.records import Key, Status

T = TypeVar("T")

MAX_TRIES = 100
"""Searches before the service gives up; each repetition means that another client has succeeded."""

OUTCOME_TIMEOUT_S = 60.0
"""Seconds that a caller waits for the end of a create or an update."""

DELETE_TIMEOUT_S = 10.0
"""Seconds that a caller waits for the end of a delete; most end at once."""


class LeaseCaller(Caller, frozen=True, kw_only=True):
    """A caller in a namespace, which Blazar calls a project: no path of its API names one."""

    ns: str


class PlannedHosts(NamedTuple):
    """Hosts that were found for a lease, and the pool in which they were found."""

    pool: HostPool
    plan: AllocationPlan


class LeaseService:
    """The leases of all namespaces."""

    def __init__(self, ctx: LeaseContext, before_end: float, new_id: Callable[[], str] = lambda: str(uuid4())) -> None:
        self._ctx = ctx
        self._before_end = before_end
        self._new_id = new_id

    @property
    def engine(self) -> Engine:
        """The engine of the leases."""
        return self._ctx.engine

    # --- queries -----------------------------------------------------------------------------------------------------

    @property
    def resource_types(self) -> list[str]:
        """The names of the types of resources that can be reserved."""
        return self._ctx.resources.names

    async def get(self, ns: str, id_: str, *, deleted: bool = False) -> Lease:
        """Return a lease; with `deleted`, also one that was deleted and is not pruned yet."""
        record = await self.engine.store.reader.object(Key(ns, id_))
        if record is None or record.kind != LEASE.kind or record.seen == "{}" or (record.removed and not deleted):
            raise NotFound(ns, id_)
        return read_lease(record)

    async def page(self, ns: str, marker: str | None, limit: int | None) -> tuple[list[Lease], str | None]:
        """Return the leases that follow an id, in the order of ids, and the last id if others follow."""
        page = await read_page(self.engine.store.reader, Selector(ns, kind=LEASE.kind), marker, limit)
        return [read_lease(record) for record in page.objects if record.seen != "{}"], page.last

    async def list(self, ns: str) -> list[Lease]:
        """Return all leases of a namespace, in the order of their starts."""
        records = list_all(self.engine.store.reader, Selector(ns, kind=LEASE.kind))
        leases = [read_lease(record) async for record in records if record.seen != "{}"]
        return in_order_of_start(leases)

    # --- commands ----------------------------------------------------------------------------------------------------

    async def create(self, caller: LeaseCaller, given: Mapping[str, Any]) -> Lease:
        """Create a lease; returns when it is PENDING, or after OUTCOME_TIMEOUT_S.

        An idempotency key gives the lease its id, so a call that is repeated after an interruption finds the lease.
        """
        id_ = self._new_id() if caller.key is None else str(uuid5(NAMESPACE_URL, f"{caller.ns} {caller.key}"))
        if caller.key is not None and await self.engine.store.reader.object(Key(caller.ns, id_)) is not None:
            return await self.get(caller.ns, id_, deleted=True)
        now = await self.engine.store.reader.time()
        spec = read_new_spec(given, self._ctx.resources, self._new_id, now, self._before_end)
        spec = replace(spec, user=caller.who, project=caller.ns)
        for reservation in spec.reservations:
            await self._ctx.resources[reservation.resource_type].check(caller.ns, reservation)
        await self._check(spec)
        accepted = await self._retry_if_taken(lambda: self._create(caller, id_, spec))
        return await self._wait_for_outcome(accepted)

    async def _create(self, caller: LeaseCaller, id_: str, spec: LeaseSpec) -> Accepted:
        pool = await self._ctx.pools.get(caller.ns)
        with host_allocator(pool, self._ctx.resources, id_, spec) as allocator:
            plan = allocator.allocate()
            await self._check(spec, hosts=PlannedHosts(pool, plan))
            seen = lease_parts.new_parts(
                {
                    reservation.id: ReservationSeen(hosts=plan.get(reservation.id, {}))
                    for reservation in spec.reservations
                }
            )
            request = self.engine.request(
                caller.ns, id_, "create", spec=spec, seen=seen, creates=Creation(LEASE.kind),
                actor=caller.actor, who=caller.who,
            )  # fmt: skip
            return await self._submit(caller.ns, lambda: self.engine.submit(request))

    async def update(self, caller: LeaseCaller, id_: str, given: Mapping[str, Any]) -> Lease:
        """Update a lease; returns when the update has ended, or after OUTCOME_TIMEOUT_S."""
        accepted = await self._retry_if_taken(lambda: self._update(caller, id_, given))
        return await self.get(caller.ns, id_) if accepted is None else await self._wait_for_outcome(accepted)

    async def _update(self, caller: LeaseCaller, id_: str, given: Mapping[str, Any]) -> Accepted | None:
        lease = await self.get(caller.ns, id_)
        if lease.object.op is not None:  # the engine refuses with the operation in the way
            how: dict[str, Any] = {"version": lease.object.version, "actor": caller.actor, "who": caller.who}
            return await self.engine.act(caller.ns, id_, "update", seen=lease.seen, **how)
        now = await self.engine.store.reader.time()
        spec = read_changed_spec(lease, given, self._ctx.resources, now, self._before_end)
        if spec == lease.spec:
            return None
        await self._check(spec, lease)
        pool = await self._ctx.pools.get(caller.ns)
        with host_allocator(pool, self._ctx.resources, id_, spec) as allocator:
            plan = allocator.allocate_change(lease)
            await self._check(spec, lease, PlannedHosts(pool, plan))
            request = self.engine.request(
                caller.ns, id_, "update", spec=spec, seen=_with_plan(lease, spec, plan, now),
                version=lease.object.version, actor=caller.actor, who=caller.who,
            )  # fmt: skip
            return await self._submit(caller.ns, lambda: self.engine.submit(request))

    async def delete(self, caller: LeaseCaller, id_: str) -> Lease:
        """Begin to delete a lease in any status; if a delete is under way, return the lease with that operation."""
        await self.get(caller.ns, id_)
        try:
            begun = await self.engine.act(caller.ns, id_, "delete", actor=caller.actor, who=caller.who)
        except LeaseBeingDeleted as joined:
            lease = await self.get(caller.ns, id_, deleted=True)
            return replace(lease, object=replace(lease.object, op=joined.blocker.op))
        return read_lease(begun.object)

    async def await_delete(self, lease: Lease) -> None:
        """Wait for the end of a delete, at most DELETE_TIMEOUT_S; raises if the delete failed."""
        try:
            operation = await self.engine.wait_record(lease.object.ns, str(lease.object.op), DELETE_TIMEOUT_S)
        except TimeoutError:
            return
        if operation.status is not Status.SUCCEEDED:
            raise LeaseActionFailed(operation)

    async def recover(self, caller: LeaseCaller, id_: str) -> Lease:
        """Let a lease leave ERROR for the status that its events derive."""
        lease = await self.get(caller.ns, id_)
        seen = lease_parts.reset_interrupted_events(lease.seen)
        status = derived_status(seen.events[EventType.START], seen.events[EventType.END])
        if status is LeaseState.ERROR:
            raise NotRecoverable(status)
        how: dict[str, Any] = {"version": lease.object.version, "actor": caller.actor, "who": caller.who}
        done = await self.engine.act(caller.ns, id_, "recover", facts={f"derived={status}"}, **how)
        return read_lease(done.object)

    # --- steps -------------------------------------------------------------------------------------------------------

    async def _check(self, spec: LeaseSpec, lease: Lease | None = None, hosts: PlannedHosts | None = None) -> None:
        """Ask the policies: once the hosts are planned if one of them needs the hosts, otherwise before the search.

        The plan is held meanwhile, and it is what the commit books. If that fails, the policies are asked about the
        next plan too.
        """
        filters = self._ctx.filters
        if hosts is None:
            question = PolicyQuestion(spec, lease)
        else:
            now = {} if lease is None else {reservation.id: seen.hosts for reservation, seen in lease.reservations()}
            names = {name for allocation in (*now.values(), *hosts.plan.values()) for name in allocation}
            known = {name: host for name in names if (host := hosts.pool.get(name)) is not None}
            question = PolicyQuestion(spec, lease, now | hosts.plan, known)
        if filters.needs_hosts is (hosts is not None):
            await filters.check(question)

    async def _retry_if_taken(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt while another client was faster."""
        for _ in range(MAX_TRIES - 1):
            try:
                return await attempt()
            except (HostsTaken, VersionMismatch):
                continue
        return await attempt()

    async def _submit(self, ns: str, submit: Callable[[], Awaitable[T]]) -> T:
        """Submit an allocation; if hosts were taken, refresh them in the pool before the error goes on."""
        try:
            return await submit()
        except HostsTaken as taken:
            await self._ctx.pools.refresh_hosts(ns, taken.hosts)
            raise

    async def _wait_for_outcome(self, accepted: Accepted) -> Lease:
        """Return a lease after its operation; if that takes longer, the status of the lease says what is being done."""
        operation = await self.engine.wait_record_or_none(accepted.op.ns, accepted.op.id, OUTCOME_TIMEOUT_S)
        if operation is not None and operation.status is not Status.SUCCEEDED:
            raise LeaseActionFailed(operation)
        return await self.get(accepted.object.ns, accepted.object.id)


def in_order_of_start(leases: Iterable[Lease]) -> list[Lease]:
    """Return leases in the order of their starts."""
    return sorted(leases, key=lambda lease: (lease.spec.start, lease.spec.name))


def _with_plan(lease: Lease, spec: LeaseSpec, plan: AllocationPlan, now: float) -> LeaseSeen:
    """Return the parts of a lease with a new allocation; a warning whose time moved into the future is due again."""
    seen = lease_parts.reset_interrupted_events(lease.seen)
    for id_ in seen.reservations:
        seen = lease_parts.update_reservation(seen, id_, proposed=plan.get(id_))
    if spec.before_end is not None and spec.before_end > now and spec.before_end != lease.spec.before_end:
        seen = lease_parts.rearm_event(seen, EventType.BEFORE_END)
    return seen
