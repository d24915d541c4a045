"""Presence log: when listings showed a key, and when they did not contain it.

Two complete listings, some time apart, prove an absence. Listings can arrive out of order, and another process may have
shown the key between two listings of this one. So a listing counts only if it was requested after the last one that
showed the key, and old entries are forgotten: a pair of listings must be recent, both of them.
"""

from math import inf

KEPT_S = 300.0
"""How long an entry counts."""


class PresenceLog:
    """The latest times at which listings showed keys, or did not contain them."""

    def __init__(self) -> None:
        self._shown: dict[str, float] = {}
        self._missing: dict[str, list[float]] = {}  # since the key was shown
        self._pruned_at = -inf

    def note_shown(self, key: str, asked: float) -> None:
        """Note that a listing of this time shows a key."""
        self._shown[key] = max(asked, self._shown.get(key, asked))
        missing = self._missing.pop(key, ())
        if missing and (later := [moment for moment in missing if moment > asked]):
            self._missing[key] = later

    def note_missing(self, key: str, asked: float, apart_s: float) -> float | None:
        """Note that a complete listing of this time does not contain a key.

        Returns the time of the latest listing before it, by at least `apart_s`, that did not contain the key either;
        None if there is none, or if a newer listing shows the key.
        """
        if asked <= self._shown.get(key, -inf):
            return None
        times = sorted({asked, *self._missing.get(key, ())})
        first = max((moment for moment in times if asked - KEPT_S < moment <= asked - apart_s), default=None)
        self._missing[key] = times if first is None else [moment for moment in times if moment >= first]
        return first

    def prune(self, now: float) -> None:
        """Forget old entries, from time to time."""
        if now - self._pruned_at < KEPT_S:
            return
        self._pruned_at = now
        self._shown = {key: at for key, at in self._shown.items() if now - at < KEPT_S}
        self._missing = {key: times for key, times in self._missing.items() if now - times[-1] < KEPT_S}
