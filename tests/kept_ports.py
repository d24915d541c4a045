"""Ports that are kept for servers which must know their port before they start, or listen at it again later.

A port that was found free and is bound minutes later may be somebody else's by then. Here a socket stays bound to it
and never listens. The system gives such a port to nobody, and a server that sets SO_REUSEADDR can listen at it.
"""

import atexit
import socket

_KEPT: list[socket.socket] = []


def keep_port(host: str = "127.0.0.1") -> int:
    """Return a port that is kept until this process ends."""
    if not _KEPT:
        atexit.register(_release)
    kept = socket.socket()
    _KEPT.append(kept)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((host, 0))
    port: int = kept.getsockname()[1]
    return port


def _release() -> None:
    for kept in _KEPT:
        kept.close()
