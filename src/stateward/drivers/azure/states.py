"""Machines as bodies and answers of Azure: pure functions.

A machine is a virtual machine with a network interface, and if the region's record says so, a public address; all of
them have the name of the machine's key. Azure removes the parts together with the virtual machine (`deleteOption`).
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from stateward.drivers.azure import names
from stateward.drivers.azure.settings import AzureSettings
from stateward.drivers.port import MachineSpec, MachineState, Observation, ResourceKind
from stateward.drivers.ssh_keys import authorized_keys_of

DEFAULT_USER = "azureuser"
MAX_HOST_NAME = 63

SETTLED_POWER = {
    "running": MachineState.RUNNING,
    "deallocated": MachineState.SUSPENDED,
    "stopped": MachineState.SUSPENDED,  # shut down from inside: it still costs money
    "starting": MachineState.RESUMING,
    "deallocating": MachineState.SUSPENDING,
    "stopping": MachineState.SUSPENDING,
}
"""The state of a machine that has no update under way, by its power state."""

UPDATING_POWER = {
    **SETTLED_POWER,
    "running": MachineState.REBOOTING,
    "deallocated": MachineState.RESUMING,
    "stopped": MachineState.RESUMING,
}
"""The state of a machine with an update under way: of our calls, only a restart updates a running machine, and only a
start one that is off."""

PROVISIONING = {"Creating": MachineState.PENDING, "Deleting": MachineState.TERMINATING}
FAILED_PROVISIONING = ("Failed", "Canceled")


class MachineRecords(Struct, frozen=True):
    """What Azure shows of one machine: any of its three resources may be missing."""

    machine: Mapping[str, Any] | None = None
    statuses: tuple[Mapping[str, Any], ...] = ()
    interface: Mapping[str, Any] | None = None
    address: Mapping[str, Any] | None = None


# --- bodies of new resources -----------------------------------------------------------------------------------------


def address_body(machine_spec: MachineSpec, settings: AzureSettings) -> dict[str, object]:
    """Return the body that creates a machine's public address."""
    return {
        "location": settings.location,
        "tags": names.tags_of(machine_spec.key, machine_spec.name, machine_spec.tags),
        "sku": {"name": "Standard"},  # closed unless a security group opens it
        "properties": {"publicIPAllocationMethod": "Static"},
        **_zones(settings),
    }


def interface_body(
    machine_spec: MachineSpec, settings: AzureSettings, scope: names.ArmScope, subnet: str
) -> dict[str, object]:
    """Return the body that creates a machine's network interface."""
    address: dict[str, object] = {"primary": True, "subnet": {"id": subnet}, "privateIPAllocationMethod": "Dynamic"}
    if settings.has_public_address:
        native_id = scope.id(names.PUBLIC_ADDRESS, names.arm_name(machine_spec.key))
        address["publicIPAddress"] = {"id": native_id, "properties": {"deleteOption": "Delete"}}
    properties: dict[str, object] = {"ipConfigurations": [{"name": "primary", "properties": address}]}
    if group := machine_spec.resources.get(ResourceKind.SECURITY_GROUP):
        properties["networkSecurityGroup"] = {"id": group}
    return {
        "location": settings.location,
        "tags": names.tags_of(machine_spec.key, machine_spec.name, machine_spec.tags),
        "properties": properties,
    }


def machine_body(
    machine_spec: MachineSpec, settings: AzureSettings, scope: names.ArmScope, image: Mapping[str, str], public_key: str
) -> dict[str, object]:
    """Return the body that creates a virtual machine."""
    name, user = names.arm_name(machine_spec.key), machine_spec.user or DEFAULT_USER
    disk: dict[str, object] = {"name": name, "createOption": "FromImage", "deleteOption": "Delete"}
    if machine_spec.disk_gib is not None:
        disk["diskSizeGB"] = machine_spec.disk_gib
    path, keys = f"/home/{user}/.ssh/authorized_keys", dict.fromkeys((public_key, *authorized_keys_of(machine_spec)))
    ssh = {"publicKeys": [{"path": path, "keyData": key} for key in keys]}
    interface = {
        "id": scope.id(names.NETWORK_INTERFACE, name),
        "properties": {"primary": True, "deleteOption": "Delete"},
    }
    return {
        "location": settings.location,
        "tags": names.tags_of(machine_spec.key, machine_spec.name, machine_spec.tags),
        "properties": {
            "hardwareProfile": {"vmSize": machine_spec.spec},
            "storageProfile": {"imageReference": dict(image), "osDisk": disk},
            "networkProfile": {"networkInterfaces": [interface]},
            "osProfile": {
                "computerName": host_name(machine_spec.name, name),
                "adminUsername": user,
                "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": ssh},
            },
        },
        **_zones(settings),
    }


def host_name(name: str, default: str) -> str:
    """Return a machine's name as a host name."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
    return plain[:MAX_HOST_NAME].strip("-") or default


def _zones(settings: AzureSettings) -> dict[str, object]:
    return {"zones": [settings.zone]} if settings.zone else {}


# --- what Azure shows ------------------------------------------------------------------------------------------------


def observation(key: str, records: MachineRecords, scope: names.ArmScope) -> Observation:
    """Return what Azure shows of a machine as the observation of the port."""
    state, native_state = machine_state(records)
    shown = records.machine or records.interface or records.address or {}
    private, subnet = _private_address(records.interface)
    details = {**_machine_details(records), "subnet": subnet}
    return Observation(
        key=key,
        native_id=scope.id(names.VIRTUAL_MACHINE, names.arm_name(key)),
        state=state,
        native_state=native_state,
        name=names.tag_of(shown, names.NAME_TAG),
        public_ip=str(names.properties_of(records.address).get("ipAddress") or ""),
        private_ip=private,
        details={name: value for name, value in details.items() if value},
    )


def machine_state(records: MachineRecords) -> tuple[MachineState, str]:
    """Return the state of a machine, and the provider's own words for it.

    Parts without a virtual machine belong to a create or a terminate that is not finished. A last operation that failed
    does not end a machine that has a power state.
    """
    if records.machine is None:
        return _state_of_parts(records)
    listed = names.provisioning_of(records.machine)
    shown = _status(records, "ProvisioningState/").partition("/")[0].capitalize()
    provisioning, power = (listed if listed == "Deleting" or not shown else shown), _status(records, "PowerState/")
    native_state = f"{provisioning}/{power}" if power else provisioning
    if provisioning in PROVISIONING:
        return PROVISIONING[provisioning], native_state
    if provisioning in FAILED_PROVISIONING and not power:
        return MachineState.FAILED, native_state
    states = UPDATING_POWER if provisioning == "Updating" else SETTLED_POWER
    return states.get(power, MachineState.OTHER), native_state


def records_by_key(records: Mapping[str, MachineRecords]) -> dict[str, MachineRecords]:
    """Return the records of our machines by key; they come by name, and foreign ones have no key."""
    return {
        names.key_of(part): parts
        for name, parts in records.items()
        for part in (parts.machine, parts.interface, parts.address)
        if part is not None and names.key_of(part) and names.arm_name(names.key_of(part)) == name
    }


def _state_of_parts(records: MachineRecords) -> tuple[MachineState, str]:
    parts = {"NetworkInterface": records.interface, "PublicIPAddress": records.address}
    states = {noun: names.provisioning_of(part) for noun, part in parts.items() if part is not None}
    native_state = ", ".join(f"{noun}/{state}" for noun, state in states.items())
    is_ending = "Deleting" in states.values()
    return MachineState.TERMINATING if is_ending else MachineState.PENDING, native_state


def _status(records: MachineRecords, kind: str) -> str:
    codes = [str(status.get("code", "")) for status in records.statuses]
    return next((code.removeprefix(kind) for code in codes if code.startswith(kind)), "")


def _machine_details(records: MachineRecords) -> dict[str, str]:
    properties = names.properties_of(records.machine)
    image = properties.get("storageProfile", {}).get("imageReference") or {}
    urn = ":".join(str(image.get(part, "")) for part in ("publisher", "offer", "sku", "version"))
    return {
        "spec": str(properties.get("hardwareProfile", {}).get("vmSize") or ""),
        "image": str(image.get("id") or (urn if image else "")),
        "zone": ",".join((records.machine or {}).get("zones") or ()),
        "reason": _failure(records),
    }


def _failure(records: MachineRecords) -> str:
    """Return why the last operation failed: `ProvisioningState/failed/AllocationFailed` and its message."""
    for status in records.statuses:
        kind, _, code = str(status.get("code", "")).partition("/failed")
        if kind == "ProvisioningState" and (code or status.get("level") == "Error"):
            return f"{code.strip('/')}: {status.get('message') or 'no message'}".strip(": ")
    return ""


def _private_address(interface: Mapping[str, Any] | None) -> tuple[str, str]:
    for configuration in names.properties_of(interface).get("ipConfigurations") or ():
        properties = names.properties_of(configuration)
        return str(properties.get("privateIPAddress") or ""), str((properties.get("subnet") or {}).get("id") or "")
    return "", ""
