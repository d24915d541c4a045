"""Lines that die without a word, as when a network is cut: the kernel is told to notice, and to say so.

Left alone, a request on such a line is waited for as long as any slow answer, and a line that nobody uses looks well
until it is used, one after the other. A new primary would long be there.
"""

import os
import socket
from typing import Any

DEAD_AFTER = 10.0
"""How many seconds of silence, where there should be none, a line is given."""

PROBES = 3


def notice_death(connection: Any, dead_after: float = DEAD_AFTER) -> None:  # noqa: ANN401 - the driver has no types
    """Have a connection closed when the other side does not answer, be it in use or idle."""
    line = connection._transport.get_extra_info("socket")  # noqa: SLF001 - the driver has no word for it
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with socket.socket(fileno=os.dup(line.fileno())) as ours:  # loops differ in what they let one do with theirs
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _options(dead_after).items():
            if hasattr(socket, name):  # not every system has all of them
                ours.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _options(dead_after: float) -> dict[str, int]:
    pause = max(1, round(dead_after / (PROBES + 1)))
    return {
        "TCP_KEEPIDLE": pause,
        "TCP_KEEPINTVL": pause,
        "TCP_KEEPCNT": PROBES,
        "TCP_USER_TIMEOUT": round(dead_after * 1000),
    }
