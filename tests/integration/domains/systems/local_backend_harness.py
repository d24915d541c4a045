"""The harness of the local backend: real processes on this host, and a program for them to run."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from stateward.domains.systems.backends.local import LocalBackend
from stateward.domains.systems.backends.local.launch import root_mark
from stateward.domains.systems.backends.port import InstanceSpec, ServiceInstance, ServiceRef, SystemRef
from stateward.domains.systems.definition import HealthCheck, Service, revision_of
from tests.waiting import pauses

HOME = SystemRef("default", "shop")
WEB = ServiceRef(HOME, "/web")
PATIENT = 60.0
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
"""An interpreter that any user of this machine can start: where we are root, an instance is another one."""

PROGRAM = """
import contextlib, http.server, os, pathlib, signal, sys, threading, time
here = pathlib.Path(os.environ["STATEWARD_WORK"])
stop = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: stop.set())

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (os.environ["STATEWARD_REVISION"] + " " + os.environ["STATEWARD_NAME"]).encode()
        self.send_response(503 if (here / "ill").exists() else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/slow":
            time.sleep(0.2)
        self.wfile.write(body)
    def log_message(self, *words):
        pass

class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 100

server = Server(("127.0.0.1", int(os.environ["PORT"])), Handler)
threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
print("serves", os.environ["PORT"], *sys.argv[1:], flush=True)
stop.wait()
server.shutdown()
server.socket.setblocking(False)
with contextlib.suppress(BlockingIOError):  # connections that wait are served as well
    while True:
        server.process_request(*server.get_request())
server.server_close()
print("ended well", flush=True)
"""


def program(*words: str, instances: int = 1, check: HealthCheck | None = None, **how: object) -> Service:
    """Return a service that runs the program."""
    command = (PYTHON, "-I", "-S", "-c", PROGRAM, *words)
    health = check or HealthCheck(http="/", interval=0.1, failures=2)
    return Service(command=command, instances=instances, health=health, drain=0.1, **how)  # type: ignore[arg-type]


def shell(text: str, **how: object) -> Service:
    """Return a service that runs a line of shell."""
    return Service(command=("/bin/sh", "-c", text), drain=0.05, grace=1.0, **how)  # type: ignore[arg-type]


@asynccontextmanager
async def run_backend(folder: Path) -> AsyncIterator[LocalBackend]:
    """Run a backend with its supervisor on a folder."""
    backend = LocalBackend(folder)
    await backend.prepare(HOME)
    async with backend.live():
        yield backend


async def start(backend: LocalBackend, service: Service, name: str = "one", ref: ServiceRef = WEB) -> None:
    """Start an instance."""
    await backend.start(ref, InstanceSpec(name, revision_of(service), service))


async def until_instances(
    backend: LocalBackend, fits: Callable[[list[ServiceInstance]], bool], ref: ServiceRef = WEB
) -> list[ServiceInstance]:
    """Wait until the instances of a service satisfy a condition."""
    pause_s = pauses()
    async with asyncio.timeout(PATIENT):
        while not fits(seen := list(await backend.instances(ref))):
            await asyncio.sleep(next(pause_s))
    return seen


async def ready(backend: LocalBackend, many: int = 1, ref: ServiceRef = WEB) -> list[ServiceInstance]:
    """Wait until `many` instances are ready."""
    return await until_instances(backend, lambda seen: sum(one.ready for one in seen) == many, ref)


async def end_all(backend: LocalBackend, ref: ServiceRef = WEB) -> None:
    """Stop all instances of a service, and wait until they are gone."""
    for one in await backend.instances(ref):
        await backend.stop(ref, one.name)
    await until_instances(backend, lambda seen: not seen, ref)
    await backend.forget(ref)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the second one, if it ends between open and read
        return False


def kill_marked(folder: Path) -> list[int]:
    """Kill all processes that were started below a folder, and return their ids: for the end of a test."""
    found = []
    roots = [folder, *folder.glob("*/"), *folder.glob("*/*/")]
    marks = [f"STATEWARD_INSTANCE={root_mark(root)}/".encode() for root in roots]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environ = (entry / "environ").read_bytes()
                marked = any(mark in environ for mark in marks)
            except OSError:
                continue
            if marked and is_alive(int(entry.name)):
                found.append(int(entry.name))
                with suppress(ProcessLookupError):  # it may end by itself just now
                    os.kill(int(entry.name), signal.SIGKILL)
    return found
