"""The handlers of services and node pools: instances are replaced, scaled and stopped.

Events of the controller (`define`, `updating`, `scaling`) change a service's state and start an operation here. The
operation ends when all instances are as desired, or when there is no progress until the deadline.
"""

import asyncio

from msgspec import Struct

from stateward.domains.systems.backends.port import (
    Backend,
    InstanceSpec,
    ServiceInstance,
    ServiceRef,
    SystemRef,
)
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.definition import NodePool, Service
from stateward.domains.systems.errors import BackendNotGranted, NodePoolFull, NodesFull, ServiceBusy
from stateward.domains.systems.lifecycle import NODEPOOL, SERVICE, DeployState, NodePoolState, ServiceState
from stateward.domains.systems.model import SECRET_ENV, ChangeSeen, DesiredService, seen_of, spec_of
from stateward.domains.systems.object_ids import path_of, pool_id, system_of
from stateward.domains.systems.rollout import (
    RolloutStep,
    is_done,
    is_queued,
    keep_unmovable,
    next_step,
    progress_score,
)
from stateward.engine import Ending, Handler, Job, Kind, ObservedOutcome, Permanent, Request, Why
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CLOCK, CONTROLLER, TIMED_OUT
from stateward.store.records import Object, to_json

DEPLOY_COMMAND = "stateward system deploy"

POLL_MAX_S = 0.5
"""The longest time between two polls of a service that is being changed."""

CANCEL_CHECK_S = 0.5
"""How often a rollout checks whether its deploy was cancelled."""

REPORT_AFTER_S = 1.0
"""How long something must be in the way of a rollout until that is reported."""

STOP_MARGIN_S = 2.0
"""Seconds for the kill after the grace of an instance."""

CHANGING = ("updating", "scaling")
"""The actions that give a service or a node pool a new spec."""

UNDO = "undo"
"""The argument of operations that undo a deploy; they go on although the deploy is cancelled."""

REDEPLOY = "redeploy"
"""The argument of operations by which the controller replaces instances; no deploy waits for them."""


async def refuse_second_spec(uow: UnitOfWork, request: Request, service: Object) -> None:  # noqa: ARG001 - a guard
    """Refuse a new spec while an operation is at work: that operation would never see it."""
    if request.spec is not None and service.op is not None:
        raise ServiceBusy(service.id, service.op)


class SeenInstances(Struct, frozen=True):
    """The instances of a service as its object has them: how many are ready, and what is wrong with others.

    The revision is the one that was tried last.
    """

    revision: str = ""
    ready: int | None = None
    ill: dict[str, str] = {}


def instances_fault(service: Object) -> str:
    """Return what is wrong with the instances of a service that is degraded or has failed."""
    if service.state not in (ServiceState.DEGRADED, ServiceState.FAILED):
        return ""
    seen = seen_of(service, SeenInstances)
    ill = ", ".join(f"instance {name} {why}" for name, why in sorted(seen.ill.items()))
    return ill or (f"{seen.ready} of its instances are ready" if seen.ready is not None else "")


class ServiceHandlers:
    """The handlers of services and node pools."""

    def __init__(self, context: SystemContext) -> None:
        self._context = context

    def kinds(self) -> list[Kind]:
        """Return the kinds of services and node pools."""
        change, size = Handler(self.change), Handler(self.size)
        events = ("define", *CHANGING)
        return [
            Kind(
                SERVICE,
                {**dict.fromkeys(events, change), "delete": Handler(self.end, cancelled=self.observe_end)},
                guard=refuse_second_spec,
                spec_actions=CHANGING,
                privacy=SECRET_ENV,
                made_by=DEPLOY_COMMAND,
                why=Why(fault=instances_fault),
            ),
            Kind(
                NODEPOOL,
                {**dict.fromkeys(events, size), "delete": Handler(self.drop)},
                guard=refuse_second_spec,
                spec_actions=CHANGING,
                made_by=DEPLOY_COMMAND,
            ),
        ]

    # --- services ----------------------------------------------------------------------------------------------------

    async def change(self, job: Job) -> Ending:
        """Roll a service out to its desired definition."""
        wanted = spec_of(job.claim.object, DesiredService)
        if wanted is None:
            raise Permanent("the operation has no definition of the service")
        ref = ref_of(job)
        backend = await self._context.backend(ref.system)
        require_grant(self._context, backend, job.ns)
        if job.state == ServiceState.PENDING:
            await job.phase("updating", CONTROLLER)
        change = ServiceRollout(self._context, backend, job, wanted)
        if await change.run(None if job.args.get(UNDO) or job.args.get(REDEPLOY) else wanted.deploy):
            return Ending("stable", CONTROLLER, seen=_summary(wanted, change.seen))
        error = f"no progress within {wanted.service.deadline:g} s: {change.why}"
        return Ending(TIMED_OUT, CLOCK, error=error, seen=_summary(wanted, change.seen))

    async def end(self, job: Job) -> None:
        """Stop all instances of a service; after a deploy that has failed, their logs are kept."""
        ref = ref_of(job)
        backend = await self._context.backend(ref.system)
        while seen := await backend.instances(ref):
            await require_at_work(self._context, job)
            for instance in seen:
                await backend.stop(ref, instance.name)
            await backend.pause(ref, POLL_MAX_S)
        await require_at_work(self._context, job)
        await backend.forget(ref, keep_logs=bool(job.args.get(UNDO)))

    async def observe_end(self, job: Job) -> ObservedOutcome:
        """Tell whether a cancelled deletion had started: an instance that was told to stop, stops."""
        ref, wanted = ref_of(job), spec_of(job.claim.object, DesiredService)
        present = [instance.is_wanted for instance in await (await self._context.backend(ref.system)).instances(ref)]
        is_whole = wanted is not None and all(present) and len(present) >= wanted.service.instances
        return ObservedOutcome.NOT_DONE if is_whole else ObservedOutcome.UNKNOWN

    # --- node pools --------------------------------------------------------------------------------------------------

    async def size(self, job: Job) -> Ending:
        """Resize a node pool to its definition."""
        pool = spec_of(job.claim.object, NodePool)
        if pool is None:
            raise Permanent("the operation has no definition of the service")
        system_ref, name = SystemRef(job.ns, system_of(job.object)), job.object.partition("~")[2]
        try:
            await (await self._context.backend(system_ref)).ensure_pool(system_ref, name, pool)
        except (NodePoolFull, NodesFull) as error:
            return Ending("failed", CONTROLLER, error=str(error))
        return Ending("stable", CONTROLLER)

    async def drop(self, job: Job) -> None:
        """Remove a node pool."""
        system_ref = SystemRef(job.ns, system_of(job.object))
        await (await self._context.backend(system_ref)).remove_pool(system_ref, job.object.partition("~")[2])


def ref_of(job: Job) -> ServiceRef:
    """Return the service that a job is about."""
    return ServiceRef(SystemRef(job.ns, system_of(job.object)), str(path_of(job.object)))


async def require_at_work(context: SystemContext, job: Job) -> None:
    """Fail if an operation is over: this process may have been suspended while another one finished it."""
    record = await context.object(job.ns, job.object)
    if record is None or record.op != job.claim.operation.id:
        raise Permanent("the operation is over: another process has finished it")


def _summary(wanted: DesiredService, seen: list[ServiceInstance]) -> str:
    ready = sum(instance.ready and instance.revision == wanted.revision for instance in seen)
    return to_json({"revision": wanted.revision, "ready": ready})


def require_grant(context: SystemContext, backend: Backend, ns: str) -> None:
    """Fail if a namespace may not use a backend: the grant may have been revoked since the deploy was accepted."""
    name = next(name for name, known in context.backends.items() if known is backend)
    if not context.settings.may_use(name, ns):
        raise Permanent(str(BackendNotGranted(ns, name)))


async def node_pool_problem(context: SystemContext, ref: ServiceRef, service: Service) -> str:
    """Return what is wrong with the node pool of a service; empty if it is stable, or none is needed."""
    pool = service.node_pool
    if pool is None:
        return ""
    record = await context.recent_object(ref.system.ns, pool_id(ref.system.system, pool))
    if record is not None and record.state == NodePoolState.STABLE:
        return ""
    return f"node pool {pool} is {'missing' if record is None else record.state}"


class ServiceRollout:
    """The rollout of one service to its desired definition."""

    def __init__(self, context: SystemContext, backend: Backend, job: Job, wanted: DesiredService) -> None:
        self._context, self._backend, self._job, self._wanted = context, backend, job, wanted
        self._ref = ref_of(job)
        self.seen: list[ServiceInstance] = []
        self._missing_dependency = self._address_problem = ""
        self._has_acted = False
        self._stopping_since: dict[str, float] = {}
        self._obstacle, self._obstacle_since, self._reported = "", 0.0, ""

    @property
    def why(self) -> str:
        """What the rollout waits for."""
        ill = [
            f"{instance.name} is {instance.phase}{f' ({instance.why})' if instance.why else ''}"
            for instance in self.seen
            if not instance.ready
        ]
        return self._missing_dependency or "; ".join(ill) or self._address_problem or "instances are missing"

    async def run(self, deploy: str | None) -> bool:
        """Run until all is as desired (True) or no progress until the deadline; raises when its deploy is over."""
        clock = asyncio.get_running_loop().time
        best, moved, checked = -(10**9), clock(), clock()
        while not await self._step():
            await self._report_obstacle(clock())
            now = progress_score(self._wanted.revision, self.seen)
            if now > best or is_queued(self.seen) or self._is_stopping_in_time(clock()):
                best, moved = max(now, best), clock()
            if clock() - moved > self._wanted.service.deadline:
                return False
            if deploy is not None and clock() - checked > CANCEL_CHECK_S:
                checked = clock()
                await self._check_deploy(deploy)
            if not self._has_acted:  # after an action the instances may have changed already
                await self._backend.pause(self._ref, POLL_MAX_S)
        return True

    async def _report_obstacle(self, now: float) -> None:
        """Store what the rollout waits for outside of its instances, if that lasts: most of it passes by itself."""
        obstacle = self._missing_dependency or self._address_problem
        if obstacle != self._obstacle:
            self._obstacle, self._obstacle_since = obstacle, now
        if obstacle != self._reported and now - self._obstacle_since >= REPORT_AFTER_S:
            self._reported = obstacle
            await self._job.progress(f"waits: {obstacle}" if obstacle else "goes on")

    def _is_stopping_in_time(self, now: float) -> bool:
        """Tell whether an instance is stopping within its own grace, which may be longer than the deadline."""
        stopping = [instance for instance in self.seen if not instance.is_wanted]
        self._stopping_since = {instance.name: self._stopping_since.get(instance.name, now) for instance in stopping}
        return any(
            now - self._stopping_since[instance.name] <= instance.stop_s + STOP_MARGIN_S for instance in stopping
        )

    async def _step(self) -> bool:
        service, revision = self._wanted.service, self._wanted.revision
        self._has_acted, self._address_problem = False, ""
        self.seen = keep_unmovable(service.instances, await self._backend.instances(self._ref))
        self._missing_dependency = await node_pool_problem(self._context, self._ref, service)
        if self._missing_dependency:
            return False
        port = self._wanted.port
        is_addressed = await self._backend.address(self._ref, port) is not None or port is None
        if is_done(service.instances, revision, self.seen):
            if is_addressed:
                return True
            self._address_problem = await self._backend.address_problem(self._ref, port)
        await self._act(next_step(service.instances, revision, service.rollout, self.seen))
        return False

    async def _act(self, step: RolloutStep) -> None:
        if step.start or step.stop:
            await require_at_work(self._context, self._job)
        for name in step.stop:
            await self._backend.stop(self._ref, name)
            self._has_acted = True
        try:
            for name in step.start:
                await self._backend.start(self._ref, InstanceSpec(name, self._wanted.revision, self._wanted.service))
                self._has_acted = True
        except (NodePoolFull, NodesFull) as error:
            self._missing_dependency = str(error)

    async def _check_deploy(self, deploy: str) -> None:
        record = await self._context.recent_object(self._ref.system.ns, deploy, CANCEL_CHECK_S)
        if record is None or record.state != DeployState.IN_PROGRESS or seen_of(record, ChangeSeen).cancelled:
            raise Permanent("its deploy is over")
