"""The client of Docker and Podman, over the Docker Engine API."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from stateward.containers import engine_wire as wire
from stateward.containers import resource_wire
from stateward.containers.container_records import (
    KEY_LABEL,
    SECRETS_LABEL,
    SECRETS_PATH,
    ContainerRecord,
    ContainerSpec,
    ContainerState,
    ContainerStats,
    ContainerVolumeSpec,
)
from stateward.containers.engine_commands import EngineCommands
from stateward.containers.engine_images import EngineImages
from stateward.containers.engine_output import EngineOutput
from stateward.containers.engine_requests import (
    check_spec,
    container_body,
    container_path,
    label_filters,
    secrets_archive,
    secrets_volume,
)
from stateward.containers.engine_resources import EngineResources
from stateward.containers.engine_transport import CALL_TIMEOUT_S, PODMAN_API, EngineTls, EngineTransport
from stateward.containers.errors import EngineRefusal, EngineRefused, EngineUnavailable
from stateward.containers.network_isolation import NetworkIsolation

NOT_MODIFIED = 304
PARALLEL_STATS = 8
"""How many requests for statistics are under way at once, where an engine has none for many containers."""

NAME_TRIES, NAME_RETRY_S = 3, 0.5
"""How often, and with which pauses, a container is looked for whose name is taken."""

DEFAULT_GRACE_S = 10
"""How long an engine waits before it kills, where neither the spec nor the call says."""

_LISTED = msgspec.json.Decoder(list[wire.ListedContainer])
_LISTED_BY_PODMAN = msgspec.json.Decoder(list[wire.PodmanListed])
_INSPECTED = msgspec.json.Decoder(wire.InspectedContainer)
_CREATED = msgspec.json.Decoder(resource_wire.CreatedJson)
_STATS = msgspec.json.Decoder(wire.StatsJson)
_MANY_STATS = msgspec.json.Decoder(wire.PodmanStatsList)
_INFO = msgspec.json.Decoder(resource_wire.InfoJson)
_VERSION = msgspec.json.Decoder(resource_wire.VersionJson)

_MAY_BE_DONE = (EngineRefusal.CONFLICT, EngineRefusal.FAILED, EngineRefusal.DAMAGED)
_RUNS = (ContainerState.RUNNING,)
_PAUSED = (ContainerState.PAUSED,)
_ENDED = (ContainerState.EXITED, ContainerState.DEAD, ContainerState.CREATED)


class EngineClient(EngineImages, EngineResources, EngineOutput, EngineCommands):
    """An engine behind an address: `unix:///PATH`, or `tcp://HOST:PORT` with TLS."""

    def __init__(self, address: str, tls: EngineTls | None = None, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._transport = EngineTransport(address, tls, timeout_s)
        self._isolation = NetworkIsolation(address)
        self._timeout_s = timeout_s
        self._has_init: bool | None = None  # None: not known yet
        self._rootless: bool | None = None
        self._version = ""

    async def close(self) -> None:
        """Close the connections; containers stay as they are."""
        await self._transport.close()

    # --- containers --------------------------------------------------------------------------------------------------

    async def list_containers(self, labels: Sequence[str] = ()) -> Sequence[ContainerRecord]:
        """List containers in every state, by one call; a second one, if the engine has to be mended first."""
        params = {"all": "true", "filters": label_filters(labels)}
        try:
            listed = await self._transport.read(_LISTED, "list containers", "/containers/json", params=params)
        except EngineRefused as error:
            if error.reason is not EngineRefusal.DAMAGED:
                raise
            await self._finish_removals()
            listed = await self._transport.read(_LISTED, "list containers", "/containers/json", params=params)
        return [wire.listed_record(container) for container in listed]

    async def inspect_container(self, container: str) -> ContainerRecord:
        """Return all that the engine knows of a container."""
        path = f"{container_path(container)}/json"
        return wire.inspected_record(await self._transport.read(_INSPECTED, f"inspect {container}", path))

    async def create_container(self, spec: ContainerSpec) -> str:
        """Create a container, or find it again; returns its id. It is not started.

        Secret files are written between creation and start, so a container that was found as created gets them again.
        """
        check_spec(spec)
        in_memory = bool(spec.secret_files) and spec.starts_once and await self._initialises_containers()
        if spec.secret_files:
            labels = {SECRETS_LABEL: spec.name}
            await self.create_volume(ContainerVolumeSpec(secrets_volume(spec), spec.key, labels, in_memory))
        try:
            container, has_started = await self._create_or_find(spec)
        except EngineRefused:
            if spec.secret_files:
                with suppress(EngineRefused, EngineUnavailable):  # it is in use if another call has created it
                    await self.remove_volume(secrets_volume(spec))
            raise
        if spec.secret_files and not has_started:
            if in_memory:  # mounts the volume, which would lose the files after the call that writes them
                path = f"{PODMAN_API}{container_path(container)}/init"
                await self._transport.call(f"initialise {spec.name}", "POST", path)
            await self._put_secrets(container, spec)
        return container

    async def _initialises_containers(self) -> bool:
        """Tell whether the engine can mount the volumes of a container before its start.

        Docker has no such call, and a Podman without root mounts no volume in memory.
        """
        if self._has_init is None:
            await self._transport.negotiate()
            self._has_init = self._transport.is_podman and not await self._is_rootless()
        return self._has_init

    async def _is_rootless(self) -> bool:
        if self._rootless is None:
            info = await self._transport.read(_INFO, "info", "/info")
            self._rootless = any("rootless" in option for option in info.SecurityOptions or ())
        return self._rootless

    async def isolates_networks(self) -> bool:
        """Tell whether networks stay isolated from each other, whatever containers end."""
        await self._transport.negotiate()
        return not self._transport.is_podman or await self._isolation.keep(self._is_rootless, self._podman_version)

    async def _keep_networks_isolated(self) -> None:
        with suppress(EngineRefused, EngineUnavailable):  # the next call makes up for it
            await self.isolates_networks()

    async def _podman_version(self) -> str:
        if not self._version:
            self._version = (await self._transport.read(_VERSION, "version", "/version")).Version or ""
        return self._version

    async def _create_or_find(self, spec: ContainerSpec) -> tuple[str, bool]:
        """Return the id of a container, and whether it was started before."""
        params, body = {"name": spec.name}, container_body(spec)
        call, path = f"create {spec.name}", "/containers/create"
        try:
            return (await self._transport.read(_CREATED, call, path, "POST", params=params, json=body)).id, False
        except EngineRefused as error:
            if error.reason is EngineRefusal.NOT_FOUND and "network" not in error.message:
                raise EngineRefused(EngineRefusal.IMAGE_MISSING, call, error.message) from error
            if error.reason is not EngineRefusal.NAME_TAKEN:
                raise
            record = await self._find_created(spec.name)
            if record is None:
                await self._remove_by_force(spec.name)
                return (await self._transport.read(_CREATED, call, path, "POST", params=params, json=body)).id, False
            if record.key != spec.key:
                raise
            return record.id, record.state is not ContainerState.CREATED

    async def _find_created(self, name: str) -> ContainerRecord | None:
        """Return the container that has a name, once it is there; None if nothing but its name is.

        A Podman that is killed while it creates a container leaves the name with files that belong to no container.
        """
        for last in (*[False] * NAME_TRIES, True):
            try:
                return await self.inspect_container(name)
            except EngineRefused as error:
                if error.reason is not EngineRefusal.NOT_FOUND or (last and not self._transport.is_podman):
                    raise
            if not last:
                await asyncio.sleep(NAME_RETRY_S)  # another call may just create it
        return None

    async def _put_secrets(self, container: str, spec: ContainerSpec) -> None:
        await self._transport.call(
            f"write the secret files of {spec.name}",
            "PUT",
            f"{container_path(container)}/archive",
            params={"path": SECRETS_PATH},
            content=secrets_archive(spec),
            headers={"Content-Type": "application/x-tar"},
        )

    async def start_container(self, container: str) -> bool:
        """Start a container; a start that fails over the remains of an interrupted one has removed them."""
        try:
            has_started = await self._act(container, "start", _RUNS)
        except EngineRefused as error:
            if error.reason is not EngineRefusal.DAMAGED:
                raise
            has_started = await self._act(container, "start", _RUNS)
        await self._keep_networks_isolated()
        return has_started

    async def stop_container(self, container: str, grace_s: int | None = None) -> bool:
        """Stop a container by its signal, and kill it after the grace period."""
        return await self._act(container, "stop", _ENDED, grace_s)

    async def kill_container(self, container: str, signal: str = "SIGKILL") -> bool:
        """Send a signal to a container's first process."""
        return await self._act(container, "kill", _ENDED, signal=signal)

    async def pause_container(self, container: str) -> bool:
        """Freeze all processes of a container."""
        return await self._act(container, "pause", _PAUSED)

    async def unpause_container(self, container: str) -> bool:
        """Let the processes of a paused container continue."""
        return await self._act(container, "unpause", _RUNS)

    async def restart_container(self, container: str, grace_s: int | None = None) -> None:
        """Stop a container and start it again."""
        await self._act(container, "restart", (), grace_s)

    async def _act(
        self,
        container: str,
        action: str,
        wanted: Sequence[ContainerState],
        grace_s: int | None = None,
        *,
        signal: str = "",
    ) -> bool:
        """Carry out an action; a refusal counts as done if the container is in a wanted state."""
        params = {**({} if grace_s is None else {"t": str(grace_s)}), **({"signal": signal} if signal else {})}
        waits_s = (DEFAULT_GRACE_S if grace_s is None else grace_s) if action in ("stop", "restart") else 0
        try:
            answer = await self._transport.call(
                f"{action} {container}",
                "POST",
                f"{container_path(container)}/{action}",
                self._timeout_s + waits_s,
                params=params,
            )
        except EngineRefused as error:
            if error.reason not in _MAY_BE_DONE or not wanted:
                raise
            with suppress(EngineRefused, EngineUnavailable):
                if (await self.inspect_container(container)).state in wanted:
                    return False
            raise
        return answer.status_code != NOT_MODIFIED

    async def remove_container(self, container: str, *, force: bool = False) -> bool:
        """Remove a container with its anonymous volumes and secret files; by force also one that runs.

        Secret files are also removed if an earlier call was interrupted, and their container is named.
        """
        try:
            record = await self.inspect_container(container)
            if force and record.state in (ContainerState.RUNNING, ContainerState.PAUSED):
                await self.kill_container(container)  # Podman would first try its signal, and wait
            params = {"force": str(force).lower(), "v": "true"}
            timeout_s = self._timeout_s + DEFAULT_GRACE_S
            await self._transport.call(
                f"remove {container}", "DELETE", container_path(container), timeout_s, params=params
            )
        except EngineRefused as error:
            if error.reason is EngineRefusal.DAMAGED:
                return await self._finish_removals() > 0
            if error.reason is not EngineRefusal.NOT_FOUND:
                raise
            await self._remove_secrets(container)
            return False
        if SECRETS_LABEL in record.labels:
            await self._remove_secrets(record.name)
        return True

    async def _finish_removals(self) -> int:
        """Finish the removals of our containers that a killed Podman has left half done; returns their number.

        Their layers are gone, and until they are removed, Podman refuses every listing in the form of Docker's.
        """
        params = {"all": "true", "filters": label_filters([KEY_LABEL])}
        path = f"{PODMAN_API}/containers/json"
        listed = await self._transport.read(_LISTED_BY_PODMAN, "list half-removed containers", path, params=params)
        left = [container for container in listed if container.State == ContainerState.REMOVING]
        for container in left:
            await self._remove_by_force(container.Id)
            for name in container.Names or ():
                await self._remove_secrets(name)
        return len(left)

    async def _remove_by_force(self, container: str) -> None:
        """Remove what is left of a container, if anything."""
        params = {"force": "true", "v": "true"}
        try:
            await self._transport.call(f"remove {container}", "DELETE", container_path(container), params=params)
        except EngineRefused as error:
            if error.reason is not EngineRefusal.NOT_FOUND:
                raise

    async def _remove_secrets(self, name: str) -> None:
        for volume in await self.list_volumes((f"{SECRETS_LABEL}={name}", KEY_LABEL)):
            await self.remove_volume(volume.name)

    # --- statistics --------------------------------------------------------------------------------------------------

    async def read_stats(self, containers: Sequence[str]) -> Sequence[ContainerStats]:
        """Return what running containers use; Podman has one call for many."""
        await self._transport.negotiate()
        if self._transport.is_podman and len(containers) > 1:
            stats = await self._read_podman_stats(containers)
            if stats is not None:
                return stats
        gate = asyncio.Semaphore(PARALLEL_STATS)
        each = await asyncio.gather(*(self._read_stats_of(container, gate) for container in containers))
        return [record for record in each if record is not None]

    async def _read_podman_stats(self, containers: Sequence[str]) -> Sequence[ContainerStats] | None:
        """Return the statistics of many containers, or None if one does not exist: Podman then refuses all."""
        params = {"stream": "false", "containers": list(containers)}
        path = f"{PODMAN_API}/containers/stats"
        try:
            answer = await self._transport.read(_MANY_STATS, "read statistics", path, params=params)
        except EngineRefused:
            return None
        if answer.error is not None:
            return None
        return [wire.podman_stats_record(stats) for stats in answer.stats or () if stats.PIDs]

    async def _read_stats_of(self, container: str, gate: asyncio.Semaphore) -> ContainerStats | None:
        call, params = f"read statistics of {container}", {"stream": "false", "one-shot": "true"}
        async with gate:
            try:
                answer = await self._transport.call(call, "GET", f"{container_path(container)}/stats", params=params)
            except EngineRefused as error:
                if error.reason in (EngineRefusal.NOT_FOUND, EngineRefusal.CONFLICT):
                    return None
                raise
        if not answer.content:  # Podman's answer for a container that does not run
            return None
        return wire.stats_record(container, self._transport.decode(_STATS, call, answer.content))
