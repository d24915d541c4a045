"""Bringing the log into the database, beside the writer and not by it.

What is committed stands in the log, and has to be brought to its place in the database sooner or later. SQLite leaves
that to whoever commits, and where actions change pages all over a large file, it is a good part of what an action
costs. So a thread with a connection of its own does it, while the writer goes on.

But the log is begun again only when all of it has been brought over and nobody is about to add to it, and with a
writer that never rests there is no such moment. So the thread copies until little is left, and that little is the
writer's, between two commits. When the thread cannot keep up, it is not so little, and holds the writer back: the log
does not grow without end.

Nobody waits for readers. While one of them still needs what the log had at its time, the thread tries again now and
then, and the log grows. Several processes may do all this with one file: whoever finds another at it leaves it to them.
"""

import logging
import os
import sqlite3
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic

from msgspec import Struct

from stateward.store.errors import StoreError, Unavailable
from stateward.store.sqlite.connections import PAGE_BYTES, SqliteSettings, open_checkpointer
from stateward.store.sqlite.shared_file import FileIdentity

HEADER_BYTES, PAGE_SIZE_FIELD, SALT_FIELD = 32, slice(8, 12), slice(16, 24)
FRAME_HEADER_BYTES, FRAME_SALT_FIELD = 24, slice(8, 16)


class WalLength:
    """The log of a database that is open: it is removed when the last one leaves."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(str(error)) from error

    def has_frames(self, frames: int) -> bool:
        """Tell whether the log has so many frames; it costs the same however long the log is."""
        try:
            header = os.pread(self._file, HEADER_BYTES, 0)
            frame_bytes = FRAME_HEADER_BYTES + int.from_bytes(header[PAGE_SIZE_FIELD])
            frame = os.pread(self._file, FRAME_HEADER_BYTES, HEADER_BYTES + (frames - 1) * frame_bytes)
        except OSError:
            return False  # what is wrong with the log is told by who writes it
        return len(header) == HEADER_BYTES and header[SALT_FIELD] == frame[FRAME_SALT_FIELD]

    def close(self) -> None:
        """Look no more."""
        os.close(self._file)


RETRY_MIN_S, RETRY_MAX_S = 0.01, 0.5
"""Seconds until the next try when a reader or another process was in the way: more and more; and after an error."""

HOLD_OFF_S = 0.1
"""Seconds in which nothing more is tried after the writer's part: it may be in vain, and must not be so every time."""

WRITER_SHARE = 1 / 16
MAX_LENGTH_FACTOR = 4
"""Parts and multiples of the length at which copying begins: what is left to the writer, and when it has to insist."""

WRITER_WAIT_S = 0.1
"""Seconds for which the writer waits for other processes when the log has become too long."""

log = logging.getLogger("stateward.store")


class CheckpointStage(Enum):
    """Whose turn it is. Each stage is ended by the one whose turn it is, so there is nothing to lock."""

    WATCHING = auto()  # the writer's, who watches the log grow
    COPYING = auto()  # the thread's
    FINISHING = auto()  # the writer's


class CheckpointResult(Struct, frozen=True):
    """What a checkpoint found and did, in frames; somebody was in the way if it could not copy all."""

    found: int
    done: int

    @property
    def is_complete(self) -> bool:
        """Whether the database has everything that was in the log when this began."""
        return 0 <= self.found == self.done


class Checkpointer:
    """The thread, and the writer's part in it."""

    def __init__(self, settings: SqliteSettings, files: FileIdentity) -> None:
        self._settings = settings
        self._files = files
        self._begin_at = max(1, settings.log_bytes // PAGE_BYTES)
        self._writer_frames = max(1, int(self._begin_at * WRITER_SHARE))
        self._stage = CheckpointStage.WATCHING
        self._not_before = 0.0
        self._failing: set[str] = set()
        self._connection: sqlite3.Connection | None = None
        self._turns: SimpleQueue[bool]
        self._stopped: Event
        self._wal: WalLength
        self._thread: Thread

    def start(self, writer: sqlite3.Connection) -> None:
        """Take the checkpoints over from the connection that writes; like the rest, it is called where that is used."""
        self._wal = WalLength(self._settings.log_path)
        writer.execute("PRAGMA wal_autocheckpoint = 0").fetchone()
        self._stage, self._turns, self._stopped = CheckpointStage.WATCHING, SimpleQueue(), Event()
        self._thread = Thread(target=self._main, name="stateward-checkpoints", daemon=True)
        self._thread.start()

    def advance(self, writer: sqlite3.Connection) -> None:
        """Do what is the writer's part, if anything; costs two small reads when there is nothing to do."""
        if self._files.is_replaced:  # others may use the database with a log that is not ours
            return
        if self._stage is CheckpointStage.FINISHING:
            self._finish(writer)
            self._not_before = monotonic() + HOLD_OFF_S
            self._stage = CheckpointStage.WATCHING
        elif self._stage is CheckpointStage.WATCHING and self._is_due() and monotonic() >= self._not_before:
            self._stage = CheckpointStage.COPYING
            self._turns.put(True)

    def stop(self) -> None:
        """End the thread; what is still in the log is brought over by the last one who closes the database."""
        self._stopped.set()
        self._turns.put(False)
        self._thread.join()
        self._wal.close()

    def _main(self) -> None:
        while self._turns.get():
            self._stage = CheckpointStage.FINISHING if self._copy() else CheckpointStage.WATCHING
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_due(self) -> bool:
        return self._wal.has_frames(self._begin_at)

    def _copy(self) -> bool:
        """Copy until the rest is the writer's; false if there is none, because others were faster."""
        before, pause = 0, RETRY_MIN_S
        while self._is_due() and not self._stopped.is_set():
            copied = self._checkpoint_passive()
            if copied is None:
                self._stopped.wait(RETRY_MAX_S)
                return True  # perhaps the writer can
            if not copied.is_complete:
                self._stopped.wait(pause)
                pause = min(2 * pause, RETRY_MAX_S)
            elif self._is_enough(copied.found, copied.found - before):
                return True
            else:
                before = copied.found
        return False

    def _is_enough(self, found: int, copied: int) -> bool:
        """Tell whether little was added meanwhile, or nearly as much as was copied: then it will never be little."""
        added = self._wal.has_frames
        return not added(found + self._writer_frames) or added(found + copied * 3 // 4)

    def _checkpoint_passive(self) -> CheckpointResult | None:
        """Copy all that is in the log now, while the writer goes on."""
        return self._logging_failure("the thread", lambda: _checkpoint(self._opened(), "PASSIVE"))

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_checkpointer(self._settings)
            self._files.check()
        return self._connection

    def _finish(self, writer: sqlite3.Connection) -> None:
        """Copy the rest and let the log be begun again; who is in the way is waited for only when it gets too long."""
        if not self._is_due():
            return
        if self._wal.has_frames(MAX_LENGTH_FACTOR * self._begin_at):
            writer.execute(f"PRAGMA busy_timeout = {int(WRITER_WAIT_S * 1000)}").fetchone()
        self._logging_failure("the writer", lambda: _checkpoint(writer, "RESTART"))
        writer.execute("PRAGMA busy_timeout = 0").fetchone()

    def _logging_failure(self, who: str, checkpoint: Callable[[], CheckpointResult]) -> CheckpointResult | None:
        """Say what goes wrong, once until it goes well again: nothing is lost by it, but the log grows."""
        try:
            copied = checkpoint()
        except (sqlite3.Error, StoreError) as error:
            if who not in self._failing:
                log.warning("%s: %s cannot bring the log into the database: %s", self._settings.path, who, error)
            self._failing.add(who)
            return None
        self._failing.discard(who)
        return copied


def _checkpoint(connection: sqlite3.Connection, mode: str) -> CheckpointResult:
    _, found, done = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return CheckpointResult(found, done)
