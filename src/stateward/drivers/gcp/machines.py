"""Machines: their creation, what became of it, and actions on them; one call for each.

Compute Engine accepts the call of a create, and decides in an operation: an operation that fails for want of room or of
quota leaves no instance behind. So the driver remembers the operations of its own calls. A machine that a listing does
not contain, and whose operation has failed, is shown as failed, with Google's code as its state. After a restart the
same call, with the same request id, returns the same operation.

An action is sent without a check of the machine. Compute Engine refuses it in a wrong state, with texts that differ
from case to case; so after a refusal the state of the instance says whether the action is done already, is not
possible, or needs another call (a stopped machine is started, a suspended one resumed). The token of an action is its
request id: a repeated reboot is one reboot.
"""

import asyncio
from collections.abc import Collection, Mapping

from stateward.drivers import port
from stateward.drivers.cloud.errors import CloudCallFailed, found_or_none
from stateward.drivers.cloud.machines import CloudMachines, Remembered, each_outcome
from stateward.drivers.gcp.client import GceClient, is_finished
from stateward.drivers.gcp.errors import failed_operation, is_not_ready
from stateward.drivers.gcp.images import GceImages
from stateward.drivers.gcp.keys import ProjectKeys
from stateward.drivers.gcp.names import name_of, request_id
from stateward.drivers.gcp.states import ACTIONS, STOPPED, insert_fields, key_of

MAX_FOLLOWED = 20
"""How many operations are looked at with one listing; each is a call, and a new machine is mostly listed at once."""


class GceMachines(CloudMachines):
    """Creates machines, follows the operations that create them, and acts on machines.

    It remembers which instances it has deleted: listings show them as if they stopped.
    """

    def __init__(self, calls: GceClient, images: GceImages, keys: ProjectKeys) -> None:
        self._calls, self._images, self._keys = calls, images, keys
        self._operations = Remembered[str]()  # the key of a machine that was not seen yet, and its operation
        self._failures = Remembered[port.Observation]()
        self.deleting = Remembered[None]()

    async def create(self, wanted: Mapping[str, port.MachineSpec]) -> Mapping[str, port.Outcome]:
        """Create machines; raises `CloudCallFailed`. The thread pool limits how many calls are made at once."""
        needs_keys = any(machine_spec.resources.get(port.ResourceKind.SSH_KEY) for machine_spec in wanted.values())
        public_keys = await self._keys.public_keys() if needs_keys else {}
        sources = {
            image: await self._source(image) for image in {machine_spec.image for machine_spec in wanted.values()}
        }
        return await each_outcome(
            wanted, lambda machine_spec: self._insert(machine_spec, sources[machine_spec.image], public_keys)
        )

    async def _source(self, image: str) -> str | CloudCallFailed:
        """Return the address of an image, or why there is none; many machines of one image look it up once."""
        try:
            return await self._images.source(image)
        except CloudCallFailed as failed:
            return failed

    async def _insert(
        self, machine_spec: port.MachineSpec, source: str | CloudCallFailed, public_keys: Mapping[str, str]
    ) -> port.Outcome:
        key, native = machine_spec.key, name_of(machine_spec.key)
        if isinstance(source, CloudCallFailed):
            return source.outcome_for(key)
        needed = machine_spec.resources.get(port.ResourceKind.SSH_KEY)
        if needed and needed not in public_keys:
            return port.CallRefused(key, port.RefusalReason.NOT_FOUND, f"there is no SSH key {needed!r} in the project")
        try:
            fields = insert_fields(machine_spec, source, public_keys, await self._calls.settings())
            operation = await self._calls.call("instances.insert", **fields)
            if not is_finished(operation):
                self._failures.pop(key, None)
                self._operations[key] = str(operation.name)
                return port.CallAccepted(key, native)
            return await self._existing(key)  # a new call is never finished at once: it is an earlier one of ours
        except CloudCallFailed as failed:
            if failed.call == "instances.insert" and failed.status == 409:
                return await self._existing(key)
            raise

    async def _existing(self, key: str) -> port.Outcome:
        """Return the outcome of a create whose machine was created before."""
        native = name_of(key)
        instance = await found_or_none(self._calls.call("instances.get", instance=native))
        if instance is None:
            return port.CallRefused(
                key, port.RefusalReason.CONFLICT, "the machine of this key was created, and deleted"
            )
        if key_of(instance) != key:
            return port.CallRefused(key, port.RefusalReason.CONFLICT, f"{native} exists, and has another key")
        return port.AlreadyDone(key, native)

    # --- what became of the calls ------------------------------------------------------------------------------------

    async def failed_machines(
        self, listed: Collection[port.Observation], keys: Collection[str] | None
    ) -> list[port.Observation]:
        """Return the machines that were never created, of those that a complete listing does not contain."""
        for machine in listed:
            self._failures.pop(machine.key, None)
            if machine.state is not port.MachineState.PENDING:
                self._operations.pop(machine.key, None)
        shown = {machine.key for machine in listed}
        unseen = [key for key in self._operations if key not in shown and (keys is None or key in keys)]
        await asyncio.gather(*(self._follow(key) for key in unseen[:MAX_FOLLOWED]))
        return [failure for key, failure in self._failures.items() if keys is None or key in keys]

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
            self._failures[key] = port.Observation(
                key, name_of(key), port.MachineState.FAILED, failed.code, details=details
            )

    # --- actions ------------------------------------------------------------------------------------------------------

    async def _act(self, action: port.MachineAction, handle: port.MachineHandle) -> port.Outcome:
        """Carry out an action on a machine; raises `CloudCallFailed`."""
        if action is port.MachineAction.TERMINATE and self._failures.pop(handle.key, None) is not None:
            return port.AlreadyDone(handle.key)  # it was never created
        try:
            await self._send(ACTIONS[action].call, handle)
        except CloudCallFailed as failed:
            if is_not_ready(failed) or failed.why in (port.RefusalReason.INVALID, port.RefusalReason.CONFLICT):
                native, how = name_of(handle.key), ACTIONS[action]
                state = str((await self._calls.call("instances.get", instance=native)).status)
                if action is port.MachineAction.RESUME and state in STOPPED:
                    await self._send("instances.start", handle)
                    return port.CallAccepted(handle.key, native)
                if state in how.done_states:
                    return port.AlreadyDone(handle.key, native)
                if state in how.possible_states and not is_not_ready(failed):
                    return failed.outcome_for(handle.key)
                text = f"the machine is {state}; {failed.outcome.message}"
                return port.CallRefused(handle.key, port.RefusalReason.CONFLICT, text)
            raise
        if action is port.MachineAction.TERMINATE:
            self.deleting[name_of(handle.key)] = None
        return port.CallAccepted(handle.key, name_of(handle.key))

    async def _send(self, call: str, handle: port.MachineHandle) -> None:
        fields = {"request_id": request_id(call, handle.key, handle.token)} if handle.token else {}
        await self._calls.call(call, instance=name_of(handle.key), **fields)
