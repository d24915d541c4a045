"""Handlers: what the actions on zones and records do, and the observers that say what a lost attempt has done.

Every write is one message that may be repeated: it says what is to be served, not what is to be changed. So a handler
needs no memory of its own. After a crash the observer asks the server, and the handler runs again only if it must.
"""

import asyncio
from collections.abc import Awaitable, Callable

from stateward.engine import Handler, Job, ObservedOutcome, Unknown
from stateward_dns.lifecycle import RecordState, ZoneState
from stateward_dns.model import RecordChange, RecordSpec, rrset_key, wanted_rrset
from stateward_dns.server_port import DnsServer

RELOAD_PATIENCE_S = 10.0
"""How many seconds a server may take from a change of its catalog until it serves by it."""


class ZoneHandlers:
    """The actions on zones."""

    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def by_action(self) -> dict[str, Handler]:
        """Return the handlers."""
        add = Handler(self.add, self.observe_added)
        return {"create": add, "retry": add, "delete": Handler(self.remove, self.observe_removed)}

    async def add(self, job: Job) -> None:
        """Add the zone to the server's catalog, and wait until the server serves it."""
        await job.call(self._server.add_zone(job.object, _owner(job)))
        await _wait_until(lambda: self._server.serves(job.object), f"{job.object} is not served yet")

    async def observe_added(self, job: Job) -> ObservedOutcome:
        """Say whether the zone was added: the catalog names its owner."""
        if await self._server.read_owner(job.object) != _owner(job):
            return _not_seen(job)
        return ObservedOutcome.DONE if await self._server.serves(job.object) else ObservedOutcome.REPEATABLE

    async def remove(self, job: Job) -> None:
        """Remove the zone from the catalog, and wait until the server serves it no more."""
        await job.call(self._server.remove_zone(job.object, _owner(job)))
        if job.origin != ZoneState.FAILED:  # a zone that was never added may be served for somebody else
            await _wait_until(lambda: self._is_gone(job), f"{job.object} is still served")

    async def observe_removed(self, job: Job) -> ObservedOutcome:
        """Say whether the zone was removed."""
        if await self._server.read_owner(job.object) == _owner(job):
            return _not_seen(job)
        return ObservedOutcome.DONE if await self._is_gone(job) else ObservedOutcome.REPEATABLE

    async def _is_gone(self, job: Job) -> bool:
        return not await self._server.serves(job.object) or await self._server.read_owner(job.object) is not None


class RecordHandlers:
    """The actions on records."""

    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def by_action(self) -> dict[str, Handler]:
        """Return the handlers."""
        create = Handler(self.create, self.observe)
        return {
            "create": create,
            "enable": create,
            "change": Handler(self.replace, self.observe, args=RecordChange),
            "repair": Handler(self.replace, self.observe),
            "disable": Handler(self.remove, self.observe_removed),
            "delete": Handler(self.remove, self.observe_removed),
        }

    async def create(self, job: Job) -> None:
        """Write the record, unless the server has other values there, which are not ours."""
        await self._write(job, is_new=True)

    async def replace(self, job: Job) -> None:
        """Write the record, whatever the server has there."""
        await self._write(job, is_new=False)

    async def remove(self, job: Job) -> None:
        """Take the record from the server."""
        spec = _spec(job)
        if await self._may_be_served(job):
            await job.call(self._server.write_rrset(spec.zone, rrset_key(spec), None))

    async def observe(self, job: Job) -> ObservedOutcome:
        """Say whether the record is served as it is wanted."""
        spec = _spec(job)
        served = await self._server.read_rrset(spec.zone, rrset_key(spec))
        return ObservedOutcome.DONE if served == wanted_rrset(spec) else _not_seen(job)

    async def observe_removed(self, job: Job) -> ObservedOutcome:
        """Say whether the record is served no more."""
        spec = _spec(job)
        if not await self._may_be_served(job) or await self._server.read_rrset(spec.zone, rrset_key(spec)) is None:
            return ObservedOutcome.DONE
        return _not_seen(job)

    async def _may_be_served(self, job: Job) -> bool:
        """Return whether the server may have the record: not if it was never ours, or if the zone itself is gone."""
        return job.origin != RecordState.FAILED and await self._server.serves(_spec(job).zone)

    async def _write(self, job: Job, *, is_new: bool) -> None:
        spec = _spec(job)
        await job.call(self._server.write_rrset(spec.zone, rrset_key(spec), wanted_rrset(spec), is_new=is_new))


def _owner(job: Job) -> str:
    return f"{job.ns}/{job.object}"


def _spec(job: Job) -> RecordSpec:
    spec: RecordSpec = job.spec
    return spec


def _not_seen(job: Job) -> ObservedOutcome:
    """Return that nothing was done, unless a call is on its way and may still do it."""
    return ObservedOutcome.UNKNOWN if job.is_calling else ObservedOutcome.NOT_DONE


async def _wait_until(holds: Callable[[], Awaitable[bool]], text: str) -> None:
    loop, pause_s = asyncio.get_running_loop(), 0.01
    end = loop.time() + RELOAD_PATIENCE_S
    while not await holds():
        if loop.time() > end:
            raise Unknown(text)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.5)
