"""The records of containers: what is asked of an engine, and what it answers.

A field of an answer is None where the engine did not say: a listing knows less of a container than an inspection.
Contents of secret files are never part of a text that shows a record.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

KEY_LABEL = "stateward.key"
"""The label with the key of a container, network or volume. The store holds the key before the engine is called."""

SECRETS_LABEL = "stateward.secrets"
"""The label with the name of the volume that has a container's secret files; it is removed with the container."""

SECRETS_PATH = "/run/secrets"

NO_NETWORK = "none"


# --- what is asked of an engine --------------------------------------------------------------------------------------


class PublishedPort(Struct, frozen=True, gc=False):
    """A port of a container that the host publishes. As a wish, host port 0 means any free one."""

    container_port: int
    host_port: int = 0
    host_ip: str = "127.0.0.1"
    protocol: str = "tcp"


class VolumeMount(Struct, frozen=True):
    """A named volume at a path of a container, or a file system in memory if `volume` is empty."""

    path: str
    volume: str = ""
    read_only: bool = False
    size_bytes: int = 0  # of a file system in memory; 0: the engine's own limit


class ContainerLimits(Struct, frozen=True):
    """What a container may use; 0 means no limit of processors or memory.

    The limits of open files and processes are always set: an engine without CAP_SYS_RESOURCE starts no container
    whose limits are above its own, and engines' defaults are.
    """

    cpus: float = 0.0
    memory_bytes: int = 0
    pids: int = 1000
    open_files: int = 1024


class ContainerSpec(Struct, frozen=True):
    """A container to create. `key` identifies it for good; `name` is unique in its engine.

    It gets no network, no capability and no restart by the engine unless the spec says so; restarts are never the
    engine's: there is one authority over the state of a container.
    """

    name: str
    key: str
    image: str
    command: tuple[str, ...] | None = None  # None: the image's own
    entrypoint: tuple[str, ...] | None = None
    env: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    network: str = NO_NETWORK
    aliases: tuple[str, ...] = ()  # its names in the network
    ports: tuple[PublishedPort, ...] = ()
    mounts: tuple[VolumeMount, ...] = ()
    secret_files: Mapping[str, bytes] = {}  # path below SECRETS_PATH -> content, for the container's user alone
    limits: ContainerLimits = ContainerLimits()
    user: str = ""  # a number, or a number and a group's (`1000:1000`); empty: the image's own
    hostname: str = ""
    read_only_root: bool = False
    capabilities: tuple[str, ...] = ()  # all others are dropped
    stop_grace_s: int = 10
    starts_once: bool = False  # it is never started again, so its secret files may be gone when it has stopped

    def __repr__(self) -> str:
        """Show no environment and no secret: specs may be logged."""
        hidden = f"env={sorted(self.env)}, secret_files={sorted(self.secret_files)}"
        return f"ContainerSpec(name={self.name!r}, key={self.key!r}, image={self.image!r}, {hidden})"


class ContainerNetworkSpec(Struct, frozen=True):
    """A network to create; containers in it find each other by name."""

    name: str
    key: str
    labels: Mapping[str, str] = {}


class ContainerVolumeSpec(Struct, frozen=True):
    """A named volume to create."""

    name: str
    key: str
    labels: Mapping[str, str] = {}
    in_memory: bool = False  # while it is in use; its content goes with the last container that uses it


class RegistryLogin(Struct, frozen=True):
    """The credential for a registry."""

    username: str
    password: str
    server: str = ""

    def __repr__(self) -> str:
        """Show no password."""
        return f"RegistryLogin(username={self.username!r}, server={self.server!r})"


# --- what an engine answers ------------------------------------------------------------------------------------------


class ContainerState(StrEnum):
    """The state of a container; `ContainerRecord.native_state` keeps the engine's own word."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    EXITED = "exited"
    REMOVING = "removing"
    DEAD = "dead"
    OTHER = "other"  # a word that is not known here

    @property
    def has_ended(self) -> bool:
        """Whether its program has run and ended, so that it has an exit code."""
        return self in (ContainerState.EXITED, ContainerState.DEAD)


class ContainerRecord(Struct, frozen=True, gc=False):
    """A container as its engine lists or inspects it."""

    id: str
    name: str
    image: str
    image_id: str
    state: ContainerState
    native_state: str
    labels: Mapping[str, str] = {}
    ips: Mapping[str, str] = {}  # network -> address
    ports: tuple[PublishedPort, ...] = ()
    volumes: tuple[str, ...] = ()
    exit_code: int | None = None
    oom_killed: bool | None = None
    started_at: float | None = None
    finished_at: float | None = None
    pid: int | None = None
    error: str = ""

    @property
    def key(self) -> str:
        """The key that it was created with; empty if it is not ours."""
        return self.labels.get(KEY_LABEL, "")


class ContainerImage(Struct, frozen=True):
    """An image that an engine has."""

    id: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()  # name@sha256:...


class ContainerNetwork(Struct, frozen=True):
    """A network of an engine."""

    id: str
    name: str
    labels: Mapping[str, str] = {}


class ContainerVolume(Struct, frozen=True):
    """A named volume of an engine."""

    name: str
    labels: Mapping[str, str] = {}


class ContainerStats(Struct, frozen=True):
    """What a container has used: processor time since its start, the rest at the moment."""

    id: str
    cpu_s: float
    memory_bytes: int
    pids: int


class EngineEvent(Struct, frozen=True):
    """A hint that something may have changed; a listing is the truth."""

    kind: str  # container, image, network, volume
    action: str
    labels: Mapping[str, str] = {}


class PullProgress(Struct, frozen=True):
    """One report of a pull: of a layer, or of the whole image if `layer` is empty."""

    status: str
    layer: str = ""
    done_bytes: int = 0
    total_bytes: int = 0


class LogStream(StrEnum):
    """The stream that output was written to."""

    STDOUT = "stdout"
    STDERR = "stderr"


class LogChunk(Struct, frozen=True):
    """A piece of output; it may begin and end within a line."""

    stream: LogStream
    data: bytes


class ExecEnd(Struct, frozen=True):
    """The end of a command in a container."""

    exit_code: int


class ExecResult(Struct, frozen=True):
    """A command that has ended in a container. Output beyond the limit of the call is dropped and `truncated` set."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False
