"""The network of the three nodes: separate hosts that can be cut off, or, without root, ports of this host.

The whole rehearsal lives in a network namespace of its own, in which nothing leads outside: a bridge, and behind it
one more namespace for each node. A namespace is held by a process that does nothing, and is gone with it, so nothing
is ever left behind. Without root, a node that cannot be reached is one whose processes all stand still.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Protocol

from msgspec import Struct

NODES = (1, 2, 3)
HUB = 254
"""The address of all others: servers, workers, agents and callers."""

INSIDE = "STATEWARD_REHEARSAL_INSIDE"
"""The variable that tells this program that it runs in its own network."""


class Ports(Struct, frozen=True):
    """Where the programs of a node listen."""

    postgres: int = 5432
    patroni: int = 8008
    client: int = 2379
    peer: int = 2380


class Network(Protocol):
    """The addresses of nodes, and how one of them is cut off."""

    about: str
    ports: dict[int, Ports]

    def address(self, node: int) -> str:
        """Return a node's address."""

    def inside(self, node: int) -> list[str]:
        """Return the prefix of a command that runs on a node."""

    def cut(self, node: int) -> None:
        """Drop all packets to and from a node."""

    def reconnect(self, node: int) -> None:
        """End the cut."""


class Hosts:
    """Nodes that are separate hosts (network namespaces)."""

    about = "each node is a network namespace of its own; a node is cut off by taking its link away, without a word"

    def __init__(self) -> None:
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self.ports = dict.fromkeys(NODES, Ports())
        ip("link", "set", "lo", "up")
        ip("link", "add", "hub", "address", mac_address(HUB), "type", "bridge")
        ip("address", "add", f"{self.address(HUB)}/24", "dev", "hub")
        ip("link", "set", "hub", "up")
        for node in NODES:
            self._add(node)
        for node in (HUB, *NODES):
            self._add_neighbours(node)

    def _add(self, node: int) -> None:
        holder = self._holders[node] = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        ours = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{holder.pid}/ns/net").readlink() == ours:
            time.sleep(0.01)
        peer = ("name", "uplink", "address", mac_address(node), "netns", str(holder.pid))
        ip("link", "add", f"to{node}", "type", "veth", "peer", *peer)
        ip("link", "set", f"to{node}", "master", "hub", "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{self.address(node)}/24", "dev", "uplink"),
            ("link", "set", "uplink", "up"),
        ):
            ip(*words, before=self.inside(node))

    def _add_neighbours(self, node: int) -> None:
        """Give a host the addresses of all others, so that packets to one that is cut off are dropped, not refused."""
        before, device = ([], "hub") if node == HUB else (self.inside(node), "uplink")
        for other in {HUB, *NODES} - {node}:
            known = (self.address(other), "lladdr", mac_address(other), "dev", device, "nud", "permanent")
            ip("neighbour", "replace", *known, before=before)

    def address(self, node: int) -> str:
        return f"10.77.0.{node}"

    def inside(self, node: int) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._holders[node].pid}/ns/net"]

    def cut(self, node: int) -> None:
        ip("link", "set", f"to{node}", "down")

    def reconnect(self, node: int) -> None:
        ip("link", "set", f"to{node}", "up")

    def close(self) -> None:
        """Remove the namespaces."""
        for holder in self._holders.values():
            holder.kill()
            holder.wait()


class OneHost:
    """Nodes that are ports of this host."""

    about = "all nodes are on this host; a node is cut off by stopping its processes (SIGSTOP)"

    def __init__(self) -> None:
        self.ports = {node: Ports(*free_ports(4)) for node in NODES}
        self.still: Callable[[int, bool], None] = lambda _node, _still: None

    def address(self, node: int) -> str:
        return "127.0.0.1"

    def inside(self, node: int) -> list[str]:
        return []

    def cut(self, node: int) -> None:
        self.still(node, True)

    def reconnect(self, node: int) -> None:
        self.still(node, False)


def mac_address(node: int) -> str:
    """Return the MAC address of a host."""
    return f"02:00:00:00:00:{node:02x}"


def ip(*words: str, before: list[str] | None = None) -> None:
    """Run the `ip` command."""
    subprocess.run([*(before or []), "ip", *words], check=True)


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    held = [create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return found


def enter_own_network() -> None:
    """Start this program again, in a network of its own; returns only there."""
    if os.environ.get(INSIDE) != "yes":
        os.environ[INSIDE] = "yes"
        program = [sys.executable, "-m", "tests.rehearsal", *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "--net", *program])


@contextmanager
def hosts() -> Iterator[Hosts]:
    """Provide three hosts, and remove them in the end."""
    found = Hosts()
    try:
        yield found
    finally:
        found.close()
