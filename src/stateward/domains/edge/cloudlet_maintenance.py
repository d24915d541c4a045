"""Maintenance of a cloudlet: no new instances, and apps with an auto-provisioning policy are moved away first.

An app is moved in rounds: an instance is created on the next cloudlet of its policy, and the old one is removed only
when the new one is Ready. Only an instance that this operation itself has created replaces another one: whatever else
exists at the target counts for itself, or for another maintenance. So the app never has fewer instances than before. If
a create fails, the next round tries the next cloudlet. An app with no place to go stays, and the operation's progress
says so.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from stateward.domains.edge.handlers import CASCADE_WHO, Handlers, instance_creation
from stateward.domains.edge.lifecycle import APP, APPINST, AUTOPROV, CLOUDLET, DEPENDENCIES
from stateward.domains.edge.lookups import existing_apps, is_online
from stateward.domains.edge.model import (
    AUTOCLUSTER_PREFIX,
    AppSpec,
    AppStatus,
    AutoprovSpec,
    app_id,
    cloudlet_of,
    cluster_id,
    instance_status,
    read_spec,
    record_id,
)
from stateward.domains.edge.policy.app_members import app_status
from stateward.engine import Ending, Job, Request
from stateward.engine.protection import flag_of
from stateward.engine.queries import list_all
from stateward.lifecycle import SUCCEEDED
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Status


class ProvisionedApp(Struct, frozen=True):
    """An app with its auto-provisioning policy and its instances."""

    policy: AutoprovSpec
    status: AppStatus


class FailOver(Struct, frozen=True):
    """An instance to move, and the cloudlet that it is moved to."""

    instance: str
    target: str

    @property
    def app(self) -> str:
        """The name of the app."""
        return self.instance.rpartition(":")[2]

    @property
    def replacement(self) -> str:
        """The id of the new instance."""
        return app_id(self.target, autocluster_of(self.app), self.app)


def autocluster_of(app: str) -> str:
    """Return the name of the autocluster of an app that policies deploy."""
    return f"{AUTOCLUSTER_PREFIX}-{app}"[:63]


def plan_failover(
    instances: Iterable[str],
    apps: Mapping[str, ProvisionedApp],
    online: Collection[str],
    tried: Collection[FailOver] = (),
) -> list[FailOver]:
    """Return where instances are moved: to the first cloudlet of the policy that is online, free and not yet tried."""
    plan: list[FailOver] = []
    for instance in instances:
        app = apps.get(instance.rpartition(":")[2])
        if app is None:
            continue
        taken = {cloudlet_of(member) for member in app.status.members}
        taken |= {failover.target for failover in (*tried, *plan) if failover.app == instance.rpartition(":")[2]}
        free = [cloudlet for cloudlet in app.policy.cloudlets if cloudlet in online and cloudlet not in taken]
        if free:
            plan.append(FailOver(instance, free[0]))
    return plan


class MaintenanceHandler:
    """The handler that brings a cloudlet into maintenance."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    async def enter_maintenance(self, job: Job) -> Ending:
        """Move the apps that have a policy to other cloudlets; then the cloudlet is in maintenance."""
        everything: list[str] = await job.once("instances", lambda: self._app_instances(job))
        tried: list[FailOver] = []
        moved: list[str] = []
        kept: dict[str, str] = await job.once("protected", lambda: self._protected(job, everything))
        number = 1
        while plan := await self._plan_round(
            job, number, [instance for instance in everything if instance not in moved and instance not in kept], tried
        ):
            ready, denied = await self._move(job, number, plan)
            moved += [instance for instance in ready if instance not in denied]
            kept |= denied
            tried += plan
            number += 1
        await job.once("rest", lambda: self._tell_rest(job, everything, moved, kept))
        return Ending(SUCCEEDED)

    async def _plan_round(
        self, job: Job, number: int, left: Sequence[str], tried: Sequence[FailOver]
    ) -> list[FailOver]:
        return msgspec.convert(
            await job.once(f"plan {number}", lambda: self._plan(job, left, tried)), type=list[FailOver]
        )

    async def _move(self, job: Job, number: int, plan: Sequence[FailOver]) -> tuple[list[str], dict[str, str]]:
        """Create the replacements of a round, and then remove the instances whose replacement is Ready.

        Returns these instances, and why the removal of some of them was refused.
        """
        await job.once(f"told {number}", lambda: self._tell_plan(job, plan))
        await job.spawn(f"replacements {number}", [await self._creation(job, failover) for failover in plan])
        children = await job.children(f"replacements {number}")
        created = {child.object for child in children if child.status is Status.SUCCEEDED}
        ready: list[str] = await job.once(f"ready {number}", lambda: self._ready_instances(job, plan, created))
        return ready, await job.spawn(f"removals {number}", await self._removals(job, ready))

    async def _app_instances(self, job: Job) -> list[str]:
        apps = existing_apps(await self._handlers.instances_on(job.ns, job.object))
        return [app.id for app in apps]

    async def _protected(self, job: Job, instances: Sequence[str]) -> dict[str, str]:
        """Return the instances that nobody may remove, with the reason: a replacement would be one too many."""
        records = await self._handlers.engine.store.reader.objects([Key(job.ns, instance) for instance in instances])
        return {key.id: f"it is protected ({reason})" for key, record in records.items() if (reason := flag_of(record))}

    async def _plan(self, job: Job, left: Sequence[str], tried: Sequence[FailOver]) -> list[dict[str, str]]:
        apps = await self._provisioned_apps(job.ns, {instance.rpartition(":")[2] for instance in left})
        reader = self._handlers.engine.store.reader
        online = {
            cloudlet.id async for cloudlet in list_all(reader, Selector(job.ns, CLOUDLET.kind)) if is_online(cloudlet)
        }
        plan: list[dict[str, str]] = msgspec.to_builtins(plan_failover(left, apps, online, tried))
        return plan

    async def _provisioned_apps(self, ns: str, wanted: Collection[str]) -> dict[str, ProvisionedApp]:
        reader = self._handlers.engine.store.reader
        keys = {name: Key(ns, record_id(APP.kind, name)) for name in wanted}
        records = await reader.objects(list(keys.values())) if keys else {}
        apps = {name: records[key] for name, key in keys.items() if key in records and not records[key].removed}
        specs = {name: read_spec(app, AppSpec) for name, app in apps.items()}
        names = {spec.autoprov for spec in specs.values() if spec.autoprov}
        policies = {name: Key(ns, record_id(AUTOPROV.kind, name)) for name in names}
        stored = await reader.objects(list(policies.values())) if policies else {}
        known = {name: read_spec(stored[key], AutoprovSpec) for name, key in policies.items() if key in stored}
        return {
            name: ProvisionedApp(known[specs[name].autoprov], app_status(app))
            for name, app in apps.items()
            if specs[name].autoprov in known
        }

    async def _creation(self, job: Job, move: FailOver) -> Request:
        engine = self._handlers.engine
        record = await engine.store.reader.object(Key(job.ns, record_id(APP.kind, move.app)))
        policy = "" if record is None else read_spec(record, AppSpec).autoprov
        locks = [move.target, cluster_id(move.target, autocluster_of(move.app)), record_id(APP.kind, move.app)]
        return engine.request(
            job.ns,
            move.replacement,
            "create",
            who=CASCADE_WHO,
            facts={DEPENDENCIES},
            creates=instance_creation(APPINST.kind, move.target),
            also_locks=(*locks, record_id(AUTOPROV.kind, policy)) if policy else tuple(locks),
        )

    async def _ready_instances(self, job: Job, plan: Sequence[FailOver], created: Collection[str]) -> list[str]:
        """Return the instances whose replacement was created here and is Ready, and report what failed."""
        keys = {
            failover.instance: Key(job.ns, failover.replacement) for failover in plan if failover.replacement in created
        }
        replacements = await self._handlers.engine.store.reader.objects(list(keys.values())) if keys else {}
        ready = [name for name, key in keys.items() if _serves(replacements.get(key))]
        for failover in plan:
            if failover.instance not in ready:
                await job.progress(f"{failover.replacement} did not become Ready, so {failover.instance} stays for now")
        return ready

    async def _removals(self, job: Job, instances: Sequence[str]) -> list[Request]:
        records = await self._handlers.engine.store.reader.objects([Key(job.ns, instance) for instance in instances])
        return [self._handlers.deletion(record) for record in records.values() if not record.removed]

    async def _tell_plan(self, job: Job, plan: Sequence[FailOver]) -> None:
        for nth, failover in enumerate(plan, start=1):
            await job.progress(f"moving {failover.instance} to {failover.target}", nth, len(plan))

    async def _tell_rest(
        self, job: Job, everything: Sequence[str], moved: Sequence[str], kept: Mapping[str, str]
    ) -> None:
        apps = await self._provisioned_apps(job.ns, {instance.rpartition(":")[2] for instance in everything})
        for instance in everything:
            if instance in moved:
                await job.progress(f"{instance} has been moved")
            elif instance in kept:
                await job.progress(f"{instance} stays: {kept[instance]}")
            elif instance.rpartition(":")[2] in apps:
                await job.progress(f"{instance} stays: no other cloudlet of its policy can take it")
            else:
                await job.progress(f"{instance} stays: its app has no auto-provisioning policy")


def _serves(instance: Object | None) -> bool:
    return instance is not None and instance.state == "Ready" and not instance_status(instance).missing
