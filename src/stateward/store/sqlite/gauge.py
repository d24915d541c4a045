"""How long the log is, seen from outside.

SQLite tells how long its log is only to whoever copies it, and the size of the file tells nothing: the log is begun
again at the start of the same file. But its format is fixed. Whenever the log is begun again, its header gets a new
salt, and each frame, which is a page with a header, bears the salt of its time. So two looks tell whether the log has
come as far as a certain frame. The file may be opened and closed as one likes: the locks are on the other two.
"""

import os
from pathlib import Path

from stateward.store.errors import Unavailable

HEADER_BYTES, PAGE_BYTES, SALT = 32, slice(8, 12), slice(16, 24)
FRAME_HEADER_BYTES, FRAME_SALT = 24, slice(8, 16)


class Gauge:
    """The log of a database that is open: it is removed when the last one leaves."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(str(error)) from error

    def reaches(self, frames: int) -> bool:
        """Tell whether the log has so many frames; it costs the same however long the log is."""
        try:
            header = os.pread(self._file, HEADER_BYTES, 0)
            frame_bytes = FRAME_HEADER_BYTES + int.from_bytes(header[PAGE_BYTES])
            frame = os.pread(self._file, FRAME_HEADER_BYTES, HEADER_BYTES + (frames - 1) * frame_bytes)
        except OSError:
            return False  # what is wrong with the log is told by who writes it
        return len(header) == HEADER_BYTES and header[SALT] == frame[FRAME_SALT]

    def close(self) -> None:
        """Look no more."""
        os.close(self._file)
