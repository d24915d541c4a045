"""Networks, subnets, security groups, interfaces, public addresses and public keys of the test cloud."""

from ipaddress import ip_network
from typing import Any

from tests.integration.drivers.azure.arm_records import ArmOperation, ArmProblem, ArmRecord, ArmRecords

NETWORKS, GROUPS, KEYS = "virtualNetworks", "networkSecurityGroups", "sshPublicKeys"
INTERFACES, ADDRESSES = "networkInterfaces", "publicIPAddresses"


def name_in(reference: dict[str, Any] | None, kind: str) -> str:
    """Return the name after a type in the id of a reference; empty if there is none."""
    parts = str((reference or {}).get("id", "")).split("/")
    lower = [part.lower() for part in parts]
    return parts[lower.index(kind.lower()) + 1] if kind.lower() in lower[:-1] else ""


def configuration_of(interface: ArmRecord) -> dict[str, Any]:
    """Return the properties of an interface's only address configuration."""
    configuration: dict[str, Any] = interface.body["properties"]["ipConfigurations"][0]["properties"]
    return configuration


class ArmNetworks:
    """Everything but machines. A PUT is provisioned after a while, and a DELETE is done after a while."""

    def __init__(self, records: ArmRecords) -> None:
        self._records = records

    def put(self, kind: str, name: str, native_id: str, body: dict[str, Any]) -> tuple[ArmRecord, bool, ArmOperation]:
        """Write a resource."""
        attached = {}
        if kind == INTERFACES:
            attached = self._check_interface(name, body)
        if kind == NETWORKS:
            body = self._with_subnets(name, body, native_id)
        record, is_new = self._records.put(kind, name, native_id, body)
        record.body["properties"] |= attached
        if kind == KEYS:
            del record.body["properties"]["provisioningState"]
        if kind == INTERFACES:
            self._give_address(record)
        if kind == GROUPS:
            for rule in record.body["properties"].setdefault("securityRules", []):
                rule["properties"]["provisioningState"] = "Succeeded"
        return record, is_new, self._provision(kind, record)

    def delete(self, kind: str, name: str) -> ArmOperation:
        """Delete a resource that nothing uses."""
        record = self._records.find(kind, name)
        self._check_unused(kind, name, record)
        if kind == KEYS:
            self._records.drop(kind, name)
            return self._records.later(0.0, lambda: None)
        record.state = "Deleting"
        return self._records.later(self._records.behaviour.network, lambda: self._records.drop(kind, name))

    def put_subnet(self, network: str, name: str, body: dict[str, Any]) -> tuple[dict[str, Any], bool, ArmOperation]:
        """Write a subnet; the network is busy meanwhile."""
        parent = self._records.find(NETWORKS, network)
        if parent.state != "Succeeded":
            raise ArmProblem(409, "AnotherOperationInProgress", f"Another operation on {network} is in progress.")
        subnets = parent.body["properties"]["subnets"]
        self._check_range(parent, name, str(body["properties"]["addressPrefix"]))
        present = next((one for one in subnets if one["name"].lower() == name.lower()), None)
        properties = {**body["properties"], "provisioningState": "Updating"}
        subnet = {"id": f"{parent.body['id']}/subnets/{name}", "name": name, "properties": properties}
        subnets[:] = [*(one for one in subnets if one is not present), subnet]
        parent.state = "Updating"

        def finish() -> None:
            properties["provisioningState"] = parent.state = "Succeeded"

        return subnet, present is None, self._records.later(self._records.behaviour.network, finish)

    def delete_subnet(self, network: str, name: str) -> ArmOperation | None:
        """Delete a subnet that no interface is in; returns None if there is none."""
        parent = self._records.find(NETWORKS, network)
        subnets = parent.body["properties"]["subnets"]
        subnet = next((one for one in subnets if one["name"].lower() == name.lower()), None)
        if subnet is None:
            return None
        self._check_empty(network, name)
        subnet["properties"]["provisioningState"] = "Deleting"
        return self._records.later(self._records.behaviour.network, lambda: subnets.remove(subnet))

    def find_subnet(self, network: str, name: str) -> dict[str, Any]:
        """Return a subnet."""
        subnets = self._records.find(NETWORKS, network).body["properties"]["subnets"]
        for one in subnets:
            if one["name"].lower() == name.lower():
                found: dict[str, Any] = one
                return found
        raise ArmProblem(404, "NotFound", f"Resource {name} not found.")

    def put_rule(self, group: str, name: str, body: dict[str, Any]) -> tuple[dict[str, Any], ArmOperation]:
        """Write a rule of a security group."""
        record = self._records.find(GROUPS, group)
        rules = record.body["properties"]["securityRules"]
        place = (body["properties"]["direction"], body["properties"]["priority"])
        for one in rules:
            if one["name"] != name and (one["properties"]["direction"], one["properties"]["priority"]) == place:
                raise ArmProblem(400, "SecurityRuleConflict", f"{one['name']} has the same priority.")
        rule = {"name": name, "properties": {**body["properties"], "provisioningState": "Succeeded"}}
        rules[:] = [*(one for one in rules if one["name"] != name), rule]
        return rule, self._provision(GROUPS, record)

    def find_rule(self, group: str, name: str) -> dict[str, Any]:
        """Return a rule of a security group."""
        for one in self._records.find(GROUPS, group).body["properties"]["securityRules"]:
            if one["name"] == name:
                found: dict[str, Any] = one
                return found
        raise ArmProblem(404, "NotFound", f"Resource {name} not found.")

    def delete_rule(self, group: str, name: str) -> ArmOperation | None:
        """Delete a rule of a security group; returns None if there is none."""
        rules = self._records.find(GROUPS, group).body["properties"]["securityRules"]
        rule = next((one for one in rules if one["name"] == name), None)
        if rule is None:
            return None
        rule["properties"]["provisioningState"] = "Deleting"
        return self._records.later(self._records.behaviour.network, lambda: rules.remove(rule))

    def _provision(self, kind: str, record: ArmRecord) -> ArmOperation:
        def finish() -> None:
            if "provisioningState" in record.body["properties"] and record.state == "Updating":
                record.state = "Succeeded"

        return self._records.later(self._records.behaviour.network, finish, f"PUT {kind}")

    def _with_subnets(self, name: str, body: dict[str, Any], native_id: str) -> dict[str, Any]:
        """A PUT replaces the subnets of a network by those of its body."""
        wanted = body.get("properties", {}).get("subnets") or []
        before = self._records.of(NETWORKS).get(name.lower())
        for one in before.body["properties"]["subnets"] if before else []:
            if one["name"] not in [subnet["name"] for subnet in wanted]:
                self._check_empty(name, one["name"])
        subnets = [
            {**one, "id": f"{native_id}/subnets/{one['name']}"}
            | {"properties": {**one["properties"], "provisioningState": "Succeeded"}}
            for one in wanted
        ]
        return {**body, "properties": {**body.get("properties", {}), "subnets": subnets}}

    def _check_range(self, network: ArmRecord, name: str, cidr: str) -> None:
        properties = network.body["properties"]
        spaces = [ip_network(one) for one in properties["addressSpace"]["addressPrefixes"]]
        wanted = ip_network(cidr)
        if not any(wanted.subnet_of(space) for space in spaces):  # type: ignore[arg-type]
            raise ArmProblem(400, "NetcfgInvalidSubnet", f"Subnet '{name}' is not valid in virtual network.")
        for one in properties["subnets"]:
            if one["name"] != name and wanted.overlaps(ip_network(one["properties"]["addressPrefix"])):
                raise ArmProblem(400, "NetcfgSubnetRangesOverlap", f"Subnet '{name}' overlaps {one['name']}.")

    def _check_interface(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Check what an interface refers to; returns what Azure itself keeps in it."""
        configuration = body["properties"]["ipConfigurations"][0]["properties"]
        subnet, group = configuration["subnet"], body["properties"].get("networkSecurityGroup")
        try:
            self.find_subnet(name_in(subnet, NETWORKS), name_in(subnet, "subnets"))
            if group:
                self._records.find(GROUPS, name_in(group, GROUPS))
            if address := configuration.get("publicIPAddress"):
                self._check_address(name, self._records.find(ADDRESSES, name_in(address, ADDRESSES)))
        except ArmProblem as problem:
            if problem.status != 404:
                raise
            text = f"Resource {problem.message} referenced by {name} was not found."
            raise ArmProblem(400, "InvalidResourceReference", text) from None
        before = self._records.of(INTERFACES).get(name.lower())
        properties = before.body["properties"] if before else {}
        return {"virtualMachine": properties["virtualMachine"]} if properties.get("virtualMachine") else {}

    def _check_address(self, name: str, address: ArmRecord) -> None:
        if address.state != "Succeeded":
            raise ArmProblem(409, "ReferencedResourceNotProvisioned", "The address is not in Succeeded state.")
        user = address.body["properties"].get("ipConfiguration", {}).get("id", name)
        if f"/{name}/".lower() not in f"/{user}/".lower():
            raise ArmProblem(400, "PublicIPAddressInUse", "The address is in use.")

    def _give_address(self, interface: ArmRecord) -> None:
        configuration = configuration_of(interface)
        subnet = configuration["subnet"]
        found = self.find_subnet(name_in(subnet, NETWORKS), name_in(subnet, "subnets"))
        hosts = list(ip_network(found["properties"]["addressPrefix"]).hosts())[3:]
        taken = {
            configuration_of(one).get("privateIPAddress")
            for one in self._records.of(INTERFACES).values()
            if one is not interface
        }
        configuration["privateIPAddress"] = next(str(host) for host in hosts if str(host) not in taken)
        if address := configuration.get("publicIPAddress"):
            properties = self._records.find(ADDRESSES, name_in(address, ADDRESSES)).body["properties"]
            properties["ipConfiguration"] = {"id": f"{interface.body['id']}/ipConfigurations/primary"}
            properties.setdefault("ipAddress", f"203.0.113.{len(self._records.of(ADDRESSES))}")

    def _check_unused(self, kind: str, name: str, record: ArmRecord) -> None:
        properties = record.body["properties"]
        if kind == INTERFACES and properties.get("virtualMachine"):
            raise ArmProblem(400, "NicInUse", f"Network Interface {name} is used by an existing resource.")
        if kind == INTERFACES and record.reserved_until > self._records.clock():
            raise ArmProblem(400, "NicReservedForAnotherVm", f"Nic {name} is reserved for another 180 seconds.")
        if kind == ADDRESSES and self._uses(ADDRESSES, name):
            raise ArmProblem(400, "PublicIPAddressCannotBeDeleted", f"{name} is still allocated to a resource.")
        if kind == GROUPS and self._uses(GROUPS, name):
            raise ArmProblem(400, "InUseNetworkSecurityGroupCannotBeDeleted", f"{name} is in use.")
        if kind == NETWORKS:
            for one in properties["subnets"]:
                self._check_empty(name, one["name"])

    def _check_empty(self, network: str, subnet: str) -> None:
        for one in self._records.of(INTERFACES).values():
            used = configuration_of(one)["subnet"]
            if (name_in(used, NETWORKS).lower(), name_in(used, "subnets").lower()) == (network.lower(), subnet.lower()):
                raise ArmProblem(400, "InUseSubnetCannotBeDeleted", f"Subnet {subnet} is in use by {one.body['id']}.")

    def _uses(self, kind: str, name: str) -> bool:
        """Tell whether an interface refers to a security group or a public address."""
        for one in self._records.of(INTERFACES).values():
            properties = one.body["properties"]
            reference = properties.get("networkSecurityGroup") if kind == GROUPS else None
            reference = reference or (configuration_of(one).get("publicIPAddress") if kind == ADDRESSES else None)
            if name_in(reference, kind).lower() == name.lower():
                return True
        return False
