"""Virtual machines of the test cloud: their states over time, and what Azure removes together with them."""

from collections import Counter
from typing import Any
from uuid import uuid4

from tests.integration.drivers.azure.arm_networks import ADDRESSES, INTERFACES, configuration_of, name_in
from tests.integration.drivers.azure.arm_records import ArmOperation, ArmProblem, ArmRecord, ArmRecords

MACHINES, DISKS = "virtualMachines", "disks"
SPEC, ARM_SPEC, CLOSED_SPEC = "Standard_B1s", "Standard_D2ps_v5", "Standard_M416s_v2"
IMAGE, ARM_IMAGE = "acme:meadow:26_04:26.4.1", "acme:meadow:26_04-arm64:26.4.1"
OWN_IMAGE = "hill"

VERBS = {
    "start": ("starting", "running"),
    "deallocate": ("deallocating", "deallocated"),
    "restart": ("running", "running"),
    "powerOff": ("stopping", "stopped"),
}


class ArmMachines:
    """The virtual machines of one resource group."""

    def __init__(self, records: ArmRecords) -> None:
        self._records = records
        self._doing: dict[str, str] = {}
        self.restarts: Counter[str] = Counter()

    def put(self, name: str, native_id: str, body: dict[str, Any]) -> tuple[ArmRecord, bool, ArmOperation]:
        """Create a virtual machine, or change one."""
        found = self._records.of(MACHINES).get(name.lower())
        if found is not None and found.state == "Deleting":
            raise ArmProblem(409, "Conflict", f"{name} is being deleted.")
        interface = self._check(body)
        record, is_new = self._records.put(MACHINES, name, native_id, body)
        if not is_new:
            return record, False, self._records.later(0.0, lambda: _settle(record))
        record.state, record.power = "Creating", "starting"
        record.body["properties"]["vmId"] = str(uuid4())
        interface.body["properties"]["virtualMachine"] = {"id": native_id}
        disk = str(body["properties"]["storageProfile"]["osDisk"]["name"])
        self._records.put(DISKS, disk, native_id.replace(f"{MACHINES}/{name}", f"{DISKS}/{disk}"), {})
        operation = self._records.later(self._records.behaviour.creating, lambda: finish(), "create")

        def finish() -> None:
            if record.state == "Creating":
                record.failure, record.power = operation.error, "" if operation.error else "running"
                record.state = operation.status

        return record, True, operation

    def act(self, name: str, verb: str) -> ArmOperation:
        """Start, deallocate or restart a virtual machine; another operation on it is a conflict."""
        record = self._records.find(MACHINES, name)
        passing, end = VERBS[verb]
        if record.state not in ("Succeeded", "Failed") and self._doing.get(name) != verb:
            raise ArmProblem(409, "Conflict", f"Another operation on {name} is under way.")
        if verb == "restart" and record.power != "running":
            raise ArmProblem(409, "OperationNotAllowed", f"The VM '{name}' is {record.power}, and cannot be restarted.")
        before, self._doing[name] = record.power, verb
        self.restarts[name] += verb == "restart"
        record.state, record.power = "Updating", passing
        operation = self._records.later(self._records.behaviour.changing, lambda: finish(), verb)

        def finish() -> None:
            if record.state == "Updating":
                record.failure, record.power = operation.error, before if operation.error else end
                record.state = operation.status

        return operation

    def delete(self, name: str) -> ArmOperation:
        """Delete a virtual machine, then its parts that are to go with it."""
        record = self._records.find(MACHINES, name)
        record.state = "Deleting"
        return self._records.later(self._records.behaviour.ending, lambda: self._end(record))

    def kill(self, name: str) -> None:
        """End a virtual machine out of band, with its parts."""
        self._end(self._records.find(MACHINES, name))

    def statuses(self, record: ArmRecord) -> list[dict[str, str]]:
        """Return the statuses of the instance view."""
        code = f"ProvisioningState/{record.state.lower()}"
        status = {"code": code, "level": "Info", "displayStatus": record.state}
        if record.failure:
            code, message = record.failure
            status |= {"code": f"{status['code']}/{code}", "level": "Error", "message": message}
        power = {"code": f"PowerState/{record.power}", "level": "Info", "displayStatus": f"VM {record.power}"}
        return [status, power] if record.power else [status]

    def _check(self, body: dict[str, Any]) -> ArmRecord:
        """Check what a machine is made of; returns its interface."""
        properties = body["properties"]
        size, image = properties["hardwareProfile"]["vmSize"], properties["storageProfile"]["imageReference"]
        interface = self._interface(body)
        try:
            if size not in (SPEC, ARM_SPEC, CLOSED_SPEC):
                raise ArmProblem(400, "InvalidParameter", f"The value {size} provided for vmSize is not valid.")
            if size == CLOSED_SPEC:
                raise ArmProblem(409, "SkuNotAvailable", f"The requested VM size {size} is not available here.")
            urn = ":".join(str(image.get(part)) for part in ("publisher", "offer", "sku", "version"))
            if "id" not in image and urn not in (IMAGE, ARM_IMAGE, IMAGE.replace("26.4.1", "latest")):
                raise ArmProblem(404, "PlatformImageNotFound", f"The platform image '{urn}' is not available.")
            if not properties["osProfile"]["linuxConfiguration"]["ssh"]["publicKeys"][0]["keyData"]:
                raise ArmProblem(400, "InvalidParameter", "The value of parameter linuxConfiguration is invalid.")
        except ArmProblem:
            interface.reserved_until = self._records.clock() + self._records.behaviour.reserved
            raise
        return interface

    def _interface(self, body: dict[str, Any]) -> ArmRecord:
        (reference,) = body["properties"]["networkProfile"]["networkInterfaces"]
        found = self._records.of(INTERFACES).get(name_in(reference, INTERFACES).lower())
        if found is None:
            raise ArmProblem(404, "NotFound", f"Resource {reference['id']} not found.")
        if found.state != "Succeeded":
            raise ArmProblem(409, "ReferencedResourceNotProvisioned", "The interface is not in Succeeded state.")
        return found

    def _end(self, record: ArmRecord) -> None:
        """Remove a machine; its interface and then its address follow, each after a while.

        Of two deletions that are under way, the first that is due ends it.
        """
        if self._records.of(MACHINES).get(record.body["name"].lower()) is not record:
            return
        properties = record.body["properties"]
        self._records.drop(MACHINES, record.body["name"])
        if properties["storageProfile"]["osDisk"].get("deleteOption") == "Delete":
            self._records.drop(DISKS, properties["storageProfile"]["osDisk"]["name"])
        (reference,) = properties["networkProfile"]["networkInterfaces"]
        interface = self._records.find(INTERFACES, name_in(reference, INTERFACES))
        del interface.body["properties"]["virtualMachine"]
        if reference.get("properties", {}).get("deleteOption") == "Delete":
            interface.state = "Deleting"
            self._records.later(self._records.behaviour.network, lambda: self._end_interface(interface))

    def _end_interface(self, interface: ArmRecord) -> None:
        address = configuration_of(interface).get("publicIPAddress") or {}
        self._records.drop(INTERFACES, interface.body["name"])
        if address.get("properties", {}).get("deleteOption") == "Delete":
            name = name_in(address, ADDRESSES)
            self._records.find(ADDRESSES, name).state = "Deleting"
            self._records.later(self._records.behaviour.network, lambda: self._records.drop(ADDRESSES, name))


def _settle(record: ArmRecord) -> None:
    record.state = "Succeeded"


def listed_sizes(location: str) -> list[dict[str, Any]]:
    """Return the sizes that are listed for a location."""
    closed = {"type": "Location", "values": [location], "reasonCode": "NotAvailableForSubscription"}
    return [
        {
            "resourceType": kind,
            "name": name,
            "locations": [location],
            "capabilities": [{"name": "CpuArchitectureType", "value": architecture}],
            "restrictions": restrictions,
        }
        for kind, name, architecture, restrictions in (
            ("disks", "Premium_LRS", "", []),
            ("virtualMachines", SPEC, "x64", []),
            ("virtualMachines", ARM_SPEC, "Arm64", []),
            ("virtualMachines", CLOSED_SPEC, "x64", [closed]),
        )
    ]


def find_images(publisher: str, offer: str, sku: str, location: str) -> list[dict[str, Any]]:
    """Return the versions of a marketplace image."""
    known = {urn.rpartition(":")[0]: urn.rpartition(":")[2] for urn in (IMAGE, ARM_IMAGE)}
    version = known.get(f"{publisher}:{offer}:{sku}")
    architecture = "Arm64" if "arm64" in sku else "x64"
    path = f"/publishers/{publisher}/artifacttypes/vmimage/offers/{offer}/skus/{sku}/versions/{version}"
    image = {"name": version, "location": location, "id": path, "properties": {"architecture": architecture}}
    return [image] if version else []
