"""The networks and volumes of Docker and Podman."""

from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import quote

import msgspec

from stateward.containers import resource_wire
from stateward.containers.container_records import (
    KEY_LABEL,
    ContainerNetwork,
    ContainerNetworkSpec,
    ContainerVolume,
    ContainerVolumeSpec,
)
from stateward.containers.engine_requests import has_labels, label_filters
from stateward.containers.engine_transport import PODMAN_API, EngineTransport
from stateward.containers.errors import EngineRefusal, EngineRefused

_CREATED = msgspec.json.Decoder(resource_wire.CreatedJson)
_NETWORKS = msgspec.json.Decoder(list[resource_wire.NetworkJson])
_PODMAN_NETWORKS = msgspec.json.Decoder(list[resource_wire.PodmanNetworkJson])
_VOLUME = msgspec.json.Decoder(resource_wire.VolumeJson)
_VOLUMES = msgspec.json.Decoder(resource_wire.VolumesJson)

PODMAN_NETWORKS = f"{PODMAN_API}/networks/json"

MEMORY_OPTIONS = {"type": "tmpfs", "device": "tmpfs", "o": "mode=0755,nosuid,nodev,noexec"}
"""The options of a volume in memory; Podman takes no size."""


BRIDGE_OPTION, BRIDGE_PREFIX = "com.docker.network.bridge.name", "sw"
MAX_INTERFACE_NAME = 15


def podman_network_options(spec: ContainerNetworkSpec) -> dict[str, str]:
    """Return what Docker does by itself: isolation, and a bridge that no other engine on the host takes for its own.

    Podman counts the names of its bridges. Two engines may count to the same one, and the first that removes its last
    container there removes the bridge of the other.
    """
    digest = sha256(spec.key.encode()).hexdigest()
    return {"isolate": "true", BRIDGE_OPTION: f"{BRIDGE_PREFIX}{digest}"[:MAX_INTERFACE_NAME]}


class EngineResources:
    """The part of the client that is about networks and volumes."""

    _transport: EngineTransport

    async def _keep_networks_isolated(self) -> None:
        """Keep the rules in place that networks depend on; see `network_isolation`."""
        raise NotImplementedError

    async def create_network(self, spec: ContainerNetworkSpec) -> str:
        """Create a network that no other one reaches, or find it again; returns its id."""
        await self._transport.negotiate()
        body = {
            "Name": spec.name,
            "Driver": "bridge",
            "Labels": {**spec.labels, KEY_LABEL: spec.key},
            "Internal": False,
            "CheckDuplicate": True,
            **({"Options": podman_network_options(spec)} if self._transport.is_podman else {}),
        }
        try:
            call = f"create network {spec.name}"
            return (await self._transport.read(_CREATED, call, "/networks/create", "POST", json=body)).id
        except EngineRefused as error:
            if error.reason not in (EngineRefusal.NAME_TAKEN, EngineRefusal.CONFLICT):
                raise
            for network in await self.list_networks((f"{KEY_LABEL}={spec.key}",)):
                if network.name == spec.name:
                    return network.id
            raise

    async def list_networks(self, labels: Sequence[str] = ()) -> Sequence[ContainerNetwork]:
        """List networks.

        Podman is asked in its own form: its answer in Docker's form takes the option `isolate` out of all networks, and
        containers that start afterwards reach other networks.
        """
        await self._transport.negotiate()
        call, params = "list networks", {"filters": label_filters(labels)}
        if self._transport.is_podman:
            podman_networks = await self._transport.read(_PODMAN_NETWORKS, call, PODMAN_NETWORKS, params=params)
            await self._keep_networks_isolated()
            return [resource_wire.podman_network_record(network) for network in podman_networks]
        networks = await self._transport.read(_NETWORKS, call, "/networks", params=params)
        return [resource_wire.network_record(network) for network in networks]

    async def remove_network(self, network: str) -> bool:
        """Remove a network that no container uses."""
        return await self._remove(f"remove network {network}", f"/networks/{quote(network, safe='')}")

    async def create_volume(self, spec: ContainerVolumeSpec) -> str:
        """Create a volume, or find it again; returns its name."""
        call = f"create volume {spec.name}"
        options = {"DriverOpts": MEMORY_OPTIONS} if spec.in_memory else {}
        body = {"Name": spec.name, "Labels": {**spec.labels, KEY_LABEL: spec.key}, **options}
        volume = await self._transport.read(_VOLUME, call, "/volumes/create", "POST", json=body)
        if (volume.labels or {}).get(KEY_LABEL) != spec.key:  # engines return a volume that exists, whose-ever it is
            raise EngineRefused(EngineRefusal.NAME_TAKEN, call, f"there is another volume {spec.name!r}")
        return volume.name

    async def list_volumes(self, labels: Sequence[str] = ()) -> Sequence[ContainerVolume]:
        """List volumes; Podman gives those that have any of several labels, so they are looked through again."""
        params = {"filters": label_filters(labels)}
        listed = await self._transport.read(_VOLUMES, "list volumes", "/volumes", params=params)
        records = map(resource_wire.volume_record, listed.volumes or ())
        return [volume for volume in records if has_labels(volume.labels, labels)]

    async def remove_volume(self, volume: str) -> bool:
        """Remove a volume that no container uses."""
        return await self._remove(f"remove volume {volume}", f"/volumes/{quote(volume, safe='')}")

    async def _remove(self, call: str, path: str) -> bool:
        try:
            await self._transport.call(call, "DELETE", path)
        except EngineRefused as error:
            if error.reason is EngineRefusal.NOT_FOUND:
                return False
            if error.reason in (EngineRefusal.CONFLICT, EngineRefusal.UNAUTHORIZED):
                raise EngineRefused(EngineRefusal.IN_USE, call, error.message) from error
            raise
        return True
