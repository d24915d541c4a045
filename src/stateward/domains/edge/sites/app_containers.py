"""The containers and volumes of an app, from its manifest."""

from collections.abc import Iterator, Sequence

from stateward.agents.messages import AgentOrder
from stateward.containers import (
    ContainerLimits,
    ContainerSpec,
    ContainerVolumeSpec,
    PublishedPort,
    VolumeMount,
)
from stateward.domains.edge.sites.app_manifest import AppPart
from stateward.domains.edge.sites.container_identity import Copy, SiteNames
from stateward.domains.edge.sites.container_nodes import MIB, NodeSize

SHELL = ("sh", "-c")


def container_spec(
    names: SiteNames, order: AgentOrder, part: AppPart, copy: Copy, size: NodeSize, publish_at: str
) -> ContainerSpec:
    """Return the container of a copy; its limits are its own, or those of its node."""
    app, limits = order.name.rpartition(":")[2], part.resources
    entrypoint, command = _program(part)
    return ContainerSpec(
        name=names.container(order.name, copy),
        key=names.key(order.name, copy.generation, copy),
        image=part.image,
        command=command,
        entrypoint=entrypoint,
        env=part.env,
        labels=names.container_labels(order, copy, part.stop_grace_s),
        network=names.name(order.host),
        aliases=(f"{app}-{part.name}", f"{app}-{part.name}-{copy.number}"),
        ports=tuple(
            PublishedPort(port.port, port.host_port, publish_at, port.protocol) for port in part.ports if port.published
        ),
        mounts=tuple(_mounts(names, order.name, part)),
        limits=ContainerLimits(limits.cpu or size.cpu, (limits.memory_mib or size.memory_mib) * MIB, limits.pids),
        user=part.user,
        read_only_root=part.read_only,
        capabilities=part.capabilities,
        stop_grace_s=part.stop_grace_s,
    )


def _program(part: AppPart) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return entry point and command: a text is run by the image's shell, a list as it is, nothing is the image's."""
    if isinstance(part.command, str):
        return (SHELL, (part.command,)) if part.command else (None, None)
    return (part.command[:1], part.command[1:]) if part.command else (None, None)


def _mounts(names: SiteNames, instance: str, part: AppPart) -> Iterator[VolumeMount]:
    for volume in part.volumes:
        name = names.name(instance, volume.name) if volume.name else ""
        yield VolumeMount(volume.path, name, volume.read_only, volume.size_mib * MIB)


def volume_specs(names: SiteNames, order: AgentOrder, parts: Sequence[AppPart]) -> list[ContainerVolumeSpec]:
    """Return the volumes of an app; they have no generation, because they outlive updates."""
    return [
        ContainerVolumeSpec(full, names.key(order.name, "volume", name), names.labels(order))
        for full, name in volume_names(names, order.name, parts).items()
    ]


def volume_names(names: SiteNames, instance: str, parts: Sequence[AppPart]) -> dict[str, str]:
    """Return the names of an app's volumes at the engine, with those of its manifest."""
    volumes = sorted({volume.name for part in parts for volume in part.volumes if volume.name})
    return {names.name(instance, name): name for name in volumes}
