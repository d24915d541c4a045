"""The door: looks at tokens, and limits how often each one calls and how often wrong ones are tried.

A token is looked up in the store once in a while and remembered for a moment, by a hash of it. One that is revoked
elsewhere is therefore refused after `FRESH` seconds at the latest, and one that is revoked here at once.

Wrong tokens are limited by the client's address and by the token id that they name. Whoever has spent that allowance is
turned away without a look into the store. A token that was right here before is always looked up: an attacker behind
the same proxy, or one who knows a token's id, cannot lock its holder out. A token that is new here competes with the
attacker for the allowance, until `trusted_proxies` tells the two addresses apart.
"""

import asyncio
import secrets
from collections.abc import Callable
from hashlib import blake2b
from itertools import islice

from litestar.types import Scope

from stateward.access import Grant, Tokens
from stateward.server.auth.client_address import Peers
from stateward.server.auth.credentials import token_id
from stateward.server.auth.rate_limit import Buckets
from stateward.server.errors import NotAuthenticated, TooMany

FRESH = 2.0
"""How many seconds a look at a token is relied on."""

MOST_KNOWN = 10_000
"""How many tokens are remembered."""

WRONG_SPAN = 5.0
"""For how many seconds an allowance of wrong tokens can be saved up."""

WRONG = "too many wrong tokens came from this address, or for this token id"

Look = asyncio.Task[Grant | None]
Known = tuple[float, Look]


class Door:
    """Lets the holders of tokens in."""

    def __init__(
        self,
        tokens: Tokens,
        rate: float,
        clock: Callable[[], float],
        wrong_rate: float = 5.0,
        peers: Peers | None = None,
    ) -> None:
        self.peers = peers or Peers()
        self._tokens = tokens
        self._buckets = Buckets(rate, clock)
        self._wrong = Buckets(wrong_rate, clock, WRONG_SPAN)
        self._clock = clock
        self._salt = secrets.token_bytes(32)
        self._known: dict[bytes, Known] = {}
        self._proven: dict[bytes, None] = {}  # the tokens that were right before, in the order of their first time

    async def enter(self, text: str | None, scope: Scope) -> Grant:
        """Return what a token opens; one that opens nothing, or comes too often, is refused."""
        if text is None:
            raise NotAuthenticated(given=False)
        key = blake2b(text.encode(), key=self._salt, digest_size=16).digest()
        if key not in self._proven:
            self._require_allowance(text, scope)
        look = self._look(key, text)
        if not look.done():
            await asyncio.wait([look])  # one look serves all who came meanwhile, whoever of them leaves
        grant = look.result()
        if grant is None:
            self._charge(key, text, scope)
            raise NotAuthenticated(given=True)
        self._prove(key)
        after = self._buckets.wait(grant.token)
        if after > 0:
            raise TooMany(after)
        return grant

    def forget(self) -> None:
        """Look at every token anew."""
        self._known.clear()

    def _require_allowance(self, text: str, scope: Scope) -> None:
        after = max(map(self._wrong.delay, self._limited_by(text, scope)))
        if after > 0:
            raise TooMany(after, WRONG)

    def _charge(self, key: bytes, text: str, scope: Scope) -> None:
        """Count a wrong token; looks under way at once may overdraw, which has to be waited for afterwards."""
        self._proven.pop(key, None)
        for name in self._limited_by(text, scope):
            self._wrong.charge(name)

    def _limited_by(self, text: str, scope: Scope) -> tuple[str, ...]:
        """Return the names of the allowances that a wrong token is charged to."""
        named, site = token_id(text), f"address {self.peers.site(scope)}"
        return (site,) if named is None else (site, f"token {named}")

    def _prove(self, key: bytes) -> None:
        if key not in self._proven:
            if len(self._proven) >= MOST_KNOWN:
                self._proven = dict.fromkeys(islice(self._proven, MOST_KNOWN // 2, None))
            self._proven[key] = None

    def _look(self, key: bytes, text: str) -> Look:
        """Return the look at a token that is relied on now."""
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
