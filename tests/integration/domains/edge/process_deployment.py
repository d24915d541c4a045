"""A deployment of real processes: `stateward serve`, `stateward agent`, and a proxy between them that can drop data."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec

import stateward
from stateward.agents.local_state import LocalState
from stateward.agents.self_upgrade import LockHolder
from stateward.workloads.confinement.uids import CLAIMS
from tests.integration.domains.edge.proxy import Proxy
from tests.integration.drivers.local.host_machines import records_in
from tests.integration.server.server_processes import STATEWARD, Process, Served
from tests.waiting import pauses, wait_until

NS = "lab"
PATIENT = 60.0
BEAT = 2.0  # three beats of silence end a connection, and a busy machine is silent for seconds
ENVIRON = {
    "STATEWARD_EDGE_BEAT": str(BEAT),
    "STATEWARD_EDGE_MEASURES": "0.3",
    "STATEWARD_EDGE_POLICIES": "1",
}
SHOWN = "shown"
"""The folder that confined apps can read, for files by which a test tells them something."""


class Agent(Process):
    """An agent, of whichever version the program is."""

    def __init__(self, program: Path, folder: Path, *arguments: str) -> None:
        self.folder, self.said = folder, folder.with_name(f"{folder.name}.{time.monotonic_ns()}.log")
        with self.said.open("wb") as log:
            self.process = subprocess.Popen(
                [str(program), "agent", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "STATEWARD_MACHINE_PATHS": str(folder.parent / SHOWN)},
            )


class ProcessDeployment:
    """A controller with some domains, an agent, and the proxy between them."""

    def __init__(self, folder: Path, domains: str) -> None:
        self.folder, self._environ = folder, {**ENVIRON, "STATEWARD_ONLY": domains}
        self.proxy = Proxy()
        self.releases = folder / "releases"
        self.releases.mkdir()
        self.shown = folder / SHOWN
        self.shown.mkdir()
        self.serve()
        made = self.client.post(
            "/api/v1/tokens", json={"name": "munich", "role": "agent", "namespaces": [f"{NS}:munich"]}
        ).json()
        (folder / "token").write_text(made["token"])
        self.agent: Process | None = None
        self.agent_options: tuple[str, ...] = ()
        self._started: list[Process] = []

    def serve(self) -> None:
        self.server = Served(self.folder / "controller", environ=self._environ)
        self.proxy.target = int(self.server.url.rpartition(":")[2])
        self.client = self.server.client()

    def work(self, version: str = "", site: str = "site") -> None:
        """Start the agent in a version (default: the version under test)."""
        own = version in ("", stateward.__version__)
        self.agent = Agent(
            STATEWARD if own else self.releases / version / "stateward",
            self.folder / "agent", "--controller", f"ws://127.0.0.1:{self.proxy.port}", "--cloudlet", "munich",
            "--namespace", NS, "--token-file", str(self.folder / "token"), "--data", str(self.folder / site),
            "--releases", str(self.releases), "--look-every", "0.3", *self.agent_options,
        )  # fmt: skip
        self._started.append(self.agent)

    # --- faults ------------------------------------------------------------------------------------------------------

    def kill_controller(self) -> None:
        self.client.close()
        self.server.stop(signal.SIGKILL)

    def kill_agent(self) -> None:
        """Kill the agent that serves, of whichever version it is."""
        holder = self.holder
        kill(holder.pid)
        if self.agent is not None and self.agent.process.pid == holder.pid:
            self.agent.ended()
        self.until_true(lambda: holder.pid not in processes("--cloudlet"))

    @contextmanager
    def stopped_agent(self) -> Iterator[None]:
        """Let the agent that serves see nothing for a while."""
        serving = self.holder.pid
        os.kill(serving, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(serving, signal.SIGCONT)

    @property
    def holder(self) -> LockHolder:
        """The agent that serves, as it says in its folder."""
        return msgspec.json.decode((self.folder / "site" / "agent.json").read_bytes(), type=LockHolder)

    def agents(self) -> list[int]:
        """Return the agents that run here, whether they serve or wait to."""
        return processes("--cloudlet munich", str(self.folder))

    def inject_fault(self, fault: str, version: str = "") -> None:
        """Inject a fault and repair it; messages that the proxy held back are lost.

        An agent that was killed is started again, in this version.
        """
        if fault in ("agent", "both"):
            self.kill_agent()
        if fault in ("controller", "both"):
            self.kill_controller()
        if fault == "cut":
            self.proxy.drop()
            self.until_true(lambda: self.get("/agents")["agents"] == [])
        self.proxy.free()
        if fault == "cut":
            self.proxy.heal()
        if fault in ("controller", "both"):
            self.serve()
        if fault in ("agent", "both"):
            self.work(version)

    # --- requests and observations -----------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, status: int = 202) -> Any:
        """Call the API; a controller that just comes up is waited for."""
        answer = self.client.request(method, f"/api/v1/edge/ns/{NS}{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def has(self, path: str) -> bool:
        """Tell whether an object is Ready."""
        return bool(self.client.get(f"/api/v1/edge/ns/{NS}{path}").json().get("state") == "Ready")

    def get(self, path: str) -> Any:
        return self.call("GET", path, status=200)

    def until(self, path: str, *states: str, **conditions: Any) -> Any:
        """Wait until an object is in one of these states, with these conditions."""
        end, pause_s = time.monotonic() + PATIENT, pauses()
        while True:
            found = self._find(path)
            true = all(found.get("conditions", {}).get(name) == value for name, value in conditions.items())
            if found.get("state") in states and true:
                return found
            assert time.monotonic() < end, f"{found}\n{self.server.output}\n{self.agent and self.agent.output}"
            time.sleep(next(pause_s))

    def _find(self, path: str) -> Any:
        """Return an object; one that does not exist is NotPresent."""
        answer = self.client.get(f"/api/v1/edge/ns/{NS}{path}")
        return {"state": "NotPresent"} if answer.status_code == httpx.codes.NOT_FOUND else answer.json()

    def until_true(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true."""
        wait_until(condition, explain=lambda: f"{self.server.output}\n{self.agent and self.agent.output}")

    def things(self) -> list[str]:
        """Return the names in the agent's local state."""
        return [one.name for one in LocalState(self.folder / "site" / "things")]

    def nodes(self, cluster: str) -> int:
        """Count the node processes of a cluster that really run on this machine."""
        return len([one for one in self._running() if one.startswith(f"{cluster}-")])

    def machines(self) -> int:
        """Count all node processes of this agent."""
        return len(self._running())

    def _running(self) -> list[str]:
        """Return the names of the folders of machines whose process runs: it is known by a mark in its arguments."""
        folders = {one.native_id: one.key for one in records_in(self.folder / "site" / "machines")}
        running = {line for pid in processes() for line in arguments(pid)}
        return [key for native, key in folders.items() if any(line.startswith(native) for line in running)]

    def apps(self, app: str) -> list[int]:
        """Return the processes of an app that really run on this machine, in a node of this agent."""
        return [pid for pid in processes("stateward-app/", f"/{app}/") if _is_in(pid, self.folder)]

    def _own_processes(self) -> set[int]:
        """Return the processes of this folder that live: agents, machines, and apps."""
        found = {*processes(str(self.folder)), *(pid for pid in processes() if _is_in(pid, self.folder))}
        natives = [one.native_id for one in records_in(self.folder / "site" / "machines")]
        marked = {pid for pid in processes() if any(line.startswith(one) for line in arguments(pid) for one in natives)}
        return found | marked

    def close(self) -> None:
        for process in (*self._started, self.server):
            process.process.kill()
            process.ended()
        end = time.monotonic() + PATIENT
        while left := self._own_processes():  # an agent that is killed may just have started something
            assert time.monotonic() < end, f"these do not end: {left}"
            for pid in left:
                kill(pid)
            time.sleep(0.05)
        self.client.close()
        self.proxy.stop()


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_in(pid: int, folder: Path) -> bool:
    """Tell whether a process is of a folder: it works there, or runs as a user that was claimed for something there."""
    process = Path(f"/proc/{pid}")
    with suppress(OSError):  # root alone may look at claims
        return (CLAIMS / str(process.stat().st_uid)).readlink().is_relative_to(folder)
    with suppress(OSError):
        return (process / "cwd").readlink().is_relative_to(folder)
    return False


def arguments(pid: int) -> list[str]:
    """Return the arguments of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def processes(*texts: str) -> list[int]:
    """Return the processes whose arguments hold these texts."""
    found = []
    for one in Path("/proc").iterdir():
        if one.name.isdecimal():
            line = " ".join(arguments(int(one.name)))
            if line and all(text in line for text in texts) and int(one.name) != os.getpid():
                found.append(int(one.name))
    return found


def release(folder: Path, version: str) -> None:
    """Install another version beside: the same program, with another number."""
    library = folder / version / "lib"
    package = library / "stateward"
    unneeded = shutil.ignore_patterns("console")
    shutil.copytree(Path(stateward.__file__).parent, package, ignore=unneeded, copy_function=os.symlink)
    (package / "__init__.py").unlink()
    (package / "__init__.py").write_text(f'"""Another version."""\n\n__version__ = "{version}"\n')
    program(folder, version, f'PYTHONPATH="{library}" exec "{sys.executable}" -m stateward "$@"')


def install_gated_release(deployment: ProcessDeployment, version: str) -> Path:
    """Install a version that starts only when its gate file exists; returns that file."""
    release(deployment.releases, version)
    file = deployment.releases / version / "stateward"
    gate = deployment.folder / f"gate-{version}"
    file.write_text(file.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\nuntil [ -e {gate} ]; do sleep 0.05; done\n"))
    return gate


def until_serving(deployment: ProcessDeployment, version: str) -> None:
    """Wait until a version serves, as the only agent that runs."""
    deployment.until("/cloudlets/munich", "Ready", version=version, online=True)
    deployment.until_true(lambda: deployment.agents() == [deployment.holder.pid])
    assert deployment.holder.version == version
    identity = (deployment.folder / "site" / "installation").read_text()
    assert deployment.get("/cloudlets/munich")["conditions"]["installation"] == identity


def program(folder: Path, version: str, text: str) -> None:
    """Write the program of a version."""
    (folder / version).mkdir(exist_ok=True)
    file = folder / version / "stateward"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@contextmanager
def open_deployment(folder: Path, domains: str = "edge") -> Iterator[ProcessDeployment]:
    """Open a deployment; all its processes are ended with it. A start with one domain takes two thirds of the time."""
    deployment = ProcessDeployment(folder, domains)
    try:
        yield deployment
    finally:
        deployment.close()


def events(client: httpx.Client, op: str) -> str:
    """Return the event stream of an operation, from its start to its end."""
    with client.stream("GET", f"/api/v1/ns/{NS}/operations/{op}/events") as stream:
        return stream.read().decode()


def progress(stream: str) -> list[str]:
    """Return the lines of progress in an event stream."""
    return [line for line in stream.splitlines() if '"text"' in line]
