"""Machines: their creation, actions on them, and their removal.

A create makes a public address, a network interface, then the virtual machine. Each step is a PUT under the name of the
machine's key. A repeated create continues the first one: the parts are the same, and a virtual machine is created only
if there is none (`If-None-Match`). If Azure refuses it, the parts are removed. If the process dies in between, the
listing shows them under the machine's key, and a terminate removes them.

A process that stands still in between must not create a machine that another process has terminated meanwhile. The
terminate has removed the parts, so Azure refuses what needs them. Before the first part, a create that has taken too
long ends, and is repeated only if it still has an owner.
"""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from stateward.drivers import port
from stateward.drivers.azure.client import ArmClient
from stateward.drivers.azure.images import image_reference
from stateward.drivers.azure.names import SSH_PUBLIC_KEY, VIRTUAL_MACHINE, ArmScope, arm_name, key_of, provisioning_of
from stateward.drivers.azure.sdk import CREATE_ONLY
from stateward.drivers.azure.states import address_body, interface_body, machine_body
from stateward.drivers.cloud.errors import CloudCallFailed, refusal
from stateward.drivers.cloud.machines import CloudMachines, Remembered
from stateward.drivers.ssh_keys import authorized_keys_of, new_ssh_key_pair

MACHINES, DISKS = "compute.virtual_machines", "compute.disks"
INTERFACES, ADDRESSES = "network.network_interfaces", "network.public_ip_addresses"
ACTION_METHODS = {
    port.MachineAction.SUSPEND: "begin_deallocate",
    port.MachineAction.RESUME: "begin_start",
    port.MachineAction.REBOOT: "begin_restart",
}
FIRST_PART_WITHIN_S = 8.0
"""How long a create can take before its first part: less than any process can stand still and keep its operations."""


class AzureMachines(CloudMachines):
    """Creates machines and acts on them, each by a call of its own: Azure has no calls for many.

    It remembers removed machines, because Azure gives their names to new ones, and the tokens of restarts, because
    Azure would repeat a restart. If the answer to a restart is lost, a repetition restarts the machine again.
    """

    def __init__(self, calls: ArmClient, clock: Callable[[], float] = monotonic) -> None:
        self._calls, self._clock = calls, clock
        self._removed = Remembered[None]()
        self._public_keys = Remembered[str]()
        self._restarted = Remembered[str]()

    async def _create(self, machine_spec: port.MachineSpec) -> port.Outcome:
        """Create a machine, or continue its creation; raises `CloudCallFailed`."""
        key, began = machine_spec.key, self._clock()
        if key in self._removed:
            return port.CallRefused(key, port.RefusalReason.CONFLICT, "the machine of this key was terminated")
        scope = await self._calls.scope()
        machine = await self._calls.find(MACHINES, scope.group, arm_name(key))
        if machine is not None:
            return existing_outcome(key, machine, scope)
        return await self._create_parts(machine_spec, scope, began)

    async def _act(self, action: port.MachineAction, handle: port.MachineHandle) -> port.Outcome:
        """Carry out an action on a machine; raises `CloudCallFailed`."""
        if action is port.MachineAction.TERMINATE:
            return await self._terminate(handle.key)
        scope, name = await self._calls.scope(), arm_name(handle.key)
        native_id, is_restart = scope.id(VIRTUAL_MACHINE, name), action is port.MachineAction.REBOOT
        if is_restart and handle.token and self._restarted.get(handle.key) == handle.token:
            return port.AlreadyDone(handle.key, native_id)
        await self._calls.call(f"{MACHINES}.{ACTION_METHODS[action]}", scope.group, name)
        if is_restart:
            self._restarted[handle.key] = handle.token
        return port.CallAccepted(handle.key, native_id)

    async def _terminate(self, key: str) -> port.Outcome:
        """Remove a machine. Azure removes its parts with it; parts without a virtual machine are removed one by one."""
        scope, name = await self._calls.scope(), arm_name(key)
        is_found = await self._calls.delete(f"{MACHINES}.begin_delete", scope.group, name)
        if not is_found and not await self._remove_parts(scope, name):
            return port.CallRefused(key, port.RefusalReason.NOT_FOUND, f"no machine carries the key {key!r}")
        self._removed[key] = None
        return port.CallAccepted(key, scope.id(VIRTUAL_MACHINE, name))

    async def _create_parts(self, machine_spec: port.MachineSpec, scope: ArmScope, began: float) -> port.Outcome:
        settings, name = await self._calls.settings(), arm_name(machine_spec.key)
        subnet = machine_spec.resources.get(port.ResourceKind.SUBNET) or settings.subnet
        # what Azure cannot do is refused before anything is created
        if not subnet:
            raise _invalid("a machine needs a subnet: name one, or set the option `subnet` of the connection")
        if "," in machine_spec.resources.get(port.ResourceKind.SECURITY_GROUP, ""):
            raise _invalid("a network interface of Azure has one security group, and the machine names several")
        authorized_keys_of(machine_spec)
        image = image_reference(machine_spec.image)
        public_key = await self._public_key(machine_spec.resources.get(port.ResourceKind.SSH_KEY, ""), scope)
        if self._clock() - began > FIRST_PART_WITHIN_S:
            return port.TransientFailure(machine_spec.key, "the create has taken too long before it created anything")
        try:
            if settings.has_public_address:
                await self._put(ADDRESSES, scope.group, name, address_body(machine_spec, settings))
            await self._put(INTERFACES, scope.group, name, interface_body(machine_spec, settings, scope, subnet))
            body = machine_body(machine_spec, settings, scope, image, public_key)
            await self._calls.call(f"{MACHINES}.begin_create_or_update", scope.group, name, body, **CREATE_ONLY)
        except CloudCallFailed as failed:
            return await self._after_failure(machine_spec.key, scope, failed)
        return port.CallAccepted(machine_spec.key, scope.id(VIRTUAL_MACHINE, name))

    async def _put(self, operations: str, group: str, name: str, body: Mapping[str, object]) -> None:
        made = await self._calls.call(f"{operations}.begin_create_or_update", group, name, body)
        await self._calls.wait_until_provisioned(made, operations, group, name)

    async def _after_failure(self, key: str, scope: ArmScope, failed: CloudCallFailed) -> port.Outcome:
        """Return the outcome of a create that failed; after a refusal no parts are left, unless Azure keeps them."""
        if failed.why is None:
            return failed.outcome_for(key)
        name = arm_name(key)
        try:
            machine = await self._calls.find(MACHINES, scope.group, name)
            if machine is not None:  # somebody else has created it meanwhile
                return existing_outcome(key, machine, scope)
            await self._remove_parts(scope, name)
        except CloudCallFailed:
            return failed.outcome_for(key)  # what is left is listed under the key
        return failed.outcome_for(key)

    async def _remove_parts(self, scope: ArmScope, name: str) -> bool:
        removed = [await self._calls.remove(kind, scope.group, name) for kind in (INTERFACES, ADDRESSES, DISKS)]
        return any(removed)

    async def _public_key(self, native_id: str, scope: ArmScope) -> str:
        """Return the text of a public key; without one, a key that nobody has the private part of."""
        if not native_id:
            return new_ssh_key_pair().public
        if native_id not in self._public_keys:
            names = scope.child_names(native_id, SSH_PUBLIC_KEY) or (native_id,)
            record = await self._calls.call("compute.ssh_public_keys.get", scope.group, names[0])
            self._public_keys[native_id] = str(record["properties"].get("publicKey") or "")
        return self._public_keys[native_id]


def existing_outcome(key: str, machine: Mapping[str, Any], scope: ArmScope) -> port.Outcome:
    """Return the outcome of a create whose virtual machine exists already."""
    name = arm_name(key)
    if key_of(machine) != key:
        return port.CallRefused(key, port.RefusalReason.CONFLICT, f"the virtual machine {name} is not ours")
    if provisioning_of(machine) == "Deleting":
        return port.CallRefused(key, port.RefusalReason.CONFLICT, f"the machine of this key, {name}, is being removed")
    return port.AlreadyDone(key, scope.id(VIRTUAL_MACHINE, name))


def _invalid(message: str) -> CloudCallFailed:
    return refusal("create", port.RefusalReason.INVALID, message)
