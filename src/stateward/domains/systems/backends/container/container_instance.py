"""The supervisor of one instance that is a container.

Each step follows from the order, the stored state and the newest listing of the engine. Calls to the engine are made by
one task at a time; while it runs, nothing else is decided, and a listing that began before its end is no evidence. The
number of a start (`boot`) is stored before its container is created, and is part of the container's key. So the next
supervisor finds the container of an interrupted start, and creates none twice.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from stateward.aio.supervise import cancel_tasks
from stateward.containers import (
    ContainerRecord,
    ContainerState,
    EngineRefused,
    EngineUnavailable,
    ExecTimedOut,
    start_created,
)
from stateward.domains.systems.backends.container.container_runner import (
    MAX_ARCHIVE_BYTES,
    ContainerRunner,
    read_output,
)
from stateward.domains.systems.backends.container.container_specs import (
    drift_of,
    find_host_port,
    is_published,
)
from stateward.domains.systems.backends.local.health_check import run_check
from stateward.domains.systems.backends.local.instance_dir import InstanceDir, InstanceOrder, prepare_log
from stateward.domains.systems.backends.local.instance_supervisor import READY_AFTER_S, UNHEALTHY, InstanceSupervisor
from stateward.domains.systems.backends.port import InstancePhase
from stateward.errors import StatewardError
from stateward.procfs import ProcessId
from stateward.workloads.confinement import Confinement

RETRY_S = 1.0
"""When a call that failed is made again."""

REMOVED_BY_HAND = "its container was removed by somebody else"
PAUSED_BY_HAND = "its container was paused by somebody else"
OUT_OF_SIGHT = "its processes cannot be seen on this host, so nobody could end them when the lease of the node ends"
START_UNKNOWN = "the engine did not say whether it was started, and it may run only once"

SIGNAL_BASE = 128
KILLED = SIGNAL_BASE + signal.SIGKILL
"""Exit statuses of programs that were ended by a signal."""

Apply = Callable[[float], None]
"""Changes the state of the instance by what a call has brought; gets the time."""

SETTLED = frozenset({InstancePhase.WAITING, InstancePhase.STARTING, InstancePhase.UP, InstancePhase.CRASHED})


class ContainerInstance(InstanceSupervisor):
    """Supervises one instance that is a container."""

    def __init__(
        self, directory: InstanceDir, order: InstanceOrder, confinement: Confinement, runner: ContainerRunner
    ) -> None:
        super().__init__(directory, order, confinement)
        self._runner = runner
        self._action: asyncio.Task[Apply | None] | None = None
        self._acted_at = 0.0  # the end of the last call, by the monotonic clock
        self._must_kill = False
        self._clean_boot = 0  # the last start whose secret files are known to be removed
        self._is_in_sight = runner.place.sees_container is None  # its processes can be killed without the engine
        self._exit_status: int | None = None

    @property
    def key(self) -> str:
        """The key of its present container."""
        return self._runner.names.container_key(self.dir.ref, self.order.name, self.state.boot)

    @property
    def waits_to_start(self) -> bool:
        """Whether its next step would start a container."""
        return not self.state.container and not self.order.stop

    def close(self) -> None:
        """Stop supervising; the container goes on."""
        super().close()
        if self._action is not None:
            self._action.cancel()

    async def wait_closed(self) -> None:
        """Wait until its call has ended."""
        if self._action is not None:
            await cancel_tasks([self._action])

    def _advance(self, now: float) -> None:
        listing = self._runner.listing
        self._note_silence(listing.problem)
        if self._action is not None and self._action.done():
            self._finish_action(now, self._action)
        if self.is_gone or self._action is not None:
            return
        current = listing.current
        if current is None or listing.problem or current.began < self._acted_at:
            self._watch_unseen(now)
        elif (record := current.containers.get(self.key)) is None:
            self._without_container(now)
        else:
            self._with_container(now, record, current.began)

    def _note_silence(self, problem: str) -> None:
        """Take the phase of an instance as unknown while its engine does not answer; its readiness is as last seen."""
        if problem and (self.state.phase in SETTLED or self.state.phase is InstancePhase.UNKNOWN):
            self.state = replace(self.state, phase=InstancePhase.UNKNOWN, why=problem)
        elif not problem and self.state.phase is InstancePhase.UNKNOWN:
            was_crashed = InstancePhase.CRASHED if self.state.restarts else InstancePhase.STARTING
            phase = InstancePhase.UP if self.state.ready else was_crashed
            self.state = replace(self.state, phase=phase, why="")

    def _watch_unseen(self, now: float) -> None:
        """Check the health of a container that the engine says nothing of: it may serve although the engine is down."""
        if self.state.container and self.state.port and not self.order.stop:
            phase, is_ready = self.state.phase, self.state.ready
            self._watch(now)
            if phase is InstancePhase.UNKNOWN or is_ready:
                self.state = replace(self.state, phase=phase)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _act(self, call: Coroutine[Any, Any, Apply | None]) -> None:
        self._action = asyncio.create_task(call)
        self._action.add_done_callback(lambda _: self._runner.notify())

    def _finish_action(self, now: float, action: "asyncio.Task[Apply | None]") -> None:
        self._action, self._acted_at = None, time.monotonic()
        self._runner.listing.request_refresh()
        if action.cancelled():
            return
        try:
            apply = action.result()
        except StatewardError as error:  # the next listing tells what has become of it
            self.state = replace(self.state, why=str(error))
            self._backoff_until = now + RETRY_S
            return
        if apply is not None:
            apply(now)

    # --- start -------------------------------------------------------------------------------------------------------

    def _without_container(self, now: float) -> None:
        state = self.state
        if self._may_have_left_secrets:
            self._act(self._remove_left_secrets())
        elif self.order.stop:
            self._remove()
        elif state.launching and self.order.run_once and state.start_sent:
            self._crashed(now, REMOVED_BY_HAND)
        elif state.launching:  # an earlier call did not get as far as that
            self._launch_boot(state.boot)
        elif state.container:
            self._crashed(now, REMOVED_BY_HAND)
        elif now >= state.due and state.phase is not InstancePhase.ENDED:
            self._launch_boot(state.boot + 1)

    @property
    def _has_secret_files(self) -> bool:
        return any(secret.delivery == "file" for secret in self.order.service.secrets.values())

    @property
    def _may_have_left_secrets(self) -> bool:
        """Whether a container that is gone may have left its secret files: somebody, or a crash, removed it alone."""
        is_over = self.order.stop or not self.state.launching
        return self._has_secret_files and is_over and self._clean_boot != self.state.boot

    async def _remove_left_secrets(self) -> None:
        boot = self.state.boot
        name = self._runner.names.container(self.dir.ref, self.order.name, boot)
        with suppress(EngineRefused):  # somebody else uses them
            await self._runner.engine.remove_container(name)
        self._clean_boot = boot

    def _launch_boot(self, boot: int) -> None:
        phase = InstancePhase.WAITING if not self.state.restarts else self.state.phase
        self._failures, self._checked_at, self._must_kill = 0, 0.0, False
        self._is_in_sight = self._runner.place.sees_container is None
        self.state = replace(self.state, boot=boot, launching=True, phase=phase, port=None, start_sent=False)
        self._write()  # before the call: the next supervisor must know that there may be a container
        self._act(self._create())

    async def _create(self) -> Apply | None:
        async with self._runner.starts:
            if self.order.stop:
                return None
            if self.state.phase is InstancePhase.WAITING:
                self.state = replace(self.state, phase=InstancePhase.STARTING)
            try:
                container = await self._runner.create(self.dir.ref, self.order, self.state.boot, self._note_progress)
                return await self._start(container)
            except EngineUnavailable:
                raise
            except StatewardError as error:
                return partial(self._crashed, why=str(error))

    async def _note_progress(self, text: str) -> None:
        """Show what a start waits for; the phase stays."""
        self.state = replace(self.state, why=text)

    async def _start(self, container: str) -> Apply | None:
        if not self._runner.place.may_launch():
            return None
        self._note_container(container)
        if self.order.run_once:
            await self._runner.engine.start_container(container)
        else:
            container = (await start_created(self._runner.engine, container, self._create_again)).id
        port = None
        if is_published(self.order.service):  # a listing would wait for all containers that are being started
            port = find_host_port(await self._runner.engine.inspect_container(container), self.order.service)
        return partial(self._started, container, port)

    def _note_container(self, container: str) -> None:
        """Store a container before its start: whoever ends the processes of a container finds them by its id."""
        self.state = replace(self.state, container=container, since=time.time(), start_sent=self.order.run_once)
        self._write()

    async def _create_again(self) -> str:
        container = await self._runner.create(self.dir.ref, self.order, self.state.boot, self._note_progress)
        self._note_container(container)
        return container

    def _started(self, container: str, port: int | None, now: float) -> None:
        self.state = replace(self.state, container=container, port=port, since=now)

    # --- a container that exists -------------------------------------------------------------------------------------

    def _with_container(self, now: float, record: ContainerRecord, listed_at: float) -> None:
        state = self.state
        if self.order.stop:
            self._stop_container(now, record)
        elif not state.launching and not state.container:  # it has crashed or ended, which is stored
            self._act(self._remove_container(record))
        elif record.state is ContainerState.CREATED:
            self._start_again(now, record)
        elif record.state.has_ended:
            self._act(self._collect_end(record))
        elif record.state is ContainerState.PAUSED:
            self.state = replace(state, ready=False, phase=InstancePhase.STARTING, why=PAUSED_BY_HAND)
            self._act(self._unpause(record))
        elif record.state is ContainerState.RUNNING:
            self._watch_running(now, record, listed_at)

    def _start_again(self, now: float, record: ContainerRecord) -> None:
        if self.order.run_once and self.state.start_sent:
            self._crashed(now, START_UNKNOWN)
        else:  # a call that was interrupted, or a boot of the host, may have left it without its secret files
            self._act(self._create() if self._has_secret_files else self._start(record.id))

    def _watch_running(self, now: float, record: ContainerRecord, listed_at: float) -> None:
        port, service = find_host_port(record, self.order.service), self.order.service
        if self.state.launching or (self.state.container, self.state.port) != (record.id, port):
            since = self.state.since if self.state.container == record.id else now
            self.state = replace(self.state, launching=False, container=record.id, port=port, since=since)
        names = self._runner.names
        spec = names.container_spec(self.dir.ref, self.order, self.state.boot, self._runner.reach)
        if drift := drift_of(record, spec):
            self._act(self._replace_changed(record, drift))
        elif self._must_kill:
            self._act(self._signal(record, "SIGKILL"))
        elif not self._is_in_sight:
            self._act(self._look_for_processes(record))
        elif service.health is None:
            self._watch_unchecked(now, listed_at)
        elif service.health.command is not None or port is not None:
            self._watch(now)

    def _watch_unchecked(self, now: float, listed_at: float) -> None:
        """Count a container without a health check as ready when it has been seen to run for a moment."""
        if listed_at - self._acted_at >= READY_AFTER_S:
            self._mark_ready(now)
        elif not self.state.ready:
            self._runner.listing.request_refresh()

    async def _look_for_processes(self, record: ContainerRecord) -> Apply | None:
        """Check that its processes can be found on this host; otherwise remove it."""
        container, sees = await self._runner.engine.inspect_container(record.id), self._runner.place.sees_container
        if container.state is not ContainerState.RUNNING or sees is None or sees(container.pid or 0, record.id):
            self._is_in_sight = container.state is ContainerState.RUNNING
            return None
        again = await self._runner.engine.inspect_container(record.id)
        if (again.state, again.pid) != (container.state, container.pid):  # it has ended meanwhile
            return None
        await self._runner.engine.remove_container(record.id, force=True)
        return partial(self._crashed, why=OUT_OF_SIGHT)

    async def _replace_changed(self, record: ContainerRecord, drift: str) -> Apply:
        await self._archive(record)
        await self._runner.engine.remove_container(record.id, force=True)
        return partial(self._crashed, why=f"its container was changed by somebody else: {drift}")

    async def _unpause(self, record: ContainerRecord) -> None:
        await self._runner.engine.unpause_container(record.id)

    async def _signal(self, record: ContainerRecord, name: str) -> None:
        await self._runner.engine.kill_container(record.id, name)

    # --- health ------------------------------------------------------------------------------------------------------

    async def _looking(self) -> str:
        check = self.order.service.health
        assert check is not None
        run = partial(self._run_check_command, self.state.container, check.timeout)
        host = self._runner.reach.host
        return await run_check(check, self.state.port or 0, run, host, is_proxied=True)

    async def _run_check_command(self, container: str, timeout_s: float, command: tuple[str, ...]) -> str:
        try:
            done = await self._runner.engine.exec(container, command, timeout_s=timeout_s, max_output=1_000)
        except ExecTimedOut:
            return f"no answer within {timeout_s:g} s"
        except StatewardError as error:
            return str(error)
        return "" if done.exit_code == 0 else f"{command[0]} ended with {done.exit_code}"

    def _kill_all(self, process: ProcessId | None) -> bool:  # noqa: ARG002 - a container has one name for all of them
        """Kill an unhealthy container, after a new listing has told whether somebody has changed it."""
        self._must_kill, self._acted_at = True, time.monotonic()
        self._runner.listing.request_refresh()
        return True

    # --- end ---------------------------------------------------------------------------------------------------------

    async def _collect_end(self, record: ContainerRecord) -> Apply:
        """Keep the output and the exit status of a container; it is removed after they are stored."""
        container = await self._runner.engine.inspect_container(record.id)
        await self._archive(record)
        return partial(self._container_ended, container)

    def _container_ended(self, container: ContainerRecord, now: float) -> None:
        self._exit_status = container.exit_code
        is_unhealthy = self.state.why.startswith(UNHEALTHY)
        self._crashed(
            now,
            self.state.why if is_unhealthy else self._reason(end_text(container, self.order.service.resources.memory)),
        )

    def _crashed(self, now: float, why: str) -> None:
        super()._crashed(now, why)
        self.state = replace(self.state, launching=False, container="", port=None)

    def _ended(self, now: float, why: str) -> None:
        status = self._exit_status
        self.state = replace(
            self.state,
            phase=InstancePhase.ENDED,
            ready=False,
            since=now,
            why="" if status == 0 else why,
            exit_status=status,
        )

    async def _archive(self, record: ContainerRecord) -> None:
        """Append the end of a container's output to the log of its instance."""
        data, _ = await read_output(self._runner.engine, record.id, MAX_ARCHIVE_BYTES)
        prepare_log(self.dir.log)
        with self.dir.log.open("ab") as stream:
            stream.write(data)

    async def _remove_container(self, record: ContainerRecord) -> None:
        await self._runner.engine.remove_container(record.id, force=True)

    def _stop_container(self, now: float, record: ContainerRecord) -> None:
        """Drain it, then send SIGTERM, then kill and remove it; each after its time."""
        service = self.order.service
        has_run = record.state.has_ended or self.state.phase is InstancePhase.ENDED
        if has_run or record.state is ContainerState.CREATED:
            self._act(self._end_container(record))
            return
        if self.state.phase is not InstancePhase.STOPPING or not self._stop_since:
            self._stop_since = now
            self.state = replace(self.state, phase=InstancePhase.STOPPING, ready=False)
            return
        waited = now - self._stop_since
        if waited > service.drain + service.grace:
            self._act(self._end_container(record))
        elif waited > service.drain and not self._was_terminated:
            self._was_terminated = True
            self._act(self._signal(record, "SIGTERM"))

    def _remove(self) -> None:
        super()._remove()
        self._runner.removed_at = time.monotonic()

    async def _end_container(self, record: ContainerRecord) -> Apply:
        if self.state.phase is not InstancePhase.ENDED:  # its output is kept already
            await self._archive(record)
        await self._runner.engine.remove_container(record.id, force=True)
        return lambda _: self._remove()


def end_text(container: ContainerRecord, memory_mib: int | None) -> str:
    """Describe how a container ended; not every engine notices that the kernel killed one for its memory."""
    code = container.exit_code
    if container.oom_killed:
        return "killed because it needed more memory than it may use"
    if code == KILLED and memory_mib is not None:
        return f"killed by SIGKILL, perhaps because it needed more than its {memory_mib} MiB of memory"
    if code is None:
        return "its container has ended"
    by_signal = code - SIGNAL_BASE in signal.Signals.__members__.values()
    said = f"killed by {signal.Signals(code - SIGNAL_BASE).name}" if by_signal else f"ended with {code}"
    return f"{said} ({container.error})" if container.error else said
