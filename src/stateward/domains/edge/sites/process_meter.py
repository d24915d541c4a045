"""Measurement of clusters and apps that are processes: one scan of `/proc` for all of them.

A node is a session, and an app is the tree below its marked shells, which are subreapers: a process that leaves its
parent stays below. Processor time counts with that of the children that have ended, so work that is done by many short
processes is measured too.
"""

import os
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from stateward.agents.local_state import Deployed
from stateward.agents.site import InstanceMeasure, NodeMeasure
from stateward.procfs import ProcessStat, living_processes, read_proc
from stateward.workloads.meters import ConnectionCounter, RateMeter
from stateward.workloads.tcp_sockets import (
    LISTENING,
    TcpSocket,
    ports_by_owner,
    read_sockets,
    socket_inodes,
    use_of_ports,
)

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MARK_ARGUMENT = 3
"""The position of an app's mark in the arguments of its shell."""


class OwnedProcesses(Struct, frozen=True):
    """The processes of everything that is measured, by name: instances, and nodes by their keys."""

    instances: Mapping[str, Collection[ProcessStat]]
    nodes: Mapping[str, Collection[ProcessStat]]


def assign_processes(
    processes: Iterable[ProcessStat], things: Iterable[Deployed], sessions: Mapping[str, int], marks: Mapping[int, str]
) -> OwnedProcesses:
    """Assign processes to nodes, clusters and apps; `marks` are the marks of app shells by pid."""
    by_parent: dict[int, list[ProcessStat]] = {}
    by_session: dict[int, list[ProcessStat]] = {}
    by_pid = {}
    for process in processes:
        by_pid[process.pid] = process
        by_parent.setdefault(process.parent, []).append(process)
        by_session.setdefault(process.session, []).append(process)

    def with_descendants(roots: Iterable[ProcessStat]) -> list[ProcessStat]:
        reached = {root.pid: root for root in roots}
        queue = list(reached.values())
        while queue:
            for child in by_parent.get(queue.pop().pid, ()):
                if child.pid not in reached:
                    reached[child.pid] = child
                    queue.append(child)
        return list(reached.values())

    nodes = {key: with_descendants(by_session.get(session, ())) for key, session in sessions.items()}
    shells: dict[str, list[ProcessStat]] = {}
    for pid, mark in marks.items():
        if pid in by_pid:
            shells.setdefault(mark, []).append(by_pid[pid])
    instances = {}
    for thing in things:
        if thing.kind == "appinst":
            instances[thing.name] = with_descendants(
                [process for mark in thing.parts for process in shells.get(mark, ())]
            )
        else:
            instances[thing.name] = [process for key in thing.parts for process in nodes.get(key, ())]
    return OwnedProcesses(instances, nodes)


class ProcessMeter:
    """Measures what runs on this machine; rates are those since the previous measurement."""

    def __init__(self, mark_prefix: str) -> None:
        self._mark_prefix = mark_prefix
        self._cores, self._new = RateMeter(), ConnectionCounter()
        self._requests: dict[str, int] = {}
        self._owned: tuple[frozenset[int], frozenset[int]] = frozenset(), frozenset()  # pids and listening inodes
        self._owners: dict[int, set[str]] = {}
        self._unreadable: set[str] = set()  # what has a process whose sockets may not be read

    def measure(self, things: Collection[Deployed], sessions: Mapping[str, int]) -> dict[str, InstanceMeasure]:
        """Measure all things at once; `sessions` are the nodes that run, by key."""
        processes = living_processes()
        owned = assign_processes(processes, things, sessions, self._marks(processes, sessions.values()))
        connections = self._count_connections(owned.instances)
        measured = {**owned.instances, **{f"node {key}": some for key, some in owned.nodes.items()}}
        rates = self._cores.rates(
            {name: sum(process.ticks for process in some) / TICKS_PER_S for name, some in measured.items()}
        )
        self._requests = {name: self._requests.get(name, 0) for name in owned.instances}
        return {
            thing.name: InstanceMeasure(
                rates.get(thing.name),
                sum(process.memory for process in owned.instances[thing.name]),
                connections.get(thing.name),
                self._requests[thing.name],
                tuple(
                    NodeMeasure(key, key in sessions, rates.get(f"node {key}"), _memory(owned.nodes.get(key, ())))
                    for key in (thing.parts if thing.kind != "appinst" else ())
                ),
            )
            for thing in things
        }

    def _marks(self, processes: Iterable[ProcessStat], sessions: Collection[int]) -> dict[int, str]:
        """Return the marks of app shells; only the processes in sessions of nodes are looked at."""
        wanted, marks = set(sessions), {}
        for process in processes:
            if process.session not in wanted:
                continue
            arguments = (read_proc(process.pid, "cmdline") or b"").split(b"\0")
            mark = arguments[MARK_ARGUMENT].decode(errors="replace") if len(arguments) > MARK_ARGUMENT else ""
            if mark.startswith(self._mark_prefix):
                marks[process.pid] = mark
        return marks

    def _count_connections(self, instances: Mapping[str, Collection[ProcessStat]]) -> dict[str, int]:
        """Count the connections at the ports of each instance, and add up those that are new as its requests."""
        sockets = (read_sockets() if any(instances.values()) else None) or []
        self._find_owners(instances, sockets)
        uses = use_of_ports(sockets, ports_by_owner(sockets, self._owners))
        seen = {name: uses[name].seen if name in uses else frozenset() for name in instances}
        for name, number in self._new.count_new(seen).items():
            self._requests[name] = self._requests.get(name, 0) + number
        readable = [name for name in instances if name not in self._unreadable]
        return {name: uses[name].established if name in uses else 0 for name in readable}

    def _find_owners(self, instances: Mapping[str, Collection[ProcessStat]], sockets: Iterable[TcpSocket]) -> None:
        """Find the owners of listening sockets, again only if there are other sockets or other processes."""
        pids: dict[int, set[str]] = {}
        for name, some in instances.items():
            for process in some:
                pids.setdefault(process.pid, set()).add(name)
        listening = frozenset(socket.inode for socket in sockets if socket.state == LISTENING)
        if self._owned == (frozenset(pids), listening):
            return
        self._owned, self._owners, self._unreadable = (frozenset(pids), listening), {}, set()
        for pid, names in pids.items():
            try:
                for inode in listening.intersection(socket_inodes(pid)):
                    self._owners.setdefault(inode, set()).update(names)
            except PermissionError:
                self._unreadable |= names


def _memory(processes: Iterable[ProcessStat]) -> int:
    return sum(process.memory for process in processes)
