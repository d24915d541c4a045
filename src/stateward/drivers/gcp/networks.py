"""The resources of Compute Engine: networks and subnetworks here, security groups and SSH keys by their own modules.

A resource has a name that its key gives, so it is found without a search, and Compute Engine itself refuses a second
one. Its description has the record with the key: nothing without that is ever removed. A call returns when its
operation is done, because the next resource needs this one.
"""

from typing import Any

from msgspec import Struct

from stateward.drivers import port
from stateward.drivers.cloud.errors import CloudCallFailed, found_or_none
from stateward.drivers.cloud.networks import CloudResources
from stateward.drivers.gcp.client import GceClient
from stateward.drivers.gcp.keys import ProjectKeys
from stateward.drivers.gcp.names import OWN_NAMES, last_part, name_of, read_record, write_record
from stateward.drivers.gcp.rules import SecurityGroups
from stateward.drivers.gcp.settings import GceSettings

DEFAULT_SUBNET_CIDR = "10.0.0.0/24"


class GceNames(Struct, frozen=True):
    """Compute Engine's names for a kind of resource: of its service, and of the resource in requests."""

    service: str
    noun: str


GCE_NAMES = {
    port.ResourceKind.NETWORK: GceNames("networks", "network"),
    port.ResourceKind.SUBNET: GceNames("subnetworks", "subnetwork"),
}


class GceResources(CloudResources):
    """Finds, creates and removes resources."""

    def __init__(self, calls: GceClient, keys: ProjectKeys) -> None:
        super().__init__()
        self._calls, self._keys = calls, keys
        self._groups = SecurityGroups(calls)

    async def _list(self) -> list[port.CloudResource]:
        region = (await self._calls.settings()).region
        resources = [resource for kind in GCE_NAMES for resource in await self._list_kind(kind, region)]
        return [*resources, *await self._groups.listing(region), *await self._keys.listing(region)]

    async def _ensure(self, resource: port.CloudResource) -> port.Outcome:
        work = {port.ResourceKind.SECURITY_GROUP: self._groups.ensure, port.ResourceKind.SSH_KEY: self._keys.ensure}
        return await work.get(resource.kind, self._ensure_network)(resource)

    async def _remove(self, resource: port.CloudResource) -> port.Outcome:
        work = {port.ResourceKind.SECURITY_GROUP: self._groups.remove, port.ResourceKind.SSH_KEY: self._keys.remove}
        return await work.get(resource.kind, self._remove_network)(resource)

    async def _list_kind(self, kind: port.ResourceKind, region: str) -> list[port.CloudResource]:
        return [
            port.CloudResource(kind, record.key, record.name, _network_of(kind, shown), native_id=str(shown.name))
            async for page in self._calls.pages(f"{GCE_NAMES[kind].service}.list", filter=OWN_NAMES)
            for shown in page.items
            if (record := read_record(shown.description)) is not None and record.region == region
        ]

    async def _ensure_network(self, resource: port.CloudResource) -> port.Outcome:
        names, native = GCE_NAMES[resource.kind], name_of(resource.key)
        if await self._exists(resource):
            return port.AlreadyDone(resource.key, native)
        settings = await self._calls.settings()
        body = {f"{names.noun}_resource": resource_body(resource, settings)}
        try:
            await self._calls.change(f"{names.service}.insert", **body)
        except CloudCallFailed as failed:
            if failed.status == 409 and await self._exists(resource):
                return port.AlreadyDone(resource.key, native)
            raise
        return port.CallAccepted(resource.key, native)

    async def _remove_network(self, resource: port.CloudResource) -> port.Outcome:
        names, native = GCE_NAMES[resource.kind], name_of(resource.key)
        if not await self._exists(resource):
            return port.AlreadyDone(resource.key, native)
        await self._calls.change(f"{names.service}.delete", **{names.noun: native})
        return port.CallAccepted(resource.key, native)

    async def _exists(self, resource: port.CloudResource) -> bool:
        names = GCE_NAMES[resource.kind]
        call = self._calls.call(f"{names.service}.get", **{names.noun: name_of(resource.key)})
        shown = await found_or_none(call)
        record = None if shown is None else read_record(shown.description)
        return record is not None and record.key == resource.key


def resource_body(resource: port.CloudResource, settings: GceSettings) -> dict[str, object]:
    """Return a new network or subnetwork. A network has no addresses of its own; its subnetworks have them."""
    body: dict[str, object] = {
        "name": name_of(resource.key),
        "description": write_record(resource, settings.region),
    }
    if resource.kind is port.ResourceKind.NETWORK:
        return body | {"auto_create_subnetworks": False}
    cidr = resource.facts.get("cidr", DEFAULT_SUBNET_CIDR)
    return body | {"network": f"global/networks/{resource.within}", "ip_cidr_range": cidr}


def _network_of(kind: port.ResourceKind, shown: Any) -> str:  # noqa: ANN401 - the library's type
    """Return the network of a listed resource; a network is in no other."""
    return "" if kind is port.ResourceKind.NETWORK else last_part(shown.network)
