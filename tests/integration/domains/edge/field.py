"""The real thing: `stateward serve`, `stateward agent`, and a proxy between them that can lose everything."""

import asyncio
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

import stateward
from tests.integration.server.processes import Process, Served

NS = "lab"
PATIENT = 60.0
BEAT = 0.3
ENVIRON = {"STATEWARD_EDGE_BEAT": str(BEAT)}


class Proxy:
    """Passes packets on between agents and a controller, or drops them all, as a network may."""

    def __init__(self) -> None:
        self.target = 0
        self._dropping = False
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer), return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                if not self._dropping:
                    writer.write(data)
                    await writer.drain()
        finally:
            while self._dropping:  # a cut wire does not tell either side that it was cut
                await asyncio.sleep(0.02)
            writer.close()
            self._writers.discard(writer)

    def drop(self) -> None:
        """Lose everything from now on."""
        self._dropping = True

    def heal(self) -> None:
        """Pass new connections on again; the old ones are dead."""
        self._loop.call_soon_threadsafe(self._heal)

    def _heal(self) -> None:
        self._dropping = False
        for writer in list(self._writers):
            writer.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


class Field:
    """A controller, an agent, and what lies between."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.proxy = Proxy()
        self.releases = folder / "releases"
        self.releases.mkdir()
        self.serve()
        made = self.client.post(
            "/api/v1/tokens", json={"name": "munich", "role": "agent", "namespaces": [f"{NS}:munich"]}
        ).json()
        (folder / "token").write_text(made["token"])
        self.agent: Process | None = None

    def serve(self) -> None:
        self.server = Served(self.folder / "controller", environ=ENVIRON)
        self.proxy.target = int(self.server.url.rpartition(":")[2])
        self.client = self.server.client()

    def work(self) -> None:
        """Start the agent."""
        self.agent = Process(
            self.folder / "agent", "agent", "--controller", f"ws://127.0.0.1:{self.proxy.port}", "--cloudlet", "munich",
            "--namespace", NS, "--token-file", str(self.folder / "token"), "--data", str(self.folder / "site"),
            "--releases", str(self.releases), "--look-every", "0.3",
        )  # fmt: skip

    # --- faults ------------------------------------------------------------------------------------------------------

    def kill_controller(self) -> None:
        self.client.close()
        self.server.stop(signal.SIGKILL)

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.stop(signal.SIGKILL)

    def freeze_agent(self) -> None:
        assert self.agent is not None
        self.agent.process.send_signal(signal.SIGSTOP)

    def thaw_agent(self) -> None:
        assert self.agent is not None
        self.agent.process.send_signal(signal.SIGCONT)

    # --- asking and looking ------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, status: int = 202) -> Any:
        """Call the API; a controller that just comes up is waited for."""
        answer = self.client.request(method, f"/api/v1/edge/ns/{NS}{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def get(self, path: str) -> Any:
        return self.call("GET", path, status=200)

    def until(self, path: str, *states: str, **conditions: Any) -> Any:
        """Wait until something is in one of these states, and these conditions are true of it."""
        end = time.monotonic() + PATIENT
        while True:
            found = self.get(path)
            true = all(found["conditions"][name] == value for name, value in conditions.items())
            if found["state"] in states and true:
                return found
            assert time.monotonic() < end, f"{found}\n{self.server.output}\n{self.agent and self.agent.output}"
            time.sleep(0.03)

    def nodes(self, cluster: str) -> int:
        """Count the node processes of a cluster that really run on this machine."""
        return len(processes(str(self.folder / "site" / "machines"), f"/{cluster}-"))

    def apps(self, app: str) -> list[int]:
        """Return the processes of an app that really run on this machine, in a node of this agent."""
        return [pid for pid in processes("stateward-app/", f"/{app}/") if _is_in(pid, self.folder)]

    def close(self) -> None:
        for process in (self.agent, self.server):
            if process is not None and process.process.poll() is None:
                process.process.kill()
                process.ended()
        for pid in {*processes(str(self.folder)), *(pid for pid in processes() if _is_in(pid, self.folder))}:
            kill(pid)
        self.client.close()
        self.proxy.stop()


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_in(pid: int, folder: Path) -> bool:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink()).startswith(str(folder))
    except OSError:
        return False


def processes(*texts: str) -> list[int]:
    """Return the processes whose arguments hold these texts."""
    found = []
    for one in Path("/proc").iterdir():
        if one.name.isdecimal():
            try:
                line = (one / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if line and all(text in line for text in texts) and int(one.name) != os.getpid():
                found.append(int(one.name))
    return found


def release(folder: Path, version: str) -> None:
    """Install another version beside: the same program, with another number."""
    library = folder / version / "lib"
    shutil.copytree(
        Path(stateward.__file__).parent, library / "stateward", ignore=shutil.ignore_patterns("__pycache__")
    )
    (library / "stateward" / "__init__.py").write_text(f'"""Another version."""\n\n__version__ = "{version}"\n')
    program(folder, version, f'PYTHONPATH="{library}" exec "{sys.executable}" -m stateward "$@"')


def program(folder: Path, version: str, text: str) -> None:
    """Write the program of a version."""
    (folder / version).mkdir(exist_ok=True)
    file = folder / version / "stateward"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@contextmanager
def open_field(folder: Path) -> Iterator[Field]:
    """Set everything up; whatever happens, all of it is gone in the end."""
    field = Field(folder)
    try:
        yield field
    finally:
        field.close()


def events(client: httpx.Client, op: str) -> str:
    """Return all that an operation says, from its beginning to its end."""
    with client.stream("GET", f"/api/v1/ns/{NS}/operations/{op}/events") as stream:
        return stream.read().decode()
