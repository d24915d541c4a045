"""Measurement of clusters and apps that are processes: one scan of `/proc` for all of them.

A node is a session, and an app is the tree below its marked shells, which are subreapers: a process that leaves its
parent stays below. Processor time counts with that of the children that have ended, so work that is done by many short
processes is measured too.
"""

import os
import time
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from stateward.agents.local_state import Deployed
from stateward.agents.site import InstanceMeasure, NodeMeasure, SiteCapacity
from stateward.domains.edge.sites.tcp_sockets import (
    LISTENING,
    TcpSocket,
    ports_by_owner,
    read_sockets,
    socket_inodes,
    use_of_ports,
)
from stateward.drivers.process.procfs import DEAD, PROC, read_proc

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MARK_ARGUMENT = 3
"""The position of an app's mark in the arguments of its shell."""


class ProcessUsage(Struct, frozen=True):
    """A process, with the processor time of it and its ended children in ticks, and its memory in bytes."""

    pid: int
    parent: int
    session: int
    ticks: int
    memory: int


class OwnedProcesses(Struct, frozen=True):
    """The processes of everything that is measured, by name: instances, and nodes by their keys."""

    instances: Mapping[str, Collection[ProcessUsage]]
    nodes: Mapping[str, Collection[ProcessUsage]]


def machine_capacity() -> SiteCapacity:
    """Return the cores that this process may use, and the memory of this machine."""
    pages = os.sysconf("SC_PHYS_PAGES")
    return SiteCapacity(float(len(os.sched_getaffinity(0))), max(0, pages) * PAGE_BYTES)


def parse_usage(text: str) -> ProcessUsage | None:
    """Parse a line of `/proc/PID/stat`; None for a process that has ended."""
    head, _, tail = text.rpartition(")")
    words = tail.split()
    if words[0] in DEAD:
        return None
    ticks = sum(int(word) for word in words[11:15])
    return ProcessUsage(int(head.split(" ", 1)[0]), int(words[1]), int(words[3]), ticks, int(words[21]) * PAGE_BYTES)


def read_usages() -> list[ProcessUsage]:
    """Return all living processes of this machine."""
    usages = []
    for name in os.listdir(PROC):  # noqa: PTH208 - faster than Path, and names suffice
        if name.isdecimal():
            text = read_proc(name, "stat")
            usage = parse_usage(text.decode(errors="replace")) if text else None
            if usage is not None:
                usages.append(usage)
    return usages


def assign_processes(
    usages: Iterable[ProcessUsage], things: Iterable[Deployed], sessions: Mapping[str, int], marks: Mapping[int, str]
) -> OwnedProcesses:
    """Assign processes to nodes, clusters and apps; `marks` are the marks of app shells by pid."""
    by_parent: dict[int, list[ProcessUsage]] = {}
    by_session: dict[int, list[ProcessUsage]] = {}
    by_pid = {}
    for usage in usages:
        by_pid[usage.pid] = usage
        by_parent.setdefault(usage.parent, []).append(usage)
        by_session.setdefault(usage.session, []).append(usage)

    def with_descendants(roots: Iterable[ProcessUsage]) -> list[ProcessUsage]:
        reached = {root.pid: root for root in roots}
        queue = list(reached.values())
        while queue:
            for child in by_parent.get(queue.pop().pid, ()):
                if child.pid not in reached:
                    reached[child.pid] = child
                    queue.append(child)
        return list(reached.values())

    nodes = {key: with_descendants(by_session.get(session, ())) for key, session in sessions.items()}
    shells: dict[str, list[ProcessUsage]] = {}
    for pid, mark in marks.items():
        if pid in by_pid:
            shells.setdefault(mark, []).append(by_pid[pid])
    instances = {}
    for thing in things:
        if thing.kind == "appinst":
            instances[thing.name] = with_descendants([usage for mark in thing.parts for usage in shells.get(mark, ())])
        else:
            instances[thing.name] = [usage for key in thing.parts for usage in nodes.get(key, ())]
    return OwnedProcesses(instances, nodes)


class ProcessMeter:
    """Measures what runs on this machine; rates are those since the previous measurement."""

    def __init__(self, mark_prefix: str) -> None:
        self._mark_prefix = mark_prefix
        self._at = 0.0
        self._ticks: dict[str, int] = {}
        self._requests: dict[str, int] = {}
        self._seen: dict[str, frozenset[tuple[int, str]]] = {}
        self._owned: tuple[frozenset[int], frozenset[int]] = frozenset(), frozenset()  # pids and listening inodes
        self._owners: dict[int, set[str]] = {}
        self._unreadable: set[str] = set()  # what has a process whose sockets may not be read

    def measure(self, things: Collection[Deployed], sessions: Mapping[str, int]) -> dict[str, InstanceMeasure]:
        """Measure all things at once; `sessions` are the nodes that run, by key."""
        usages = read_usages()
        now, before = time.monotonic(), self._at
        owned = assign_processes(usages, things, sessions, self._marks(usages, sessions.values()))
        connections = self._count_connections(owned.instances)
        measured = {**owned.instances, **{f"node {key}": some for key, some in owned.nodes.items()}}
        ticks = {name: sum(usage.ticks for usage in some) for name, some in measured.items()}
        rates = {
            name: max(0, total - self._ticks[name]) / TICKS_PER_S / (now - before)
            for name, total in ticks.items()
            if name in self._ticks and now > before
        }
        self._at, self._ticks = now, ticks
        self._requests = {name: self._requests.get(name, 0) for name in owned.instances}
        return {
            thing.name: InstanceMeasure(
                rates.get(thing.name),
                sum(usage.memory for usage in owned.instances[thing.name]),
                connections.get(thing.name),
                self._requests[thing.name],
                tuple(
                    NodeMeasure(key, key in sessions, rates.get(f"node {key}"), _memory(owned.nodes.get(key, ())))
                    for key in (thing.parts if thing.kind != "appinst" else ())
                ),
            )
            for thing in things
        }

    def _marks(self, usages: Iterable[ProcessUsage], sessions: Collection[int]) -> dict[int, str]:
        """Return the marks of app shells; only the processes in sessions of nodes are looked at."""
        wanted, marks = set(sessions), {}
        for usage in usages:
            if usage.session not in wanted:
                continue
            arguments = (read_proc(usage.pid, "cmdline") or b"").split(b"\0")
            mark = arguments[MARK_ARGUMENT].decode(errors="replace") if len(arguments) > MARK_ARGUMENT else ""
            if mark.startswith(self._mark_prefix):
                marks[usage.pid] = mark
        return marks

    def _count_connections(self, instances: Mapping[str, Collection[ProcessUsage]]) -> dict[str, int]:
        """Count the connections at the ports of each instance, and add up those that are new as its requests."""
        sockets = read_sockets() if any(instances.values()) else []
        self._find_owners(instances, sockets)
        uses = use_of_ports(sockets, ports_by_owner(sockets, self._owners))
        for name, use in uses.items():
            if name in self._seen:
                self._requests[name] = self._requests.get(name, 0) + len(use.seen - self._seen[name])
        self._seen = {name: uses[name].seen if name in uses else frozenset() for name in instances}
        readable = [name for name in instances if name not in self._unreadable]
        return {name: uses[name].established if name in uses else 0 for name in readable}

    def _find_owners(self, instances: Mapping[str, Collection[ProcessUsage]], sockets: Iterable[TcpSocket]) -> None:
        """Find the owners of listening sockets, again only if there are other sockets or other processes."""
        pids: dict[int, set[str]] = {}
        for name, some in instances.items():
            for usage in some:
                pids.setdefault(usage.pid, set()).add(name)
        listening = frozenset(socket.inode for socket in sockets if socket.state == LISTENING)
        if self._owned == (frozenset(pids), listening):
            return
        self._owned, self._owners, self._unreadable = (frozenset(pids), listening), {}, set()
        for pid, names in pids.items():
            try:
                for inode in socket_inodes(pid) & listening:
                    self._owners.setdefault(inode, set()).update(names)
            except PermissionError:
                self._unreadable |= names


def _memory(processes: Iterable[ProcessUsage]) -> int:
    return sum(process.memory for process in processes)
