"""TCP connections of processes, as `/proc` shows them.

The kernel lists all sockets of a network namespace in one table. A socket's inode tells its owner, by the links in
`/proc/PID/fd`. Only listening sockets are looked up that way: a connection belongs to whoever listens at its local
port. So the cost does not grow with the number of connections that an app has open.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from itertools import islice, takewhile

from msgspec import Struct

from stateward.procfs import PROC

ESTABLISHED, SYN_RECEIVED, LISTENING = 0x01, 0x03, 0x0A
TABLES = ("net/tcp", "net/tcp6")

PROBE_SOURCE = "127.83.87.1"
"""The address of this host from which an agent's probes come, so that they are not taken for requests."""

_PROBE_REMOTE = bytes(reversed(IPv4Address(PROBE_SOURCE).packed)).hex().upper()
"""The same in the tables of IPv4 and of IPv6, which have it at the end."""


class TcpSocket(Struct, frozen=True):
    """One line of `/proc/net/tcp`."""

    port: int
    remote: str
    state: int
    inode: int


class PortUse(Struct, frozen=True):
    """The connections at the ports of an owner: those established now, and all that the kernel still knows of."""

    established: int
    seen: frozenset[tuple[int, str]]


def parse_sockets(lines: Iterable[str]) -> Iterator[TcpSocket]:
    """Parse the lines of `/proc/net/tcp` or `/proc/net/tcp6`."""
    for line in islice(lines, 1, None):
        words = line.split(maxsplit=10)
        if len(words) >= 10:
            yield TcpSocket(int(words[1].rpartition(":")[2], 16), words[2], int(words[3], 16), int(words[9]))


def read_sockets(pid: int | str = "self") -> list[TcpSocket] | None:
    """Return the TCP sockets of the network namespace of a process, or None if they cannot be read."""
    sockets: list[TcpSocket] = []
    try:
        for table in TABLES:
            file = PROC / str(pid) / table
            if table == TABLES[0] or file.exists():  # a kernel without IPv6 lacks the other one
                sockets += parse_sockets(file.read_text().splitlines())
    except OSError:
        return None
    return sockets


def ports_by_owner(sockets: Iterable[TcpSocket], owners: Mapping[int, Collection[str]]) -> dict[str, set[int]]:
    """Return the ports at which each owner listens; `owners` are the names that a listening inode belongs to."""
    ports: dict[str, set[int]] = {}
    for socket in sockets:
        if socket.state == LISTENING:
            for name in owners.get(socket.inode, ()):
                ports.setdefault(name, set()).add(socket.port)
    return ports


def use_of_ports(sockets: Iterable[TcpSocket], ports: Mapping[str, Collection[int]]) -> dict[str, PortUse]:
    """Return the connections at each owner's ports, except probes; the kernel knows a closed one for another minute."""
    by_port: dict[int, list[TcpSocket]] = {}
    for socket in sockets:
        if socket.state not in (LISTENING, SYN_RECEIVED) and not socket.remote.partition(":")[0].endswith(
            _PROBE_REMOTE
        ):
            by_port.setdefault(socket.port, []).append(socket)
    uses = {}
    for name, listened in ports.items():
        mine = [socket for port in listened for socket in by_port.get(port, ())]
        established = sum(socket.state == ESTABLISHED for socket in mine)
        uses[name] = PortUse(established, frozenset((socket.port, socket.remote) for socket in mine))
    return uses


def use_of_namespace(sockets: Collection[TcpSocket], probe_ports: Collection[int] = ()) -> PortUse:
    """Return the connections at all ports of a network namespace; those from the ports of probes are left out."""
    others = [socket for socket in sockets if int(socket.remote.rpartition(":")[2], 16) not in probe_ports]
    ports = {socket.port for socket in sockets if socket.state == LISTENING}
    return use_of_ports((socket for socket in others if socket.state != LISTENING), {"": ports})[""]


def has_listening_socket(pid: int, port: int) -> bool:
    """Tell whether a process itself listens on a TCP port; a connection is answered by whichever program does."""
    with suppress(OSError), (PROC / str(pid) / TABLES[0]).open() as lines:
        listening = takewhile(lambda row: row.state == LISTENING, parse_sockets(lines))  # they come before all others
        wanted = {row.inode for row in listening if row.port == port}
        return bool(wanted) and any(inode in wanted for inode in socket_inodes(pid))
    return False


def socket_inodes(pid: int) -> Iterator[int]:
    """Yield the inodes of a process's sockets, the first opened first; raises `PermissionError` if it may not read."""
    folder = f"{PROC}/{pid}/fd"
    with suppress(FileNotFoundError, ProcessLookupError):
        for name in sorted(os.listdir(folder), key=int):  # noqa: PTH208 - faster than Path, and names suffice
            with suppress(FileNotFoundError, ProcessLookupError):
                target = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - as above
                if target.startswith("socket:["):
                    yield int(target[8:-1])
