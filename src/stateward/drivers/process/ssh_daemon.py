"""The controller's side of the SSH server of a machines' folder: starting it, and telling it of changes.

The server is a process of its own (`ssh_server.py`). It holds a lock that the kernel releases when it ends, however it
ends, as machines do. A controller that finds the lock free starts another.
"""

import logging
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from stateward.workloads.confinement import PATH
from stateward.workloads.confinement.syscalls import open_handle
from stateward.workloads.lock_files import try_flock
from stateward.workloads.spawn import spawn

log = logging.getLogger("stateward.drivers")

SSH, CHANGES, HOST_KEY = "ssh", "changes", "host_key"
"""The folder of the SSH server, its pipe for changed machines, and the file of a machine's host key."""
MODULE = "stateward.drivers.process.ssh_server"


def is_ssh_installed() -> bool:
    """Tell whether the library of the extra `ssh` is installed; it is not imported."""
    return find_spec("asyncssh") is not None


class SshDaemon:
    """The SSH server of one folder of machines."""

    def __init__(self, root: Path) -> None:
        self._root, self._folder = root, root / SSH

    def ensure_running(self) -> None:
        """Start the server, unless it runs. A failure is logged: the machines run without it, and a listing retries."""
        try:
            self._ensure_running()
        except OSError as error:
            log.warning("the SSH server of the machines in %s cannot be started: %s", self._root, error)

    def _ensure_running(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with open_handle(self._folder / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) as handle:
            if not try_flock(handle):
                return
            command = [sys.executable, "-P", "-m", MODULE, str(self._root)]
            spawn(command, _environment(), handle, self._folder / "log")

    def notify(self, key: str) -> None:
        """Tell the server that a machine has changed; if that fails, it finds out itself a little later."""
        with suppress(OSError), open_handle(self._folder / CHANGES, os.O_WRONLY | os.O_NONBLOCK) as handle:
            os.write(handle, f"{key}\n".encode())


def _environment() -> dict[str, str]:
    """Return the environment of the server: none of the controller's secrets."""
    kept = ("LANG", "TZ", "PYTHONPATH")
    return {"PATH": PATH, **{name: os.environ[name] for name in kept if name in os.environ}}
