"""Logs of programs in files: a part of one by offsets, and a bound on its length while its program writes.

A program may own its log, and the folder that it is in. So it may have put anything in its place: nothing but a plain
file is opened. A log that is too long becomes the old one. A reader whose offset is behind the end has read what is the
old log now: it gets the rest of that, then the new one.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stateward.workloads.confinement.syscalls import open_handle

PIECE_BYTES = 1 << 20


@contextmanager
def open_plain_file(file: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open a file in a program's folder; a link could lead to one that only we may read, and a pipe could block us."""
    with open_handle(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK) as handle:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise OSError(errno.EINVAL, f"{file.name} is not a plain file")
        yield handle


def parse_cursor(text: str) -> int | None:
    """Return the offset in a cursor; None for an empty one. Raises `ValueError`."""
    if text and not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise ValueError(f"{text!r} is not the cursor of an earlier answer")
    return int(text) if text else None


def read_part(log: Path, old: Path, after: int | None, most: int) -> tuple[bytes, int]:
    """Return a part of a log, and the offset of what comes next: what is after an offset, or its end."""
    with open_plain_file(log) as handle:
        size = os.fstat(handle).st_size
        if after is None:
            after = max(0, size - most)
        elif after > size:
            with suppress(FileNotFoundError), open_plain_file(old) as former:
                left = os.fstat(former).st_size - after
                if left > 0:
                    data = os.pread(former, most, after)
                    return data, after + len(data) if len(data) < left else 0
            after = 0
        data = os.pread(handle, most, after)
        return data, after + len(data)


def empty_long_log(log: Path, old: Path, limit: int) -> None:
    """Copy the end of a log that is too long, at its offset, and empty the log; each write appends to what there is."""
    with suppress(FileNotFoundError), open_plain_file(log, os.O_RDWR) as handle:
        status, copy = os.fstat(handle), old.with_suffix(".copy")
        if status.st_size <= limit:
            return
        copy.unlink(missing_ok=True)
        with copy.open("xb") as target:
            os.fchown(target.fileno(), status.st_uid, status.st_gid)
            os.fchmod(target.fileno(), stat.S_IMODE(status.st_mode))
            begin = at = max(0, status.st_size - 2 * limit)  # a program can make it as long as it likes
            target.seek(begin)
            while (piece := os.pread(handle, PIECE_BYTES, at)) and at < begin + 4 * limit:
                target.write(piece)
                at += len(piece)
        copy.replace(old)
        os.ftruncate(handle, 0)
