"""The JSON of the Docker Engine API for images, networks, volumes, events and progress, and its translation to records.

Engines leave fields out or write null for the same thing, so every field has a default and may be null.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from stateward.containers.container_records import (
    ContainerImage,
    ContainerNetwork,
    ContainerVolume,
    EngineEvent,
    EngineInfo,
    PullProgress,
)
from stateward.containers.engine_wire import ApiObject, ConfigJson, seconds_of


class ImageJson(ApiObject, frozen=True):
    """An image, listed or inspected; the one has its time in seconds, the other as a text."""

    id: str
    repo_tags: list[str] | None = None
    repo_digests: list[str] | None = None
    size: int | None = None
    created: int | str | None = None
    labels: dict[str, str] | None = None
    config: ConfigJson | None = None
    architecture: str | None = None


class SubnetJson(ApiObject, frozen=True):
    """A range of addresses."""

    subnet: str | None = None


class AddressesJson(ApiObject, frozen=True):
    """The addresses of a network."""

    config: list[SubnetJson] | None = None


class NetworkJson(Struct, frozen=True):
    """A network."""

    Id: str
    Name: str
    Labels: dict[str, str] | None = None
    IPAM: AddressesJson | None = None
    Internal: bool | None = None


class PodmanSubnetJson(Struct, frozen=True):
    """A range of addresses in Podman's own form."""

    subnet: str | None = None


class PodmanNetworkJson(Struct, frozen=True):
    """A network in Podman's own form."""

    id: str
    name: str
    labels: dict[str, str] | None = None
    subnets: list[PodmanSubnetJson] | None = None
    internal: bool | None = None


class VolumeJson(ApiObject, frozen=True):
    """A volume."""

    name: str
    labels: dict[str, str] | None = None


class VolumesJson(ApiObject, frozen=True):
    """The volumes of an engine."""

    volumes: list[VolumeJson] | None = None


class InfoJson(Struct, frozen=True):
    """What an engine says of itself and its host."""

    Name: str | None = None
    NCPU: int | None = None
    MemTotal: int | None = None
    Architecture: str | None = None
    OperatingSystem: str | None = None
    Driver: str | None = None
    Containers: int | None = None
    Images: int | None = None
    SecurityOptions: list[str] | None = None


class VersionJson(Struct, frozen=True):
    """An engine's version."""

    Version: str | None = None
    ApiVersion: str | None = None


class ActorJson(Struct, frozen=True):
    """The subject of an event; its attributes are its labels and a few facts."""

    ID: str | None = None
    Attributes: dict[str, str] | None = None


class EventJson(Struct, frozen=True):
    """An event."""

    Type: str | None = None
    Action: str | None = None
    Actor: ActorJson | None = None
    time: int | None = None
    nanoseconds: int | None = field(default=None, name="timeNano")


class ProgressDetailJson(Struct, frozen=True):
    """How much of a layer is there."""

    current: int | None = None
    total: int | None = None


class ProgressJson(Struct, frozen=True):
    """A line of the answer to a pull, a load or an import."""

    status: str | None = None
    stream: str | None = None
    id: str | None = None
    detail: ProgressDetailJson | None = field(default=None, name="progressDetail")
    error: str | None = None


def image_record(image: ImageJson) -> ContainerImage:
    """Return an image."""
    created = seconds_of(image.created) if isinstance(image.created, str) else image.created
    labels = image.labels or (image.config and image.config.labels) or {}
    return ContainerImage(
        image.id,
        tuple(tag for tag in image.repo_tags or () if tag != "<none>:<none>"),
        tuple(image.repo_digests or ()),
        image.size or 0,
        float(created or 0),
        labels,
        image.architecture or "",
    )


def network_record(network: NetworkJson) -> ContainerNetwork:
    """Return a network."""
    ranges = (network.IPAM and network.IPAM.config) or ()
    subnets = tuple(subnet.subnet for subnet in ranges if subnet.subnet)
    return ContainerNetwork(network.Id, network.Name, network.Labels or {}, subnets, bool(network.Internal))


def podman_network_record(network: PodmanNetworkJson) -> ContainerNetwork:
    """Return a network of Podman."""
    subnets = tuple(subnet.subnet for subnet in network.subnets or () if subnet.subnet)
    return ContainerNetwork(network.id, network.name, network.labels or {}, subnets, bool(network.internal))


def volume_record(volume: VolumeJson) -> ContainerVolume:
    """Return a volume."""
    return ContainerVolume(volume.name, volume.labels or {})


def info_record(info: InfoJson) -> EngineInfo:
    """Return what an engine says of its host."""
    return EngineInfo(
        info.Name or "",
        info.NCPU or 0,
        info.MemTotal or 0,
        info.Architecture or "",
        info.OperatingSystem or "",
        info.Driver or "",
        info.Containers or 0,
        info.Images or 0,
    )


def event_record(event: EventJson) -> EngineEvent:
    """Return an event; Podman names a volume by an attribute alone."""
    actor = event.Actor or ActorJson()
    attributes: Mapping[str, str] = actor.Attributes or {}
    at = (event.nanoseconds or 0) / 1e9 or float(event.time or 0)
    return EngineEvent(event.Type or "", event.Action or "", actor.ID or attributes.get("name", ""), at, attributes)


def progress_record(progress: ProgressJson) -> PullProgress:
    """Return a report of progress."""
    detail = progress.detail or ProgressDetailJson()
    status = (progress.status or progress.stream or "").strip()
    return PullProgress(status, progress.id or "", max(detail.current or 0, 0), max(detail.total or 0, 0))


class CreatedJson(ApiObject, frozen=True):
    """The id of what was created."""

    id: str


class ExecJson(ApiObject, frozen=True):
    """A command in a container."""

    running: bool | None = None
    exit_code: int | None = None
    pid: int | None = None  # on the engine's host
    container_i_d: str | None = None


class WaitJson(ApiObject, frozen=True):
    """The end of a container."""

    status_code: int
