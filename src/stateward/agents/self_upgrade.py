"""Self-upgrade of an agent on its machine: the agent starts its successor, which takes over or is killed.

Versions are installed side by side, each with a program of its own: `RELEASES/VERSION/stateward`. The agent that serves
holds the lock in the agent's folder. The successor runs beside it until the controller has accepted it and it has
observed the site. Then it ends its predecessor and takes the lock. Nothing else on the machine is touched.
"""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct

from stateward.access.private_files import create_private_file
from stateward.agents.messages import UPGRADE_FAILED, UPGRADING, Upgrade
from stateward.errors import StatewardError
from stateward.workloads.lock_files import try_flock

PROGRAM = "stateward"
POLL_INTERVAL_S = 0.05
TERMINATION_GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL for the predecessor."""


class AgentFolderInUse(StatewardError):
    """Another agent serves from this folder."""

    folder: str
    pid: int
    text = "another agent (process {pid}) serves from {folder}"


class InvalidIdentity(StatewardError):
    """The file with the identity of the installation is unreadable or malformed."""

    file: str
    why: str
    text = "{file} must hold the identity of this installation (32 hexadecimal digits): {why}"


def read_installation(folder: Path) -> str:
    """Return the identity of the installation in a folder: random, created once, shared by successors."""
    file = folder / "installation"
    try:
        create_private_file(file, uuid4().hex)
        installation = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidIdentity(str(file), str(error)) from error
    if not re.fullmatch("[0-9a-f]{32}", installation):
        raise InvalidIdentity(str(file), "restore it, or remove it and have an administrator hand its site over")
    return installation


class LockHolder(Struct, frozen=True):
    """The agent that holds the lock."""

    pid: int
    version: str


class SelfUpgrade:
    """This agent's lock, held or awaited as a successor, and its own successor in an upgrade."""

    def __init__(
        self, folder: Path, releases: Path, version: str, arguments: Sequence[str], successor_of: int = 0
    ) -> None:
        self._folder, self._releases, self._version, self._arguments = folder, releases, version, list(arguments)
        self._successor_of = successor_of
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._child: subprocess.Popen[bytes] | None = None
        self._running_upgrade: int = 0
        if not successor_of and not self._try_lock():
            raise AgentFolderInUse(str(folder), self._holder().pid)

    @property
    def successor_of(self) -> int:
        """The upgrade for which this agent was started as a successor; 0 once it serves."""
        return self._successor_of

    # --- predecessor -------------------------------------------------------------------------------------------------

    async def upgrade(self, order: Upgrade, report: Callable[[str, str], Awaitable[None]]) -> None:
        """Start the successor and watch it; one that does not connect in time is killed and reported."""
        if self._running_upgrade == order.operation:
            await report(UPGRADING, "")
            return
        self._running_upgrade = order.operation
        await report(UPGRADING, "")
        try:
            why = await self._run_successor(order)
        finally:
            if self._running_upgrade == order.operation:  # otherwise a later upgrade has replaced this one
                self._running_upgrade = 0
        await report(UPGRADE_FAILED, why)

    async def _run_successor(self, order: Upgrade) -> str:
        """Run a successor until it has failed; returns why. If it succeeds, it ends this process."""
        self._end_child()
        program = self._releases / order.version / PROGRAM
        command = [str(program), "agent", *self._arguments, "--heir", str(order.operation)]
        try:
            with (self._folder / f"agent-{order.version}.log").open("ab") as log:
                child = self._child = subprocess.Popen(  # noqa: S603 - our own program; it must outlive us
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        except OSError as error:
            return f"version {order.version} cannot be started: {error.strerror}"
        loop = asyncio.get_running_loop()
        end = loop.time() + order.within
        while loop.time() < end:
            code = child.poll()
            if code is not None:
                return f"version {order.version} has ended with {code}"
            await asyncio.sleep(POLL_INTERVAL_S)
        if self._child is child:  # otherwise it is that of a later upgrade, which has ended this one's
            self._end_child()
        return f"version {order.version} has not come up in {order.within:g} s"

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None and child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    # --- successor ---------------------------------------------------------------------------------------------------

    async def take_over(self) -> None:
        """End the predecessor, and take the lock."""
        if not self._successor_of:
            return
        clock = asyncio.get_running_loop().time
        signalled, kill_at = 0, 0.0
        while not self._try_lock():
            holder = self._holder().pid  # another successor of the same upgrade may have been faster
            if holder != signalled:
                signalled, kill_at = holder, clock() + TERMINATION_GRACE_S
                _signal(holder, signal.SIGTERM)
            elif clock() > kill_at:
                _signal(holder, signal.SIGKILL)
            await asyncio.sleep(POLL_INTERVAL_S)
        self._successor_of = 0

    def _try_lock(self) -> bool:
        if not try_flock(self._lock):
            return False
        new = self._folder / "agent.json.new"
        new.write_bytes(msgspec.json.encode(LockHolder(os.getpid(), self._version)))
        new.replace(self._folder / "agent.json")
        return True

    def _holder(self) -> LockHolder:
        try:
            return msgspec.json.decode((self._folder / "agent.json").read_bytes(), type=LockHolder)
        except (OSError, msgspec.MsgspecError):
            return LockHolder(0, "")


def _signal(pid: int, how: signal.Signals) -> None:
    if pid > 0:
        with suppress(ProcessLookupError):
            os.kill(pid, how)


class NoUpgrade:
    """The upgrade handler of an agent that cannot be upgraded."""

    successor_of = 0

    async def upgrade(self, order: Upgrade, report: Callable[[str, str], Awaitable[None]]) -> None:
        """Report that the version is not installed."""
        await report(UPGRADE_FAILED, f"version {order.version} is not installed here")

    async def take_over(self) -> None:
        """Do nothing: it serves already."""
