"""The work on a system itself: it is made ready at its backend, and in the end removed with all that it has."""

from functools import partial

from stateward.domains.systems.backends.port import Home
from stateward.domains.systems.context import Premises
from stateward.domains.systems.deploy_handlers import clear
from stateward.domains.systems.guards import guard_system
from stateward.domains.systems.lifecycle import SYSTEM
from stateward.domains.systems.model import Lives, SystemSpec, spec_of
from stateward.domains.systems.retention import Records
from stateward.engine import Ending, Handler, Job, Kind, ObservedOutcome, Permanent, Temporary
from stateward.errors import UnknownName
from stateward.store.records import Status, to_json

ATTEMPTS = 5
"""How often it is tried to make a system ready."""


class Systems:
    """Does the work on systems."""

    def __init__(self, premises: Premises, records: Records) -> None:
        self._premises, self._records = premises, records

    def kind(self) -> Kind:
        """Return the kind of systems."""
        make = Handler(self.make, attempts=ATTEMPTS)
        handlers = {"create": make, "retry": make, "delete": Handler(self.remove, cancelled=self.look_removed)}
        return Kind(SYSTEM, handlers, guard=partial(guard_system, self._premises.settings), general=True)

    async def make(self, job: Job) -> Ending:
        """Make a system ready at its backend."""
        try:
            backend = self._premises.named((spec_of(job.claim.object, SystemSpec) or SystemSpec()).backend)
        except UnknownName as error:
            raise Permanent(str(error)) from error
        try:
            lives = await backend.prepare(Home(job.ns, job.object))
        except OSError as error:
            raise Temporary(f"it cannot be made ready: {error}") from error
        return Ending(seen=to_json(Lives(**lives)))

    async def remove(self, job: Job) -> None:
        """End all services and remove all that a system has, the records of its deploys included."""
        home = Home(job.ns, job.object)
        trouble = await clear(self._premises, job, home)
        if trouble:
            raise Permanent(trouble)
        await job.call((await self._premises.backend(home)).remove(home))
        await self._records.clear(home)

    async def look_removed(self, job: Job) -> ObservedOutcome:
        """Say whether anything was removed of a system whose removal was cancelled: its services go first."""
        children = await self._premises.engine.store.reader.children_of(job.key)
        undone = all(one.status is Status.CANCELLED for one in children) if children else job.is_untried
        return ObservedOutcome.NOT_DONE if undone else ObservedOutcome.UNKNOWN
