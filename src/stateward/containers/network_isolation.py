"""Keeps the networks of a Podman on this host isolated from each other.

Netavark's iptables driver, the only one in Debian 12, jumps to its isolation rules from the chain FORWARD, and takes
that jump away when the last container of any isolated network ends. Until the next container starts, all networks reach
each other, so a tenant could open them at will. The rules themselves stay. So this module adds a second jump, which
Netavark leaves alone because its comment makes it another rule.
"""

import asyncio
import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Awaitable, Callable

log = logging.getLogger("stateward.containers")

JUMP = ("-m", "comment", "--comment", "stateward: networks stay isolated", "-j", "NETAVARK_ISOLATION_1")
FORWARD = "FORWARD"
LOCK_WAIT_S = "10"
PROGRAM_TIMEOUT_S = 30.0
NO_CHAIN, NO_RIGHT = 2, 4
"""The exit statuses of iptables for a chain that does not exist, and without the right to change rules."""

FIRST_WITH_NFTABLES = 5
"""The first Podman whose Netavark usually has the nftables driver, which keeps its rules."""

_inserting = threading.Lock()

RunIptables = Callable[..., int]
"""Runs iptables with arguments; returns its exit status."""


def run_iptables(*words: str) -> int:
    """Run iptables on this host; returns its exit status."""
    program = shutil.which("iptables", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        return NO_RIGHT
    command = [program, "-w", LOCK_WAIT_S, *words]
    try:
        return subprocess.run(command, capture_output=True, timeout=PROGRAM_TIMEOUT_S, check=False).returncode  # noqa: S603 - ours
    except (OSError, subprocess.TimeoutExpired):
        return NO_RIGHT


def insert_jump(iptables: RunIptables = run_iptables) -> bool:
    """Insert the jump unless it is there; returns whether that is done, or not needed because no chain is there."""
    with _inserting:
        return iptables("-C", FORWARD, *JUMP) == 0 or iptables("-I", FORWARD, "1", *JUMP) in (0, NO_CHAIN)


class NetworkIsolation:
    """Keeps the jump in place, or warns once that nobody does."""

    def __init__(self, address: str) -> None:
        self._is_reachable = address.startswith("unix:") and os.geteuid() == 0
        self._has_warned = False

    async def keep(self, is_rootless: Callable[[], Awaitable[bool]], version: Callable[[], Awaitable[str]]) -> bool:
        """Insert the jump unless it is there; returns whether networks stay isolated.

        The rules of an engine on another host, or without root, are out of reach. A newer one needs no help.
        """
        if self._is_reachable and not await is_rootless() and await asyncio.to_thread(insert_jump):
            return True
        engine_version = await version()
        major = engine_version.partition(".")[0]
        if not major.isdecimal() or int(major) >= FIRST_WITH_NFTABLES:
            return True
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "networks of Podman %s may reach each other after the last container of one of them has ended, until"
                " the next one starts: only a process with root on the engine's host can prevent that",
                engine_version,
            )
        return False
