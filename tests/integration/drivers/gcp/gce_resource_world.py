"""What instances stand on in the simulated Compute Engine: networks, firewall rules, images, the project's metadata."""

import re
from collections.abc import Callable
from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import Any

from tests.integration.drivers.gcp.gce_requests import GceError, GceRequest, invalid, not_found, page_of
from tests.integration.drivers.gcp.gce_world import (
    ARM_IMAGE,
    ARM_SPEC,
    IMAGE_PROJECTS,
    PROJECT,
    REGION,
    SPEC,
    TIMESTAMP,
    ZONE,
    GceBehaviour,
    GceWorld,
)

NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"[a-z0-9_-]{0,63}")
SPECS = {SPEC: "X86_64", "e2-small": "X86_64", ARM_SPEC: "ARM64"}
KINDS = {"networks": "network", "subnetworks": "subnetwork", "firewalls": "firewall"}


class GceResourceWorld(GceWorld):
    """The whole world; `answer` is its only door."""

    def __init__(self, behaviour: GceBehaviour, url: str) -> None:
        super().__init__(behaviour, url)
        self.resources: dict[str, dict[str, dict[str, Any]]] = {service: {} for service in KINDS}
        self.ready_at: dict[tuple[str, str], float] = {}
        self.metadata: dict[str, str] = {"enable-oslogin": "TRUE"}
        self._addresses = iter(ip_network("203.0.113.0/24").hosts())
        self._private = int(ip_address("10.128.0.2"))
        self.resources["networks"]["default"] = self._link("networks", {"name": "default", "subnetworks": []})
        subnet = {"name": "default", "network": self.url_of("networks", "default"), "ipCidrRange": "10.128.0.0/20"}
        self.resources["subnetworks"]["default"] = self._link("subnetworks", subnet)

    def answer(self, request: GceRequest) -> dict[str, Any]:
        """Do what a request says; raises `GceError`."""
        if request.zone not in ("", ZONE) or request.region not in ("", REGION):
            raise not_found(f"{request.zone}{request.region}")
        service, _, method = request.action.partition(".")
        if service == "images":
            return self._image(request, is_family=method == "get_from_family")
        if request.project != PROJECT:
            raise GceError(403, "forbidden", f"Required permission for 'projects/{request.project}'")
        if method not in ("get", "list", "aggregated_list") and (again := self.repeated(request)):
            return again
        if service in KINDS:
            return self._on_resource(service, method, request)
        answers: dict[str, Callable[[GceRequest], dict[str, Any]]] = {
            "projects.get": self._project,
            "projects.set_common_instance_metadata": self._set_metadata,
            "machine_types.get": self._machine_type,
            "instances.insert": lambda request: self.insert(request, self._checked(request.body)),
            "instances.get": self.get,
            "instances.list": self._list_instances,
            "instances.aggregated_list": self._aggregated,
            "zone_operations.get": self.operation,
            "region_operations.get": self.operation,
            "global_operations.get": self.operation,
        }
        return answers.get(request.action, self.act)(request)

    def url_of(self, service: str, name: str) -> str:
        """Return the address of a resource."""
        place = f"regions/{REGION}" if service == "subnetworks" else "global"
        return f"{self.base}/{place}/{service}/{name}"

    # --- instances ---------------------------------------------------------------------------------------------------

    def _list_instances(self, request: GceRequest) -> dict[str, Any]:
        items, more = page_of(request, self.listed(), self.behaviour.page)
        warning = {"warning": {"code": self.behaviour.warning, "message": "injected"}} if self.behaviour.warning else {}
        return {"kind": "compute#instanceList", "id": "list", "items": items, **more, **warning}

    def _aggregated(self, request: GceRequest) -> dict[str, Any]:
        items, more = page_of(request, self.listed(), self.behaviour.page)
        none = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for this scope."}}
        zones = {f"zones/{ZONE}": {"instances": items} if items else none, "zones/us-east1-b": none}
        return {"kind": "compute#instanceAggregatedList", "id": "list", "items": zones, **more}

    def _checked(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the instance that a body describes, complete; raises for what Compute Engine refuses."""
        if not NAME.fullmatch(body.get("name", "")):
            raise invalid("resource.name", f"'{body.get('name')}'. Must be a match of regex '{NAME.pattern}'")
        spec = body["machineType"].rpartition("/")[2]
        if spec not in SPECS:
            raise invalid("resource.machineType", f"'{spec}'. The referenced resource does not exist.")
        labels = body.get("labels", {})
        if not all(LABEL.fullmatch(text) for pair in labels.items() for text in pair) or not all(labels):
            raise invalid("resource.labels", f"'{labels}'. Label keys and values have other characters.")
        self._check_source(body["disks"][0]["initializeParams"]["sourceImage"])
        metadata = {**body.get("metadata", {}), "kind": "compute#metadata", "fingerprint": "f"}
        return {
            **body,
            "kind": "compute#instance",
            "id": str(int(sha256(body["name"].encode()).hexdigest()[:15], 16)),
            "creationTimestamp": TIMESTAMP,
            "machineType": f"{self.base}/zones/{ZONE}/machineTypes/{spec}",
            "zone": f"{self.base}/zones/{ZONE}",
            "metadata": metadata,
            "networkInterfaces": [self._interface(one) for one in body["networkInterfaces"]],
            "selfLink": f"{self.base}/zones/{ZONE}/instances/{body['name']}",
        }

    def _interface(self, wanted: dict[str, Any]) -> dict[str, Any]:
        subnet = wanted.get("subnetwork", "").rpartition("/")[2]
        network = wanted.get("network", "").rpartition("/")[2]
        if not subnet and network not in ("", "default"):
            raise invalid("resource.networkInterfaces[0]", "Network interface must specify a subnet.")
        found = self.resources["subnetworks"].get(subnet or "default")
        if found is None:
            raise invalid("resource.networkInterfaces[0].subnetwork", "The referenced resource does not exist.")
        self._require_ready("subnetworks", found["name"])
        self._private += 1
        access = [
            {**one, "kind": "compute#accessConfig", "natIP": str(next(self._addresses, "203.0.113.254"))}
            for one in wanted.get("accessConfigs", ())
        ]
        addresses = {"networkIP": str(ip_address(self._private)), "accessConfigs": access}
        return {**wanted, "name": "nic0", "network": found["network"], "subnetwork": found["selfLink"], **addresses}

    def _check_source(self, source: str) -> None:
        _, project, _, _, *rest = source.split("/")
        images = IMAGE_PROJECTS.get(project, {})
        if rest[-1] not in (images.values() if rest[0] == "family" else images):
            raise not_found(source)

    # --- catalogue and project ---------------------------------------------------------------------------------------

    def _machine_type(self, request: GceRequest) -> dict[str, Any]:
        if request.name not in SPECS:
            raise not_found(f"machineTypes/{request.name}")
        return {"kind": "compute#machineType", "name": request.name, "architecture": SPECS[request.name]}

    def _image(self, request: GceRequest, *, is_family: bool) -> dict[str, Any]:
        images = IMAGE_PROJECTS.get(request.project, {})
        names = [name for name, family in images.items() if request.name == (family if is_family else name)]
        if not names:
            raise not_found(f"projects/{request.project}/global/images/{request.name}")
        architecture = "ARM64" if names[0] == ARM_IMAGE else "X86_64"
        return {"kind": "compute#image", "name": names[0], "family": images[names[0]], "architecture": architecture}

    def _project(self, request: GceRequest) -> dict[str, Any]:
        items = [{"key": name, "value": value} for name, value in self.metadata.items()]
        metadata = {"kind": "compute#metadata", "fingerprint": self._fingerprint(), "items": items}
        return {"kind": "compute#project", "name": PROJECT, "id": "1", "commonInstanceMetadata": metadata}

    def _set_metadata(self, request: GceRequest) -> dict[str, Any]:
        if request.body.get("fingerprint") != self._fingerprint():
            raise GceError(412, "conditionNotMet", "Supplied fingerprint does not match current metadata fingerprint.")
        self.metadata = {item["key"]: item["value"] for item in request.body.get("items", ())}
        return self.begin(request, self.base, {}, self.behaviour.operation)

    def _fingerprint(self) -> str:
        return sha256(repr(sorted(self.metadata.items())).encode()).hexdigest()[:12]

    # --- networks, subnetworks, firewall rules -----------------------------------------------------------------------

    def _on_resource(self, service: str, method: str, request: GceRequest) -> dict[str, Any]:
        there = self.resources[service]
        if method == "list":
            items, more = page_of(request, list(there.values()), self.behaviour.page)
            return {"kind": f"compute#{KINDS[service]}List", "id": "list", "items": items, **more}
        if method == "insert":
            return self._insert_resource(service, request)
        if request.name not in there:
            raise not_found(f"{service}/{request.name}")
        if method == "get":
            return there[request.name]
        self._require_ready(service, request.name)
        code = ""
        if method == "patch":
            there[request.name] |= request.body
        else:
            code = self._delete_resource(service, request.name)
        return self._begin_on(service, request, request.name, code)

    def _insert_resource(self, service: str, request: GceRequest) -> dict[str, Any]:
        body, there = request.body, self.resources[service]
        name = body.get("name", "")
        if not NAME.fullmatch(name) or len(body.get("description", "")) > 2048:
            raise invalid("resource.name", f"'{name}'")
        if name in there:
            raise GceError(409, "alreadyExists", f"The resource '{name}' already exists")
        if service != "networks":
            network = body["network"].rpartition("/")[2]
            if network not in self.resources["networks"]:
                raise not_found(f"projects/{PROJECT}/global/networks/{network}")
            self._require_ready("networks", network)
            body = {**body, "network": self.url_of("networks", network)}
        if service == "firewalls" and bool(body.get("allowed")) == bool(body.get("denied")):
            raise invalid("resource.allowed", "exactly one of allowed and denied must be given")
        there[name] = self._link(service, body)
        return self._begin_on(service, request, name)

    def _delete_resource(self, service: str, name: str) -> str:
        """Delete a resource, unless it is in use: of a network that is an error, of a subnetwork a failed operation."""
        url = self.url_of(service, name)
        if service == "networks":
            others = [*self.resources["subnetworks"].values(), *self.resources["firewalls"].values()]
            users = [one["name"] for one in others if one["network"] == url]
            if users:
                text = f"The network resource '{name}' is already being used by '{users[0]}'"
                raise GceError(400, "resourceInUseByAnotherResource", text)
        nics = [nic for one in self.living() for nic in one.body["networkInterfaces"]]
        if service == "subnetworks" and any(nic["subnetwork"] == url for nic in nics):
            return "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"
        del self.resources[service][name]
        return ""

    def _begin_on(self, service: str, request: GceRequest, name: str, code: str = "") -> dict[str, Any]:
        self.ready_at[service, name] = self.clock() + self.behaviour.operation
        scope = {"region": f"{self.base}/regions/{REGION}"} if service == "subnetworks" else {}
        return self.begin(request, self.url_of(service, name), scope, self.behaviour.operation, code)

    def _require_ready(self, service: str, name: str) -> None:
        if self.ready_at.get((service, name), 0.0) > self.clock():
            raise GceError(400, "resourceNotReady", f"The resource '{service}/{name}' is not ready")

    def _link(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        known = {"kind": f"compute#{KINDS[service]}", "selfLink": self.url_of(service, body["name"])}
        return {**body, **known, "creationTimestamp": TIMESTAMP}
