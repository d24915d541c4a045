"""Nodes in network namespaces: a cut network moves the instances of a node, and a heal doubles nothing."""

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.domains.systems.node_harness import serving_hosts, web
from tests.kept_ports import keep_port

MANY = 4
NODES = ("a", "b")


def ip(*words: str) -> None:
    """Run a command of `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


class Lan:
    """A bridge of this host, and for each node a network namespace with a cable to the bridge."""

    def __init__(self, number: int) -> None:
        self._bridge, self._net = f"swbr{number}", f"10.219.{number % 250}"
        self._number = number

    def open(self) -> None:
        """Create the bridge, the namespaces and the cables."""
        ip("link", "add", self._bridge, "type", "bridge")
        ip("addr", "add", f"{self._net}.1/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for place, node in enumerate(NODES):
            space, cable = self.space(node), self._cable(node)
            ip("netns", "add", space)
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", cable, "master", self._bridge, "up")
            ip("-n", space, "addr", "add", f"{self._net}.{11 + place}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def close(self) -> None:
        """Remove everything."""
        for node in NODES:
            subprocess.run(["ip", "netns", "del", self.space(node)], check=False, capture_output=True)
            subprocess.run(["ip", "link", "del", self._cable(node)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)

    def space(self, node: str) -> str:
        """Return the network namespace of a node."""
        return f"sw-{self._number}-{node}"

    def _cable(self, node: str) -> str:
        return f"swv{self._number}{node}"

    def address(self, node: str = "") -> str:
        """Return the address of a node, or of the controller."""
        return f"{self._net}.{11 + NODES.index(node) if node else 1}"

    def cut(self, node: str) -> None:
        """Unplug the cable of a node."""
        ip("link", "set", self._cable(node), "down")

    def heal(self, node: str) -> None:
        """Plug the cable of a node in again."""
        ip("link", "set", self._cable(node), "up")


@pytest.fixture
def lan() -> Iterator[Lan]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip (package iproute2)")
    opened = Lan(os.getpid() % 100_000)
    try:
        opened.open()
    except subprocess.CalledProcessError as error:
        opened.close()
        pytest.skip(f"network namespaces cannot be made here: {error.stderr}")
    yield opened
    opened.close()


def test_a_node_without_a_network_stops_its_instances_before_others_start_and_a_heal_doubles_nothing(
    tmp_path: Path, lan: Lan
) -> None:
    where = ("--host", lan.address(), "--port", str(keep_port(lan.address())))
    with serving_hosts(tmp_path, *where) as hosts:
        for node in NODES:
            hosts.register(node)
            hosts.join(node, address=lan.address(node), prefix=("ip", "netns", "exec", lan.space(node)))
        hosts.until(lambda: all(hosts.node(node)["state"] == "ready" for node in NODES))
        assert not any(hosts.node(node)["secrets"] for node in NODES)  # everybody on the network could read them
        hosts.deploy(web=web(MANY))
        assert Counter(hosts.ready().values()) == {"a": 2, "b": 2}

        lan.cut("a")
        hosts.until(lambda: hosts.node("a")["state"] == "lost", hosts.never_doubled)
        assert not hosts.agents["a"].living()
        # The controller dies in the middle of the move; the next one goes on.
        hosts.restart(signal.SIGKILL, *where)
        hosts.until(lambda: Counter(hosts.ready().values()) == {"b": MANY}, hosts.never_doubled)

        lan.heal("a")
        hosts.until(lambda: hosts.node("a")["state"] == "ready", hosts.never_doubled)
        hosts.until(lambda: len(hosts.ready()) == MANY, hosts.never_doubled)
        assert sum(len(agent.living()) for agent in hosts.agents.values()) == MANY
