"""Authentication of tokens and sessions, with a cache, a rate limit for each token, and a limit on wrong tokens.

The result of a token lookup is cached for `TOKEN_CACHE_S` seconds, by a keyed hash of the token. A token that another
process revokes is refused after that time at the latest; a token that this process revokes is refused at once.

Wrong tokens are limited by the client's address and by the token id that they name. Over the limit, a request is
refused without a lookup in the store. A token that was valid in this process before is always looked up: an attacker
behind the same proxy, or one who knows a token's id, cannot lock out the holder of the token. A valid token that is new
to this process shares the limit with the attacker, until `trusted_proxies` tells the two addresses apart."""

import asyncio
import secrets
from collections.abc import Callable
from hashlib import blake2b
from heapq import nlargest
from itertools import islice

from litestar.types import Scope

from stateward.access import Grant, Tokens
from stateward.access.sessions import PREFIX, Sessions
from stateward.aio.token_bucket import TokenBucket
from stateward.server.auth.client_address import ClientAddresses
from stateward.server.auth.credentials import token_id
from stateward.server.errors import NotAuthenticated, TooMany

MAX_KEYS = 10_000
"""How many buckets are kept; full ones are dropped first, because they equal new ones."""

MAX_DEBT_S = 60.0
"""How many seconds at most an overdrawn bucket takes until it has tokens again."""


class RateLimiter:
    """Buckets of one size, by name. A bucket holds the calls of `span` seconds."""

    def __init__(self, rate: float, clock: Callable[[], float], span: float = 1.0) -> None:
        self._rate = rate
        self._clock = clock
        self._span = span
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, name: str) -> float:
        """Take a call from a bucket and return 0; if there is none, return how many seconds it takes until there is."""
        now = self._clock()
        return self._bucket(name, now).take(now)

    def delay_s(self, name: str) -> float:
        """Return how many seconds it takes until a call can be taken from a bucket."""
        now = self._clock()
        return (self._buckets.get(name) or self._new(now)).delay_s(now)

    def overdraw(self, name: str) -> None:
        """Take a call from a bucket, even from an empty one: the debt has to refill first."""
        now = self._clock()
        self._bucket(name, now).overdraw(now)

    def _bucket(self, name: str, now: float) -> TokenBucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= MAX_KEYS:
                self._forget(now)
            bucket = self._buckets[name] = self._new(now)
        return bucket

    def _new(self, now: float) -> TokenBucket:
        return TokenBucket(self._rate, self._rate * self._span, now, max_debt=self._rate * MAX_DEBT_S)

    def _forget(self, now: float) -> None:
        """Keep the buckets that are not full; of too many, the emptier half."""
        missing = {name: missing for name, bucket in self._buckets.items() if (missing := bucket.missing(now)) > 0}
        if len(missing) >= MAX_KEYS:
            missing = dict(nlargest(MAX_KEYS // 2, missing.items(), key=lambda entry: entry[1]))
        self._buckets = {name: self._buckets[name] for name in missing}


TOKEN_CACHE_S = 2.0
"""How many seconds the result of a token lookup is cached."""

MAX_CACHED_TOKENS = 10_000
"""How many tokens are cached."""

FAILURE_BURST_S = 5.0
"""The burst of wrong tokens, as seconds of their rate."""

TOO_MANY_FAILURES = "too many wrong tokens came from this address, or for this token id"

TokenLookup = asyncio.Task[Grant | None]
CachedLookup = tuple[float, TokenLookup]


class Authenticator:
    """Authenticates the tokens of requests."""

    def __init__(
        self,
        tokens: Tokens,
        sessions: Sessions,
        rate: float,
        clock: Callable[[], float],
        wrong_rate: float = 5.0,
        client_addresses: ClientAddresses | None = None,
    ) -> None:
        self.client_addresses = client_addresses or ClientAddresses()
        self._tokens, self._sessions = tokens, sessions
        self._rate_limiter = RateLimiter(rate, clock)
        self._failure_limiter = RateLimiter(wrong_rate, clock, FAILURE_BURST_S)
        self._clock = clock
        self._salt = secrets.token_bytes(32)
        self._lookups: dict[bytes, CachedLookup] = {}
        self._valid_before: dict[bytes, None] = {}  # tokens that were valid, oldest first

    async def authenticate(self, text: str | None, scope: Scope) -> Grant:
        """Return the grant of a token or a session; raises if it is not valid, or a limit is exceeded."""
        if text is None:
            raise NotAuthenticated(given=False)
        key = blake2b(text.encode(), key=self._salt, digest_size=16).digest()
        if key not in self._valid_before:
            self._check_failure_limits(text, scope)
        known = self._lookups.get(key)
        if known is None or known[0] <= self._clock():
            known = self._start_lookup(key, text)
        lookup = known[1]
        if not lookup.done():
            await asyncio.wait([lookup])  # all concurrent requests share one lookup; wait() does not cancel it
        grant = lookup.result()
        if grant is None:
            self._valid_before.pop(key, None)  # concurrent lookups may overdraw the limit, and the debt refills first
            for name in self._failure_limits(text, scope):
                self._failure_limiter.overdraw(name)
            raise NotAuthenticated(given=True)
        if key not in self._valid_before:
            if len(self._valid_before) >= MAX_CACHED_TOKENS:
                self._valid_before = dict.fromkeys(islice(self._valid_before, MAX_CACHED_TOKENS // 2, None))
            self._valid_before[key] = None
        after = self._rate_limiter.take(grant.token)
        if after > 0:
            raise TooMany(after)
        return grant

    def clear_cache(self) -> None:
        """Forget all lookups, so that every token is looked up again."""
        self._lookups.clear()

    def _check_failure_limits(self, text: str, scope: Scope) -> None:
        after = max(map(self._failure_limiter.delay_s, self._failure_limits(text, scope)))
        if after > 0:
            raise TooMany(after, TOO_MANY_FAILURES)

    def _failure_limits(self, text: str, scope: Scope) -> tuple[str, ...]:
        """Return the keys of the limits that a wrong token counts against."""
        named, network = token_id(text), f"address {self.client_addresses.network(scope)}"
        return (network,) if named is None else (network, f"token {named}")

    def _start_lookup(self, key: bytes, text: str) -> CachedLookup:
        if len(self._lookups) >= MAX_CACHED_TOKENS:
            self._lookups.clear()
        known = self._clock() + TOKEN_CACHE_S, asyncio.ensure_future(self._check(text))
        self._lookups[key] = known
        known[1].add_done_callback(lambda task: self._drop_failed_lookup(key, task))
        return known

    async def _check(self, text: str) -> Grant | None:
        is_session = text.startswith(f"{PREFIX}_")
        return await (self._sessions.check(text) if is_session else self._tokens.check(text))

    def _drop_failed_lookup(self, key: bytes, task: TokenLookup) -> None:
        """Forget a lookup that failed, so that the next request starts another one."""
        known = self._lookups.get(key)
        failed = task.cancelled() or task.exception() is not None
        if failed and known is not None and known[1] is task:
            del self._lookups[key]
