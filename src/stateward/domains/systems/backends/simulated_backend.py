"""The simulated backend, for tests and the demo: an instance is a record with the time at which it becomes ready.

Tests inject faults: `fail` keeps the instances of a path from becoming ready, `crash` and `mend` make them unhealthy
and healthy again. An instance that runs once ends when another would become ready: with 0, or with 1 after `fail`;
after `hang` it does not end. An instance that is being stopped stops, whatever becomes of the process that stopped it.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf

from msgspec.structs import replace

from stateward.aio.supervise import wait_for_event
from stateward.domains.systems.backends.changed_services import ChangedServices
from stateward.domains.systems.backends.port import (
    CommandOutcome,
    InstancePhase,
    InstanceSpec,
    LogExcerpt,
    ReportText,
    ServiceInstance,
    ServiceRef,
    SystemRef,
    check_fits,
    choose_node,
    choose_running,
)
from stateward.domains.systems.definition import NodePool, PinnedImage, Service


class SimulatedBackend:
    """Simulates instances that become ready after `delay` seconds, and need `stop_delay` seconds to stop."""

    def __init__(self, delay: float = 0.0, stop_delay: float = 0.0) -> None:
        self.delay, self.stop_delay = delay, stop_delay
        self._instances: defaultdict[ServiceRef, dict[str, ServiceInstance]] = defaultdict(dict)
        self._due: dict[tuple[ServiceRef, str], float] = {}
        self._failing: set[tuple[str, str]] = set()
        self._hanging: set[str] = set()
        self._running_once: dict[tuple[ServiceRef, str], int] = {}
        self._pools: dict[tuple[SystemRef, str], NodePool] = {}
        self._changed = ChangedServices()
        self._moved: dict[ServiceRef, asyncio.Event] = {}

    # --- faults ------------------------------------------------------------------------------------------------------

    def fail(self, path: str, word: str = "") -> None:
        """Keep the instances at a path from becoming ready if their command contains a word (empty: any command)."""
        self._failing.add((path, word))

    def hang(self, path: str) -> None:
        """Keep the instances of a job from ending, until `mend_all`."""
        self._hanging.add(path)

    def mend_all(self) -> None:
        """Let all instances become ready, or end, from now on."""
        self._failing.clear()
        self._hanging.clear()
        for key in self._running_once:
            self._due.setdefault(key, 0.0)

    def crash(self, ref: ServiceRef) -> None:
        """Crash the first instance of a service that is not being stopped."""
        for instance in self._wanted(ref)[:1]:
            crashed = InstancePhase.CRASHED
            self._put(ref, replace(instance, phase=crashed, ready=False, restarts=instance.restarts + 1, why="crashed"))

    def mend(self, ref: ServiceRef) -> None:
        """Make all instances of a service ready that are not being stopped."""
        for instance in self._wanted(ref):
            self._put(ref, replace(instance, phase=InstancePhase.UP, ready=True, why=""))

    def lose(self, ref: ServiceRef) -> None:
        """Remove an instance of a service out of band."""
        self._gone(ref, next(iter(self._instances[ref])))
        self._notify(ref)

    def _wanted(self, ref: ServiceRef) -> list[ServiceInstance]:
        return [instance for instance in self._instances[ref].values() if instance.is_wanted]

    def _put(self, ref: ServiceRef, instance: ServiceInstance) -> None:
        self._instances[ref][instance.name] = instance
        self._notify(ref)

    def _notify(self, ref: ServiceRef) -> None:
        self._changed.add(ref)
        if ref in self._moved:
            self._moved[ref].set()

    # --- the port ----------------------------------------------------------------------------------------------------

    async def prepare(self, system_ref: SystemRef) -> Mapping[str, str]:
        """Return a location; there is nothing to prepare."""
        return {"host": system_ref.system}

    async def pin_images(
        self,
        system_ref: SystemRef,  # noqa: ARG002
        services: Mapping[str, Service],  # noqa: ARG002
        report: ReportText,  # noqa: ARG002
    ) -> Mapping[str, PinnedImage]:
        """Return nothing: an image is a word here."""
        return {}

    async def instances(self, ref: ServiceRef) -> Sequence[ServiceInstance]:
        """Return the instances of a service."""
        now = asyncio.get_running_loop().time()
        for name, instance in list(self._instances.get(ref, {}).items()):
            if self._due.get((ref, name), inf) > now:
                continue
            if instance.is_wanted:
                del self._due[ref, name]
                self._instances[ref][name] = self._settled(ref, instance)
            else:
                self._gone(ref, name)
        return list(self._instances.get(ref, {}).values())

    def _settled(self, ref: ServiceRef, instance: ServiceInstance) -> ServiceInstance:
        """Return an instance that has become ready, or has ended."""
        status = self._running_once.pop((ref, instance.name), None)
        if status is None:
            return replace(instance, phase=InstancePhase.UP, ready=True)
        why = f"ended with {status}" if status else ""
        return replace(instance, phase=InstancePhase.ENDED, exit_status=status, why=why)

    async def start(self, ref: ServiceRef, want: InstanceSpec) -> None:
        """Start an instance."""
        if want.name in self._instances[ref]:
            return
        node, path = self._placed(ref, want.service.node_pool), ref.path.partition("@")[0]
        self._instances[ref][want.name] = ServiceInstance(want.name, want.revision, InstancePhase.STARTING, node=node)
        fails = any(
            path == failing_path and word in " ".join(want.service.command) for failing_path, word in self._failing
        )
        if want.run_once:
            self._running_once[ref, want.name] = int(fails)
        if (want.run_once or not fails) and path not in self._hanging:
            self._due[ref, want.name] = asyncio.get_running_loop().time() + self.delay

    def _placed(self, ref: ServiceRef, pool: str | None) -> str | None:
        if pool is None or (ref.system, pool) not in self._pools:
            return None
        return choose_node(pool, self._pools[ref.system, pool], self._used(ref.system))

    def _used(self, system_ref: SystemRef) -> Counter[str]:
        here = (
            instance for ref, all_ in self._instances.items() if ref.system == system_ref for instance in all_.values()
        )
        return Counter(instance.node for instance in here if instance.node is not None)

    async def stop(self, ref: ServiceRef, name: str) -> None:
        """Stop an instance."""
        instance = self._instances.get(ref, {}).get(name)
        if instance is not None and not self.stop_delay:
            self._gone(ref, name)
        elif instance is not None and instance.is_wanted:
            self._put(ref, replace(instance, phase=InstancePhase.STOPPING, ready=False, stop_s=self.stop_delay))
            self._due[ref, name] = asyncio.get_running_loop().time() + self.stop_delay

    def _gone(self, ref: ServiceRef, name: str) -> None:
        del self._instances[ref][name]
        self._due.pop((ref, name), None)
        self._running_once.pop((ref, name), None)

    async def address(self, ref: ServiceRef, port: int | None) -> int | None:  # noqa: ARG002
        """Return the wanted port: every port counts as open."""
        return port

    async def address_problem(self, ref: ServiceRef, port: int | None) -> str:  # noqa: ARG002
        """Return nothing: every port counts as open."""
        return ""

    def folder_problem(self, folder: str) -> str:  # noqa: ARG002
        """Return nothing: instances use no folders."""
        return ""

    async def forget(self, ref: ServiceRef, *, keep_logs: bool = False) -> None:  # noqa: ARG002 - it has no logs
        """Remove a service."""
        for name in list(self._instances.get(ref, ())):
            self._gone(ref, name)
        self._instances.pop(ref, None)

    async def ensure_pool(self, system_ref: SystemRef, name: str, pool: NodePool) -> None:
        """Store the size of a node pool."""
        check_fits(name, pool, self._used(system_ref))
        self._pools[system_ref, name] = pool

    async def remove_pool(self, system_ref: SystemRef, name: str) -> None:
        """Remove a node pool."""
        self._pools.pop((system_ref, name), None)

    async def remove(self, system_ref: SystemRef) -> None:
        """Remove a system."""
        for ref in [ref for ref in self._instances if ref.system == system_ref]:
            await self.forget(ref)

    async def logs(self, ref: ServiceRef, instance: str | None, after: int | None, most: int) -> Sequence[LogExcerpt]:  # noqa: ARG002
        """Return empty logs."""
        return [LogExcerpt(seen.name, "", 0) for seen in await self.instances(ref) if instance in (None, seen.name)]

    async def run_command(
        self,
        ref: ServiceRef,
        instance: str | None,
        argv: Sequence[str],
        timeout_s: float,  # noqa: ARG002
        max_output: int,
    ) -> CommandOutcome:
        """Return the words of the command as its output."""
        name = choose_running(str(ref), await self.instances(ref), instance).name
        return CommandOutcome(name, 0, " ".join(argv)[:max_output], "")

    async def servers(self, ref: ServiceRef) -> Mapping[str, str]:  # noqa: ARG002 - the port's
        """Return nothing: this server reaches all instances."""
        return {}

    async def pause(self, ref: ServiceRef, seconds: float) -> None:
        """Wait until the next instance of a service is due, or a fault was injected."""
        now = asyncio.get_running_loop().time()
        due = [self._due[ref, name] - now for name in self._instances.get(ref, ()) if (ref, name) in self._due]
        moved = self._moved.setdefault(ref, asyncio.Event())
        moved.clear()
        try:
            await wait_for_event(moved, max(0.0, min([seconds, *due])))
        finally:
            self._moved.pop(ref, None)

    def changed_services(self) -> AsyncIterator[ServiceRef]:
        """Yield the services with injected faults."""
        return aiter(self._changed)

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Do nothing: there is nothing to supervise."""
        yield
