"""The JSON of the Docker Engine API as Docker and Podman write it, and its translation to records.

Engines leave fields out or write null for the same thing, so every field has a default and may be null.
"""

import re
from datetime import datetime

from msgspec import Struct

from stateward.containers.container_records import (
    ContainerRecord,
    ContainerState,
    ContainerStats,
    PublishedPort,
)


class ApiObject(Struct, frozen=True, rename="pascal"):
    """An object of the API, whose fields begin with a capital letter."""


# --- containers ------------------------------------------------------------------------------------------------------


class EndpointJson(Struct, frozen=True, gc=False):
    """A container's address in a network."""

    IPAddress: str | None = None


class NetworkSettingsJson(ApiObject, frozen=True, gc=False):
    """A container's addresses, and its ports as an inspection writes them."""

    networks: dict[str, EndpointJson | None] | None = None
    ports: dict[str, list[dict[str, str]] | None] | None = None


class PortJson(Struct, frozen=True, gc=False):
    """A port as a listing writes it."""

    PrivatePort: int = 0
    PublicPort: int | None = None
    IP: str | None = None
    Type: str | None = None


class MountJson(ApiObject, frozen=True, gc=False):
    """A mount of a container."""

    type: str | None = None
    name: str | None = None


class ListedContainer(ApiObject, frozen=True, gc=False):
    """A container in a listing. There may be thousands, which the garbage collector would go through (`gc`)."""

    id: str
    names: list[str] | None = None
    image: str | None = None
    image_i_d: str | None = None
    labels: dict[str, str] | None = None
    state: str | None = None
    status: str | None = None
    ports: list[PortJson] | None = None
    network_settings: NetworkSettingsJson | None = None
    mounts: list[MountJson] | None = None


class PodmanListed(Struct, frozen=True):
    """A container in Podman's own listing, as far as it is needed."""

    Id: str
    Names: list[str] | None = None
    State: str | None = None


class StateJson(ApiObject, frozen=True, gc=False):
    """The state of a container, as inspected."""

    status: str | None = None
    o_o_m_killed: bool | None = None
    pid: int | None = None
    exit_code: int | None = None
    error: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class ConfigJson(ApiObject, frozen=True, gc=False):
    """The part of a container's configuration that a record shows."""

    image: str | None = None
    labels: dict[str, str] | None = None


class InspectedContainer(ApiObject, frozen=True, gc=False):
    """A container, as inspected."""

    id: str
    name: str | None = None
    image: str | None = None
    state: StateJson | None = None
    config: ConfigJson | None = None
    network_settings: NetworkSettingsJson | None = None
    mounts: list[MountJson] | None = None


_STATES = {
    "created": ContainerState.CREATED,
    "configured": ContainerState.CREATED,
    "initialized": ContainerState.CREATED,
    "running": ContainerState.RUNNING,
    "paused": ContainerState.PAUSED,
    "restarting": ContainerState.RESTARTING,
    "stopping": ContainerState.STOPPING,
    "stopped": ContainerState.EXITED,
    "exited": ContainerState.EXITED,
    "removing": ContainerState.REMOVING,
    "dead": ContainerState.DEAD,
}
KILLED_EXIT = 137
"""The exit code after SIGKILL."""
_EXIT_CODE = re.compile(r"^Exited \((-?\d+)\)")
_NO_NAME = ("",)


def container_state(word: str | None) -> ContainerState:
    """Return the state that an engine's word means."""
    return _STATES.get(word or "") or _STATES.get((word or "").lower(), ContainerState.OTHER)


def listed_record(container: ListedContainer) -> ContainerRecord:
    """Return a listed container; its exit code is part of a sentence for people."""
    status, state = container.status or "", container_state(container.state)
    exit_code = _EXIT_CODE.match(status) if state.has_ended else None
    return ContainerRecord(
        container.id,
        (container.names or _NO_NAME)[0].removeprefix("/"),
        container.image or "",
        container.image_i_d or "",
        state,
        container.state or "",
        container.labels or {},
        _addresses(container.network_settings),
        tuple([_listed_port(port) for port in container.ports if port.PublicPort]) if container.ports else (),
        _volumes(container.mounts) if container.mounts else (),
        int(exit_code[1]) if exit_code else None,
    )


def inspected_record(container: InspectedContainer) -> ContainerRecord:
    """Return an inspected container."""
    state, config = container.state or StateJson(), container.config or ConfigJson()
    meaning = container_state(state.status)
    return ContainerRecord(
        container.id,
        (container.name or "").removeprefix("/"),
        config.image or "",
        container.image or "",
        meaning,
        state.status or "",
        config.labels or {},
        _addresses(container.network_settings),
        _inspected_ports(container.network_settings),
        _volumes(container.mounts),
        state.exit_code if meaning.has_ended else None,
        _is_oom_killed(state),
        seconds_of(state.started_at),
        seconds_of(state.finished_at),
        state.pid or None,
        state.error or "",
    )


def _is_oom_killed(state: StateJson) -> bool | None:
    """Tell whether the kernel killed a container for its memory; a no is none after SIGKILL.

    Podman on hosts with version 1 of control groups says no whatever happened.
    """
    return None if not state.o_o_m_killed and state.exit_code == KILLED_EXIT else state.o_o_m_killed


def _addresses(settings: NetworkSettingsJson | None) -> dict[str, str]:
    networks = (settings and settings.networks) or {}
    return {name: network.IPAddress for name, network in networks.items() if network and network.IPAddress}


def _volumes(mounts: list[MountJson] | None) -> tuple[str, ...]:
    return tuple(mount.name for mount in mounts or () if mount.type == "volume" and mount.name)


def _listed_port(port: PortJson) -> PublishedPort:
    return PublishedPort(port.PrivatePort, port.PublicPort or 0, port.IP or "", port.Type or "tcp")


def _inspected_ports(settings: NetworkSettingsJson | None) -> tuple[PublishedPort, ...]:
    ports = []
    for name, bindings in ((settings and settings.ports) or {}).items():
        number, _, protocol = name.partition("/")
        for binding in bindings or ():
            host_port = binding.get("HostPort", "")
            if number.isdigit() and host_port.isdigit():
                ports.append(PublishedPort(int(number), int(host_port), binding.get("HostIp", ""), protocol or "tcp"))
    return tuple(ports)


def seconds_of(text: str | None) -> float | None:
    """Return a time of the API in seconds since 1970; None for no time, which engines write as the year 1."""
    if not text or text.startswith("0001-"):
        return None
    # Python reads six digits of a second, and engines write nine.
    plain = re.sub(r"(\.\d{1,6})\d*", r"\1", text.replace("Z", "+00:00"))
    try:
        return datetime.fromisoformat(plain).timestamp()
    except ValueError:
        return None


# --- use -------------------------------------------------------------------------------------------------------------


class CpuUsageJson(Struct, frozen=True):
    """Processor time, in nanoseconds."""

    total_usage: int | None = None


class CpuJson(Struct, frozen=True):
    """The processor's part of the statistics."""

    cpu_usage: CpuUsageJson | None = None


class MemoryJson(Struct, frozen=True):
    """The memory's part of the statistics."""

    usage: int | None = None
    stats: dict[str, int] | None = None


class PidsJson(Struct, frozen=True):
    """The number of processes."""

    current: int | None = None


class StatsJson(Struct, frozen=True):
    """The statistics of one container, as both engines write them."""

    cpu_stats: CpuJson | None = None
    memory_stats: MemoryJson | None = None
    pids_stats: PidsJson | None = None


class PodmanStats(Struct, frozen=True):
    """The statistics of one container in Podman's answer for many."""

    ContainerID: str
    CPUNano: int | None = None
    MemUsage: int | None = None
    PIDs: int | None = None


class PodmanStatsList(ApiObject, frozen=True, gc=False):
    """Podman's statistics of many containers."""

    error: object = None  # an empty object, if one of the containers does not exist
    stats: list[PodmanStats] | None = None


def stats_record(container: str, stats: StatsJson) -> ContainerStats | None:
    """Return the statistics of a container, or None if it does not run: engines then write zeros."""
    cpu = stats.cpu_stats and stats.cpu_stats.cpu_usage
    memory = stats.memory_stats or MemoryJson()
    pids = (stats.pids_stats and stats.pids_stats.current) or 0
    if not pids:
        return None
    cache = (memory.stats or {}).get("inactive_file", (memory.stats or {}).get("total_inactive_file", 0))
    return ContainerStats(
        container,
        ((cpu and cpu.total_usage) or 0) / 1e9,
        max((memory.usage or 0) - cache, 0),
        pids,
    )


def podman_stats_record(stats: PodmanStats) -> ContainerStats:
    """Return one of Podman's statistics of many containers."""
    return ContainerStats(
        stats.ContainerID,
        (stats.CPUNano or 0) / 1e9,
        stats.MemUsage or 0,
        stats.PIDs or 0,
    )
