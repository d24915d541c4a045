"""The door: looks at tokens, and counts how often each one knocks.

A token is looked up in the store once in a while and remembered for a moment, by a hash of it. One that is revoked
elsewhere is therefore refused after `FRESH` seconds at the latest, and one that is revoked here at once.
"""

import asyncio
import secrets
from collections.abc import Callable
from hashlib import blake2b

from stateward.access import Grant, Tokens
from stateward.server.limits import Buckets
from stateward.server.refusals import NotAuthenticated, TooMany

FRESH = 2.0
"""How many seconds a look at a token is relied on."""

MOST_KNOWN = 10_000
"""How many tokens are remembered."""

Look = asyncio.Task[Grant | None]
Known = tuple[float, Look]


class Door:
    """Lets the holders of tokens in."""

    def __init__(self, tokens: Tokens, rate: float, clock: Callable[[], float]) -> None:
        self._tokens = tokens
        self._buckets = Buckets(rate, clock)
        self._clock = clock
        self._salt = secrets.token_bytes(32)
        self._known: dict[bytes, Known] = {}

    async def enter(self, text: str | None) -> Grant:
        """Return what a token opens; one that opens nothing, or knocks too often, is refused."""
        grant = None
        if text:
            look = self._look(text)
            if not look.done():
                await asyncio.wait([look])  # one look serves all who came meanwhile, whoever of them leaves
            grant = look.result()
        if grant is None:
            raise NotAuthenticated(given=text is not None)
        after = self._buckets.wait(grant.token)
        if after > 0:
            raise TooMany(after)
        return grant

    def forget(self) -> None:
        """Look at every token anew."""
        self._known.clear()

    def _look(self, text: str) -> Look:
        """Return the look at a token that is relied on now."""
        key = blake2b(text.encode(), key=self._salt, digest_size=16).digest()
        known = self._known.get(key)
        if known is None or known[0] <= self._clock():
            known = self._ask(key, text)
        return known[1]

    def _ask(self, key: bytes, text: str) -> Known:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        known = self._clock() + FRESH, asyncio.ensure_future(self._tokens.check(text))
        self._known[key] = known
        known[1].add_done_callback(lambda task: self._answered(key, task))
        return known

    def _answered(self, key: bytes, task: Look) -> None:
        """Forget a look that failed: the next call looks again."""
        known = self._known.get(key)
        failed = task.cancelled() or task.exception() is not None
        if failed and known is not None and known[1] is task:
            del self._known[key]
