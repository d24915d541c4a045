"""Claims of numbers, such as user ids or ports, that each program of a host keeps until its end.

A claim is a symbolic link from the number to its owner, the program's folder. It is created and read atomically, and is
void if the folder is gone. Claims are changed under the lock of their folder; otherwise two servers could take over a
void claim at the same time.
"""

import fcntl
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32


class NumberClaims(ABC):
    """Claims the numbers of a range, in one folder."""

    exhausted: str
    """The error if no number is free."""

    def __init__(self, numbers: range, claims: Path) -> None:
        self._numbers, self._claims = numbers, claims

    @abstractmethod
    def _is_taken(self, number: int) -> bool:
        """Tell whether somebody has a number without a claim."""

    def _end_use(self, number: int) -> None:  # noqa: B027 - most numbers need no end
        """End what an owner still does with a number, before its claim is removed."""

    def claim(self, owner: Path) -> int:
        """Return the number of an owner; an owner without one gets a free one."""
        self._claims.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock():
            for number in self._candidates(owner):
                file = self._claims / str(number)
                linked = _linked(file)
                if linked == str(owner):
                    return number
                if linked is not None and not os.path.lexists(linked):
                    self._remove(number, linked)
                if not self._is_taken(number):
                    with suppress(FileExistsError):
                        file.symlink_to(owner)
                        return number
        raise OSError(self.exhausted.format(f"{self._numbers[0]}-{self._numbers[-1]}"))

    def release(self, number: int, owner: Path) -> None:
        """Give back the number of an owner; raises OSError if its use cannot be ended."""
        if self._is_claimed(number, owner):
            with self._lock():
                self._remove(number, str(owner))

    def _is_claimed(self, number: int, owner: Path | str) -> bool:
        return _linked(self._claims / str(number)) == str(owner)

    def _remove(self, number: int, owner: str) -> None:
        if self._is_claimed(number, owner):
            self._end_use(number)
            (self._claims / str(number)).unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Lock the claims against other threads and processes."""
        handle = os.open(self._claims, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _candidates(self, owner: Path) -> Iterator[int]:
        """Yield all numbers, from one that depends on the owner: so an owner finds its own number first."""
        begin, size = crc32(os.fsencode(owner)) % len(self._numbers), len(self._numbers)
        return (self._numbers[(begin + step) % size] for step in range(size))


def _linked(file: Path) -> str | None:
    try:
        return os.readlink(file)  # noqa: PTH115 - text
    except OSError:
        return None
