"""Files with a secret of the deployment, which only their owner may read.

A process that reads such a file never finds a part of it, and a file that others can read is refused: its secret is
none any more.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from stateward.errors import StatewardError

READABLE_BY_OTHERS = 0o077


class UnusableFile(StatewardError, code="unusable_file"):
    """A file with a secret cannot be used."""

    why: str
    text = "{why}"


def create_private_file(path: Path, text: str) -> None:
    """Create a file that only its owner can read, unless it exists; of two processes, the first one counts."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileExistsError):
        os.link(new, path)
    new.unlink()


def read_private_file(path: Path) -> bytes:
    """Return the content of a file; raises `UnusableFile` if it cannot be read, or if others can read it."""
    try:
        if path.stat().st_mode & READABLE_BY_OTHERS:
            raise UnusableFile(f"{path} can be read by others than its owner (chmod 600)")
        return path.read_bytes()
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read ({error.strerror})") from error
