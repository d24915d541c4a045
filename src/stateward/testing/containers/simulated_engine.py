"""A container engine in memory, with the port of the real ones, for demonstrations, load and tests.

It has latency and faults to order: it can be down, hang, lose an answer after the work is done, be out of disk, and
kill a container for its memory. Everything else is as the real engines do it; one contract suite runs on both.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from time import time

from stateward.containers.container_records import (
    KEY_LABEL,
    SECRETS_LABEL,
    ContainerRecord,
    ContainerSpec,
    ContainerState,
    ContainerStats,
    ContainerVolume,
    EngineEvent,
    ExecEnd,
    ExecResult,
    LogChunk,
)
from stateward.containers.engine_commands import collect_output
from stateward.containers.engine_requests import check_spec, container_labels, has_labels, secrets_volume
from stateward.containers.errors import EngineRefusal, EngineRefused, ExecTimedOut
from stateward.containers.port import EXEC_TIMEOUT_S, MAX_OUTPUT_BYTES
from stateward.testing.containers.simulated_container import SimulatedContainer, new_id
from stateward.testing.containers.simulated_faults import SimulatedFaults
from stateward.testing.containers.simulated_programs import PROGRAMS, Program, ProgramInput, run_program
from stateward.testing.containers.simulated_resources import SimulatedResources

_ENDED = (ContainerState.EXITED, ContainerState.CREATED)


class SimulatedEngine(SimulatedResources):
    """An engine in memory. `faults` is to be changed at will; `programs` adds programs by name."""

    def __init__(
        self,
        images: Sequence[str] = (),
        *,
        faults: SimulatedFaults | None = None,
        programs: Mapping[str, Program] = {},
        registry: Mapping[str, int] = {},
        clock: Callable[[], float] = time,
    ) -> None:
        super().__init__(images, faults or SimulatedFaults(), registry)
        self._clock = clock
        self.keeps_isolation = True
        self._programs = {**PROGRAMS, **programs}
        self._ids: dict[str, str] = {}  # of containers, by name
        self._watchers: set[asyncio.Queue[EngineEvent]] = set()

    # --- the engine --------------------------------------------------------------------------------------------------

    async def isolates_networks(self) -> bool:
        """Tell whether networks stay isolated from each other."""
        return self.keeps_isolation

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    # --- containers --------------------------------------------------------------------------------------------------

    async def list_containers(self, labels: Sequence[str] = ()) -> Sequence[ContainerRecord]:
        """List containers in every state."""
        await self.faults.pass_call("list containers")
        records = [simulated.listed(self._clock()) for simulated in self._containers.values()]
        return [record for record in records if has_labels(record.labels, labels)]

    async def inspect_container(self, container: str) -> ContainerRecord:
        """Return all that the engine knows of a container."""
        await self.faults.pass_call("inspect")
        return self._find(container, "inspect").record(self._clock())

    async def create_container(self, spec: ContainerSpec) -> str:
        """Create a container, or find it again; returns its id."""
        check_spec(spec)
        async with self.faults.answering("create"):
            return self._create(spec)

    def _create(self, spec: ContainerSpec) -> str:
        call = f"create {spec.name}"
        if spec.name in self._ids:
            simulated = self._containers[self._ids[spec.name]]
            if simulated.spec.key != spec.key:
                raise EngineRefused(EngineRefusal.NAME_TAKEN, call, f"the name {spec.name!r} is already in use")
            return simulated.id
        image = self._find_image(spec.image)
        if image is None:
            raise EngineRefused(EngineRefusal.IMAGE_MISSING, call, f"no such image: {spec.image}")
        if spec.network not in ("none", "bridge", "host", *self._networks):
            raise EngineRefused(EngineRefusal.NOT_FOUND, call, f"network {spec.network} not found")
        self.faults.check_disk(call)
        if spec.secret_files:
            name = secrets_volume(spec)
            self._volumes[name] = ContainerVolume(name, {KEY_LABEL: spec.key, SECRETS_LABEL: spec.name})
        for mount in spec.mounts:
            if mount.volume:
                self._volumes.setdefault(mount.volume, ContainerVolume(mount.volume))
        made = SimulatedContainer(new_id(), spec, container_labels(spec), image.id)
        self._containers[made.id], self._ids[spec.name] = made, made.id
        self._tell("container", "create", made)
        return made.id

    async def start_container(self, container: str) -> bool:
        """Start a container."""
        async with self.faults.answering("start"):
            simulated = self._find(container, "start")
            if simulated.state(self._clock()) is ContainerState.RUNNING:
                return False
            self._start(simulated)
            return True

    def _start(self, simulated: SimulatedContainer) -> None:
        call, now = f"start {simulated.spec.name}", self._clock()
        self.faults.check_start(call, simulated.id)
        if simulated.state(now) is ContainerState.PAUSED:
            raise EngineRefused(EngineRefusal.CONFLICT, call, "it is paused")
        taken = {
            (port.host_ip, port.host_port)
            for other in self._containers.values()
            if other is not simulated and other.is_up(now)
            for port in other.ports
        }
        for port in simulated.spec.ports:
            if (port.host_ip, port.host_port) in taken:
                raise EngineRefused(EngineRefusal.PORT_TAKEN, call, f"port {port.host_port} is already allocated")
        self.faults.check_disk(call)
        spec = simulated.spec
        argv = (*(spec.entrypoint or ()), *(spec.command or ()))
        simulated.start(run_program(ProgramInput(argv, spec.env, spec.secret_files), self._programs), now, taken)
        self._tell("container", "start", simulated)

    async def stop_container(self, container: str, grace_s: int | None = None) -> bool:  # noqa: ARG002 - the port's
        """Stop a container by its signal; simulated programs obey it at once."""
        return await self._end(container, "stop", 143)

    async def kill_container(self, container: str, signal: str = "SIGKILL") -> bool:
        """Send a signal to a container's first process; each ends a simulated one."""
        return await self._end(container, "kill", 137 if signal.endswith("KILL") else 143)

    async def _end(self, container: str, call: str, exit_code: int) -> bool:
        async with self.faults.answering(call):
            simulated = self._find(container, call)
            if simulated.state(self._clock()) in _ENDED:
                return False
            simulated.end(exit_code, self._clock())
            self._tell("container", "die", simulated)
            return True

    async def pause_container(self, container: str) -> bool:
        """Freeze a container."""
        return await self._freeze(container, "pause", ContainerState.RUNNING, ContainerState.PAUSED)

    async def unpause_container(self, container: str) -> bool:
        """Let a paused container continue."""
        return await self._freeze(container, "unpause", ContainerState.PAUSED, ContainerState.RUNNING)

    async def _freeze(self, container: str, call: str, source: ContainerState, target: ContainerState) -> bool:
        async with self.faults.answering(call):
            simulated = self._find(container, call)
            state = simulated.state(self._clock())
            if state is target:
                return False
            if state is not source:
                raise EngineRefused(EngineRefusal.CONFLICT, f"{call} {container}", f"it is {state}")
            simulated.freeze(target is ContainerState.PAUSED, self._clock())
            self._tell("container", call, simulated)
            return True

    async def restart_container(self, container: str, grace_s: int | None = None) -> None:  # noqa: ARG002 - the port's
        """Stop a container and start it again."""
        async with self.faults.answering("restart"):
            simulated = self._find(container, "restart")
            if simulated.is_up(self._clock()):
                simulated.end(143, self._clock())
                self._tell("container", "die", simulated)
            self._start(simulated)

    async def remove_container(self, container: str, *, force: bool = False) -> bool:
        """Remove a container with its secret files; by force also one that runs."""
        async with self.faults.answering("remove"):
            try:
                simulated = self._find(container, "remove")
            except EngineRefused:
                return False
            if simulated.is_up(self._clock()) and not force:
                raise EngineRefused(EngineRefusal.CONFLICT, f"remove {container}", "it is running")
            simulated.end(137, self._clock())
            del self._containers[simulated.id], self._ids[simulated.spec.name]
            self._volumes.pop(simulated.labels.get(SECRETS_LABEL, ""), None)
            self._tell("container", "destroy", simulated)
            return True

    async def read_logs(
        self, container: str, *, tail: int | None = None, since: float | None = None
    ) -> AsyncGenerator[LogChunk]:
        """Yield the output of a container; `tail` counts lines."""
        await self.faults.pass_call("read logs")
        simulated = self._find(container, "read logs")
        for chunk in simulated.output(tail, since):
            yield chunk

    async def exec(
        self,
        container: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = {},
        timeout_s: float = EXEC_TIMEOUT_S,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run a command in a container to its end; raises `ExecTimedOut`."""
        chunks = self.stream_exec(container, argv, env=env)
        try:
            return await collect_output(chunks, timeout_s, max_output)
        except TimeoutError as error:
            raise ExecTimedOut(container, timeout_s, is_over=True) from error

    async def stream_exec(
        self,
        container: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = {},
    ) -> AsyncGenerator[LogChunk | ExecEnd]:
        """Run a command in a container; yield its output, and its end."""
        await self.faults.pass_call("exec")
        simulated = self._find(container, "exec")
        if (state := simulated.state(self._clock())) is not ContainerState.RUNNING:
            raise EngineRefused(EngineRefusal.CONFLICT, f"run a command in {container}", f"it is {state}")
        if argv[0] not in self._programs:
            raise EngineRefused(EngineRefusal.INVALID, f"run a command in {container}", f"{argv[0]} not found")
        given = ProgramInput(argv, {**simulated.spec.env, **env}, simulated.spec.secret_files)
        run = run_program(given, self._programs)
        simulated.commands += 1
        try:
            for chunk in run.output:
                yield chunk
            await asyncio.sleep(run.seconds)
        finally:
            simulated.commands -= 1
        yield ExecEnd(run.exit_code or 0)

    async def read_stats(self, containers: Sequence[str]) -> Sequence[ContainerStats]:
        """Return what running containers use."""
        await self.faults.pass_call("read stats")
        now, stats = self._clock(), []
        for name in containers:
            simulated = self._containers.get(self._ids.get(name, name))
            if simulated is not None and simulated.is_up(now):
                stats.append(simulated.stats(now))
        return stats

    async def watch_events(self) -> AsyncGenerator[EngineEvent]:
        """Yield hints of changes from now on."""
        await self.faults.pass_call("watch events")
        queue: asyncio.Queue[EngineEvent] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)

    # --- what happens without a call ---------------------------------------------------------------------------------

    def kill_for_memory(self, container: str) -> None:
        """End a container as the kernel does when it is out of memory."""
        simulated = self._find(container, "oom")
        simulated.end(137, self._clock(), oom_killed=True)
        self._tell("container", "oom", simulated)

    def end_program(self, container: str, exit_code: int) -> None:
        """End a container's first process."""
        simulated = self._find(container, "end")
        simulated.end(exit_code, self._clock())
        self._tell("container", "die", simulated)

    def _find(self, container: str, call: str) -> SimulatedContainer:
        simulated = self._containers.get(self._ids.get(container, container))
        if simulated is None:
            raise EngineRefused(EngineRefusal.NOT_FOUND, f"{call} {container}", f"no such container: {container}")
        return simulated

    def _tell(self, kind: str, action: str, container: SimulatedContainer) -> None:
        event = EngineEvent(kind, action, container.labels)
        for queue in self._watchers:
            queue.put_nowait(event)
