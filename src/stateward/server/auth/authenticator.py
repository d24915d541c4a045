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
from stateward.server.auth.client_address import ClientAddresses
from stateward.server.auth.credentials import token_id
from stateward.server.auth.rate_limit import RateLimiter
from stateward.server.errors import NotAuthenticated, TooMany

TOKEN_CACHE_S = 2.0
"""How many seconds a look at a token is relied on."""

MAX_CACHED_TOKENS = 10_000
"""How many tokens are remembered."""

FAILURE_BURST_S = 5.0
"""For how many seconds an allowance of wrong tokens can be saved up."""

TOO_MANY_FAILURES = "too many wrong tokens came from this address, or for this token id"

TokenLookup = asyncio.Task[Grant | None]
CachedLookup = tuple[float, TokenLookup]


class Authenticator:
    """Lets the holders of tokens in."""

    def __init__(
        self,
        tokens: Tokens,
        rate: float,
        clock: Callable[[], float],
        wrong_rate: float = 5.0,
        peers: ClientAddresses | None = None,
    ) -> None:
        self.client_addresses = peers or ClientAddresses()
        self._tokens = tokens
        self._rate_limiter = RateLimiter(rate, clock)
        self._failure_limiter = RateLimiter(wrong_rate, clock, FAILURE_BURST_S)
        self._clock = clock
        self._salt = secrets.token_bytes(32)
        self._lookups: dict[bytes, CachedLookup] = {}
        self._valid_before: dict[
            bytes, None
        ] = {}  # the tokens that were right before, in the order of their first time

    async def authenticate(self, text: str | None, scope: Scope) -> Grant:
        """Return what a token opens; one that opens nothing, or comes too often, is refused."""
        if text is None:
            raise NotAuthenticated(given=False)
        key = blake2b(text.encode(), key=self._salt, digest_size=16).digest()
        if key not in self._valid_before:
            self._check_failure_limits(text, scope)
        look = self._cached_lookup(key, text)
        if not look.done():
            await asyncio.wait([look])  # one look serves all who came meanwhile, whoever of them leaves
        grant = look.result()
        if grant is None:
            self._count_failure(key, text, scope)
            raise NotAuthenticated(given=True)
        self._remember_valid(key)
        after = self._rate_limiter.take(grant.token)
        if after > 0:
            raise TooMany(after)
        return grant

    def clear_cache(self) -> None:
        """Look at every token anew."""
        self._lookups.clear()

    def _check_failure_limits(self, text: str, scope: Scope) -> None:
        after = max(map(self._failure_limiter.delay_s, self._failure_limits(text, scope)))
        if after > 0:
            raise TooMany(after, TOO_MANY_FAILURES)

    def _count_failure(self, key: bytes, text: str, scope: Scope) -> None:
        """Count a wrong token; looks under way at once may overdraw, which has to be waited for afterwards."""
        self._valid_before.pop(key, None)
        for name in self._failure_limits(text, scope):
            self._failure_limiter.overdraw(name)

    def _failure_limits(self, text: str, scope: Scope) -> tuple[str, ...]:
        """Return the names of the allowances that a wrong token is charged to."""
        named, site = token_id(text), f"address {self.client_addresses.network(scope)}"
        return (site,) if named is None else (site, f"token {named}")

    def _remember_valid(self, key: bytes) -> None:
        if key not in self._valid_before:
            if len(self._valid_before) >= MAX_CACHED_TOKENS:
                self._valid_before = dict.fromkeys(islice(self._valid_before, MAX_CACHED_TOKENS // 2, None))
            self._valid_before[key] = None

    def _cached_lookup(self, key: bytes, text: str) -> TokenLookup:
        """Return the look at a token that is relied on now."""
        known = self._lookups.get(key)
        if known is None or known[0] <= self._clock():
            known = self._start_lookup(key, text)
        return known[1]

    def _start_lookup(self, key: bytes, text: str) -> CachedLookup:
        if len(self._lookups) >= MAX_CACHED_TOKENS:
            self._lookups.clear()
        known = self._clock() + TOKEN_CACHE_S, asyncio.ensure_future(self._tokens.check(text))
        self._lookups[key] = known
        known[1].add_done_callback(lambda task: self._drop_failed_lookup(key, task))
        return known

    def _drop_failed_lookup(self, key: bytes, task: TokenLookup) -> None:
        """Forget a look that failed: the next call looks again."""
        known = self._lookups.get(key)
        failed = task.cancelled() or task.exception() is not None
        if failed and known is not None and known[1] is task:
            del self._lookups[key]
