"""The handlers of systems: a system is initialised at its backend, and deleted with everything in it."""

from collections.abc import Sequence

import msgspec

from stateward.domains.systems.backends.port import SystemRef
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.deploy_handlers import tear_down
from stateward.domains.systems.guards import FORCE, guard_system
from stateward.domains.systems.lifecycle import (
    DEPLOY,
    NODEPOOL,
    OPEN_DEPLOY,
    SERVICE,
    SYSTEM,
    ServiceState,
    SystemState,
)
from stateward.domains.systems.model import SystemLocation
from stateward.domains.systems.retention import ChangeRetention
from stateward.engine import Ending, Handler, Job, Kind, ObservedOutcome, Permanent, Request, Rules, Temporary, Why
from stateward.engine.accept.accept import admit_all
from stateward.engine.kinds import Party
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import UnknownName
from stateward.naming import new_id
from stateward.store.filters import Selector
from stateward.store.records import Object, Status, to_json

OPEN_DEPLOYS = tuple(state.word for state in OPEN_DEPLOY)
CREATE_ATTEMPTS = 5
"""How often a system's initialisation is tried."""


def _service_controller(system: Object) -> Party:
    """Return the party that moves a system as its services move."""
    return Party("the controller of its services", system.id)


def _unhealthy_parts(system: Object) -> Sequence[Selector]:
    """Select the services and node pools that have made a system degraded."""
    states = (ServiceState.FAILED.word, ServiceState.DEGRADED.word)
    kinds = (SERVICE.kind, NODEPOOL.kind) if system.state == SystemState.DEGRADED else ()
    return [Selector(system.ns, kind, system.id, states) for kind in kinds]


class SystemHandlers:
    """The handlers of systems."""

    def __init__(self, context: SystemContext, records: ChangeRetention) -> None:
        self._context, self._records = context, records

    def kind(self) -> Kind:
        """Return the kind of systems."""
        make = Handler(self.make, attempts=CREATE_ATTEMPTS)
        handlers = {"create": make, "retry": make, "delete": Handler(self.remove, cancelled=self.observe_removal)}
        return Kind(
            SYSTEM,
            handlers,
            guard=self.guard,
            rules=Rules(removes_below=("delete",)),
            why=Why(party=_service_controller, unhealthy_parts=_unhealthy_parts),
        )

    async def guard(self, uow: UnitOfWork, request: Request, system: Object) -> None:
        """Check a request, and let a forced deletion cancel the open deploys that are in its way."""
        await guard_system(self._context.settings, uow, request, system)
        if request.action == "delete" and FORCE in msgspec.json.decode(request.args):
            deploys = await uow.select(Selector(system.ns, DEPLOY.kind, system.id, OPEN_DEPLOYS))
            ids = sorted(deploy.id for deploy in deploys)
            requests = [Request(system.ns, id_, "cancel", new_id(), request.actor, request.who) for id_ in ids]
            await admit_all(uow, self._context.engine.kinds, requests)

    async def make(self, job: Job) -> Ending:
        """Initialise a system at its backend."""
        try:
            backend = self._context.backend_of(job.claim.object)
        except UnknownName as error:
            raise Permanent(str(error)) from error
        try:
            location = await backend.prepare(SystemRef(job.ns, job.object))
        except OSError as error:
            raise Temporary(f"it cannot be made ready: {error}") from error
        return Ending(seen=to_json(SystemLocation(**location)))

    async def remove(self, job: Job) -> None:
        """Delete all services, node pools, files and deploy records of a system."""
        system_ref = SystemRef(job.ns, job.object)
        trouble = await tear_down(self._context, job, system_ref)
        if trouble:
            raise Permanent(trouble)
        await job.call((await self._context.backend(system_ref)).remove(system_ref))
        await self._records.clear(system_ref)

    async def observe_removal(self, job: Job) -> ObservedOutcome:
        """Tell whether a cancelled deletion removed anything: the services go first."""
        children = await self._context.engine.store.reader.children_of(job.key)
        undone = all(child.status is Status.CANCELLED for child in children) if children else job.is_untried
        return ObservedOutcome.NOT_DONE if undone else ObservedOutcome.UNKNOWN
