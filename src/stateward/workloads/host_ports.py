"""TCP ports of this host: which are free, and which one a program keeps."""

import errno
import socket
from contextlib import closing

from stateward.workloads.number_claims import NumberClaims

LOOPBACK = "127.0.0.1"


class PortClaims(NumberClaims):
    """Claims ports of this host.

    A range below the one of outgoing connections is best: no connection of another program can have such a port while
    the program that listens there is restarted.
    """

    exhausted = "no port of {} is free (option ssh_ports)"

    def _is_taken(self, number: int) -> bool:
        return is_port_taken(number)


def is_port_taken(port: int, host: str = LOOPBACK) -> bool:
    """Tell whether a program of this machine listens on a port."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended do not count
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def free_port(host: str = LOOPBACK) -> int:
    """Return a port of this machine that nobody listens on."""
    with closing(socket.socket()) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port
