"""The upgrade of an agent, on its machine: the old one starts the new one, which takes over, or is cleaned up.

Versions are installed beside each other, each with a program of its own: `RELEASES/VERSION/stateward`. One lock in the
agent's folder says who serves. The successor runs beside until the controller has agreed to it and it has seen the
site; then it ends the one before, takes the lock, and goes on. Nothing else on the machine is touched.
"""

import asyncio
import fcntl
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

from stateward.agents.messages import UPGRADE_FAILED, UPGRADING, Upgrade
from stateward.errors import StatewardError

PROGRAM = "stateward"
POLL_INTERVAL_S = 0.05
TERMINATION_GRACE_S = 10.0
"""How many seconds the one before has to end by itself."""


class FolderInUse(StatewardError):
    """Another agent serves from this folder."""

    def __init__(self, folder: Path, pid: int) -> None:
        super().__init__(str(folder), pid)
        self.folder, self.pid = str(folder), pid

    def __str__(self) -> str:
        return f"another agent (process {self.pid}) serves from {self.folder}"


class InvalidIdentity(StatewardError):
    """The file with the identity of the installation cannot be used."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(str(file), why)
        self.file, self.why = str(file), why

    def __str__(self) -> str:
        return f"{self.file} must hold the identity of this installation (32 hexadecimal digits): {self.why}"


def read_installation(folder: Path) -> str:
    """Return the identity of the installation in a folder: random, and made once. Successors share it."""
    file = folder / "installation"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            _write_once(file, uuid4().hex)
        found = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidIdentity(file, str(error)) from error
    if not re.fullmatch("[0-9a-f]{32}", found):
        raise InvalidIdentity(file, "restore it, or remove it and have an administrator hand the cloudlet over")
    return found


def _write_once(file: Path, text: str) -> None:
    """Write a file, whole and durably, unless there is one: of two agents that start at once, one wins."""
    new = file.with_name(f"{file.name}.{uuid4().hex}.new")
    with new.open("x") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    with suppress(FileExistsError):
        os.link(new, file)
    new.unlink()


class LockHolder(Struct, frozen=True):
    """Who serves."""

    pid: int
    version: str


class SelfUpgrade:
    """This agent's place among its versions: the lock that it holds, or waits for as an heir."""

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
            raise FolderInUse(folder, self._holder().pid)

    @property
    def successor_of(self) -> int:
        """The upgrade that this agent is the heir of; 0 once it serves."""
        return self._successor_of

    # --- the old one -------------------------------------------------------------------------------------------------

    async def upgrade(self, order: Upgrade, say: Callable[[str, str], Awaitable[None]]) -> None:
        """Start the successor and watch it; one that does not come up is ended and reported."""
        if self._running_upgrade == order.operation:
            await say(UPGRADING, "")
            return
        self._running_upgrade = order.operation
        await say(UPGRADING, "")
        try:
            why = await self._run_successor(order)
        finally:
            self._running_upgrade = 0
        await say(UPGRADE_FAILED, why)

    async def _run_successor(self, order: Upgrade) -> str:
        """Watch a successor until it has failed; if it succeeds, it ends us."""
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
        self._end_child()
        return f"version {order.version} has not come up in {order.within:g} s"

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None and child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    # --- the new one -------------------------------------------------------------------------------------------------

    async def take_over(self) -> None:
        """End the one before, and hold the lock from now on."""
        if not self._successor_of:
            return
        clock = asyncio.get_running_loop().time
        told, patience = 0, 0.0
        while not self._try_lock():
            holder = self._holder().pid  # another heir of the same upgrade may have been faster
            if holder != told:
                told, patience = holder, clock() + TERMINATION_GRACE_S
                _signal(holder, signal.SIGTERM)
            elif clock() > patience:
                _signal(holder, signal.SIGKILL)
            await asyncio.sleep(POLL_INTERVAL_S)
        self._successor_of = 0

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
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
    """The place of an agent that is never upgraded: one of many in a simulation."""

    successor_of = 0

    async def upgrade(self, order: Upgrade, say: Callable[[str, str], Awaitable[None]]) -> None:
        """Say that there is no such version here."""
        await say(UPGRADE_FAILED, f"version {order.version} is not installed here")

    async def take_over(self) -> None:
        """Do nothing: it serves already."""
