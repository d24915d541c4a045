"""The JSON of the Docker Engine API for images, networks, volumes, events and progress, and its translation to records.

Engines leave fields out or write null for the same thing, so every field has a default and may be null.
"""

from msgspec import Struct, field

from stateward.containers.container_records import (
    ContainerImage,
    ContainerNetwork,
    ContainerVolume,
    EngineEvent,
    PullProgress,
)
from stateward.containers.engine_wire import ApiObject


class ImageJson(ApiObject, frozen=True):
    """An image."""

    id: str
    repo_tags: list[str] | None = None
    repo_digests: list[str] | None = None


class NetworkJson(Struct, frozen=True):
    """A network."""

    Id: str
    Name: str
    Labels: dict[str, str] | None = None


class PodmanNetworkJson(Struct, frozen=True):
    """A network in Podman's own form."""

    id: str
    name: str
    labels: dict[str, str] | None = None


class VolumeJson(ApiObject, frozen=True):
    """A volume."""

    name: str
    labels: dict[str, str] | None = None


class VolumesJson(ApiObject, frozen=True):
    """The volumes of an engine."""

    volumes: list[VolumeJson] | None = None


class InfoJson(Struct, frozen=True):
    """What an engine says of itself, as far as it is needed."""

    SecurityOptions: list[str] | None = None


class VersionJson(Struct, frozen=True):
    """An engine's version."""

    Version: str | None = None


class ActorJson(Struct, frozen=True):
    """The subject of an event; its attributes are its labels and a few facts."""

    Attributes: dict[str, str] | None = None


class EventJson(Struct, frozen=True):
    """An event."""

    Type: str | None = None
    Action: str | None = None
    Actor: ActorJson | None = None


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
    return ContainerImage(
        image.id,
        tuple(tag for tag in image.repo_tags or () if tag != "<none>:<none>"),
        tuple(image.repo_digests or ()),
    )


def network_record(network: NetworkJson) -> ContainerNetwork:
    """Return a network."""
    return ContainerNetwork(network.Id, network.Name, network.Labels or {})


def podman_network_record(network: PodmanNetworkJson) -> ContainerNetwork:
    """Return a network of Podman."""
    return ContainerNetwork(network.id, network.name, network.labels or {})


def volume_record(volume: VolumeJson) -> ContainerVolume:
    """Return a volume."""
    return ContainerVolume(volume.name, volume.labels or {})


def event_record(event: EventJson) -> EngineEvent:
    """Return an event."""
    return EngineEvent(event.Type or "", event.Action or "", (event.Actor or ActorJson()).Attributes or {})


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
