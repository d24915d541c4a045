"""The supervisor of one instance: it starts it, checks its health, restarts it after a crash, and stops it.

Every step is stored before the next one, so that the next supervisor continues after a crash of this one: a running
process is taken over, and none is started twice. An instance that runs once is not restarted: it stays as ended, with
its exit status, until it is stopped.
"""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from stateward.domains.systems.backends.local import health_check
from stateward.domains.systems.backends.local.instance_dir import PROXY, InstanceDir, InstanceOrder, LocalInstanceState
from stateward.domains.systems.backends.local.launch import (
    environment_of,
    exit_text,
    find_unrecorded,
    kill_all,
    last_log_line,
    launch,
    read_exit,
    sandbox_of,
    secret_files,
    start_dir,
)
from stateward.domains.systems.backends.port import InstancePhase, ReadSecrets, no_secrets
from stateward.domains.systems.definition import Resources
from stateward.errors import StatewardError
from stateward.procfs import ProcessId, is_alive, process_of, signal_group
from stateward.workloads.confinement import Confinement, Sandbox
from stateward.workloads.host_ports import LOOPBACK, free_port
from stateward.workloads.limits import ProgramGroups
from stateward.workloads.tcp_sockets import has_listening_socket

READY_AFTER_S = 0.5
"""How long an instance without a health check must run to count as ready."""

SECRETS_RETRY_S = 1.0
"""When a health check reads the secrets again that could not be read."""

STARTUP_CHECK_S = 0.1
"""The longest time between two health checks of an instance that is not ready yet."""

UNHEALTHY = "not healthy"
INITIAL_BACKOFF_S, MAX_BACKOFF_S = 0.5, 30.0
BACKOFF_RESET_S = 30.0
"""After so many ready seconds, a crash counts as the first again."""


def back_off(crashes: int) -> float:
    """Return the back-off after so many crashes in a row, in seconds."""
    return min(MAX_BACKOFF_S, INITIAL_BACKOFF_S * 2.0 ** min(crashes - 1, 10))


class InstanceSupervisor:
    """Supervises one instance."""

    def __init__(
        self,
        directory: InstanceDir,
        order: InstanceOrder,
        confinement: Confinement,
        read_secrets: ReadSecrets = no_secrets,
        host: str = LOOPBACK,
    ) -> None:
        self.dir, self._host = directory, host
        self._confinement, self._read_secrets = confinement, read_secrets
        self._groups = ProgramGroups()
        self._secrets: Mapping[str, str] | None = None  # those of the present boot, if this process has read them
        self._reading: asyncio.Task[Mapping[str, str]] | None = None
        self.order = order
        self.stamp = directory.stamp()
        self.state = self._written = directory.state() or LocalInstanceState()
        self.is_gone = False  # all its processes and files are removed
        self._stop_since = 0.0  # when its stop began; 0: not yet
        self._was_terminated = False
        self._failures = 0
        self._checked_at = 0.0
        self._check: asyncio.Task[str] | None = None
        self._errors = 0  # of the supervisor, in a row
        self._backoff_until = 0.0

    @property
    def waits_to_start(self) -> bool:
        """Whether its next step would start its process."""
        return self.state.process is None and not self.state.launching and not self.order.stop

    def reload_order(self) -> None:
        """Read the order again if it was replaced."""
        stamp = self.dir.stamp()
        if stamp != self.stamp:
            self.order = self.dir.order() or replace(self.order, stop=True)
            self.stamp, self._backoff_until = stamp, 0.0

    def tick(self, now: float) -> bool:
        """Run the next step; returns whether the state has changed."""
        if now < self._backoff_until:
            return False
        before = self.state
        self._advance(now)
        if not self.is_gone:
            self._write()
        self._errors = 0
        return self.is_gone or self.state != before

    def _advance(self, now: float) -> None:
        if self.state.launching:
            self._recover(now)
        elif self.state.process is None:
            self._without_process(now)
        elif not is_alive(self.state.process):
            self._process_ended(now)
        elif self.order.stop:
            self._stop(now)
        else:
            self._watch(now)

    def fail(self, now: float, error: Exception) -> None:
        """Record an error of the supervisor and back off; a running process goes on.

        A start with an unknown result stays recorded as launching: the next step looks for its process.
        """
        self._errors += 1
        self._backoff_until = now + back_off(self._errors)
        phase = InstancePhase.STOPPING if self.order.stop else InstancePhase.CRASHED
        self.state = replace(self.state, phase=phase, ready=False, why=f"{type(error).__name__}: {error}")
        with suppress(Exception):  # the write may be what failed; the next step repeats it
            self._write()

    def _write(self) -> None:
        if self.state != self._written:
            self.dir.put_state(self.state)
            self._written = self.state

    def close(self) -> None:
        """Stop supervising; the instance goes on."""
        for task in (self._check, self._reading):
            if task is not None:
                task.cancel()

    # --- start -------------------------------------------------------------------------------------------------------

    def _recover(self, now: float) -> None:
        """Resolve a start with an unknown result."""
        process = find_unrecorded(self.dir, self.state.boot)
        self.state = replace(self.state, launching=False, process=process, since=now)
        if process is None and self.order.run_once and read_exit(self.dir)[0]:
            self._ended(now, self._reason("its process has ended"))
        elif process is None:
            self._without_process(now)

    def _without_process(self, now: float) -> None:
        if self.order.stop:
            self._remove()
        elif now >= self.state.due and self.state.phase is not InstancePhase.ENDED:
            try:
                self._secrets = self._fetch_secrets()
            except StatewardError as error:
                self._without_secrets(now, error)
                return
            if self._secrets is not None:
                self._launch(now, self._secrets)

    def _fetch_secrets(self) -> Mapping[str, str] | None:
        """Return the present values of its secrets; None while they are being read."""
        if not self.order.service.secrets:
            return {}
        if self._reading is None:
            self._reading = asyncio.create_task(self._current_secrets())
        if not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        return reading.result()

    def _without_secrets(self, now: float, error: StatewardError) -> None:
        """Read the secrets again a little later, if the error may pass; otherwise the start has failed."""
        if error.retry:
            self.state = replace(self.state, due=now + SECRETS_RETRY_S, why=str(error))
        else:
            self._crashed(now, str(error))

    async def _current_secrets(self) -> Mapping[str, str]:
        names = {secret.secret for secret in self.order.service.secrets.values()}
        return await self._read_secrets(self.dir.ref.system.ns, names) if names else {}

    def _launch(self, now: float, secrets: Mapping[str, str]) -> None:
        boot, port = self.state.boot + 1, self.order.port or free_port(self._host)
        phase = InstancePhase.STARTING if not self.state.restarts else self.state.phase
        self._failures, self._checked_at = 0, 0.0
        try:
            sandbox = sandbox_of(self.dir, self.order, self._confinement, secrets)
            # Stored before the start: the next supervisor must know that there may be a process, and its user.
            self.state = replace(self.state, boot=boot, port=port, launching=True, phase=phase, uid=sandbox.uid)
            self._write()
            pid, unlimited = launch(
                self.dir, self.order, boot, port, sandbox, self._confinement, self._groups, secrets, self._host
            )
        except (OSError, ValueError) as error:  # a ValueError: no process can have such an argument
            self.state = replace(self.state, launching=False)
            self._crashed(now, str(error))
            return
        process = process_of(pid)
        self.state = replace(self.state, launching=False, process=process, since=now, unlimited=unlimited)
        if process is None:  # it has ended already
            self._crashed(now, self._reason(exit_text(pid)))

    # --- health ------------------------------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        check = self.order.service.health
        if check is None:
            if not self.state.ready and now - self.state.since >= READY_AFTER_S:
                self._mark_ready(now)
            return
        if self._check is not None and self._check.done():
            self._judge(now, self._check, check.failures)
        pause = check.interval if self.state.ready else min(check.interval, STARTUP_CHECK_S)
        if self._check is None and now - self._checked_at >= pause:
            self._checked_at = now
            self._check = asyncio.create_task(self._looking())

    async def _looking(self) -> str:
        check, port = self.order.service.health, self.state.port or 0
        assert check is not None
        if self.order.name == PROXY:
            return self._proxy_problem(port)
        sandbox = Sandbox(self.dir.folder, uid=self.state.uid)
        environment: Mapping[str, str] = {}
        if check.command is not None:  # the other checks start no process
            secrets = await self._secrets_of_check()
            sandbox = replace(sandbox, files=secret_files(self.order, secrets))
            environment = environment_of(self.dir, self.order, self.state.boot, port, sandbox, secrets, self._host)
        begin = partial(self._confinement.run, sandbox)
        return await health_check.check_health(
            check, port, environment, start_dir(self.order, sandbox), begin, host=self._host
        )

    def _proxy_problem(self, port: int) -> str:
        """Return why a TCP proxy is not ready: a connection would be answered by whichever program has the port."""
        process = self.state.process
        is_open = process is not None and has_listening_socket(process.pid, port)
        return "" if is_open else f"it does not listen on port {port} yet"

    async def _secrets_of_check(self) -> Mapping[str, str]:
        """Return the secrets for a health check; a supervisor that took the instance over has to read them.

        While they cannot be read, the check waits: it would judge an instance that nobody has looked at.
        """
        while self._secrets is None:
            try:
                self._secrets = await self._current_secrets()
            except StatewardError:
                await asyncio.sleep(SECRETS_RETRY_S)
        return self._secrets

    def _judge(self, now: float, look: "asyncio.Task[str]", most: int) -> None:
        self._check = None
        why = "the health check was cancelled" if look.cancelled() else look.result()
        if not why:
            self._failures = 0
            self._mark_ready(now)
        elif not self.state.ready:
            self.state = replace(self.state, why=why)
        else:
            self._failures += 1
            if self._failures >= most:
                self._kill_all(self.state.process)
                self.state = replace(self.state, ready=False, why=f"{UNHEALTHY}: {why}")

    def _mark_ready(self, now: float) -> None:
        if not self.state.ready:
            self.state = replace(self.state, phase=InstancePhase.UP, ready=True, since=now, why="")

    # --- stop --------------------------------------------------------------------------------------------------------

    def _process_ended(self, now: float) -> None:
        process = self.state.process
        assert process is not None
        how = exit_text(process.pid)
        if not self._kill_all(None):
            return  # descendants are still exiting
        if self.order.stop:
            self._remove()
            return
        why = self.state.why if self.state.why.startswith(UNHEALTHY) else self._reason(how)
        self._remove_groups()  # the next process begins with counts of its own
        self._crashed(now, why)

    def _remove_groups(self) -> None:
        if self.order.service.resources != Resources():
            self._groups.remove(self.dir.folder)

    def _reason(self, how: str) -> str:
        memory = self.order.service.resources.memory
        if memory is not None and self._groups.was_out_of_memory(self.dir.folder):
            how = f"{how} (it used more than its {memory} MiB of memory)"
        words = last_log_line(self.dir.log)
        return f"{how}: {words}" if words else how

    def _ended(self, now: float, why: str) -> None:
        """Keep the exit status of an instance that runs once; its user is free for others."""
        status = read_exit(self.dir)[1]
        self._kill_all(None)
        if self.state.uid is not None:
            self._confinement.end(self.dir.folder, self.state.uid)
        self._confinement.remove_secret_files(self.dir.folder)
        self._remove_groups()
        reason = why if status is None else self._reason(f"ended with {status}") if status else ""
        self.state = replace(
            self.state,
            phase=InstancePhase.ENDED,
            process=None,
            ready=False,
            uid=None,
            since=now,
            why=reason,
            exit_status=status,
        )

    def _crashed(self, now: float, why: str) -> None:
        if self.order.run_once:
            self._ended(now, why)
            return
        calm = self.state.ready and now - self.state.since > BACKOFF_RESET_S
        crashes = 1 if calm else self.state.crashes + 1
        self.state = replace(
            self.state,
            phase=InstancePhase.CRASHED,
            process=None,
            ready=False,
            restarts=self.state.restarts + 1,
            crashes=crashes,
            since=now,
            due=now + back_off(crashes),
            why=why,
        )

    def _stop(self, now: float) -> None:
        """Drain it, then send SIGTERM, then SIGKILL; each after its time."""
        process, service = self.state.process, self.order.service
        assert process is not None
        if self.state.phase is not InstancePhase.STOPPING or not self._stop_since:
            self._stop_since = now
            self.state = replace(self.state, phase=InstancePhase.STOPPING, ready=False)
            return
        waited = now - self._stop_since
        if waited > service.drain + service.grace:
            self._kill_all(process)
        elif waited > service.drain and not self._was_terminated:
            self._was_terminated = True
            signal_group(process, signal.SIGTERM)

    def _kill_all(self, process: ProcessId | None) -> bool:
        if self.state.uid is not None:
            self._confinement.kill(self.dir.folder, self.state.uid)
        return kill_all(self.dir, self.state.boot, process)

    def _remove(self) -> None:
        self.close()
        if self.state.uid is not None:
            self._confinement.end(self.dir.folder, self.state.uid)
        self._confinement.remove_secret_files(self.dir.folder)
        self._remove_groups()
        with suppress(OSError):
            self.dir.remove()
        self.is_gone = True
