"""Machines as processes on this host: started once for each key, found again, and ended.

Every step can be the last one of a controller. The order is: the record, the process, the record with the process in
it. Whoever comes next finds a record without a process, looks for the process by the mark in its arguments, and either
takes it over or starts it. The machine's sign of life keeps a second process from being started meanwhile.

Everything here waits for the disk and belongs into a thread; whoever changes something holds the machine's lock.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from stateward.drivers.confinement import Box
from stateward.drivers.process.machine_dir import BadRecord, Folder, Phase, Record, Sight, Standing
from stateward.drivers.process.procfs import (
    Process,
    find_marked,
    orphans,
    process_of,
    same,
    stat_of,
    this_host,
)
from stateward.drivers.process.spawn import bury_children, spawn

GRACE = 5.0
"""How long a killed process may take to be gone, in seconds."""
STEP = 0.002

Milestone = Callable[[str], None]
"""Is told what has just been done; lets a test end the controller there."""


class Kind(Protocol):
    """What one kind of machine is made of."""

    def mark(self, record: Record) -> str:
        """Return the argument by which its process is known."""

    def command(self, record: Record, box: Box) -> Sequence[str]:
        """Return what is to be started."""

    def environment(self, record: Record, box: Box) -> Mapping[str, str]:
        """Return the environment of what is started."""

    def prepare(self, folder: Path) -> Box:
        """Lay out the files that it needs, and return to what it is confined."""

    def start(self, box: Box, start: Callable[[], int]) -> int:
        """Call what starts it, confined as this kind of machine is."""

    def end(self, record: Record, folder: Path) -> None:
        """End what may have outlived its process group."""


class StillThere(OSError):
    """A process has not ended in time."""


class Look(Struct, frozen=True):
    """What a look at machines has shown, and what could not be seen."""

    sights: Sequence[Sight]
    troubles: Sequence[str] = ()


def unnoticed(_: str) -> None:
    """Take no notice of a milestone."""


class Lodging:
    """The machines of one kind in one folder."""

    def __init__(self, folder: Folder, kind: Kind, milestone: Milestone = unnoticed) -> None:
        self.folder = folder
        self._kind = kind
        self._milestone = milestone

    # --- looking -----------------------------------------------------------------------------------------------------

    def look(self, keys: Collection[str] | None = None) -> Look:
        """Look at all machines, or at some; trouble of any sort is told and not raised."""
        bury_children()
        if stat_of(os.getpid()) is None:
            return Look((), ("/proc cannot be read, and nothing is known of any process",))
        try:
            records, troubles = self.folder.read_all() if keys is None else self._records(keys)
        except OSError as error:
            return Look((), (str(error),))
        sights: list[Sight] = []
        for record in records:
            try:
                sights.append(self.sight(record))
            except (OSError, BadRecord) as error:  # the others can be seen all the same
                troubles.append(f"{record.key}: {error}")
        hidden = [f"{one.record.key} is {one.standing}" for one in sights if one.standing is Standing.HIDDEN]
        return Look([one for one in sights if one.standing is not Standing.HIDDEN], [*troubles, *hidden])

    def _records(self, keys: Collection[str]) -> tuple[list[Record], list[str]]:
        records, troubles = [], []
        for key in dict.fromkeys(keys):
            try:
                record = self.folder.read(key)
            except BadRecord as error:
                troubles.append(str(error))
            else:
                records += [] if record is None else [record]
        return records, troubles

    def sight(self, record: Record) -> Sight:
        """Say what became of a machine.

        It is gone if two signs say so: no process has its identity, and its sign of life is free.
        """
        if record.phase is not Phase.STARTING and (seen := _seen(record, record.process)):
            return seen
        if record.phase is Phase.STARTING and _seen(record, record.process):
            return Sight(record, Standing.NOT_YET)  # the boot before has the sign of life
        if not self.folder.is_alive(record.key):
            return Sight(record, Standing.NOT_YET if record.phase is Phase.STARTING else Standing.GONE)
        if seen := _seen(record, self._find(record)):
            return seen
        if record.phase is Phase.STARTING:
            return Sight(record, Standing.NOT_YET)
        if record.process is not None and _is_leaving(record.process):
            return Sight(record, Standing.LEAVING)
        newer = self.folder.read(record.key)
        if newer is not None and newer != record:
            return self.sight(newer)
        return Sight(record, Standing.HIDDEN if self.folder.is_alive(record.key) else Standing.GONE)

    def _find(self, record: Record) -> Process | None:
        mark = self._kind.mark(record)
        pid = find_marked([mark]).get(mark)
        return None if pid is None else process_of(pid)

    # --- doing -------------------------------------------------------------------------------------------------------

    def begin(self, record: Record) -> Record:
        """Start a machine of which there is no record, or one that says that it is to be started."""
        self.folder.write_durably(record)
        self._milestone("recorded")
        return self.go_on(record)

    def go_on(self, record: Record) -> Record:
        """Bring a start to its end that was recorded, by whomever: take over what runs, and start what does not."""
        sight = self.sight(record)
        if sight.process is not None:
            return self._settle(record, sight.process)
        self.kill(record)
        box = self._kind.prepare(self.folder.at(record.key))
        home = "" if box.home == box.folder else str(box.home)
        if (record.uid, record.home) != (box.uid, home):  # whoever comes next must know whose processes these are
            record = replace(record, uid=box.uid, home=home)
            self.folder.write(record)
        return self._settle(record, process_of(self._start(record, box)))

    def _start(self, record: Record, box: Box) -> int:
        folder = self.folder.at(record.key)
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline:
            with self.folder.life(record.key) as handle:
                if handle is not None:
                    command, environment = self._kind.command(record, box), self._kind.environment(record, box)
                    pid = spawn(command, environment, handle, folder / "log", partial(self._kind.start, box))
                    self._milestone("started")
                    return pid
            time.sleep(STEP)  # the one before is on its way out, or somebody is just looking
        raise StillThere(f"{record.key}: its process has not ended in {GRACE:.0f} s")

    def _settle(self, record: Record, process: Process | None) -> Record:
        settled = replace(record, phase=Phase.UP, process=process)
        self.folder.write(settled)
        self._milestone("settled")
        return settled

    def end(self, record: Record) -> None:
        """Say that a machine is to end, and then kill it; returns when that is under way."""
        self.kill(self.note_end(record))

    def note_end(self, record: Record) -> Record:
        """Say that a machine is to end, before anything is done about it."""
        sight = self.sight(record)
        known = replace(record, phase=Phase.ENDING, process=sight.process or record.process)
        self.folder.write_durably(known)
        self._milestone("ending")
        return known

    def kill(self, record: Record) -> None:
        """Kill what there is of a machine's known process: its whole group, or what has outlived the group's leader."""
        process = record.process
        if process is None or process.host != this_host():
            self._kind.end(record, self.folder.at(record.key))
            return
        if same(process, stat_of(process.pid)):
            signal_group(process, signal.SIGKILL)
        else:
            for pid in orphans(process):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._kind.end(record, self.folder.at(record.key))
        bury_children()


def signal_group(process: Process, number: signal.Signals) -> bool:
    """Send a signal to a machine's whole group, if its leader is still the one that is known."""
    if not same(process, stat_of(process.pid)):
        return False
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
        return True
    return False


def _is_leaving(process: Process) -> bool:
    """Tell whether a process is dead, while some thread of it may still be on its way out."""
    stat = stat_of(process.pid) if process.host == this_host() else None
    return stat is not None and stat.started == process.started and not stat.alive


def _seen(record: Record, process: Process | None) -> Sight | None:
    if process is None or process.host != this_host():
        return None
    stat = stat_of(process.pid)
    if stat is None or not same(process, stat):
        return None
    return Sight(record, Standing.STOPPED if stat.state in "Tt" else Standing.THERE, process, stat)
