"""The identity of the files that a store has opened.

A file that is deleted or replaced stays usable to the process that has it open. A store would go on committing into it,
while a restart opens another file: everything that was acknowledged in between would be lost. So a store remembers
which files it has opened, and compares them with the files that their names lead to. It does so after each commit and
before that commit is acknowledged, whenever it opens a further connection, and several times a second at rest.

The database file never shrinks while it is in use, so a shorter one was overwritten in place. (`VACUUM` shrinks it too:
that is for a stopped server.) An overwritten file that is as long as before, or longer, is not noticed.

Once a difference is found, the store refuses everything until it is opened again. Only an operator can tell whether the
file that is there now is the right one.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from stateward.store.errors import Replaced, Unavailable
from stateward.store.sqlite.settings import Settings

log = logging.getLogger("stateward.store")


class FileIdentity:
    """The files of one open database: itself, its log, its index of the log, and the lock file."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: Mapping[str, tuple[int, int]] = {}
        self._database = str(Path(settings.path).absolute())
        self._bytes = 0
        self._finding = ""
        self._lock = Lock()

    @property
    def is_replaced(self) -> bool:
        """Whether a difference was found."""
        return bool(self._finding)

    def remember(self) -> None:
        """Remember the files that are there; call it when the database and the lock file are open."""
        real = Path(self._database).resolve()  # SQLite keeps the log beside the file itself, not beside a link to it
        paths = (self._database, f"{real}-wal", f"{real}-shm", str(self._settings.lock_path.absolute()))
        self._known = {path: _identity(Path(path).stat()) for path in paths}
        self._bytes = Path(self._database).stat().st_size
        self._finding = ""

    def require(self) -> None:
        """Raise `Replaced` if a difference was found before; looks at no file."""
        if self._finding:
            raise Replaced(self._finding)

    def check(self) -> None:
        """Compare the files with those that were opened; raises `Replaced`, from then on always. Takes a few µs."""
        self.require()
        least = self._bytes  # before looking: it may grow meanwhile, and another thread may see that first
        for path, known in self._known.items():
            try:
                found = os.stat(path)  # noqa: PTH116 - a third of what `Path.stat` takes, after each commit
            except (FileNotFoundError, NotADirectoryError):
                self._refuse(f"{path} is gone")
            except OSError as error:  # it may well be the same file
                raise Unavailable(str(error)) from error
            if _identity(found) != known:
                self._refuse(f"{path} is another file than the one that was opened")
            if path == self._database:
                if found.st_size < least:
                    self._refuse(f"{path} was overwritten or compacted: it has shrunk")
                self._bytes = found.st_size

    def is_only_database_replaced(self) -> bool:
        """Tell whether the log, its index and the lock file are the ones that were opened, and the database is not."""
        return [path for path, known in self._known.items() if _identity_at(path) != known] == [self._database]

    def _refuse(self, finding: str) -> None:
        with self._lock:
            if not self._finding:
                self._finding = finding
                log.error(
                    "database %s was replaced while in use: %s; this process acknowledges nothing more. "
                    "Stop it, put the right files in place, and start it again.",
                    self._settings.path,
                    finding,
                )
        raise Replaced(self._finding)


def _identity_at(path: str) -> tuple[int, int] | None:
    try:
        return _identity(Path(path).stat())
    except OSError:
        return None


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
