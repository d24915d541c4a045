"""The handlers of systems: initialisation at the backend, and deletion with everything in them."""

from functools import partial

from stateward.domains.systems.backends.port import SystemRef
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.deploy_handlers import tear_down
from stateward.domains.systems.guards import guard_system
from stateward.domains.systems.lifecycle import SYSTEM
from stateward.domains.systems.model import SystemLocation
from stateward.domains.systems.retention import ChangeRetention
from stateward.engine import Ending, Handler, Job, Kind, ObservedOutcome, Permanent, Temporary
from stateward.errors import UnknownName
from stateward.store.records import Status, to_json

CREATE_ATTEMPTS = 5
"""How often a system's initialisation is tried."""


class SystemHandlers:
    """The handlers of systems."""

    def __init__(self, context: SystemContext, records: ChangeRetention) -> None:
        self._context, self._records = context, records

    def kind(self) -> Kind:
        """Return the kind of systems."""
        make = Handler(self.make, attempts=CREATE_ATTEMPTS)
        handlers = {"create": make, "retry": make, "delete": Handler(self.remove, cancelled=self.observe_removal)}
        return Kind(SYSTEM, handlers, guard=partial(guard_system, self._context.settings), general=True)

    async def make(self, job: Job) -> Ending:
        """Initialise a system at its backend."""
        try:
            backend = self._context.backend_of(job.claim.object)
        except UnknownName as error:
            raise Permanent(str(error)) from error
        try:
            lives = await backend.prepare(SystemRef(job.ns, job.object))
        except OSError as error:
            raise Temporary(f"it cannot be made ready: {error}") from error
        return Ending(seen=to_json(SystemLocation(**lives)))

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
        undone = all(one.status is Status.CANCELLED for one in children) if children else job.is_untried
        return ObservedOutcome.NOT_DONE if undone else ObservedOutcome.UNKNOWN
