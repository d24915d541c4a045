"""A real Podman for tests: a service of its own with its own storage, started by the tests and removed when they end.

The service lives in a mount namespace of its own, so that its mounts end with it, and its containers carry the folder
of the run in their environment, so that a guard can find them if the tests are killed. Its image is made from Debian's
static busybox: nothing comes from a registry.
"""

import io
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tests.stopped_processes import stop_process
from tests.waiting import wait_until
from tools.reaper import make_run_folder, remove_rules, start_guard

IMAGE = "stateward-test:1"
MACHINE = ("sh", "-c", "trap 'exit 0' TERM; echo up; sleep 100000 & wait")
"""What the image's containers run: a line of output for every start, and an end at the first signal."""
PATIENT_S = 60.0
PROGRAMS = ("podman", "runc", "/usr/lib/podman/netavark", "/usr/lib/podman/aardvark-dns", "iptables", "busybox")
SETTINGS = """
[containers]
env = ["PATH=/bin", "STATEWARD_RUN={folder}"]
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
default_subnet_pools = [{{"base" = "10.{net}.0.0/16", "size" = 24}}]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
"""
REGISTRIES = """
[[registry]]
location = "127.0.0.1"
insecure = true
"""
"""Registries on this host need no TLS, and there are no others."""
SERVICES = count()
"""Numbers the services of this process: each has networks of its own, since they are all on one host."""

PT_INTERP = 3
SHORT_FOLDER = "/mnt"
"""Where the namespace of the service has its folder as well: Podman takes no `runroot` of more than 50 characters."""

PRIVATE_MOUNTS = (
    "mount -t tmpfs none /run && mkdir /run/netns /run/containers && "
    "mount --bind {folder} {short} && exec sleep infinity"
)
"""All of /run, since a mount on a folder of the host is gone when somebody on the host removes the folder."""


class PodmanService:
    """A running Podman service. It can be killed and started again; its containers go on meanwhile.

    With `disk_bytes`, its storage is that small.
    """

    def __init__(self, disk_bytes: int = 0) -> None:
        self.folder = make_run_folder()
        start_guard(self.folder)
        self.socket = self.folder / "podman.sock"
        self.address = f"unix://{self.socket}"
        self.log = self.folder / "podman.log"
        self._net = 100 + (os.getpid() + 37 * next(SERVICES)) % 100
        (self.folder / "containers.conf").write_text(SETTINGS.format(folder=self.folder, net=self._net))
        (self.folder / "registries.conf").write_text(REGISTRIES)
        self._environment = {
            **os.environ,
            "TMPDIR": str(self.folder),
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self.folder / "registries.conf"),
        }
        self._namespace = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", self._mounts(disk_bytes)],
            env=self._environment,
        )
        wait_until(self._has_namespace)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        self.import_image(busybox_archive(), IMAGE, MACHINE)

    def _mounts(self, disk_bytes: int) -> str:
        """Return the commands that make the mounts of the namespace; with a size, its storage has no more room."""
        root = self.folder / "root"
        storage = f"mkdir {root} && mount -t tmpfs -o size={disk_bytes} none {root} && " if disk_bytes else ""
        return storage + PRIVATE_MOUNTS.format(folder=self.folder, short=SHORT_FOLDER)

    def start(self) -> None:
        """Start the service and wait until it answers."""
        self.socket.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            command = self._command("system", "service", "--time=0", self.address)
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
        wait_until(self._answers)

    def kill(self) -> None:
        """Kill the service as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENT_S)

    def freeze(self) -> None:
        """Let the service hang; all its threads have stopped when this returns."""
        assert self._process is not None
        stop_process(self._process.pid)

    def thaw(self) -> None:
        """Let the service go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def run(self, *words: str) -> str:
        """Run a command of Podman beside the service, and return its output."""
        done = subprocess.run(self._command(*words), env=self._environment, capture_output=True, text=True, check=True)
        return done.stdout

    def import_image(self, archive: bytes, name: str, command: Sequence[str] = ()) -> None:
        """Make an image of one layer from a tar archive of a file system; its containers run the command."""
        change = [f"--change=CMD {json.dumps(list(command))}"] if command else []
        reference = name if "/" in name else f"docker.io/library/{name}"
        words = self._command("import", *change, "-", reference)
        subprocess.run(words, env=self._environment, input=archive, capture_output=True, check=True)

    def count_starts(self, container: str) -> int:
        """Return how often a container was started."""
        chosen = ("--filter", f"container={container}", "--filter", "event=start")
        return len(self.run("events", "--stream=false", "--since=24h", *chosen).splitlines())

    def left_behind(self) -> list[str]:
        """Return the names of the containers and networks that there are."""
        networks = sorted(file.stem for file in (self.folder / "networks").glob("*.json"))
        return [*self.run("ps", "--all", "--format={{.Names}}").split(), *networks]

    def stop(self) -> None:
        """Remove the containers and networks, end the service, and remove its folder."""
        self.kill()
        self.run("rm", "--all", "--force", "--time=0", "--volumes")
        self.run("network", "prune", "--force")
        wait_until(self._is_alone)
        remove_rules(f" 10.{self._net}.")  # of killed containers: another server may get a port that they redirect
        self._namespace.kill()
        self._namespace.wait(PATIENT_S)
        shutil.rmtree(self.folder)

    def _is_alone(self) -> bool:
        """Kill what Podman left in its namespace: monitors of commands, a name server. Tell whether all is gone."""
        own = _namespace_of(self._namespace.pid)
        left = [
            pid
            for one in Path("/proc").iterdir()
            if one.name.isdecimal() and _namespace_of(pid := int(one.name)) == own and pid != self._namespace.pid
        ]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    def _command(self, *words: str) -> list[str]:
        enter = ["nsenter", f"--target={self._namespace.pid}", "--mount"]
        places = [f"--{name}={self.folder / name}" for name in ("root", "tmpdir")]
        places.append(f"--runroot={SHORT_FOLDER}/runroot")
        return [*enter, "podman", "--runtime=runc", "--storage-driver=vfs", *places, *words]

    def _has_namespace(self) -> bool:
        return Path(f"/proc/{self._namespace.pid}/comm").read_text().strip() == "sleep"

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        with socket.socket(socket.AF_UNIX) as line:
            return line.connect_ex(str(self.socket)) == 0


def _namespace_of(pid: int) -> str:
    """Return the namespace of mounts of a process; empty if it has ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return ""


def busybox_archive(only: Sequence[str] | None = None) -> bytes:
    """Return a file system of a static busybox, as a tar archive; with all of its programs, or only some."""
    program = shutil.which("busybox")
    assert program
    found = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    applets = found if only is None else only
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for folder in ("bin", "etc", "run", "tmp", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        archive.add(os.path.realpath(program), "bin/busybox")
        for applet in applets:
            if applet != "busybox":
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(entry)
        users = b"root:x:0:0:root:/:/bin/sh\n"
        entry = tarfile.TarInfo("etc/passwd")
        entry.size = len(users)
        archive.addfile(entry, io.BytesIO(users))
    return file.getvalue()


def missing_for_podman() -> str:
    """Return what this machine lacks to run containers; empty if nothing."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    if os.geteuid():
        return "root rights are missing"
    mounts = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "true"], capture_output=True, check=False
    )
    if mounts.returncode:
        return "the right to mount is missing"
    if _needs_interpreter(Path(shutil.which("busybox") or "").read_bytes()):
        return "busybox is not the static one (apt-get install busybox-static)"
    return ""


def _needs_interpreter(program: bytes) -> bool:
    """Tell whether a 64-bit ELF program is loaded by another one, which an image would have to hold too."""
    (start,) = struct.unpack_from("<Q", program, 32)
    size, number = struct.unpack_from("<HH", program, 54)
    kinds = [struct.unpack_from("<L", program, start + size * index)[0] for index in range(number)]
    return PT_INTERP in kinds


@pytest.fixture(scope="session")
def needs_podman() -> None:
    """Skip tests where no Podman service can run."""
    if missing := missing_for_podman():
        pytest.skip(f"{missing}: real containers are NOT tested here")


@pytest.fixture(scope="session")
def podman(needs_podman: None) -> Iterator[PodmanService]:
    """Give the tests a Podman service, where it can run."""
    service = PodmanService()
    yield service
    left = service.left_behind()
    service.stop()
    assert not left, "tests left containers or networks behind, which others may find"
