"""The creation of machines: one call for each, and what became of the calls.

Compute Engine accepts a call, and decides in an operation: an operation that fails for want of room or of quota leaves
no instance behind. So the driver remembers the operations of its own calls. A machine that a listing does not contain,
and whose operation has failed, is shown as failed, with Google's code as its state. After a restart the same call, with
the same request id, returns the same operation.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.gcp.errors import failed_operation
from stateward.drivers.gcp.gce_client import GceClient, is_finished
from stateward.drivers.gcp.gce_images import GceImages
from stateward.drivers.gcp.gce_machines import insert_fields, key_of, name_of
from stateward.drivers.gcp.project_keys import ProjectKeys
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    MachineSpec,
    MachineState,
    Observation,
    Outcome,
    RefusalReason,
    ResourceKind,
)
from stateward.errors import BadInput

MAX_REMEMBERED = 10_000
MAX_FOLLOWED = 20
"""How many operations are looked at with one listing; each is a call, and a new machine is mostly listed at once."""


class InstanceLaunch:
    """Creates machines, and follows the operations that create them."""

    def __init__(self, calls: GceClient, images: GceImages, keys: ProjectKeys) -> None:
        self._calls, self._images, self._keys = calls, images, keys
        self._operations: dict[str, str] = {}  # the key of a machine that was not seen yet, and its operation
        self._failures: dict[str, Observation] = {}

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Create machines; the thread pool limits how many calls are made at once."""
        different = {machine_spec.key: machine_spec for machine_spec in reversed(machine_specs)}
        try:
            public_keys = await self._public_keys(different.values())
        except CloudCallFailed as failed:
            return [failed.outcome_for(machine_spec.key) for machine_spec in machine_specs]
        sources = {image: await self._source(image) for image in {one.image for one in different.values()}}
        made = await asyncio.gather(*(self._create(one, sources[one.image], public_keys) for one in different.values()))
        outcomes = {outcome.key: outcome for outcome in made}
        return [outcomes[machine_spec.key] for machine_spec in machine_specs]

    async def _public_keys(self, machine_specs: Collection[MachineSpec]) -> Mapping[str, str]:
        """Return the public keys that machines need, from one call."""
        if not any(one.resources.get(ResourceKind.SSH_KEY) for one in machine_specs):
            return {}
        return await self._keys.public_keys()

    async def _source(self, image: str) -> str | CloudCallFailed:
        """Return the address of an image, or why there is none; many machines of one image look it up once."""
        try:
            return await self._images.source(image)
        except CloudCallFailed as failed:
            return failed

    async def _create(
        self, machine_spec: MachineSpec, source: str | CloudCallFailed, public_keys: Mapping[str, str]
    ) -> Outcome:
        key, native = machine_spec.key, name_of(machine_spec.key)
        if isinstance(source, CloudCallFailed):
            return source.outcome_for(key)
        needed = machine_spec.resources.get(ResourceKind.SSH_KEY)
        if needed and needed not in public_keys:
            return CallRefused(key, RefusalReason.NOT_FOUND, f"there is no SSH key {needed!r} in the project")
        try:
            fields = insert_fields(machine_spec, source, public_keys, await self._calls.settings())
            operation = await self._calls.call("instances.insert", **fields)
            if not is_finished(operation):
                self._remember(key, str(operation.name))
                return CallAccepted(key, native)
            return await self._existing(key)  # a new call is never finished at once: it is an earlier one of ours
        except BadInput as error:
            return CallRefused(key, RefusalReason.INVALID, str(error))
        except CloudCallFailed as failed:
            if failed.call == "instances.insert" and failed.status == 409:
                return await self._after_conflict(key)
            return failed.outcome_for(key)

    async def _after_conflict(self, key: str) -> Outcome:
        try:
            return await self._existing(key)
        except CloudCallFailed as failed:
            return failed.outcome_for(key)

    async def _existing(self, key: str) -> Outcome:
        """Return the outcome of a create whose machine was created before."""
        native = name_of(key)
        try:
            instance = await self._calls.call("instances.get", instance=native)
        except CloudCallFailed as failed:
            if failed.why is RefusalReason.NOT_FOUND:
                return CallRefused(key, RefusalReason.CONFLICT, "the machine of this key was created, and deleted")
            raise
        if key_of(instance) != key:
            return CallRefused(key, RefusalReason.CONFLICT, f"{native} exists, and has another key")
        return AlreadyDone(key, native)

    # --- what became of the calls ------------------------------------------------------------------------------------

    async def failed_machines(self, listed: Collection[Observation], keys: Collection[str] | None) -> list[Observation]:
        """Return the machines that were never created, of those that a complete listing does not contain."""
        for one in listed:
            self._failures.pop(one.key, None)
            if one.state is not MachineState.PENDING:
                self._operations.pop(one.key, None)
        shown = {one.key for one in listed}
        unseen = [key for key in self._operations if key not in shown and (keys is None or key in keys)]
        await asyncio.gather(*(self._follow(key) for key in unseen[:MAX_FOLLOWED]))
        return [one for key, one in self._failures.items() if keys is None or key in keys]

    def forget(self, key: str) -> bool:
        """Forget a machine that was never created; tells whether there is one."""
        return self._failures.pop(key, None) is not None

    async def _follow(self, key: str) -> None:
        """Look at the operation of a machine that is not listed; without an answer it is looked at again."""
        name = self._operations.pop(key)
        self._operations[key] = name  # at the end: the next listing looks at others
        try:
            operation = await self._calls.operation(name)
        except CloudCallFailed:
            return
        if not is_finished(operation):
            return
        self._operations.pop(key, None)
        failed = failed_operation("instances.insert", operation)
        if failed is not None:
            details = {"reason": failed.outcome.message}
            self._failures[key] = Observation(key, name_of(key), MachineState.FAILED, failed.code, details=details)

    def _remember(self, key: str, operation: str) -> None:
        self._failures.pop(key, None)
        self._operations[key] = operation
        if len(self._operations) > MAX_REMEMBERED:
            del self._operations[next(iter(self._operations))]
