"""A stand-in for Neutron's API, for tests: networks, subnets, security groups and their rules, strict where Neutron is.

It keeps its records where Nova's own network fixture looks for them. So a server can boot on a network that a client
made here, its ports are seen here, and what a port uses cannot be deleted. It runs in the process of Nova.
"""

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_network
from threading import RLock
from typing import Any, TypeAlias
from urllib.parse import parse_qsl
from uuid import uuid4

from neutronclient.common.exceptions import NotFound
from nova.tests.fixtures import NeutronFixture

Record: TypeAlias = dict[str, Any]
Environ: TypeAlias = dict[str, Any]

QUOTA = 10
"""How many records of a kind a project may have."""

WRITABLE = {
    "networks": {"name", "description", "admin_state_up", "shared"},
    "subnets": {"name", "description", "network_id", "cidr", "ip_version", "enable_dhcp", "gateway_ip"},
    "security_groups": {"name", "description"},
    "security_group_rules": {
        "security_group_id",
        "direction",
        "ethertype",
        "protocol",
        "port_range_min",
        "port_range_max",
        "remote_ip_prefix",
        "description",
    },
}
"""The attributes that a create may have; others are refused, as Neutron does."""

PROTOCOLS = {None, "tcp", "udp", "icmp", "ipv6-icmp"}
STATUS = {200: "200 OK", 201: "201 Created", 204: "204 No Content", 400: "400 Bad Request", 404: "404 Not Found"}
STATUS |= {403: "403 Forbidden", 405: "405 Method Not Allowed", 409: "409 Conflict"}


class NeutronError(Exception):
    """An error as Neutron answers it: status, type and message."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.body = status, {"NeutronError": {"type": kind, "message": message, "detail": ""}}


class NetworkRecords(NeutronFixture):  # type: ignore[misc]
    """Nova's network fixture, with records that can be made and deleted."""

    def __init__(self, test: Any) -> None:
        super().__init__(test)
        self.lock = RLock()
        for network in self._networks.values():
            network["shared"] = True  # so that servers of every project can boot without a network of their own
        self.tables: dict[str, dict[str, Record]] = {
            "networks": self._networks,
            "subnets": self._subnets,
            "security_groups": self._security_groups,
            "security_group_rules": {},
            "ports": self._ports,
        }
        self._address = 1

    def list_subnets(self, retrieve_all: bool = True, **asked: Any) -> Record:
        """List subnets by a filter, which the fixture ignores."""
        return {"subnets": self._list_resource(self._subnets, retrieve_all, **asked)}

    def create_port(self, body: Any = None) -> Record:
        """Make a port on the network that Nova asks for; the fixture knows one network only."""
        asked = body["port"]
        with self.lock:
            self._address += 1
            port = {**copy.deepcopy(self.default_port), "security_groups": [], **copy.deepcopy(asked)}
            port |= {"id": str(uuid4()), "project_id": asked["tenant_id"], "fixed_ips": self._addresses(asked)}
            number = self._address
            port["mac_address"] = f"fa:16:3e:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
            self._ports[port["id"]] = port
            return {"port": copy.deepcopy(port)}

    def find_resource(self, kind: str, name: str, project_id: str | None = None, *_: Any, **__: Any) -> Record:
        """Find a record of a project by its id, for Nova's client."""
        found = self.tables[f"{kind}s"].get(name)
        if found is None or found["project_id"] != project_id:
            raise NotFound(message=f"Unable to find {kind} with name or id '{name}'")
        return copy.deepcopy(found)

    def _addresses(self, asked: Record) -> list[Record]:
        within = [one for one in self._subnets.values() if one["network_id"] == asked["network_id"]]
        subnet = next((one for one in within if one["ip_version"] == 4), None)
        if subnet is None:
            return []
        room = ip_network(subnet["cidr"], strict=False)
        return [{"subnet_id": subnet["id"], "ip_address": str(room[2 + self._address % (room.num_addresses - 4)])}]


class NeutronApi:
    """The API over the records of one process, as a WSGI application behind a check of tokens."""

    def __init__(self, records: NetworkRecords) -> None:
        self._records = records

    def __call__(self, environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = json.loads(environ["wsgi.input"].read(length)) if length else {}
        try:
            with self._records.lock:
                status, answer = self._answer(environ, body)
        except NeutronError as error:
            status, answer = error.status, error.body
        start(STATUS[status], [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()] if answer is not None else []

    def _answer(self, environ: Environ, body: Any) -> tuple[int, Any]:
        words = environ["PATH_INFO"].strip("/").split("/")
        if len(words) < 2:
            link = {"rel": "self", "href": f"http://{environ['HTTP_HOST']}{environ['SCRIPT_NAME']}/v2.0/"}
            return 200, {"versions": [{"id": "v2.0", "status": "CURRENT", "links": [link]}]}
        self._check_rights(environ, body)
        kind, project = words[1].replace("-", "_"), str(environ["HTTP_X_PROJECT_ID"])
        if kind not in self._records.tables:
            raise NeutronError(404, "HTTPNotFound", "The resource could not be found.")
        match environ["REQUEST_METHOD"], words[2:]:
            case "GET", []:
                return 200, {kind: self._list(kind, project, parse_qsl(environ["QUERY_STRING"]))}
            case "GET", [native]:
                return 200, {kind[:-1]: self._shown(kind, self._find(kind, project, native))}
            case "POST", [] if kind in WRITABLE:
                return 201, {kind[:-1]: self._shown(kind, self._create(kind, project, body[kind[:-1]]))}
            case "DELETE", [native] if kind in WRITABLE:
                self._delete(kind, project, native)
                return 204, None
        raise NeutronError(405, "HTTPMethodNotAllowed", "The method is not allowed for this resource.")

    def _check_rights(self, environ: Environ, body: Any) -> None:
        if "shared" in body.get("network", {}) and "admin" not in environ["HTTP_X_ROLES"].split(","):
            raise NeutronError(403, "HTTPForbidden", "rule:create_network:shared is disallowed by policy")

    def _visible(self, kind: str, project: str) -> list[Record]:
        found = self._records.tables[kind].values()
        return [one for one in found if one.get("shared") or one["project_id"] == project]

    def _list(self, kind: str, project: str, asked: list[tuple[str, str]]) -> list[Record]:
        filters = [(name, value) for name, value in asked if name not in ("fields", "limit", "marker")]
        found = [self._shown(kind, one) for one in self._visible(kind, project)]
        for name, _ in filters:
            if found and name not in found[0]:
                raise NeutronError(400, "HTTPBadRequest", f"[{name!r}] is invalid attribute for filtering")
        return [one for one in found if all(str(one[name]) == value for name, value in filters)]

    def _shown(self, kind: str, record: Record) -> Record:
        shown = copy.deepcopy(record)
        if kind == "security_groups":
            rules = self._records.tables["security_group_rules"].values()
            shown["security_group_rules"] = [one for one in rules if one["security_group_id"] == record["id"]]
        return shown

    def _find(self, kind: str, project: str, native: str) -> Record:
        for one in self._visible(kind, project):
            if one["id"] == native:
                return one
        name = "".join(word.title() for word in kind[:-1].split("_"))
        raise NeutronError(404, f"{name}NotFound", f"{name} {native} could not be found.")

    def _create(self, kind: str, project: str, asked: Mapping[str, Any]) -> Record:
        if unknown := set(asked) - WRITABLE[kind]:
            raise NeutronError(400, "HTTPBadRequest", f"Unrecognized attribute(s) '{', '.join(sorted(unknown))}'")
        if len(str(asked.get("description") or "")) > 255:
            raise NeutronError(400, "HTTPBadRequest", "Invalid input for description: it exceeds 255 characters.")
        own = [one for one in self._records.tables[kind].values() if one["project_id"] == project]
        if kind != "security_group_rules" and len(own) >= QUOTA:
            raise NeutronError(409, "OverQuota", f"Quota exceeded for resources: ['{kind[:-1]}'].")
        made = getattr(self, f"_new_{kind[:-1]}")(project, asked)
        record = {**made, "id": str(uuid4()), "project_id": project, "tenant_id": project}
        record.setdefault("description", "")
        self._records.tables[kind][record["id"]] = record
        if kind == "security_groups":
            self._add_default_rules(project, record["id"])
        if kind == "subnets":
            self._records.tables["networks"][record["network_id"]]["subnets"].append(record["id"])
        return record

    def _new_network(self, _project: str, asked: Mapping[str, Any]) -> Record:
        return {**copy.deepcopy(self._records.network_1), "shared": False, "subnets": [], **asked}

    def _new_subnet(self, project: str, asked: Mapping[str, Any]) -> Record:
        network = self._find("networks", project, asked["network_id"])
        try:
            cidr = ip_network(asked["cidr"])
        except ValueError:
            text = f"Invalid input for cidr. Reason: '{asked['cidr']}' is not a valid IP subnet."
            raise NeutronError(400, "HTTPBadRequest", text) from None
        if cidr.version != asked["ip_version"]:
            raise NeutronError(400, "InvalidInput", "Invalid input for operation: ip_version does not match the cidr.")
        for other in self._records.tables["subnets"].values():
            room = ip_network(other["cidr"], strict=False)
            if other["network_id"] == network["id"] and room.version == cidr.version and room.overlaps(cidr):
                text = f"Requested subnet with cidr: {cidr} for network: {network['id']} overlaps with another subnet."
                raise NeutronError(400, "InvalidInput", f"Invalid input for operation: {text}")
        return {**copy.deepcopy(self._records.subnet_1), "gateway_ip": str(cidr[1]), "allocation_pools": [], **asked}

    def _new_security_group(self, _project: str, asked: Mapping[str, Any]) -> Record:
        return {"name": "", "stateful": True, **asked}

    def _add_default_rules(self, project: str, group: str) -> None:
        """Let everything out, as each new group of Neutron does."""
        for family in ("IPv4", "IPv6"):
            asked = {"security_group_id": group, "direction": "egress", "ethertype": family}
            self._create("security_group_rules", project, asked)

    def _new_security_group_rule(self, project: str, asked: Mapping[str, Any]) -> Record:
        self._find("security_groups", project, asked["security_group_id"])
        rule = {**dict.fromkeys(WRITABLE["security_group_rules"]), "ethertype": "IPv4", "description": "", **asked}
        ports = rule["port_range_min"], rule["port_range_max"]
        if rule["protocol"] not in PROTOCOLS or rule["direction"] not in ("ingress", "egress"):
            raise NeutronError(400, "HTTPBadRequest", "Invalid input for protocol or direction.")
        if rule["protocol"] is None and ports != (None, None):
            text = "Must also specify protocol if port range is given."
            raise NeutronError(400, "SecurityGroupProtocolRequiredWithPorts", text)
        if rule["protocol"] in ("tcp", "udp") and ports != (None, None):
            if None in ports or not ports[0] <= ports[1] <= 65535:
                text = "For TCP/UDP protocols, port_range_min must be <= port_range_max"
                raise NeutronError(400, "SecurityGroupInvalidPortRange", text)
            if ports[0] < 1:
                raise NeutronError(400, "SecurityGroupInvalidPortValue", "Invalid value for port 0")
        prefix = rule["remote_ip_prefix"]
        if prefix is not None and f"IPv{ip_network(prefix).version}" != rule["ethertype"]:
            text = f"Conflicting value ethertype {rule['ethertype']} for CIDR {prefix}"
            raise NeutronError(400, "SecurityGroupRuleParameterConflict", text)
        for other in self._records.tables["security_group_rules"].values():
            if all(other[name] == rule[name] for name in rule if name != "description"):
                text = f"Security group rule already exists. Rule id is {other['id']}."
                raise NeutronError(409, "SecurityGroupRuleExists", text)
        return rule

    def _delete(self, kind: str, project: str, native: str) -> None:
        record, tables = self._find(kind, project, native), self._records.tables
        ports = list(tables["ports"].values())
        if kind == "networks":
            if any(port["network_id"] == native for port in ports):
                text = f"Unable to complete operation on network {native}. There are one or more ports still in use."
                raise NeutronError(409, "NetworkInUse", text)
            for subnet in record["subnets"]:  # Neutron, too, deletes a network with its subnets
                tables["subnets"].pop(subnet, None)
        if kind == "subnets":
            if any(address["subnet_id"] == native for port in ports for address in port["fixed_ips"]):
                text = f"Unable to complete operation on subnet {native}: One or more ports have an IP allocation."
                raise NeutronError(409, "SubnetInUse", text)
            tables["networks"][record["network_id"]]["subnets"].remove(native)
        if kind == "security_groups" and any(native in port["security_groups"] for port in ports):
            raise NeutronError(409, "SecurityGroupInUse", f"Security Group {native} in use.")
        del tables[kind][native]
