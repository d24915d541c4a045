"""The lease of a node's agent, in a file that the watchdog reads.

The end of the lease is a time of the host's clock since boot, which also counts while the host sleeps. After a reboot,
or without a file, there is no lease. The lease is renewed only while the watchdog lives: it is the watchdog that kills
the instances at the end of the lease if the agent was killed or stopped.
"""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from stateward.domains.systems.nodes.lease_rules import lease_end
from stateward.procfs import PROC, ProcessId, is_alive

log = logging.getLogger("stateward.agent")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
WATCHDOG_MODULE = "stateward.domains.systems.nodes.lease_watchdog"
WATCHDOG_START_S = 10.0
POLL_INTERVAL_S = 0.05


def boot_clock() -> float:
    """Return the seconds since boot, also those in which the host slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseRecord(Struct, frozen=True):
    """The file of a lease: its end by the clock since boot, and which boot."""

    end: float
    boot: str


class LeaseFile:
    """The lease in an agent's folder; the agent writes it, and the watchdog reads it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "lease.json"
        self._boot = BOOT_ID.read_text("ascii").strip()

    def end(self) -> float:
        """Return the end of the lease; 0 if there is none."""
        try:
            lease = msgspec.json.decode(self._file.read_bytes(), type=LeaseRecord)
        except (OSError, msgspec.DecodeError):
            return 0.0
        return lease.end if lease.boot == self._boot else 0.0

    def write(self, end: float) -> None:
        """Replace the file atomically; a reboot ends the lease, so it need not reach the disk."""
        new = self._file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(LeaseRecord(end, self._boot)))
        new.replace(self._file)

    def is_valid(self) -> bool:
        """Tell whether instances may run now."""
        return boot_clock() < self.end()


WATCHDOG_FILE = "watchdog.json"
"""The file in which the watchdog has written which process it is."""


class Watchdog:
    """The watchdog process of an agent's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def is_alive(self) -> bool:
        """Tell whether the watchdog watches: its process lives and is not stopped by a signal."""
        if self._process is not None:
            self._process.poll()  # or it would stay as a zombie
        try:
            known = msgspec.json.decode((self._folder / WATCHDOG_FILE).read_bytes(), type=ProcessId)
            state = (PROC / str(known.pid) / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, msgspec.DecodeError):
            return False
        return state not in "TtZX" and is_alive(known)

    async def ensure(self) -> None:
        """Start the watchdog, unless it lives; it outlives the agent."""
        if self.is_alive():
            return
        with (self._folder / "watchdog.log").open("ab") as output:
            self._process = await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, "-m", WATCHDOG_MODULE, str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
            )
        async with asyncio.timeout(WATCHDOG_START_S):
            while not self.is_alive():
                await asyncio.sleep(POLL_INTERVAL_S)


class NodeLease:
    """The lease of this agent; implements `AgentLease`. `stop_all` stops everything, and returns when it has ended."""

    def __init__(self, folder: Path, watchdog: Watchdog, stop_all: Callable[[], Awaitable[None]]) -> None:
        self._file, self._watchdog, self._stop_all = LeaseFile(folder), watchdog, stop_all
        self._length_s, self._number = 0.0, 0
        self._sent: dict[int, float] = {}

    def is_valid(self) -> bool:
        """Tell whether instances may be started now."""
        return self._file.is_valid()

    async def settle(self) -> bool:
        """Stop everything that runs if the lease has ended: a controller may have moved it. Start the watchdog."""
        with suppress(TimeoutError):
            await self._watchdog.ensure()
        if self.is_valid():
            return False
        await self._stop_all()
        return True

    def begin(self, seconds: float) -> None:
        """Note the length of the lease; heartbeats of former connections no longer count."""
        self._length_s = seconds
        self._sent.clear()

    def note_heartbeat(self) -> int:
        """Note the time at which a heartbeat is sent."""
        self._number += 1
        self._sent[self._number] = boot_clock()
        return self._number

    def renew(self, number: int) -> None:
        """Renew the lease from the time at which the answered heartbeat was sent."""
        sent_at = self._sent.pop(number, None)
        if sent_at is None:
            return
        if not self._watchdog.is_alive():
            log.error("the watchdog has ended; the lease is not renewed before it is back")
            raise ConnectionError("the watchdog has ended")
        current = self._file.end()
        end = lease_end(sent_at, self._length_s, current)
        if boot_clock() < end and end != current:
            self._file.write(end)
