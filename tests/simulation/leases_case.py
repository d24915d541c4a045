"""Leases of hosts that fail and recover, and of resources that fail and hang: hosts of leases are those booked."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar

from stateward.domains.leases.bookings import Demand
from stateward.domains.leases.lifecycle import HOST, LEASE
from stateward.domains.leases.model import ReservationSpec, read_host, read_lease
from stateward.domains.leases.resources import ReservationTask
from stateward.domains.leases.runtime import LeasesRuntime
from stateward.domains.leases.service import LeaseCaller
from stateward.domains.leases.wire_values import format_time
from stateward.engine import AlreadyExists, Permanent, Request, Temporary
from stateward.lifecycle import TRANSITIONAL
from stateward.store.filters import Page, Selector
from stateward.store.records import Object
from tests.integration.domains.leases.checked_store import Forbidden, check
from tests.simulation.domain_case import NS, Action, DomainCase, Server

ME = LeaseCaller(who="somebody", ns=NS)
HOSTS = ("h0", "h1", "h2")
SETTLED_S = 60.0
"""How long after its time the start or the end of a lease may take at most, once there are no faults."""


class Gadgets:
    """Resources that take their time, fail now and then, and sometimes hang."""

    name = "test:gadget"

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.calm = False

    def read_details(self, given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        return {}

    def demand(self, details: Mapping[str, Any]) -> Demand | None:
        return None

    async def check(self, ns: str, spec: ReservationSpec) -> None:
        return

    async def start_requests(self, task: ReservationTask) -> Sequence[Request]:
        return ()

    async def end_requests(self, task: ReservationTask) -> Sequence[Request]:
        return ()

    async def start(self, task: ReservationTask) -> None:
        await self._behave()

    async def end(self, task: ReservationTask) -> None:
        await self._behave()

    async def _behave(self) -> None:
        if self.calm:
            return
        await asyncio.sleep(self._chance.expovariate(2.0))
        roll = self._chance.random()
        if roll < 0.05:
            await asyncio.sleep(300.0)
        if roll < 0.2:
            raise Temporary("not now")
        if roll < 0.3:
            raise Permanent("never")


class LeasesCase(DomainCase):
    """Three hosts, and leases of an hour at most."""

    name = "leases"
    pairs: ClassVar = [
        ("let a host flap", "create a lease"),
        ("create", "fail a host"),
        ("change a host", "change a host too"),
    ]
    before: ClassVar = {
        **dict.fromkeys(("extend", "end now", "rename", "resize", "delete a lease"), ("create a lease",)),
        **dict.fromkeys(("fail a host", "let a host flap", "let another flap"), ("create a lease",)),
        "recover a host": ["create a lease", "fail a host"],
    }

    def __init__(self, clock: Any, chance: Any) -> None:
        super().__init__(clock, chance)
        self.gadgets = Gadgets(chance("gadgets"))
        self.changed: set[tuple[str, str]] = set()  # hosts with properties that they were given
        self._ids = iter(range(1, 1_000_000))

    def make_runtime(self, name: str) -> LeasesRuntime:
        return LeasesRuntime(self.context(name), more=[self.gadgets], new_id=lambda: f"id{next(self._ids)}")

    async def prepare(self, server: Server) -> None:
        for name in HOSTS:
            try:
                await server.runtime.hosts.register(ME, {"name": name, "vcpus": 8, "memory_mb": 8, "local_gb": 8})
            except AlreadyExists:
                continue

    @property
    def actions(self) -> Mapping[str, Action]:
        return {
            "create": self._create,
            "create a lease": self._create,
            "create another": self._create,
            "extend": partial(self._update, "end_date"),
            "end now": partial(self._update, "now"),
            "rename": partial(self._update, "name"),
            "resize": partial(self._update, "reservations"),
            "delete a lease": self._delete,
            "recover a lease": self._recover,
            "fail a host": lambda server, chance: server.runtime.hosts.fail(ME, chance.choice(HOSTS)),
            "recover a host": lambda server, chance: server.runtime.hosts.recover(ME, chance.choice(HOSTS)),
            "let a host flap": self._flap,
            "let another flap": self._flap,
            "change a host": partial(self._change_host, ("rack", "gpu")),
            "change a host too": partial(self._change_host, ("gpu", "rack")),
        }

    async def _flap(self, server: Server, chance: Random) -> None:
        name = chance.choice(HOSTS)
        await server.runtime.hosts.fail(ME, name)
        await asyncio.sleep(chance.random() * chance.choice((0.01, 0.2, 5.0)))
        await server.runtime.hosts.recover(ME, name)

    def _create(self, server: Server, chance: Random) -> Any:
        start = self.clock() + chance.choice((0.0, chance.random() * 20, chance.random() * 120))
        end = start + chance.choice((60 + chance.random() * 60, chance.random() * 100))
        wishes = [self._wish(chance) for _ in range(chance.choice((1, 1, 2, 3)))]
        given = {
            "name": "lease",
            "start_date": format_time(start),
            "end_date": format_time(end),
            "reservations": wishes,
        }
        return server.runtime.leases.create(ME, given)

    def _wish(self, chance: Random) -> dict[str, Any]:
        size = {"vcpus": 2, "memory_mb": 1, "disk_gb": 1}
        return dict(
            chance.choice(
                (
                    {"resource_type": "physical:host", "min": 1, "max": chance.randint(1, 2)},
                    {"resource_type": "physical:host", "min": 1, "max": 1},
                    {"resource_type": "virtual:instance", **size, "amount": chance.randint(1, 4)},
                    {"resource_type": Gadgets.name},
                )
            )
        )

    async def _some(self, server: Server, chance: Random, *states: str) -> Object:
        found = await server.engine.store.reader.list_objects(Selector(NS, LEASE.kind), Page(None, 1000))
        chosen = [one for one in found if not states or one.state in states]
        return chance.choice(chosen) if chosen else await server.engine.record(NS, "nobody")

    async def _update(self, what: str, server: Server, chance: Random) -> None:
        found = await self._some(server, chance)
        given: dict[str, Any] = {"name": f"lease {chance.randint(0, 99)}"}
        if what == "now":
            given = {"end_date": "now"}
        elif what == "end_date":
            given["end_date"] = format_time(self.clock() + chance.random() * 150)
        elif what == "reservations":
            reservations = [one for one in read_lease(found).spec.reservations if "min" in one.details]
            given["reservations"] = [{"id": one.id, "min": 1, "max": chance.randint(1, 3)} for one in reservations]
        await server.runtime.leases.update(ME, found.id, given)

    async def _delete(self, server: Server, chance: Random) -> None:
        await server.runtime.leases.delete(ME, (await self._some(server, chance)).id)

    async def _recover(self, server: Server, chance: Random) -> None:
        await server.runtime.leases.recover(ME, (await self._some(server, chance, "ERROR")).id)

    async def _change_host(self, keys: tuple[str, ...], server: Server, chance: Random) -> None:
        name, key = chance.choice(HOSTS), chance.choice(keys)
        await server.runtime.hosts.update(ME, name, {key: "1"})
        self.changed.add((name, key))

    def calm_down(self) -> None:
        self.gadgets.calm = True

    # --- what must be true -------------------------------------------------------------------------------------------

    def broken(self, objects: Iterable[Object]) -> Iterator[str]:
        found = list(objects)
        hosts = {one.id: read_host(one) for one in found if one.kind == HOST.kind and not one.removed}
        for one in found:
            try:
                check(one)
            except Forbidden as forbidden:
                yield str(forbidden)
            if one.kind == LEASE.kind and one.state in ("PENDING", "ACTIVE"):
                yield from self._unbooked(one, hosts)

    def _unbooked(self, found: Object, hosts: Mapping[str, Any]) -> Iterator[str]:
        """Yield the hosts of a lease at rest on which it has no booking."""
        lease = read_lease(found)
        booked = {(one.reservation, host.spec.name) for host in hosts.values() for one in host.seen.bookings}
        for name, reservation in lease.seen.reservations.items():
            for host in reservation.hosts:
                if (name, host) not in booked:
                    yield f"{found.id} ({found.state}) has {host}, on which it has no booking"

    def unsettled(self, objects: Iterable[Object]) -> Iterator[str]:
        found, now = list(objects), self.clock() - SETTLED_S
        failed = {read_host(one).spec.name for one in found if one.kind == HOST.kind and one.state == "failed"}
        for one in found:
            if one.kind != LEASE.kind:
                continue
            lease = read_lease(one)
            spec = lease.spec
            if LEASE.state(one.state).state_class is TRANSITIONAL:
                yield f"{one.id} is {one.state}"
            if (one.state in ("PENDING", "ACTIVE") and spec.end < now) or (one.state == "PENDING" and spec.start < now):
                yield f"{one.id} is {one.state}, and should have gone on by now"
            for reservation in lease.seen.reservations.values():
                if (
                    one.state == "ACTIVE"
                    and not reservation.missing_resources
                    and not failed.isdisjoint(reservation.hosts)
                ):
                    yield f"{one.id} is ACTIVE on {reservation.hosts}, some of which have failed"

    async def broken_at_rest(self, server: Server) -> list[str]:
        """Delete every lease, and look whether anything is left."""
        wrong, reader = list[str](), server.engine.store.reader
        while leases := await reader.list_objects(Selector(NS, LEASE.kind), Page(None, 1000)):
            for one in leases:
                if one.state != "DELETING":
                    await server.runtime.leases.delete(ME, one.id)
            await asyncio.sleep(5.0)
        for name, key in sorted(self.changed):
            if key not in (await server.runtime.hosts.get(NS, name)).spec.properties:
                wrong.append(f"{name} was given the property {key}, and has lost it")
        for one in await server.runtime.hosts.list(NS):
            if one.seen.bookings or one.seen.held:
                wrong.append(f"{one.spec.name} is still booked or held: {one.seen}")
        return wrong
