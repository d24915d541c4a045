"""Handlers of instances and cloudlets: the controller's own steps, and the wait for the agent.

A handler does the controller's part (delete dependents, create a cluster first) and parks the work item. The agent's
reports advance the operation, or its deadline ends it. A handler keeps nothing in memory, so any worker may resume it.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec.structs import replace

from stateward.domains.edge.agents.connections import on_cloudlet_end
from stateward.domains.edge.cloudlet_guards import guard_cloudlet
from stateward.domains.edge.deadlines import with_deadlines
from stateward.domains.edge.guards import guard_app, guard_cluster
from stateward.domains.edge.lifecycle import (
    APP,
    APPINST,
    CLOUDLET,
    CLUSTERINST,
    DEPENDENCIES,
    IGNORE_AGENT,
    IGNORE_TRANSIENT,
    OVERRIDES,
    UPGRADING,
    CloudletState,
    ClusterInstState,
)
from stateward.domains.edge.lookups import (
    NOT_PRESENT,
    apps_in_cluster,
    cluster_of,
    existing_apps,
    existing_clusters,
    save_status,
)
from stateward.domains.edge.model import (
    AppInst,
    AppSpec,
    ClusterInst,
    cloudlet_of,
    cluster_id,
    instance_record,
    instance_status,
    local_name,
    operation_facts,
    read_spec,
    record_id,
    updated_status,
)
from stateward.domains.edge.policy.cluster_release import free_clusters_of_gone_apps
from stateward.domains.edge.records.instance_record import end_operation
from stateward.domains.edge.references import referenced_records
from stateward.domains.edge.settings import EdgeSettings
from stateward.engine import Ending, Engine, Handler, Job, Kind, ObservedOutcome, Request, Rules, Temporary, Why
from stateward.engine.kinds import Party
from stateward.engine.requests import Creation
from stateward.engine.unit_of_work import UnitOfWork
from stateward.engine.work_errors import Parked
from stateward.lifecycle import ADMIN, CLOCK, CONTROLLER, NO_FACTS, TIMED_OUT, USER
from stateward.store.changes import Ended
from stateward.store.filters import Page, Selector
from stateward.store.records import Key, Object, Operation, Status

DEFAULT_SETTINGS = EdgeSettings()

RECHECK_AFTER_S = 0.5
"""Seconds to wait before a cluster is checked again that another operation creates."""

CASCADE_WHO = "edge"

UNSERVED_STATES = frozenset({CloudletState.OFFLINE.word, CloudletState.INIT.word})
"""The states of a cloudlet in which no agent serves it."""


class Handlers:
    """The handlers of instances and cloudlets."""

    engine: Engine

    def kinds(
        self, enter_maintenance: Callable[[Job], Awaitable[Ending]], settings: EdgeSettings = DEFAULT_SETTINGS
    ) -> list[Kind]:
        """Return the kinds that agents work on, with the deadlines of the settings."""

        def handler(run: Callable[[Job], Awaitable[Ending]]) -> Handler:
            return Handler(run, self.check_deadline)

        asks, waits, removes = map(handler, (self.request_agent, self.wait_for_agent, self.delete_instance))
        instance = {"create": asks, "update": asks, "re-create": asks, "delete": removes, "expire": removes}
        app = {**instance, "create": handler(self.create_app)}
        cloudlet = {
            "create": handler(self.create_cloudlet),
            "start": waits,
            "upgrade": waits,
            "delete": handler(self.delete_cloudlet),
        }
        cloudlet["maintain"] = Handler(enter_maintenance)
        on_end = partial(on_instance_end, idle_s=settings.idle)
        why = Why(party=responsible_agent, has_alerts=True)
        of_app = replace(why, part_of=cluster_of)
        kind = partial(Kind, rules=Rules(cancels=False), why=why, spec_actions=("update",))
        return [
            kind(
                with_deadlines(CLUSTERINST, settings),
                instance,
                guard=guard_cluster,
                lock_set=referenced_records,
                on_end=on_end,
            ),
            kind(with_deadlines(APPINST, settings), app, guard=guard_app, on_end=on_end, why=of_app),
            kind(
                with_deadlines(CLOUDLET, settings),
                cloudlet,
                guard=guard_cloudlet,
                on_end=on_cloudlet_end,
                rules=Rules(cancels=("maintain",)),
                spec_actions=("create", "change"),
            ),
        ]

    # --- waiting for agents ------------------------------------------------------------------------------------------

    async def wait_for_agent(self, job: Job) -> Ending:
        """Park the work item until the agent reports."""
        raise Parked(job.key.id)

    async def create_cloudlet(self, job: Job) -> Ending:
        """Tell that the agent has yet to connect, and wait for it."""
        await job.once("told", lambda: job.progress("the cloudlet waits for its agent to connect", 1, 3))
        return await self.wait_for_agent(job)

    async def check_deadline(self, job: Job) -> ObservedOutcome | Ending:
        """End an operation past its deadline; before it, the outcome is not known to be done."""
        deadline = job.claim.work.deadline
        if deadline is None or deadline > await self.engine.store.reader.time():
            return ObservedOutcome.NOT_DONE
        facts = _ending_facts(job) | ({UPGRADING} if job.action == "upgrade" else frozenset())
        return Ending(TIMED_OUT, CLOCK, facts, error="no report from the agent before the deadline")

    async def request_agent(self, job: Job) -> Ending:
        """Wait for the agent, or end the operation immediately if an administrator ignores the agent."""
        return _without_agent("ready") if _ignores_agent(job) else await self.wait_for_agent(job)

    # --- deletes -----------------------------------------------------------------------------------------------------

    async def delete_instance(self, job: Job) -> Ending:
        """Delete the auto-delete apps of a cluster first; then wait for the agent."""
        if job.state == ClusterInstState.DELETE_PREPARE:
            if job.claim.object.kind == CLUSTERINST.kind:
                left = await self._delete_first(job, "dependents", await self._apps_of(job))
                if left:
                    facts = _ending_facts(job) & {IGNORE_TRANSIENT}
                    return Ending("in use", CONTROLLER, facts, error=f"in use by {', '.join(left)}")
            await job.phase("prepared")
        return _without_agent("deleted") if _ignores_agent(job) else await self.wait_for_agent(job)

    async def delete_cloudlet(self, job: Job) -> Ending:
        """Delete a cloudlet, after the instances that are deleted with it."""
        apps = existing_apps(await self.instances_on(job.ns, job.object))
        left = await self._delete_first(job, "apps", apps)
        if not left:
            clusters = existing_clusters(await self.instances_on(job.ns, job.object))
            left = await self._delete_first(job, "clusters", clusters)
        if left:
            facts = _ending_facts(job) & {IGNORE_TRANSIENT}
            return Ending("in use", CONTROLLER, facts, error=f"in use by {', '.join(left)}")
        return Ending("deleted", CONTROLLER)

    async def _delete_first(self, job: Job, step: str, others: Sequence[Object]) -> list[str]:
        """Delete other instances as a step of this operation; returns the ids of those that remain."""
        if not others and not job.claim.operation.steps.count(f'"{step}"'):
            return []
        facts = operation_facts(job.claim.operation) & OVERRIDES
        await job.spawn(step, [self.deletion(other, facts) for other in others])
        now = await self.engine.store.reader.objects([other.key for other in others])
        return [other.id for other in others if other.key in now and now[other.key].state != NOT_PRESENT]

    def deletion(self, instance: Object, facts: frozenset[str] = NO_FACTS) -> Request:
        """Return the request of an operation to delete an instance along."""
        actor = ADMIN if facts else USER
        return self.engine.request(
            instance.ns,
            instance.id,
            "delete",
            actor=actor,
            who=CASCADE_WHO,
            facts=facts,
            also_locks=related_ids(instance),
        )

    async def _apps_of(self, job: Job) -> list[Object]:
        return await self.instances_below(job.claim.object)

    async def instances_below(self, record: Object) -> list[Object]:
        """Return the apps of a cluster, or the apps and clusters of a cloudlet."""
        if record.kind == CLOUDLET.kind:
            every = await self.instances_on(record.ns, record.id)
            return [*existing_apps(every), *existing_clusters(every)]
        cloudlet = cloudlet_of(record.id)
        return apps_in_cluster(await self.instances_on(record.ns, cloudlet), cloudlet, local_name(record.id))

    async def instances_on(self, ns: str, cloudlet: str) -> list[Object]:
        """Return the instances on a cloudlet."""
        return await self.engine.store.reader.list_objects(Selector(ns, parent=cloudlet), Page(limit=100_000))

    # --- app creation ------------------------------------------------------------------------------------------------

    async def create_app(self, job: Job) -> Ending:
        """Create the cluster of an app on an autocluster first; then wait for the agent."""
        if DEPENDENCIES in operation_facts(job.claim.operation) and job.state == "CreatingDependencies":
            failure = await self._ensure_cluster(job)
            if failure is not None:
                return Ending("dependencies failed", CONTROLLER, error=failure)
            await job.phase("dependencies ready")
        return await self.request_agent(job)

    async def _ensure_cluster(self, job: Job) -> str | None:
        """Create the cluster reserved for an app; returns the error, if any."""
        cluster = Key(job.ns, cluster_id(cloudlet_of(job.object), instance_status(job.claim.object).cluster))
        record = await self.engine.store.reader.object(cluster)
        if _is_made(record):
            return None
        denied = await job.spawn("cluster", [await self._creation(job, cluster, record)])
        record = await self.engine.store.reader.object(cluster)
        if _is_made(record):
            return None
        why = denied.get(cluster.id) or await self._failure(job, cluster) or (record.state if record else "not there")
        return f"cluster {cluster.id} could not be made: {why}"

    async def _failure(self, job: Job, cluster: Key) -> str | None:
        """Return the error of the operation that should have created the cluster."""
        children = await self.engine.store.reader.children_of(job.key)
        return next((child.error for child in children if child.object == cluster.id and child.error), None)

    async def _creation(self, job: Job, cluster: Key, former: Object | None) -> Request:
        app = read_spec(job.claim.object, AppInst)
        record = await self.engine.store.reader.object(Key(job.ns, record_id(APP.kind, app.app)))
        flavor = "" if record is None else read_spec(record, AppSpec).flavor
        spec = ClusterInst(app.organization, flavor, reservable=True)
        cloudlet = cloudlet_of(cluster.id)
        facts = operation_facts(job.claim.operation) & OVERRIDES
        return self.engine.request(
            job.ns,
            cluster.id,
            "create",
            actor=ADMIN if facts else USER,
            who=CASCADE_WHO,
            facts=facts,
            spec=spec,
            args={"reserved_by": app.organization},
            creates=instance_creation(CLUSTERINST.kind, cloudlet) if former is None or former.removed else None,
            also_locks=(cloudlet, job.object),
        )


def _without_agent(event: str) -> Ending:
    """Return the end of an operation whose agent is not asked; `on_instance_end` updates the status."""
    return Ending(event, CONTROLLER, frozenset({IGNORE_AGENT}))


async def on_instance_end(uow: UnitOfWork, operation: Operation, ended: Ended, *, idle_s: float) -> None:
    """Update the status of an instance whose agent was not asked; free the cluster of an app that is gone."""
    instance = uow.objects[Key(operation.ns, operation.object)]
    if IGNORE_AGENT in operation_facts(operation) and ended.status is Status.SUCCEEDED:
        record = instance_record(instance, operation)
        seen = updated_status(instance_status(instance), end_operation(record, record.state))
        instance = save_status(uow, instance, seen if instance.removed else replace(seen, spec=instance.spec))
    await free_clusters_of_gone_apps(uow, [instance], idle_s)


def _is_made(cluster: Object | None) -> bool:
    """Tell whether a cluster is Ready; raises `Temporary` while an operation runs on it."""
    if cluster is not None and cluster.state != ClusterInstState.READY and cluster.op is not None:
        raise Temporary("its cluster is being made", after=RECHECK_AFTER_S)
    return cluster is not None and cluster.state == ClusterInstState.READY


def _ending_facts(job: Job) -> frozenset[str]:
    """Return an operation's facts for its end: a failed delete of a cloudlet returns to its state before, if stable."""
    facts = operation_facts(job.claim.operation)
    if job.claim.object.kind == CLOUDLET.kind and job.origin != CloudletState.INIT:
        return facts - {IGNORE_TRANSIENT}
    return facts


def _ignores_agent(job: Job) -> bool:
    return IGNORE_AGENT in operation_facts(job.claim.operation)


def responsible_agent(instance: Object) -> Party:
    """Return the agent that is responsible for an instance or a cloudlet."""
    cloudlet = cloudlet_of(instance.id)
    return Party(f"the agent of cloudlet {cloudlet}", cloudlet, UNSERVED_STATES)


def instance_creation(kind: str, cloudlet: str) -> Creation:
    """Return how an instance is created: with its cloudlet as parent."""
    return Creation(kind, cloudlet, f'{{"cloudlet":"{cloudlet}"}}')


def related_ids(instance: Object) -> tuple[str, ...]:
    """Return the ids whose rows are locked with an instance: its cloudlet, cluster and app."""
    parts = instance.id.split(":")
    if instance.kind != APPINST.kind:
        return (parts[0],)
    return (parts[0], cluster_of(instance), record_id(APP.kind, parts[2]))
