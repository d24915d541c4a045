"""Containers on nodes: real agents and a real Podman, with a killed agent, and with an engine that hangs at the end."""

import signal
from collections import Counter
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import httpx

from tests.containers import IMAGE, PodmanService
from tests.integration.domains.systems.container_harness import SERVE
from tests.integration.domains.systems.node_harness import URL, Hosts, environment, serving_hosts
from tests.integration.server.server_processes import served
from tests.kept_ports import keep_port

LEASE_S = 20.0
"""Long enough for the start of an agent on a busy machine."""

VALUE = "hunter2-hunter2-hunter2"
TELL = 'mkdir -p /tmp/www; echo "$STATEWARD_NODE $(cat $PASSWORD | sha256sum)" > /tmp/www/secret.html;' + SERVE


def running(podman: PodmanService) -> dict[str, set[str]]:
    """Return the instances whose processes run in containers, by node."""
    mark, found = f"STATEWARD_RUN={podman.folder}".encode(), dict[str, set[str]]()
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdecimal() else []
            if mark in variables and (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                own = dict(one.decode().split("=", 1) for one in variables if one)
                if "STATEWARD_NODE" in own:
                    found.setdefault(own["STATEWARD_NODE"], set()).add(own["STATEWARD_NAME"])
    return found


def label_of(agent_folder: Path) -> str:
    """Return the label of all that a node has in the engine."""
    return f"label=stateward.systems.installation={(agent_folder / 'containers' / 'installation').read_text()}"


def listed(podman: PodmanService, agent_folder: Path) -> list[str]:
    """Return the ids of the containers of a node, in every state."""
    return podman.run("ps", "--all", "--quiet", "--no-trunc", "--filter", label_of(agent_folder)).split()


def volumes(podman: PodmanService, agent_folder: Path) -> list[str]:
    """Return the names of the volumes of a node."""
    return podman.run("volume", "ls", "--quiet", "--filter", label_of(agent_folder)).split()


def get(port: int, path: str = "/") -> str:
    with suppress(httpx.HTTPError):
        return httpx.get(
            f"http://127.0.0.1:{port}{path}", headers={"Connection": "close"}, trust_env=False, verify=False
        ).text
    return ""


def never_doubled(podman: PodmanService) -> None:
    """Check that no instance runs on two nodes."""
    counts = Counter(name for names in running(podman).values() for name in names)
    assert all(count == 1 for count in counts.values()), counts


def start_nodes(hosts: Hosts, podman: PodmanService, url: str) -> None:
    """Start two nodes with an engine, and one without, which connect to a server."""
    for name in ("a", "b", "c"):
        hosts.register(name)
        hosts.join(
            name, url.replace("http", "ws", 1), flags=() if name == "c" else ("--container-engine", podman.address)
        )
    hosts.until(lambda: all(hosts.node(name)["state"] == "ready" for name in ("a", "b", "c")))
    assert {name: hosts.node(name)["containers"] for name in ("a", "b", "c")} == {"a": True, "b": True, "c": False}


def test_containers_are_adopted_after_a_kill_and_end_with_the_lease_though_their_engine_hangs(
    podman: PodmanService, tmp_path: Path
) -> None:
    port = keep_port()
    with (
        serving_hosts(tmp_path, lease_s=LEASE_S) as hosts,
        served(
            tmp_path / "data", "--no-worker", environ=environment(lease_s=LEASE_S)
        ) as other,  # deploys run in the first process
    ):
        start_nodes(hosts, podman, other.url)
        hosts.http.post(f"{URL}/-/secrets", json={"name": "db", "value": VALUE}).raise_for_status()
        web = {"image": IMAGE, "pull": "never", "command": ["sh", "-c", TELL], "address": port, "grace": 2}
        web |= {"secrets": {"PASSWORD": {"secret": "db", "as": "file"}}, "volumes": {"data": "/data"}}
        hosts.deploy(web={**web, "instances": 4, "health": {"http": "/", "interval": 0.3}})
        assert Counter(hosts.ready().values()) == {"a": 2, "b": 2}
        hosts.until(lambda: sha256(VALUE.encode()).hexdigest() in get(port, "/secret.html"))

        # After a kill -9, the next agent takes its containers over.
        before = {name: listed(podman, hosts.agents[name].folder) for name in ("a", "b")}
        hosts.agents["a"].signal(signal.SIGKILL)
        hosts.agents["a"].start()
        hosts.until(lambda: "agent serves" in hosts.agents["a"].output.rpartition("starts in")[2])
        hosts.until(lambda: Counter(hosts.ready().values()) == {"a": 2, "b": 2})
        assert {name: listed(podman, hosts.agents[name].folder) for name in ("a", "b")} == before

        # At the end of the lease they are killed, although the agent is dead and the engine hangs.
        podman.freeze()
        try:
            hosts.agents["a"].signal(signal.SIGKILL)
            hosts.until(lambda: not running(podman).get("a"))
            assert len(running(podman)["b"]) == 2
            hosts.until(lambda: hosts.node("a")["state"] == "lost")
        finally:
            podman.thaw()
        hosts.until(lambda: Counter(hosts.ready().values()) == {"b": 4}, lambda: never_doubled(podman))
        hosts.until(lambda: listed(podman, hosts.agents["a"].folder) == [])  # the watchdog has told the engine

        # The node returns with nothing.
        hosts.agents["a"].start()
        hosts.until(lambda: hosts.node("a")["state"] == "ready", lambda: never_doubled(podman))
        assert "a" not in running(podman)

        # The system leaves no container and no volume, and no file has the secret.
        files = [one for one in tmp_path.rglob("*") if one.is_file() and not one.is_symlink()]
        assert not [one for one in files if VALUE.encode() in one.read_bytes()]
        assert volumes(podman, hosts.agents["a"].folder)  # instances that have left leave their data
        hosts.ended(hosts.http.delete(f"{URL}/shop", params={"force": True}))
        assert not [one for name in ("a", "b") for one in volumes(podman, hosts.agents[name].folder)]
        hosts.until(lambda: not running(podman))
        hosts.until(lambda: not listed(podman, hosts.agents["b"].folder))
        hosts.until(lambda: "stateward.shop" not in podman.run("network", "ls"))
