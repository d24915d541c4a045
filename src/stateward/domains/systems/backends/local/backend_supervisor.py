"""The backend supervisor: the one process of this host that supervises all instances below a folder.

Several servers and workers may use the folder. A file lock (`keeper.lock`) elects the supervisor. When its process
ends, however it ends, another takes over and finds the instances running.

An error with one instance or one service does not stop the round for the others.
"""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from stateward.aio.backoff import GrowingIntervals
from stateward.aio.supervise import background, wait_for_event
from stateward.domains.systems.backends.changed_services import ChangedServices
from stateward.domains.systems.backends.local.instance_dir import (
    MAX_LOG_BYTES,
    PROXY,
    BackendDir,
    InstanceDir,
    InstanceOrder,
    old_log,
    write_record,
)
from stateward.domains.systems.backends.local.instance_supervisor import InstanceSupervisor
from stateward.domains.systems.backends.local.launch import THIS_HOST, HostPlace
from stateward.domains.systems.backends.port import ReadSecrets, ServiceRef
from stateward.workloads.confinement import Confinement
from stateward.workloads.lock_files import try_lock_file
from stateward.workloads.log_files import empty_long_log

log = logging.getLogger("stateward.systems")

ROUND_INTERVAL_S = 0.05
"""The longest time between two rounds."""

ReadyAddresses = Callable[[ServiceRef], Sequence[str]]
"""Returns the addresses HOST:PORT of the ready instances of a service that run on other hosts."""

POLL_INTERVAL_S = 0.05
"""The time between two looks at a service that another process supervises."""

MAX_TURN_S = 0.01
"""How long a round occupies the event loop before others get their turn."""

LOG_INTERVAL_S = 10.0
"""The time between two checks of the logs' length."""

LOCK_RETRY_S = 0.5
"""The time between two tries to get the lock."""


class BackendSupervisor:
    """Supervises the instances while it holds the lock."""

    round_interval_s, round_pause_s = ROUND_INTERVAL_S, 0.0

    def __init__(
        self,
        files: BackendDir,
        confinement: Confinement,
        read_secrets: ReadSecrets,
        place: HostPlace = THIS_HOST,
        ready_addresses: ReadyAddresses | None = None,
    ) -> None:
        self._dir, self._confinement, self._read_secrets = files, confinement, read_secrets
        self._place, self._ready_addresses = place, ready_addresses
        self._instances: dict[str, InstanceSupervisor] = {}
        self._ready: dict[ServiceRef, Sequence[int | str]] = {}
        self._wakeup = asyncio.Event()
        self._log_distances = GrowingIntervals(time.monotonic)
        self.changed_services = ChangedServices()
        self._is_supervising = False
        self._turn_began = self._logs_checked = 0.0
        self._changes: Counter[ServiceRef] = Counter()
        self._waiting: dict[ServiceRef, set[asyncio.Event]] = {}

    def wake(self) -> None:
        """Start the next round at once."""
        self._wakeup.set()

    def count_changes(self, ref: ServiceRef) -> int:
        """Return a number that grows with each change of a service that this process makes."""
        return self._changes[ref]

    async def wait_for_change(self, ref: ServiceRef, known: int, seconds: float) -> None:
        """Wait until a service has changed since a count; if another process supervises, only for a poll interval."""
        if not self._is_supervising:
            await asyncio.sleep(min(seconds, POLL_INTERVAL_S))
        elif self._changes[ref] == known:
            changed = asyncio.Event()
            self._waiting.setdefault(ref, set()).add(changed)
            try:
                await wait_for_event(changed, seconds)
            finally:
                if waiting := self._waiting.get(ref):  # none if the service is gone
                    waiting.discard(changed)

    def _note_change(self, ref: ServiceRef) -> None:
        self._changes[ref] += 1
        self.changed_services.add(ref)
        for changed in self._waiting.get(ref, ()):
            changed.set()

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Supervise, or wait for the lock."""
        try:
            async with background(self._run()):
                yield
        finally:
            for instance in self._instances.values():
                instance.close()

    async def _run(self) -> None:
        handle = await self._wait_for_lock()
        self._is_supervising = True
        try:
            for system_ref in self._dir.systems():
                for ref in self._dir.services(system_ref):
                    self.changed_services.add(ref)
            async with self._observing():
                while True:
                    self._wakeup.clear()
                    try:
                        await self._run_round()
                    except Exception:
                        log.exception("backend supervisor of %s: a round failed; the next one follows", self._dir.root)
                    await asyncio.sleep(self.round_pause_s)
                    await wait_for_event(self._wakeup, self.round_interval_s)
        finally:
            self._is_supervising = False
            os.close(handle)

    def _observing(self) -> AbstractAsyncContextManager[None]:
        """Observe what the instances depend on, while there are rounds: processes need nothing but themselves."""
        return nullcontext()

    async def _wait_for_lock(self) -> int:
        self._dir.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        while (handle := try_lock_file(self._dir.root / "keeper.lock")) is None:
            await asyncio.sleep(LOCK_RETRY_S)
        return handle

    async def _run_round(self) -> None:
        now, self._turn_began = time.time(), time.monotonic()
        seen: set[str] = set()
        refs = [ref for system_ref in self._dir.systems() for ref in self._dir.services(system_ref)]
        for ref in refs:
            proxy = self._dir.instance_dir(ref, PROXY)
            try:
                await self._tick_service(ref, [*self._dir.instance_dirs(ref), proxy], seen, now)
            except Exception as error:
                self._ready.pop(ref, None)  # its proxy may not know the ports yet
                self._log_failure(ref, "TCP proxy", error)
        if self._turn_began - self._logs_checked > LOG_INTERVAL_S:
            await self._empty_long_logs()
        for gone in self._instances.keys() - seen:
            self._instances.pop(gone).close()
        for forgotten in self._ready.keys() - set(refs):
            del self._ready[forgotten], self._changes[forgotten]
            self._waiting.pop(forgotten, None)
            self.changed_services.discard(forgotten)

    async def _empty_long_logs(self) -> None:
        """Bound the logs of processes that run; nobody starts one meanwhile, which would rotate its log, too."""
        self._logs_checked = time.monotonic()
        for instance in list(self._instances.values()):
            try:
                log_file = instance.dir.log
                await asyncio.to_thread(empty_long_log, log_file, old_log(log_file), MAX_LOG_BYTES)
            except OSError as error:
                self._log_failure(instance.dir.ref, instance.order.name, error)

    async def _tick_service(self, ref: ServiceRef, directories: list[InstanceDir], seen: set[str], now: float) -> None:
        changed = False
        for directory in directories:
            await self._share_loop()
            instance = self._instance(directory)
            if instance is None:
                continue
            seen.add(str(directory.folder))
            changed |= self._tick(ref, instance, now)
            if instance.is_gone:
                del self._instances[str(directory.folder)]
        if changed or ref not in self._ready:
            self._write_ready_ports(ref)
            self._note_change(ref)
        elif self._ready_addresses is not None:  # they change without a change here
            self._write_ready_ports(ref)

    async def _share_loop(self) -> None:
        """Let other tasks run, if this round has occupied the event loop for long."""
        if time.monotonic() - self._turn_began > MAX_TURN_S:
            await asyncio.sleep(0)
            self._turn_began = time.monotonic()

    def _tick(self, ref: ServiceRef, instance: InstanceSupervisor, now: float) -> bool:
        """Run the next step of an instance; an error becomes the instance's state."""
        try:
            instance.reload_order()
        except OSError as error:  # nothing is known about it: the instance continues with the order that it has
            self._log_failure(ref, instance.order.name, error)
        try:
            if instance.waits_to_start and not self._place.may_launch():
                return False
            return instance.tick(now)
        except Exception as error:
            self._log_failure(ref, instance.order.name, error)
            instance.fail(now, error)
            return True

    def _log_failure(self, ref: ServiceRef, name: str, error: Exception) -> None:
        if self._log_distances.is_due((ref, name)):
            log.error("instance %s of service %s in %s failed; retrying", name, ref, ref.system.ns, exc_info=error)

    def _instance(self, directory: InstanceDir) -> InstanceSupervisor | None:
        known = self._instances.get(str(directory.folder))
        if known is not None:
            return known
        order = directory.order()
        if order is None:
            return None
        instance = self._instances[str(directory.folder)] = self._new_instance(directory, order)
        return instance

    def _new_instance(self, directory: InstanceDir, order: InstanceOrder) -> InstanceSupervisor:
        return InstanceSupervisor(directory, order, self._confinement, self._read_secrets, self._place.host)

    def _write_ready_ports(self, ref: ServiceRef) -> None:
        """Write the ports of the ready instances, or their addresses on other hosts, for the TCP proxy."""
        ports = self._ready_ports(ref) if self._ready_addresses is None else self._ready_addresses(ref)
        if self._ready.get(ref) != ports:
            write_record(self._dir.service_path(ref) / "ready.json", ports)
            self._ready[ref] = ports

    def _ready_ports(self, ref: ServiceRef) -> Sequence[int | str]:
        """Return the ports of the ready instances on this host."""
        known = (self._instances.get(str(directory.folder)) for directory in self._dir.instance_dirs(ref))
        return [
            instance.state.port
            for instance in known
            if instance is not None and instance.state.ready and instance.state.port is not None
        ]
