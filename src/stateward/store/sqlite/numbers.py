"""Numbers in the order of acceptance. One process writes at a time, so giving them out is counting."""

import sqlite3


class Numbers:
    """The numbers given within one transaction: read when first needed, kept when it is committed."""

    NAMES = ("work", "lock", "journal", "progress")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._last: dict[str, int] = {}

    def forget(self) -> None:
        """Begin a new transaction: other processes may have counted on."""
        self._last = {}

    def give(self, name: str, count: int) -> range:
        """Return so many numbers that nobody has had."""
        if not self._last:
            row = self._connection.execute("SELECT work, lock, journal, progress FROM numbers").fetchone()
            self._last = dict(zip(self.NAMES, row, strict=True))
        first = self._last[name] + 1
        self._last[name] += count
        return range(first, first + count)

    def keep(self) -> None:
        """Write down what was given, as the last thing before the commit."""
        if self._last:
            last = tuple(self._last[name] for name in self.NAMES)
            self._connection.execute("UPDATE numbers SET work = ?, lock = ?, journal = ?, progress = ?", last)
