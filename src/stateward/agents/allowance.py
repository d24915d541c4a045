"""How much one side of a connection may say: so much at once, and so much a second for ever.

Who says more is not sent away but heard more slowly: its words stay in its own line, and hold up nobody else.
"""

from collections.abc import Callable

from stateward.aio.token_bucket import TokenBucket

RATE, BURST = 500.0, 20_000.0
"""How many words a second, and how many at once: more than any honest agent needs, a long list included."""

REJECTED = 100.0
"""How many words one counts for that was rejected: it cost a line of the journal."""


class Allowance:
    """What is left to say; it grows by itself."""

    def __init__(self, clock: Callable[[], float], rate: float = RATE, burst: float = BURST) -> None:
        self._clock, self._bucket = clock, TokenBucket(rate, burst, clock())

    def spend(self, words: float = 1.0) -> float:
        """Take so many words; returns how many seconds whoever said them is to be left waiting."""
        now = self._clock()
        self._bucket.overdraw(now, words)
        return self._bucket.delay_s(now, 0.0)
