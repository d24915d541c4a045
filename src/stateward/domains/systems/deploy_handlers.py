"""The handlers of deploys and teardowns: a subtree becomes what its definition says, or is restored.

A deploy is judged by its own services alone. Child operations change them while the deploy holds the lock on its path;
it waits for them without occupying a worker. If a child fails, or the deploy is cancelled, all services go back to the
former definition under the same lock; then the deploy is failed or cancelled. The operation stores the steps that were
taken, so a killed worker's successor continues after the last one.

Jobs with a hook are runs of a deploy: before the first service changes, and after the last one has. If such a run
fails, so does the deploy.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from stateward.domains.systems.addresses import check_free_addresses, hold_addresses
from stateward.domains.systems.backends.backend_fields import check_backend_fields
from stateward.domains.systems.backends.port import SystemRef
from stateward.domains.systems.change_planner import ChangePlanner, current_tree, find_undoable
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.controllers import SystemRollUp
from stateward.domains.systems.definition import NodePool
from stateward.domains.systems.definition.model import Hook
from stateward.domains.systems.deploy_images import CancelledMeanwhile, pin_images
from stateward.domains.systems.guards import (
    TEARDOWN_CHANGE,
    drop_lock_timer,
    guard_change,
    lock_system,
    lock_timer_id,
    require_no_protected_part,
)
from stateward.domains.systems.lifecycle import (
    DEPLOY,
    TEARDOWN,
    DeployState,
    TeardownState,
)
from stateward.domains.systems.model import (
    SECRET_ENV,
    ChangeSeen,
    ChangeSpec,
    DesiredTree,
    seen_of,
    spec_of,
    system_spec,
)
from stateward.domains.systems.object_ids import job_id, path_of, pool_id, service_id, system_of
from stateward.domains.systems.service_handlers import UNDO
from stateward.engine import Ending, Handler, Job, Kind, Permanent, Request, Rules
from stateward.engine.errors import Protected
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import CONTROLLER, WORKER
from stateward.locks.paths import Path, parse_path
from stateward.store.port import Tx
from stateward.store.records import Key, Object, Operation, Status, to_json

MAX_TRIES = 40
"""How often a request to a busy service or node pool is repeated."""

RETRY_S = 0.5

PoolPlan = Callable[[Mapping[str, NodePool], Sequence[Object]], Iterable[Request]]
"""Returns the requests that turn the present node pools into the desired ones."""


class DeployHandlers:
    """The handlers of deploys and teardowns."""

    def __init__(self, context: SystemContext, roll_ups: SystemRollUp) -> None:
        self._context, self._roll_ups = context, roll_ups

    def kinds(self) -> list[Kind]:
        """Return the kinds of deploys and teardowns."""
        # Cancelling the operation, and not the deploy, would release the lock before the rollback.
        kind = partial(
            Kind,
            guard=partial(guard_change, self._context.settings, self._context.ports),
            lock_set=lock_system,
            on_end=drop_lock_timer,
            spec_actions=("forget",),
            rules=Rules(cancels=False),
            general=False,
        )
        deploy, teardown = {"deploy": Handler(self.deploy)}, {"teardown": Handler(self.teardown)}
        return [
            kind(DEPLOY, deploy, privacy=SECRET_ENV, rules=Rules(cancels=False, cancel_action="cancel")),
            kind(TEARDOWN, teardown),
        ]

    async def deploy(self, job: Job) -> Ending:
        """Deploy a definition."""
        change = spec_of(job.claim.object, ChangeSpec)
        if change is None:
            raise Permanent("nothing is known of what is to be deployed")
        deploy = await self._begin(job)
        work = DeployRun(self._context, job, change, is_cancelled=seen_of(deploy, ChangeSeen).cancelled is not None)
        try:
            trouble = await work.run()
        except CancelledMeanwhile as error:
            seen = to_json(ChangeSeen(work.before, error.who))
            return Ending("cancelled", WORKER, error=f"cancelled by {error.who}", seen=seen)
        await self._roll_ups.refresh(work.system_ref)
        cancelled = seen_of(deploy, ChangeSeen).cancelled
        seen = to_json(ChangeSeen(work.before, cancelled))
        # If it is cancelled before this is stored, it is attempted again, and goes back to the definition before.
        if cancelled:
            return Ending("cancelled", error=f"cancelled by {cancelled}", seen=seen, version=deploy.version)
        if trouble:
            return Ending("failed", error=trouble, seen=seen, version=deploy.version)
        return Ending(seen=seen, version=deploy.version)

    async def _begin(self, job: Job) -> Object:
        """Enter the first phases, unless an earlier attempt has; returns the deploy as it is then."""
        if job.state not in (DeployState.PENDING, DeployState.ACCEPTED):
            return job.claim.object
        if job.state == DeployState.PENDING:
            await self._context.engine.unset_timer(job.ns, lock_timer_id(job.object))
            await job.phase("accepted", CONTROLLER)
        await job.phase("started", WORKER)
        return await self._context.object(job.ns, job.object) or job.claim.object

    async def teardown(self, job: Job) -> Ending:
        """Stop all services of a system, and remove its node pools."""
        system_ref = SystemRef(job.ns, system_of(job.object))
        if job.state == TeardownState.PENDING:
            await check_protection(self._context, job, TEARDOWN_CHANGE)
            await self._context.engine.unset_timer(job.ns, lock_timer_id(job.object))
            await job.phase("started", WORKER)
        trouble = await tear_down(self._context, job, system_ref)
        await self._roll_ups.refresh(system_ref)
        return Ending("failed", WORKER, error=trouble) if trouble else Ending()


async def check_protection(context: SystemContext, job: Job, change: ChangeSpec) -> None:
    """Fail a change that would remove what was protected while the change waited."""
    system = Key(job.ns, system_of(job.object))
    try:
        await context.engine.store.transact(
            lambda tx: require_no_protected_part(UnitOfWork(tx), job.action, system, change)
        )
    except Protected as error:
        raise Permanent(str(error)) from error


async def tear_down(context: SystemContext, job: Job, system_ref: SystemRef) -> str:
    """Delete all jobs and services of a system, then its node pools; returns what went wrong."""
    planner = ChangePlanner(job.ns, system_ref.system, job.object, job.claim.operation.who)
    steps = ChildSteps(context, job)

    async def jobs() -> Iterable[Request]:
        return planner.surplus((), await context.jobs(system_ref))

    async def services() -> Iterable[Request]:
        return planner.surplus((), await context.services(system_ref))

    async def pools() -> Iterable[Request]:
        return planner.surplus_pools({}, await context.pools(system_ref))

    denied = await steps.run_step("jobs", jobs) | await steps.run_step("services", services)
    denied |= await steps.run_step("pools", pools)
    return _failure_text(denied, await steps.failed())


class ChildSteps:
    """The steps of a job that child operations carry out."""

    def __init__(self, context: SystemContext, job: Job) -> None:
        self._context, self._job = context, job
        self.taken: dict[str, Any] = msgspec.json.decode(job.claim.operation.steps)

    async def run_step(self, step: str, asked: Callable[[], Awaitable[Iterable[Request]]]) -> dict[str, str]:
        """Run a step, unless it was run; returns the objects that refused, and why.

        A busy object (its controller replaces a lost instance, say) is asked again later. A step without requests is
        not stored: while the lock is held, the next computation finds no requests either.
        """
        denied: dict[str, str] = {}
        for turn in range(MAX_TRIES):
            name = f"{step} {turn}" if turn else step
            requests = (
                []
                if name in self.taken
                else [request for request in await asked() if not turn or request.object in denied]
            )
            if not requests and name not in self.taken:
                return {}
            denied = await self._job.spawn(name, requests)
            if not denied:
                return {}
            await self._job.sleep(RETRY_S, step=f"{name}: pause")
        return denied

    async def failed(self, step: str = "") -> list[Operation]:
        """Return the failed children, without those of the rollback; none before the step was run."""
        if step and step not in self.taken:
            return []
        reader = self._context.engine.store.reader
        children = await reader.children_of(self._job.key)
        bad = (Status.FAILED, Status.CANCELLED)
        return [child for child in children if child.status in bad and UNDO not in msgspec.json.decode(child.args)]


def _failure_text(denied: dict[str, str], failed: Iterable[Operation]) -> str:
    said = [
        *(f"{name}: {why}" for name, why in denied.items()),
        *(f"{operation.object}: {operation.error}" for operation in failed),
    ]
    return "; ".join(sorted(said))


class DeployRun:
    """One attempt at a deploy, which may have been cancelled before."""

    def __init__(self, context: SystemContext, job: Job, change: ChangeSpec, *, is_cancelled: bool) -> None:
        self._context, self._job, self._is_cancelled = context, job, is_cancelled
        self.system_ref = SystemRef(job.ns, system_of(job.object))
        self._change, self._path, self._wanted = change, parse_path(change.path), change.picture
        self.before = DesiredTree()
        self._steps = ChildSteps(context, job)
        self._planner = ChangePlanner(job.ns, self.system_ref.system, job.object, job.claim.operation.who)

    async def run(self) -> str:
        """Apply the definition, or restore the former one; returns what went wrong."""
        kept = await self._job.once("before", self._snapshot)
        self.before = msgspec.convert(kept, DesiredTree)
        self._wanted = await pin_images(self._context, self._job, self.system_ref, self._wanted)
        trouble = await self._apply()
        if trouble or self._is_cancelled:
            await self._roll_back()
        return trouble

    async def _snapshot(self) -> Any:  # noqa: ANN401 - JSON
        """Return the present definition; raises if the desired one is impossible."""
        await self._check()
        pools = None if self._wanted.pools is None else await self._context.pools(self.system_ref)
        services = await self._context.services(self.system_ref, self._path)
        return msgspec.to_builtins(current_tree(services, pools, await self._present_jobs()))

    async def _check(self) -> None:
        """Refuse an impossible definition, or one that removes a protected part, before anything was done."""
        await check_protection(self._context, self._job, self._change)
        if self._change.undoes_last:
            await self._check_undone()
        system = await self._context.object(self.system_ref.ns, self.system_ref.system)
        try:
            backend = "" if system is None else system_spec(system).backend
            check_backend_fields(backend, self._wanted.programs, self._wanted.field_of)
            if system is not None:
                reader, ns = self._context.engine.store.reader, self.system_ref.ns
                await check_free_addresses(reader, system, self._change, ns.__eq__)
                await self._hold_addresses(system)
        except BadInput as error:
            raise Permanent(str(error)) from error
        for level in range(1, len(self._path)):
            above = Path(self._path[:level])
            for what, make_id in (("service", service_id), ("job", job_id)):
                if await self._context.object(self.system_ref.ns, make_id(self.system_ref.system, above)) is not None:
                    raise Permanent(f"there is a {what} at {above}, and nothing can be below a {what}")
        needed = {program.node_pool: path for path, program in self._wanted.programs.items() if program.node_pool}
        for pool, path in needed.items():
            if not await self._is_there(pool):
                raise Permanent(f"{path} is to run on node pool {pool}, and there is none of that name")

    async def _check_undone(self) -> None:
        """Fail a rollback of the last deploy if that is no longer the last one: another one had the lock before it."""
        path, undoes = self._change.path, self._change.undoes
        last = find_undoable(await self._context.changes(self.system_ref, DEPLOY.kind), path)
        if last is None or last.id != undoes:
            now = "no deploy" if last is None else last.id
            raise Permanent(f"{undoes} was to be rolled back as the last deploy of {path}, which is {now} by now")

    async def _hold_addresses(self, system: Object) -> None:
        """Claim the ports of the definition before, too: if the deploy fails, its services need them again."""
        now = current_tree(await self._context.services(self.system_ref, self._path), None, ())
        who = self._job.claim.operation.who

        async def hold(tx: Tx) -> None:
            uow = UnitOfWork(tx)
            await hold_addresses(uow, system, self._job.object, who, self._change, now)
            await uow.apply()

        await self._context.engine.store.transact(hold)

    async def _is_there(self, pool: str) -> bool:
        """Tell whether the node pool exists, or the definition creates it."""
        if self._wanted.pools is not None:
            return pool in self._wanted.pools
        return await self._context.object(self.system_ref.ns, pool_id(self.system_ref.system, pool)) is not None

    async def _apply(self) -> str:
        for step, asked in (
            ("pools", partial(self._pools, self._planner.pools, self._wanted)),
            ("hooks", partial(self._jobs, with_hook=True)),
            ("before-deploy", partial(self._hooks, "before-deploy")),
            ("services", self._services),
            ("surplus", self._surplus),
            ("jobs", partial(self._jobs, with_hook=False)),
            ("after-deploy", partial(self._hooks, "after-deploy")),
            ("surplus jobs", self._surplus_jobs),
            ("surplus pools", partial(self._pools, self._planner.surplus_pools, self._wanted)),
        ):
            if self._is_cancelled and step not in self._steps.taken:
                return ""
            denied = await self._steps.run_step(step, asked)
            trouble = _failure_text(denied, await self._steps.failed(step))
            if trouble:
                return trouble
        return ""

    async def _pools(self, plan: PoolPlan, target: DesiredTree) -> Iterable[Request]:
        """Return the requests for node pools; none if the definition leaves them alone."""
        return () if target.pools is None else plan(target.pools, await self._context.pools(self.system_ref))

    async def _services(self) -> Iterable[Request]:
        now = await self._context.services(self.system_ref, self._path)
        asked = list(self._planner.services(self._wanted, now, await self._versions(self._wanted)))
        await self._job.progress(f"{len(asked)} of {len(self._wanted.services)} services are to change")
        return asked

    async def _versions(self, target: DesiredTree) -> Mapping[str, int]:
        """Return the versions of the secrets of the namespace; none are read for services that have none."""
        has_secrets = any(service.secrets for service in target.services.values())
        return await self._context.secrets.versions(self.system_ref.ns) if has_secrets else {}

    async def _surplus(self) -> Iterable[Request]:
        now = await self._context.services(self.system_ref, self._path)
        return self._planner.surplus(self._wanted.services, now)

    # --- jobs --------------------------------------------------------------------------------------------------------

    async def _present_jobs(self) -> list[Object]:
        return await self._context.jobs(self.system_ref, self._path)

    async def _jobs(self, *, with_hook: bool) -> Iterable[Request]:
        """Return the requests for jobs: those of hooks come first, because they run before services change."""
        target = {path: job for path, job in self._wanted.jobs.items() if (job.hook is not None) == with_hook}
        return self._planner.jobs(target, await self._present_jobs())

    async def _hooks(self, hook: Hook) -> Iterable[Request]:
        asked = list(self._planner.hooks(hook, self._wanted.jobs, await self._present_jobs()))
        if asked:
            await self._job.progress(
                f"{hook}: {', '.join(str(path_of(request.object)) for request in asked)} must succeed"
            )
        return asked

    async def _surplus_jobs(self) -> Iterable[Request]:
        return self._planner.surplus(self._wanted.jobs, await self._present_jobs())

    # --- rollback ----------------------------------------------------------------------------------------------------

    async def _roll_back(self) -> None:
        planner = ChangePlanner(
            self.system_ref.ns, self.system_ref.system, self._job.object, self._job.claim.operation.who, {UNDO: True}
        )
        await self._steps.run_step("undo pools", partial(self._pools, planner.pools, self.before))
        await self._steps.run_step("undo", partial(self._changed, planner))
        await self._steps.run_step("undo jobs", partial(self._changed_jobs, planner))
        await self._steps.run_step("undo new pools", partial(self._pools, planner.surplus_pools, self.before))

    async def _changed(self, planner: ChangePlanner) -> Iterable[Request]:
        await self._job.progress("going back to the definition before")
        now = await self._context.services(self.system_ref, self._path)
        versions = await self._versions(self.before)
        changed = [*planner.services(self.before, now, versions), *planner.surplus(self.before.services, now)]
        untouched = self._untouched
        return [request for request in changed if request.action != "updating" or request.object not in untouched]

    async def _changed_jobs(self, planner: ChangePlanner) -> Iterable[Request]:
        now = await self._present_jobs()
        return [*planner.jobs(self.before.jobs, now), *planner.surplus(self.before.jobs, now)]

    @property
    def _untouched(self) -> set[str]:
        """The services that this deploy does not change; one that was unhealthy before is left alone."""
        before, wanted = self.before, self._wanted
        same = (path for path, service in before.services.items() if wanted.services.get(path) == service)
        same = (path for path in same if wanted.assigned_ports.get(path) == before.assigned_ports.get(path))
        return {service_id(self.system_ref.system, parse_path(path)) for path in same}
