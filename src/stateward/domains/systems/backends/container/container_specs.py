"""Names, labels and specs of the containers, networks and volumes of systems (pure).

The key of a container says which start of which instance it is. It contains the installation, the id of the data
folder: two servers that use one engine never touch each other's containers.
"""

from collections.abc import Mapping
from hashlib import blake2b
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from stateward.containers import (
    SECRETS_PATH,
    ContainerLimits,
    ContainerNetworkSpec,
    ContainerRecord,
    ContainerSpec,
    ContainerVolumeSpec,
    PublishedPort,
    VolumeMount,
)
from stateward.domains.systems.backends.local.instance_dir import InstanceOrder
from stateward.domains.systems.backends.port import ServiceRef, SystemRef
from stateward.domains.systems.definition import Resources, Service, file_name
from stateward.workloads.host_ports import LOOPBACK

LABEL = "stateward.systems."
INSTALLATION, NAMESPACE, SYSTEM = f"{LABEL}installation", f"{LABEL}namespace", f"{LABEL}system"
SERVICE, INSTANCE, REVISION, IMAGE = (f"{LABEL}{name}" for name in ("service", "instance", "revision", "image"))

MIB = 1 << 20
MAX_READABLE = 48
"""How many characters of a name are for people; the rest is a hash of the key."""


class EngineReach(Struct, frozen=True):
    """How this host reaches published ports: the address where the engine publishes, and the one to connect to."""

    publish_ip: str = LOOPBACK
    host: str = LOOPBACK


class ContainerNames(Struct, frozen=True):
    """The keys, names and labels of one installation."""

    installation: str

    def container_key(self, ref: ServiceRef, name: str, boot: int) -> str:
        """Return the key of a start of an instance."""
        return f"{self.system_key(ref.system)}{ref.path}:{name}#{boot}"

    def system_key(self, system_ref: SystemRef) -> str:
        """Return the key of a system, and of its network."""
        return f"{self.installation}:{system_ref.ns}/{system_ref.system}"

    def container(self, ref: ServiceRef, name: str, boot: int) -> str:
        """Return the name of a container."""
        readable = f"{ref.system.system}{ref.path.replace('/', '.').replace('@', '-')}.{name}.{boot}"
        return _unique_name(readable, self.container_key(ref, name, boot))

    def network(self, system_ref: SystemRef) -> str:
        """Return the name of a system's network."""
        return _unique_name(f"stateward.{system_ref.system}", self.system_key(system_ref))

    def volume(self, system_ref: SystemRef, name: str) -> str:
        """Return the name of a volume of a system."""
        return _unique_name(f"{system_ref.system}.{name}", f"{self.system_key(system_ref)}:{name}")

    @property
    def filter(self) -> str:
        """The label that all containers, networks and volumes of the installation have."""
        return f"{INSTALLATION}={self.installation}"

    def system_filters(self, system_ref: SystemRef) -> tuple[str, ...]:
        """Return the labels of a system."""
        return tuple(f"{name}={value}" for name, value in self.system_labels(system_ref).items())

    def system_labels(self, system_ref: SystemRef) -> dict[str, str]:
        """Return the labels of a system's network and volumes."""
        return {INSTALLATION: self.installation, NAMESPACE: system_ref.ns, SYSTEM: system_ref.system}

    def network_spec(self, system_ref: SystemRef) -> ContainerNetworkSpec:
        """Return the network of a system."""
        labels = self.system_labels(system_ref)
        return ContainerNetworkSpec(self.network(system_ref), self.system_key(system_ref), labels)

    def volume_specs(self, system_ref: SystemRef, service: Service) -> list[ContainerVolumeSpec]:
        """Return the volumes of a service, which all services of the system may share."""
        key, labels = self.system_key(system_ref), self.system_labels(system_ref)
        return [ContainerVolumeSpec(self.volume(system_ref, name), f"{key}:{name}", labels) for name in service.volumes]

    def container_spec(self, ref: ServiceRef, order: InstanceOrder, boot: int, reach: EngineReach) -> ContainerSpec:
        """Return the container of a start of an instance."""
        service = order.service
        own = {
            "PORT": str(service.port),
            "STATEWARD_SYSTEM": ref.system.system,
            "STATEWARD_SERVICE": ref.path,
            "STATEWARD_NAME": order.name,
            "STATEWARD_REVISION": order.revision,
        }
        node = {} if order.node is None else {"STATEWARD_NODE": order.node}
        mine = {SERVICE: ref.path, INSTANCE: order.name, REVISION: order.revision, IMAGE: service.image or ""}
        return ContainerSpec(
            name=self.container(ref, order.name, boot),
            key=self.container_key(ref, order.name, boot),
            image=service.image or "" if service.pinned is None else service.pinned.id,
            command=service.command or None,
            env={**service.env, **own, **node},
            labels={**self.system_labels(ref.system), **mine},
            network=self.network(ref.system),
            aliases=(dns_name(ref.path),),
            ports=(PublishedPort(service.port, host_ip=reach.publish_ip),) if is_published(service) else (),
            mounts=tuple(
                VolumeMount(path, self.volume(ref.system, volume)) for volume, path in service.volumes.items()
            ),
            user=service.user or "",
            read_only_root=service.read_only,
            capabilities=service.capabilities,
            limits=limits_of(service.resources),
            stop_grace_s=ceil(service.grace),
            starts_once=True,
        )


def with_secrets(spec: ContainerSpec, service: Service, secrets: Mapping[str, str]) -> ContainerSpec:
    """Return a container with the values of its secrets, as variables or as files."""
    variables, files = {}, {}
    for variable, secret in service.secrets.items():
        if secret.delivery == "env":
            variables[variable] = secrets[secret.secret]
        else:
            variables[variable] = f"{SECRETS_PATH}/{file_name(variable, secret)}"
            files[variables[variable]] = secrets[secret.secret].encode()
    return replace(spec, env={**spec.env, **variables}, secret_files=files)


def dns_name(path: str) -> str:
    """Return the name by which the services of a system find each other in its network: /store/api is store.api."""
    return path.partition("@")[0].removeprefix("/").replace("/", ".")


def limits_of(resources: Resources) -> ContainerLimits:
    """Return the limits of a container."""
    memory = (resources.memory or 0) * MIB
    limits = ContainerLimits(resources.cpu or 0.0, memory)
    return limits if resources.pids is None else replace(limits, pids=resources.pids)


def is_published(service: Service) -> bool:
    """Tell whether somebody outside of the network connects to the instances of a service."""
    checked = service.health is not None and service.health.command is None
    return checked or service.address is not None


def drift_of(record: ContainerRecord, spec: ContainerSpec) -> str:
    """Return what somebody has changed about a running container, as far as a listing shows it."""
    if record.name != spec.name:
        return f"renamed to {record.name}"
    if set(record.ips) != {spec.network}:
        return f"its networks are {', '.join(sorted(record.ips)) or 'none'}"
    return ""


def find_host_port(record: ContainerRecord, service: Service) -> int | None:
    """Return the port of the host that leads to the port of a container."""
    host_ports = (port.host_port for port in record.ports if port.container_port == service.port and port.host_port)
    return next(host_ports, None)


def owner_of(labels: Mapping[str, str]) -> SystemRef:
    """Return the system of a network or a volume of ours."""
    return SystemRef(labels.get(NAMESPACE, ""), labels.get(SYSTEM, ""))


def _unique_name(readable: str, key: str) -> str:
    return f"{readable[:MAX_READABLE]}-{blake2b(key.encode(), digest_size=6).hexdigest()}"
