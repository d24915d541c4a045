"""The harness of nodes: a real server, real agents with their watchdogs, and instances that serve HTTP."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from stateward.domains.systems.backends.local.launch import root_mark
from stateward.domains.systems.nodes.lease_watchdog import INSTANCES
from tests.fork_server import Command, ForkedProcess, fork_server
from tests.integration.domains.systems.local_backend_harness import PYTHON
from tests.integration.server.server_processes import PATIENT, STATEWARD, Served, served
from tests.kept_ports import keep_port
from tests.waiting import pauses

LEASE_S, MARGIN_S = 10.0, 3.0
URL = "/api/v1/systems/default"
ROOTS = (INSTANCES, "addresses")
"""The folders below the data of an agent or a server in which instances and TCP proxies are."""

PROGRAM = """
import contextlib, http.server, os, signal, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def do_GET(self):
        body = (os.environ["STATEWARD_NODE"] + " " + os.environ["STATEWARD_NAME"]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 100
print("on", os.environ["STATEWARD_NODE"], flush=True)
server = Server((os.environ["HOST"], int(os.environ["PORT"])), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever(poll_interval=0.05)
server.socket.setblocking(False)
with contextlib.suppress(BlockingIOError):  # connections that wait are served as well
    while True:
        server.process_request(*server.get_request())
server.server_close()
"""


def environment(port: int = 0, lease_s: float = LEASE_S) -> dict[str, str]:
    """Return the settings of a server; with a port, others reach it there."""
    url = {"STATEWARD_SERVER_URL": f"http://127.0.0.1:{port}"} if port else {}
    return {
        "STATEWARD_SYSTEMS_NODE_LEASE": str(lease_s),
        "STATEWARD_SYSTEMS_NODE_MARGIN": str(MARGIN_S),
        "STATEWARD_ONLY": "systems",  # a start takes two thirds of the time
        **url,
    }


def web(instances: int, address: int | None = None, **how: Any) -> dict[str, Any]:
    """Return the definition of a service that says which node it runs on."""
    health = {"http": "/", "interval": 0.3}
    where = {} if address is None else {"address": address}
    return {"command": [PYTHON, "-I", "-S", "-c", PROGRAM], "instances": instances, "health": health, **where, **how}


def living(folder: Path) -> dict[int, str]:
    """Return the processes of the instances below an agent's folder, with the names of the instances."""
    return living_in([folder])[folder]


def living_in(folders: Iterable[Path]) -> dict[Path, dict[int, str]]:
    """Return the processes of the instances below each of the agents' folders, with the names of the instances."""
    found = {folder: dict[int, str]() for folder in folders}
    folders_by_mark = {root_mark(folder / root): folder for folder in found for root in ROOTS}
    for pid in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - looked at again and again
        with suppress(OSError):
            variables = b"\0" + Path("/proc", pid, "environ").read_bytes()
            mark = variables.partition(b"\0STATEWARD_INSTANCE=")[2].partition(b"/")[0].decode(errors="replace")
            folder = folders_by_mark.get(mark)
            if folder and Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found[folder][int(pid)] = variables.partition(b"\0STATEWARD_NAME=")[2].partition(b"\0")[0].decode()
    return found


class NodeAgent:
    """The agent of a node, in a process of its own; `prefix` is a command that runs it elsewhere."""

    def __init__(
        self,
        name: str,
        folder: Path,
        url: str,
        token: Path,
        address: str,
        prefix: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        self.name, self.folder, self._said = name, folder, folder.with_suffix(".log")
        words = ("--controller", url, "--token-file", str(token), "--data", str(folder), "--address", address)
        self._prefix = prefix
        self._command = [str(STATEWARD), "system", "node", "agent", name, *words, *flags]
        self.start()

    def start(self) -> None:
        """Start the process."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STATEWARD_")}
        self.process: subprocess.Popen[bytes] | ForkedProcess
        with self._said.open("ab") as log:
            if self._prefix:
                command = [*self._prefix, *self._command]
                self.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean, cwd=self.folder.parent
                )
            else:
                self.process = fork_server().start(Command(self._command, clean, str(self.folder.parent)), log, log)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; after SIGKILL, wait for the end."""
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait(PATIENT)

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._said.read_text("utf-8")

    def living(self) -> dict[int, str]:
        """Return the processes of its instances, with the names of these."""
        return living(self.folder)


class Hosts:
    """A server with nodes, and a system `shop` on them."""

    def __init__(self, server: Served, folder: Path, port: int) -> None:
        self.server, self.folder, self.agents, self._port = server, folder, dict[str, NodeAgent](), port
        self.http = server.client()

    def register(self, name: str, labels: dict[str, str] | None = None, named: str = "") -> None:
        """Register a node, and make a token for its agent that names it, or something else."""
        self.http.post(f"{URL}/-/nodes", json={"name": name, "labels": labels or {}}).raise_for_status()
        body = {"name": f"agent-{name}", "role": "agent", "namespaces": [f"default:{named or name}"]}
        made = self.http.post("/api/v1/tokens", json=body).raise_for_status().json()
        token = self.folder / f"{name}.token"
        token.write_text(made["token"])
        token.chmod(0o600)

    def join(
        self,
        name: str,
        url: str = "",
        address: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> NodeAgent:
        """Start the agent of a registered node."""
        url = url or self.server.url.replace("http", "ws", 1)
        token = self.folder / f"{name}.token"
        agent = self.agents[name] = NodeAgent(name, self.folder / name, url, token, address, prefix, flags)
        return agent

    def node(self, name: str) -> dict[str, Any]:
        """Return a node."""
        found: dict[str, Any] = self.http.get(f"{URL}/-/nodes/{name}").raise_for_status().json()
        return found

    def deploy(self, jobs: dict[str, Any] | None = None, **services: Any) -> None:
        """Deploy services and jobs, and wait for the end."""
        body = {"definition": json.dumps({"services": services, "jobs": jobs or {}})}
        self.ended(self.http.post(f"{URL}/shop/deploys", json=body))

    def ended(self, answer: httpx.Response | dict[str, Any]) -> str:
        """Wait for the end of an operation, and return its status."""
        op = (answer if isinstance(answer, dict) else answer.raise_for_status().json())["operation"]
        end, pause_s = time.monotonic() + PATIENT, pauses()
        while True:
            found = self.http.get(f"/api/v1/ns/default/operations/{op}").raise_for_status().json()
            if found["status"] not in ("waiting", "running"):
                assert found["status"] != "failed", found
                return str(found["status"])
            assert time.monotonic() < end, found
            time.sleep(next(pause_s))

    def ready(self, path: str = "/web") -> dict[str, str]:
        """Return the ready instances of a service, with their nodes."""
        found = self.http.get(f"{URL}/shop", params={"instances": True}).raise_for_status().json()
        service = next(one for one in found["services"] if one["path"] == path)
        return {one["name"]: one["node"] for one in service["instances"] if one["ready"]}

    def until(self, condition: Callable[[], bool], always: Callable[[], None] = lambda: None) -> None:
        """Wait until a condition is true; `always` is called meanwhile."""
        end, pause_s = time.monotonic() + PATIENT, pauses(longest_s=0.1)
        while not condition():
            always()
            assert time.monotonic() < end, (self.http.get(f"{URL}/-/nodes").json(), self.server.output[-2000:])
            time.sleep(next(pause_s))
        always()

    def never_doubled(self) -> None:
        """Check that no instance runs on two nodes."""
        alive = living_in(agent.folder for agent in self.agents.values())
        counts = Counter(name for names in alive.values() for name in set(names.values()))
        assert all(count == 1 for count in counts.values()), alive

    def restart(self, how: signal.Signals, *flags: str) -> None:
        """End the server by a signal, and start the next one on the same data."""
        self.server.stop(how)
        self.http.close()
        flags = (*flags, "--port", str(self._port))
        self.server = Served(self.folder / "data", *flags, environ=environment(self._port))
        self.http = self.server.client()

    def close(self) -> None:
        """Kill the agents, their watchdogs and all instances."""
        for agent in self.agents.values():
            for number in (signal.SIGCONT, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    agent.process.send_signal(number)
            agent.process.wait(PATIENT)
            with suppress(OSError, ValueError, KeyError):
                os.kill(json.loads((agent.folder / "watchdog.json").read_bytes())["pid"], signal.SIGKILL)
            for pid in agent.living():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.http.close()
        if self.server.process.poll() is None:
            self.server.stop(signal.SIGKILL)
        for pid in living(self.folder / "data"):  # after the server, which would start them again
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def serving_hosts(folder: Path, *flags: str, lease_s: float = LEASE_S) -> Iterator[Hosts]:
    """Run a server with a system whose services run on nodes."""
    port = keep_port()
    with served(folder / "data", *flags, "--port", str(port), environ=environment(port, lease_s)) as server:
        hosts = Hosts(server, folder, port)
        try:
            hosts.ended(hosts.http.post(URL, json={"name": "shop", "backend": "nodes"}))
            yield hosts
        finally:
            hosts.close()
