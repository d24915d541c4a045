"""Connections to containers, as the network namespaces of their first processes show them.

A container has a network namespace of its own, and `/proc/PID/net/tcp` lists the sockets of the namespace of a process.
The control group of a process names its container, so a process is never taken for that of another one. Where it cannot
be read, because the engine is on another host or in another namespace of processes, connections are unknown, not zero.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from msgspec import Struct

from stateward.containers import ContainerEngine, EngineRefused
from stateward.domains.edge.sites.container_calls import EngineCalls
from stateward.procfs import read_proc
from stateward.workloads.meters import ConnectionCounter
from stateward.workloads.tcp_sockets import TcpSocket, read_sockets, use_of_namespace

MAX_INSPECTED = 200
"""The number of new containers whose process is looked up in one measurement."""


class Connections(Struct, frozen=True):
    """The connections that are established to a container, and those that are new since the last measurement."""

    established: int
    new: int


class ConnectionMeter:
    """Counts connections; an inspection of each container tells its process, once."""

    def __init__(self, engine: ContainerEngine) -> None:
        self._engine, self._calls = engine, EngineCalls()
        self._pids: dict[str, int] = {}  # 0: its process is not on this host
        self._new = ConnectionCounter()

    async def measure(
        self, running: Collection[str], probe_ports: Callable[[], Collection[int]]
    ) -> dict[str, Connections]:
        """Return the connections of containers, by id, where they are known; `probe_ports` tells those of our probes.

        It is asked after the connections were listed, so that each listed probe is known.
        """
        self._pids = {container: pid for container, pid in self._pids.items() if container in running}
        unknown = [container for container in running if container not in self._pids][:MAX_INSPECTED]
        await self._calls.for_each(self._find_process, unknown)
        listed = await asyncio.to_thread(_list_sockets, dict(self._pids))
        probes = probe_ports()
        uses = {container: use_of_namespace(sockets, probes) for container, sockets in listed.items()}
        for container in [container for container, pid in self._pids.items() if pid and container not in uses]:
            # It was started again by hand and has another process; or it cannot be read here, and is not asked again.
            self._pids.pop(container) if container in self._new.seen else self._pids.update({container: 0})
        new = self._new.count_new({container: use.seen for container, use in uses.items()})
        return {container: Connections(use.established, new[container]) for container, use in uses.items()}

    async def _find_process(self, container: str) -> None:
        with suppress(EngineRefused):  # it was removed meanwhile
            self._pids[container] = (await self._engine.inspect_container(container)).pid or 0


def _list_sockets(pids: Mapping[str, int]) -> dict[str, list[TcpSocket]]:
    """Return the sockets in containers whose processes are on this host."""
    listed = {container: read_sockets(pid) for container, pid in pids.items() if pid and _is_process_of(pid, container)}
    return {container: sockets for container, sockets in listed.items() if sockets is not None}


def _is_process_of(pid: int, container: str) -> bool:
    """Tell whether a process of this host is in the control group of a container."""
    return container.encode() in (read_proc(pid, "cgroup") or b"")
