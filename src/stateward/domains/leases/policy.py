"""Policies: who may have what for how long. Filters are asked when a lease is made or changed, and told when it ends.

A filter denies by raising. An external service is asked over HTTP, within a time-out; if it does not answer, nobody has
said yes, and the lease is denied.
"""

from collections.abc import Sequence
from typing import Protocol

import httpx
import msgspec

from stateward.domains.leases.model import Lease, LeaseSpec
from stateward.domains.leases.settings import Settings
from stateward.engine import Denied

OK = 300


class NotAllowed(Denied):
    """A policy does not allow the lease."""

    code = "not_allowed"

    def __init__(self, policy: str, why: str) -> None:
        super().__init__(policy, why)
        self.policy, self.why = policy, why

    def __str__(self) -> str:
        return f"{self.policy}: {self.why}"


class Filter(Protocol):
    """A policy."""

    async def check(self, spec: LeaseSpec, before: LeaseSpec | None) -> None:
        """Deny a lease that is to be made, or changed from what it was before."""

    async def ended(self, lease: Lease) -> None:
        """Be told that a lease is over."""


class Filters:
    """All policies together."""

    def __init__(self, filters: Sequence[Filter] = ()) -> None:
        self._filters = filters

    async def check(self, spec: LeaseSpec, before: LeaseSpec | None = None) -> None:
        """Deny what one of them denies."""
        for one in self._filters:
            await one.check(spec, before)

    async def ended(self, lease: Lease) -> None:
        """Tell all of them that a lease is over."""
        for one in self._filters:
            await one.ended(lease)


class MaxDuration:
    """No lease may be longer than so many seconds, except those of some projects."""

    def __init__(self, seconds: float, exempt: Sequence[str] = ()) -> None:
        self._seconds = seconds
        self._exempt = frozenset(exempt)

    async def check(self, spec: LeaseSpec, before: LeaseSpec | None) -> None:
        """Deny a lease that is too long; one that was before may stay, but not grow."""
        lasts = spec.end - spec.start
        grows = before is None or lasts > before.end - before.start
        if spec.project not in self._exempt and lasts > self._seconds and grows:
            raise NotAllowed("max duration", f"a lease may last {self._seconds:g} s, and this one lasts {lasts:g} s")

    async def ended(self, lease: Lease) -> None:
        """Do nothing."""


class ExternalCheck:
    """Asks a service: POST to /check-create or /check-update allows with 2xx, denies with anything else."""

    def __init__(self, url: str, timeout: float = 5.0, token: str = "") -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._headers = {"X-Auth-Token": token} if token else {}

    async def check(self, spec: LeaseSpec, before: LeaseSpec | None) -> None:
        """Ask whether a lease is allowed."""
        body = {"lease": msgspec.to_builtins(spec), "current_lease": msgspec.to_builtins(before)}
        try:
            answer = await self._post("check-create" if before is None else "check-update", body)
        except httpx.HTTPError as error:
            raise NotAllowed("external check", f"no answer: {str(error) or type(error).__name__}") from error
        if answer.status_code >= OK:
            raise NotAllowed("external check", _message(answer))

    async def ended(self, lease: Lease) -> None:
        """Tell that a lease is over; whoever cannot be told is not."""
        try:
            await self._post("on-end", {"lease": msgspec.to_builtins(lease.spec)})
        except httpx.HTTPError:
            return

    async def _post(self, what: str, body: object) -> httpx.Response:
        async with httpx.AsyncClient(timeout=self._timeout, headers=self._headers) as client:
            return await client.post(f"{self._url}/{what}", json=body)


def filters_of(settings: Settings) -> Filters:
    """Return the policies that are set."""
    found: list[Filter] = []
    if settings.max_duration > 0:
        exempt = [one.strip() for one in settings.max_duration_exempt.split(",") if one.strip()]
        found.append(MaxDuration(settings.max_duration, exempt))
    if settings.check_url:
        found.append(ExternalCheck(settings.check_url, settings.check_timeout, settings.check_token))
    return Filters(found)


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"the answer was {answer.status_code}"
