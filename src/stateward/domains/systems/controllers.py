"""The controllers of the domain: services follow their instances, and systems follow their services.

`SystemRollUp` follows the journal: when a service or a node pool has changed, it counts the states and moves the
system. `InstanceController` follows a backend: when instances have changed, it moves the service, unless an operation
is at work on it. Several processes may run both at once: the second one finds nothing to do.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from stateward.domains.systems.backends.port import Backend, InstancePhase, ServiceRef, SystemRef
from stateward.domains.systems.change_planner import desired_service
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.definition import revision_of
from stateward.domains.systems.guards import exclusive_lock
from stateward.domains.systems.lifecycle import (
    NODEPOOL,
    SECRET,
    SERVICE,
    SYSTEM,
    NodePoolState,
    ServiceState,
    SystemState,
)
from stateward.domains.systems.model import DesiredService, seen_of, spec_of
from stateward.domains.systems.object_ids import job_id, path_of, run_id, secret_name, service_id, system_of
from stateward.domains.systems.rollout import keep_unmovable
from stateward.domains.systems.secrets.secret_model import used_secrets
from stateward.domains.systems.service_handlers import (
    REDEPLOY,
    SeenInstances,
    instances_fault,
    node_pool_problem,
)
from stateward.domains.systems.states import OWN_STATES, facts_at_rest, service_state, system_state
from stateward.engine import Denied, ExternalReport
from stateward.engine.troubles import FaultIsolation
from stateward.lifecycle import CONTROLLER
from stateward.locks.paths import parse_path
from stateward.store.filters import JournalFilter, Page, Selector
from stateward.store.records import Object

log = logging.getLogger("stateward.systems")

RETRY_S = 1.0
"""When a service that could not be moved is reconciled again."""

MAX_TRIES = 5
MAX_PARTS_READ, MAX_PARTS_NAMED = 100, 3
"""How many failed or degraded parts are read, and named, as the reason of a failed operation."""

WHO = "systems"

SYSTEM_STATES = {state.word: state for state in SystemState}
SERVICE_STATES = {state.word: state for state in ServiceState}
POOL_STATES = {state.word: state for state in NodePoolState}


class SystemRollUp:
    """Moves systems to the state that their services and node pools add up to."""

    def __init__(self, context: SystemContext) -> None:
        self._context = context
        self._faults = FaultIsolation(log)

    async def refresh(self, system_ref: SystemRef) -> None:
        """Move a system to the roll-up of its parts; a concurrent change by another process is fine."""
        engine = self._context.engine
        for _ in range(MAX_TRIES):
            system = await self._context.object(system_ref.ns, system_ref.system)
            if system is None or system.kind != SYSTEM.kind or system.state in OWN_STATES:
                return
            target = await self._target(system_ref, SYSTEM_STATES[system.state])
            if target == system.state:
                return
            if target == SystemState.DEGRADED and system.op is not None:
                await self._fail_operation(system, system.op)
                continue
            with suppress(Denied):
                await engine.act(*system.key, target.word, actor=CONTROLLER, who=WHO, version=system.version)

    async def _fail_operation(self, system: Object, op: str) -> None:
        """End the operation of a system that has become degraded, with the parts that made it so."""
        states = (ServiceState.FAILED.word, ServiceState.DEGRADED.word)
        ailing = Selector(system.ns, parent=system.id, states=states)
        parts = await self._context.engine.store.reader.list_objects(ailing, Page(None, MAX_PARTS_READ))
        await self._context.engine.report(
            ExternalReport(
                *system.key,
                op=op,
                generation=system.generation,
                event=SystemState.DEGRADED.word,
                actor=CONTROLLER,
                who=WHO,
                error=ailing_text([part for part in parts if part.kind in (SERVICE.kind, NODEPOOL.kind)]),
                version=system.version,
            )
        )

    async def _target(self, system_ref: SystemRef, state: SystemState) -> SystemState:
        reader = self._context.engine.store.reader
        counts = await reader.count_states(Selector(system_ref.ns, parent=system_ref.system))
        services = [SERVICE_STATES[word] for kind, word in counts if kind == SERVICE.kind]
        return system_state(state, services, [POOL_STATES[word] for kind, word in counts if kind == NODEPOOL.kind])

    async def run(self) -> None:
        """Follow the journal for ever; several changes of one system cause one roll-up."""
        engine = self._context.engine
        after = await engine.store.reader.last_journal_seq()
        # All systems first: some may have changed while no process followed the journal.
        dirty = {SystemRef(system.ns, system.id): None for system in await self._context.systems()}
        is_dirty, loop = asyncio.Event(), asyncio.get_running_loop()
        is_dirty.set()

        def mark_dirty(system_ref: SystemRef) -> None:
            dirty[system_ref] = None
            is_dirty.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_journal(after, mark_dirty))
            while True:
                await is_dirty.wait()
                is_dirty.clear()
                began = loop.time()
                for system_ref in list(dirty):
                    del dirty[system_ref]
                    if not await self._refresh_safely(system_ref):
                        loop.call_later(RETRY_S, mark_dirty, system_ref)
                await asyncio.sleep(loop.time() - began)  # use at most half of the time, however many changes there are

    async def _follow_journal(self, after: int, mark_dirty: Callable[[SystemRef], None]) -> None:
        async for entry in self._context.engine.watch(after, JournalFilter()):
            if entry.kind in (SERVICE.kind, NODEPOOL.kind) and entry.source != entry.target:
                mark_dirty(SystemRef(entry.ns, system_of(entry.object)))

    async def _refresh_safely(self, system_ref: SystemRef) -> bool:
        """Roll up one system; returns whether it succeeded. An error does not stop the others."""
        done = False
        with self._faults.isolate(f"roll-up of system {system_ref.system} in {system_ref.ns}"):
            await self.refresh(system_ref)
            done = True
        return done  # noqa: RET504 - an error ends the block above early


def ailing_text(parts: Sequence[Object]) -> str:
    """Return which services and node pools are failed or degraded, and why."""
    said = [_ailing_part_text(part) for part in parts[:MAX_PARTS_NAMED]]
    more = len(parts) - MAX_PARTS_NAMED
    return "; ".join([*said, f"and {more} more"] if more > 0 else said)


def _ailing_part_text(part: Object) -> str:
    why = part.error or instances_fault(part)
    what = f"node pool {part.id}" if part.kind == NODEPOOL.kind else f"service {part.id}"
    return f"{what} is {part.state}{f': {why}' if why else ''}"


class InstanceController:
    """Moves the services of one backend to the state of their instances."""

    def __init__(self, context: SystemContext, name: str, backend: Backend) -> None:
        self._context, self._name, self._backend = context, name, backend
        self._retry: dict[ServiceRef, None] = {}
        self._faults = FaultIsolation(log)

    async def run(self) -> None:
        """Follow the backend and the node pools for ever."""
        after = await self._context.engine.store.reader.last_journal_seq()
        await self._reconcile_all()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_backend())
            group.create_task(self._follow_pools(after))
            group.create_task(self._follow_secrets(after))
            group.create_task(self._retry_loop())

    async def _reconcile_all(self) -> None:
        """Reconcile all services once: changes before the start of this process caused no event here."""
        for system in await self._context.systems():
            with self._faults.isolate(f"reconciliation of system {system.id} in {system.ns}"):
                if await self._context.is_local(system, self._name):
                    for service in await self._context.services(SystemRef(system.ns, system.id)):
                        await self._reconcile_safely(
                            ServiceRef(SystemRef(system.ns, system.id), str(path_of(service.id)))
                        )

    async def _follow_pools(self, after: int) -> None:
        """Reconcile the services of changed node pools a little later, when most changes are over."""
        async for entry in self._context.engine.watch(after, JournalFilter(kind=NODEPOOL.kind)):
            if entry.source != entry.target:
                with self._faults.isolate(f"reconciliation of node pool {entry.object} in {entry.ns}"):
                    await self._reconcile_pool(
                        SystemRef(entry.ns, system_of(entry.object)), entry.object.partition("~")[2]
                    )

    async def _follow_secrets(self, after: int) -> None:
        """Reconcile the services of a namespace in which a secret has a new value."""
        async for entry in self._context.engine.watch(after, JournalFilter(kind=SECRET.kind)):
            if entry.event == "update":
                with self._faults.isolate(f"reconciliation of the users of {entry.object} in {entry.ns}"):
                    await self._reconcile_users(entry.ns, secret_name(entry.object))

    async def _reconcile_users(self, ns: str, secret: str) -> None:
        for system in await self._context.systems(ns):
            if not await self._context.is_local(system, self._name):
                continue
            system_ref = SystemRef(ns, system.id)
            for service in await self._context.services(system_ref):
                wanted = spec_of(service, DesiredService)
                if wanted is not None and wanted.service.redeploy_on_secret_change and secret in used_secrets(service):
                    self._retry[ServiceRef(system_ref, str(path_of(service.id)))] = None

    async def _redeploy(self, service: Object, wanted: DesiredService, ref: ServiceRef) -> bool:
        """Replace the instances of a service if a secret has a new value and the service asks for it.

        The operation holds the lock on its path, as a deploy does: while one of them runs, the other waits. A service
        that has failed with these values stays failed until it is deployed or a secret has another value.
        """
        if not wanted.service.redeploy_on_secret_change:
            return False
        versions = await self._context.secrets.versions(ref.system.ns, used_secrets(service))
        fresh = desired_service(wanted.service, wanted.deploy, versions, wanted.assigned_port)
        if fresh.revision == revision_of(wanted.service, wanted.secret_versions):
            return False
        if service.state == ServiceState.FAILED and seen_of(service, SeenInstances).revision == fresh.revision:
            return True
        try:
            await self._context.engine.act(
                *service.key,
                ServiceState.UPDATING.word,
                actor=CONTROLLER,
                who=WHO,
                version=service.version,
                spec=fresh,
                seen={"revision": fresh.revision},
                args={REDEPLOY: True},
                tree=ref.system.system,
                locks=exclusive_lock(ref.path),
            )
        except Denied:
            self._retry[ref] = None
        return True

    async def _reconcile_pool(self, system_ref: SystemRef, pool: str) -> None:
        system = await self._context.object(system_ref.ns, system_ref.system)
        if system is not None and await self._context.is_local(system, self._name):
            for service in await self._context.services(system_ref):
                wanted = spec_of(service, DesiredService)
                if wanted is not None and wanted.service.node_pool == pool:
                    self._retry[ServiceRef(system_ref, str(path_of(service.id)))] = None

    async def _follow_backend(self) -> None:
        async for ref in self._backend.changed_services():
            if not ref.is_job_run:
                await self._reconcile_safely(ref)
            elif ref not in self._context.polled_runs:
                with self._faults.isolate(f"wake-up of run {ref} in {ref.system.ns}"):
                    await self._wake_run(ref)

    async def _wake_run(self, ref: ServiceRef) -> None:
        """Wake the operation of a run that has an ended instance."""
        if any(instance.phase is InstancePhase.ENDED for instance in await self._backend.instances(ref)):
            path, _, unique = ref.path.partition("@")
            run = run_id(job_id(ref.system.system, parse_path(path)), unique)
            with suppress(Denied):  # the run has ended
                await self._context.engine.act(ref.system.ns, run, "observed", actor=CONTROLLER, who=WHO)

    async def _retry_loop(self) -> None:
        while True:
            await asyncio.sleep(RETRY_S)
            for ref in list(self._retry):
                await self._reconcile_safely(ref)

    async def _reconcile_safely(self, ref: ServiceRef) -> None:
        """Reconcile a service; if that fails, it is retried later, and the others go on."""
        done = False
        with self._faults.isolate(f"reconciliation of service {ref} in {ref.system.ns}"):
            await self._reconcile(ref)
            done = True
        if not done:
            self._retry[ref] = None

    async def _reconcile(self, ref: ServiceRef) -> None:
        """Move a service to the state of its instances; if an operation is at work on it, retry later."""
        self._retry.pop(ref, None)
        service = await self._context.object(ref.system.ns, service_id(ref.system.system, parse_path(ref.path)))
        wanted = None if service is None else spec_of(service, DesiredService)
        if service is None or wanted is None:
            return
        if service.op is not None:
            self._retry[ref] = None
            return
        if await self._redeploy(service, wanted, ref):
            return
        seen = keep_unmovable(wanted.service.instances, await self._backend.instances(ref))
        problem = await node_pool_problem(self._context, ref, wanted.service)
        problem = problem or await self._backend.address_problem(ref, wanted.port)
        state = service_state(facts_at_rest(wanted.service.instances, wanted.revision, seen, provided=not problem))
        if state == service.state or (service.state == ServiceState.FAILED and state != ServiceState.STABLE):
            return
        summary = {"revision": wanted.revision, "ready": sum(instance.ready for instance in seen)}
        ill = {instance.name: instance.why for instance in seen if instance.why}
        how: dict[str, Any] = {"version": service.version, "seen": {**summary, "ill": ill} if ill else summary}
        try:
            await self._context.engine.act(
                *service.key, state.word, actor=CONTROLLER, who=WHO, args={REDEPLOY: True}, **how
            )
        except Denied:
            self._retry[ref] = None
