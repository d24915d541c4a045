"""Ports of this host for the SSH servers of machines: each stays with its machine until the machine ends.

A port is taken from a range below the one of outgoing connections, so that no connection of another program can have it
while an SSH server is restarted. A claim is a symbolic link from the port to the machine's folder. It is created
atomically, and is void if the folder is gone. Claims are changed under the lock of their folder.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from zlib import crc32

from stateward.drivers.confinement.syscalls import open_handle
from stateward.errors import BadInput

ADDRESS = "127.0.0.1"
DEFAULT_PORTS = "20000-29999"


def port_range(text: str) -> range:
    """Read a range of ports such as `20000-29999`."""
    first, dash, last = text.partition("-")
    numbers = [int(part) if part.strip().isdecimal() else 0 for part in (first, last)]
    if not dash or not 1024 <= numbers[0] <= numbers[1] <= 65535:
        raise BadInput("ssh_ports", text, f"two ports from 1024 to 65535, the lower one first, such as {DEFAULT_PORTS}")
    return range(numbers[0], numbers[1] + 1)


class LoginPorts:
    """Claims the ports of machines in one folder."""

    def __init__(self, claims: Path, ports: range) -> None:
        self._claims, self._ports = claims, ports

    def claim(self, owner: Path) -> int:
        """Return the port of a machine; a machine without one gets a free one."""
        self._claims.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock():
            for port in self._candidates(owner):
                file = self._claims / str(port)
                linked = _linked(file)
                if linked == str(owner):
                    return port
                if linked is not None and os.path.lexists(linked):
                    continue
                if _is_free(port):
                    file.unlink(missing_ok=True)
                    file.symlink_to(owner)
                    return port
        raise OSError(f"no port of {self._ports[0]}-{self._ports[-1]} is free (option ssh_ports)")

    def release(self, port: int, owner: Path) -> None:
        """Give back the port of a machine that has ended."""
        file = self._claims / str(port)
        if _linked(file) == str(owner):
            with self._lock():
                if _linked(file) == str(owner):
                    file.unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Lock the claims against other threads and controllers."""
        with open_handle(self._claims, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _candidates(self, owner: Path) -> Iterator[int]:
        """Yield all ports, from one that depends on the owner: so an owner finds its own port first."""
        begin, size = crc32(os.fsencode(owner)) % len(self._ports), len(self._ports)
        return (self._ports[(begin + step) % size] for step in range(size))


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError:
            return False
    return True


def _linked(file: Path) -> str | None:
    try:
        return os.readlink(file)  # noqa: PTH115 - text
    except OSError:
        return None
