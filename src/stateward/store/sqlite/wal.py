"""Checkpoints of the write-ahead log (WAL), on a thread beside the writer.

By default SQLite runs checkpoints in the committing connection. With changes spread over a large file they are a good
part of the cost of an action, so a thread with its own connection runs them while the writer goes on.

SQLite resets the WAL only after a complete checkpoint with no writer active, and under constant load there is no such
moment. So the thread copies until few frames are left, and the writer copies the rest between two commits. If the
thread cannot keep up, the rest is larger and slows the writer down, so that the WAL cannot grow without bound.

Checkpoints do not wait for readers. While a reader needs an old snapshot, the thread retries with backoff and the WAL
grows. Several processes may share the file: a process that finds another one at a checkpoint leaves it to that one.

SQLite tells the length of the WAL only to the connection that runs a checkpoint, and the file size says nothing,
because a reset WAL starts again at the beginning of the same file. `WalLength` uses the file format: each reset puts a
new salt into the header, and each frame carries the salt of its time. Two small reads tell whether the WAL has reached
a frame.
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
    """The WAL file of an open database."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(str(error)) from error

    def has_frames(self, frames: int) -> bool:
        """Return whether the WAL has at least so many frames; constant cost."""
        try:
            header = os.pread(self._file, HEADER_BYTES, 0)
            frame_bytes = FRAME_HEADER_BYTES + int.from_bytes(header[PAGE_SIZE_FIELD])
            frame = os.pread(self._file, FRAME_HEADER_BYTES, HEADER_BYTES + (frames - 1) * frame_bytes)
        except OSError:
            return False  # the writer reports errors of the WAL
        return len(header) == HEADER_BYTES and header[SALT_FIELD] == frame[FRAME_SALT_FIELD]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


RETRY_MIN_S, RETRY_MAX_S = 0.01, 0.5
"""The backoff after a checkpoint that a reader, another process or an error prevented."""

HOLD_OFF_S = 0.1
"""The pause after the writer's part, which may have failed and must not be repeated at every commit."""

WRITER_SHARE = 1 / 16
MAX_LENGTH_FACTOR = 4
"""Relative to the length at which copying begins: the writer's share, and when the writer waits for others."""

WRITER_WAIT_S = 0.1
"""How long the writer waits for other processes when the WAL has become too long."""

log = logging.getLogger("stateward.store")


class CheckpointStage(Enum):
    """The stage of a checkpoint. Only the party that acts in a stage ends it, so no lock is needed."""

    WATCHING = auto()  # the writer watches the WAL grow
    COPYING = auto()  # the thread copies
    FINISHING = auto()  # the writer copies the rest


class CheckpointResult(Struct, frozen=True):
    """The frames that a checkpoint found and copied; a reader or writer prevented the rest."""

    found: int
    done: int

    @property
    def is_complete(self) -> bool:
        """Whether the database has all frames that the WAL had at the start."""
        return 0 <= self.found == self.done


class Checkpointer:
    """The checkpoint thread, and the writer's part in checkpoints."""

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
        """Take over the checkpoints of the writer connection; runs on the writer thread, as do `advance` and `stop`."""
        self._wal = WalLength(self._settings.log_path)
        writer.execute("PRAGMA wal_autocheckpoint = 0").fetchone()
        self._stage, self._turns, self._stopped = CheckpointStage.WATCHING, SimpleQueue(), Event()
        self._thread = Thread(target=self._main, name="stateward-checkpoints", daemon=True)
        self._thread.start()

    def advance(self, writer: sqlite3.Connection) -> None:
        """Do the writer's part if it is due; otherwise costs two small reads."""
        if self._files.is_replaced:  # other processes may use the file with another WAL
            return
        if self._stage is CheckpointStage.FINISHING:
            self._finish(writer)
            self._not_before = monotonic() + HOLD_OFF_S
            self._stage = CheckpointStage.WATCHING
        elif self._stage is CheckpointStage.WATCHING and self._is_due() and monotonic() >= self._not_before:
            self._stage = CheckpointStage.COPYING
            self._turns.put(True)

    def stop(self) -> None:
        """End the thread. The last connection that closes the database checkpoints the rest."""
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
        """Copy until the rest is small enough for the writer; False if another process has copied all."""
        before, pause = 0, RETRY_MIN_S
        while self._is_due() and not self._stopped.is_set():
            copied = self._checkpoint_passive()
            if copied is None:
                self._stopped.wait(RETRY_MAX_S)
                return True  # the writer may succeed
            if not copied.is_complete:
                self._stopped.wait(pause)
                pause = min(2 * pause, RETRY_MAX_S)
            elif self._is_enough(copied.found, copied.found - before):
                return True
            else:
                before = copied.found
        return False

    def _is_enough(self, frames: int, copied: int) -> bool:
        """Return whether few frames were added meanwhile, or so many that another round would not reduce them."""
        added = self._wal.has_frames
        return not added(frames + self._writer_frames) or added(frames + copied * 3 // 4)

    def _checkpoint_passive(self) -> CheckpointResult | None:
        """Copy all frames of the WAL while the writer goes on."""
        return self._logging_failure("the thread", lambda: _checkpoint(self._opened(), "PASSIVE"))

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_checkpointer(self._settings)
            self._files.check()
        return self._connection

    def _finish(self, writer: sqlite3.Connection) -> None:
        """Copy the rest and reset the WAL; waits for other processes only if the WAL is too long."""
        if not self._is_due():
            return
        if self._wal.has_frames(MAX_LENGTH_FACTOR * self._begin_at):
            writer.execute(f"PRAGMA busy_timeout = {int(WRITER_WAIT_S * 1000)}").fetchone()
        self._logging_failure("the writer", lambda: _checkpoint(writer, "RESTART"))
        writer.execute("PRAGMA busy_timeout = 0").fetchone()

    def _logging_failure(self, who: str, checkpoint: Callable[[], CheckpointResult]) -> CheckpointResult | None:
        """Run a checkpoint; log its failure once until it succeeds again. No data is lost, but the WAL grows."""
        try:
            copied = checkpoint()
        except (sqlite3.Error, StoreError) as error:
            if who not in self._failing:
                log.warning(
                    "database %s: %s cannot checkpoint the WAL, which grows until it can: %s",
                    self._settings.path,
                    who,
                    error,
                )
            self._failing.add(who)
            return None
        self._failing.discard(who)
        return copied


def _checkpoint(connection: sqlite3.Connection, mode: str) -> CheckpointResult:
    _, frames, done = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return CheckpointResult(frames, done)
