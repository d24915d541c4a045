"""The plug-in of the leases domain: its kinds with guards and handlers, and its routes."""

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from uuid import uuid4

from litestar.types import ControllerRouterHandler
from msgspec.structs import replace

from stateward.domains.leases import handlers, host_replacement, update
from stateward.domains.leases.api import routes
from stateward.domains.leases.booking_writer import BookingWriter
from stateward.domains.leases.context import LeaseContext
from stateward.domains.leases.demo import run_demo
from stateward.domains.leases.ended_leases import EndedLeases
from stateward.domains.leases.guards import HostGuard, LeaseGuard, concerned_leases
from stateward.domains.leases.host_service import HostService
from stateward.domains.leases.lifecycle import EVENT, HOST, LEASE, NOTICE, PROPERTY, RESERVATION, LeaseState
from stateward.domains.leases.model import PropertySpec, describe_reservation_errors, read_host, read_lease, status_of
from stateward.domains.leases.notices import deliver
from stateward.domains.leases.part_history import append_part_history
from stateward.domains.leases.policy import GROUP as FILTERS
from stateward.domains.leases.policy import create_filters
from stateward.domains.leases.pool_cache import PoolCache
from stateward.domains.leases.resources import ResourcePlugin, ResourcePlugins, installed_resources
from stateward.domains.leases.service import LeaseService
from stateward.domains.leases.settings import Settings
from stateward.domains.leases.timers import PENDING_EVENTS, pending_timers
from stateward.domains.leases.update import end_update
from stateward.engine import Engine, Handler, Job, Kind, Request, Rules, Why
from stateward.engine.unit_of_work import UnitOfWork
from stateward.plugin.runtime import DomainRuntime, ExpectedChange, ProcessContext
from stateward.store.changes import Ended
from stateward.store.records import Key, Operation, Status, to_json


class LeaseEndHook:
    """The hook at the end of every operation on a lease."""

    def __init__(self, resources: ResourcePlugins, ended: EndedLeases) -> None:
        self._resources, self._ended = resources, ended

    async def __call__(self, uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
        """End an update, journal the moves of the lease's parts, and set its timers."""
        key = Key(operation.ns, operation.object)
        record = uow.objects.get(key)
        if record is None or record.seen == "{}":
            return
        lease = read_lease(record)
        seen = lease.seen
        if operation.action == "update" and record.state != LeaseState.DELETING:  # a delete releases all hosts itself
            seen = await end_update(uow, self._resources, lease, operation, succeeded=ended.status is Status.SUCCEEDED)
        seen = append_part_history(uow, key, seen, operation.id, operation.who)
        if seen != lease.seen:
            uow.save_object(key, replace(record, seen=to_json(seen)))
        if not record.removed:
            ahead = pending_timers(replace(lease, seen=seen), *PENDING_EVENTS.get(status_of(record), ()))
            is_error = status_of(record) is LeaseState.ERROR  # an operation before the start may have ended in it
            uow.changes.timers += [timer for timer in ahead if is_error or timer.due <= uow.now]
            uow.changes.timers += self._ended.timers(replace(lease, object=uow.objects[key]))


Work = Callable[[LeaseContext, Job], Awaitable[object]]

WORK: dict[str, Work] = {
    "create": handlers.create,
    "start": handlers.start,
    "end": handlers.end,
    "delete": handlers.delete,
    "forget": handlers.delete,
    "update": update.update,
    "heal": host_replacement.heal,
}
PREFIX = "leases"


class LeasesRuntime(DomainRuntime):
    """The leases domain in a process; `more` are further types of resources."""

    _ctx: LeaseContext  # set with the engine, before the first handler runs

    def __init__(
        self,
        context: ProcessContext,
        settings: Settings | None = None,
        more: Sequence[ResourcePlugin] = (),
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._context = context
        self._new_id = new_id
        self._settings = settings or Settings()
        self._resources = installed_resources(context, more)
        self._filters = create_filters(self._settings, context.parts.get(FILTERS, ()))
        ended = EndedLeases(self._settings.keep_ended)
        guard = LeaseGuard(self._resources, ended, notifies=self._filters.notifies)
        handlers = {name: Handler(self._handler(work)) for name, work in WORK.items()}
        kinds = [
            Kind(
                LEASE,
                handlers,
                guard=guard,
                lock_set=guard.lock_set,
                on_end=LeaseEndHook(self._resources, ended),
                rules=Rules(cancels=False),
                why=Why(fault=describe_reservation_errors),
                spec_actions=("update",),
            ),
            Kind(RESERVATION, general=False),
            Kind(EVENT, general=False),
            Kind(HOST, guard=HostGuard(self._settings.replace_after), spec_actions=("update",)),
            Kind(PROPERTY, spec=PropertySpec),
            Kind(NOTICE, {"deliver": Handler(self._handler(deliver))}, general=False),
        ]
        super().__init__(kinds, tasks=[ended.set_timers])

    @cached_property
    def routes(self) -> Sequence[ControllerRouterHandler]:
        """Its HTTP routes, made when a server asks for them."""
        return routes(lambda: self.leases, lambda: self.hosts)

    def bind_engine(self, engine: Engine) -> None:
        """Create the parts of the domain that need the engine."""
        self._ctx = LeaseContext(
            engine,
            BookingWriter(engine.store, self._context.random),
            PoolCache(engine.store.reader),
            self._resources,
            self._filters,
            self._settings.replace_after,
        )

    @property
    def leases(self) -> LeaseService:
        """The service for leases."""
        return LeaseService(self._ctx, self._settings.before_end, self._new_id)

    @property
    def hosts(self) -> HostService:
        """The service for hosts."""
        return HostService(self._ctx.engine, self._settings.cleaning)

    async def describe_effects(self, request: Request, changes: Sequence[ExpectedChange]) -> Sequence[str]:
        """Return how many leases have to do without hosts that are reported as failed."""
        hosts = [read_host(change.object) for change in changes if change.object.kind == HOST.kind]
        if request.action != "fail" or not hosts:
            return ()
        now = await self._ctx.engine.store.reader.time()
        count = len({lease for host in hosts for lease in concerned_leases(host, now)})
        gets = "1 lease gets another host" if count == 1 else f"{count:,} leases get other hosts"
        return (f"{gets}, if one is free" if count else "no lease has it: only new leases do without it",)

    def _handler(self, work: Work) -> Callable[[Job], Awaitable[object]]:
        async def run(job: Job) -> object:
            return await work(self._ctx, job)

        return run

    async def demo(self, engine: Engine) -> None:  # noqa: ARG002 - bound before
        """Reserve a host of a small pool for two minutes, again and again, until cancelled."""
        await run_demo(self.leases, self.hosts)


def create_runtime(context: ProcessContext) -> LeasesRuntime:
    """Create the plug-in."""
    return LeasesRuntime(context, context.settings.get(PREFIX))
