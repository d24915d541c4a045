"""The port of container engines: the calls that Docker, Podman and the simulated engine answer alike.

Every call ends: with an answer, with `EngineRefused` (a no), or with `EngineUnavailable` (no answer, which is neither).
Creates are idempotent by name and key: a container of the same name and key is found again, and the name with another
key is refused. Containers, networks and volumes may be named by id or by name. Actions return whether they changed
anything: False means that the container was in the wanted state already.

An engine never restarts a container by itself: there is one authority over the state of a container.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Protocol

from stateward.containers.container_records import (
    ContainerImage,
    ContainerNetwork,
    ContainerNetworkSpec,
    ContainerRecord,
    ContainerSpec,
    ContainerStats,
    ContainerVolume,
    ContainerVolumeSpec,
    EngineEvent,
    ExecEnd,
    ExecResult,
    LogChunk,
    PullProgress,
    RegistryLogin,
)

MAX_OUTPUT_BYTES = 1 << 20
"""How much output of a command is kept by default."""

EXEC_TIMEOUT_S = 60.0


class ContainerEngine(Protocol):
    """An engine on one host. Every method may be called concurrently."""

    async def isolates_networks(self) -> bool:
        """Tell whether networks stay isolated from each other, whatever containers end."""

    # --- containers --------------------------------------------------------------------------------------------------

    async def list_containers(self, labels: Sequence[str] = ()) -> Sequence[ContainerRecord]:
        """List containers in every state, by one call; each label is `name` or `name=value`, and all must match."""

    async def inspect_container(self, container: str) -> ContainerRecord:
        """Return all that the engine knows of a container."""

    async def create_container(self, spec: ContainerSpec) -> str:
        """Create a container, or find it again; returns its id. It is not started."""

    async def start_container(self, container: str) -> bool:
        """Start a container."""

    async def stop_container(self, container: str, grace_s: int | None = None) -> bool:
        """Stop a container by its signal, and kill it after the grace period."""

    async def kill_container(self, container: str, signal: str = "SIGKILL") -> bool:
        """Send a signal to a container's first process."""

    async def pause_container(self, container: str) -> bool:
        """Freeze all processes of a container."""

    async def unpause_container(self, container: str) -> bool:
        """Let the processes of a paused container continue."""

    async def restart_container(self, container: str, grace_s: int | None = None) -> None:
        """Stop a container and start it again."""

    async def remove_container(self, container: str, *, force: bool = False) -> bool:
        """Remove a container with its anonymous volumes and secret files; by force also one that runs."""

    def read_logs(
        self, container: str, *, tail: int | None = None, since: float | None = None
    ) -> AsyncGenerator[LogChunk]:
        """Yield the output of a container, from a time on in whole seconds."""

    async def exec(
        self,
        container: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = {},
        timeout_s: float = EXEC_TIMEOUT_S,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run a command in a container to its end; it is killed with its descendants when it takes too long.

        Raises `ExecTimedOut`, which tells whether the command is over.
        """

    def stream_exec(
        self,
        container: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = {},
    ) -> AsyncGenerator[LogChunk | ExecEnd]:
        """Run a command in a container; yield its output as it comes, and its end.

        A command whose stream is closed before its end is killed, as far as it can be.
        """

    async def read_stats(self, containers: Sequence[str]) -> Sequence[ContainerStats]:
        """Return what running containers use; containers that do not run, or do not exist, are left out."""

    def watch_events(self) -> AsyncGenerator[EngineEvent]:
        """Yield hints of changes from now on, until the engine ends."""

    # --- images ------------------------------------------------------------------------------------------------------

    async def inspect_image(self, image: str) -> ContainerImage:
        """Return an image by its name, digest or id."""

    def pull_image(self, image: str, login: RegistryLogin | None = None) -> AsyncGenerator[PullProgress]:
        """Pull an image, and yield the progress; an image that is pinned by its digest is verified at the end."""

    async def load_images(self, archive: bytes | AsyncIterator[bytes]) -> None:
        """Load images from a tar archive of images."""

    # --- networks and volumes ----------------------------------------------------------------------------------------

    async def create_network(self, spec: ContainerNetworkSpec) -> str:
        """Create a network, or find it again; returns its id."""

    async def list_networks(self, labels: Sequence[str] = ()) -> Sequence[ContainerNetwork]:
        """List networks; labels as for containers."""

    async def remove_network(self, network: str) -> bool:
        """Remove a network that no container uses."""

    async def create_volume(self, spec: ContainerVolumeSpec) -> str:
        """Create a volume, or find it again; returns its name."""

    async def list_volumes(self, labels: Sequence[str] = ()) -> Sequence[ContainerVolume]:
        """List volumes; labels as for containers."""

    async def remove_volume(self, volume: str) -> bool:
        """Remove a volume that no container uses."""

    async def close(self) -> None:
        """Close the connections; containers stay as they are."""
