"""Leases: how many are made in a second, how punctually a thousand start at once, and what a search for hosts costs.

A stock Blazar 18 on such a machine was seen to make 0.4 leases a second, and to start 20 simultaneous ones 10 to 45 s
late. Every lease here is made the whole way: hosts searched for, booked, three events, PENDING when it is answered.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from statistics import median, quantiles
from time import perf_counter, time

from bench.engine.databases import new_database, new_file, new_folder, store_at
from bench.figures import Better, Line, plain, ratio
from bench.loops import run
from stateward.domains.leases.bookings import Demand
from stateward.domains.leases.host_pool import HostPool
from stateward.domains.leases.lifecycle import HOST, LEASE
from stateward.domains.leases.model import Booking, HostSeen, HostSpec, LeaseHost, Share
from stateward.domains.leases.runtime import LeasesRuntime
from stateward.domains.leases.service import LeaseCaller
from stateward.domains.leases.wire_values import format_time
from stateward.engine import Engine
from stateward.plugin.runtime import ProcessContext
from stateward.store.filters import JournalFilter, Selector
from stateward.store.records import Object

ME = LeaseCaller(who="bench", ns="bench")
LEASES, HOSTS, CALLERS = 1000, 1000, 50
PENDING_EVENTS = 5.0
DAY, HOUR = 86400.0, 3600.0
SIZES = ((100, 1_000), (1_000, 10_000), (10_000, 10_000), (10_000, 100_000), (10_000, 300_000))
SEARCHES = 300


def report() -> list[Line]:
    """Measure and return lines to print."""
    lines: list[Line] = ["leases"]
    for name, url in (("embedded", new_file()), ("PostgreSQL", new_database())):
        rate, lateness, active = run(_measured(url))
        cuts = quantiles(lateness, n=100)
        lines += [
            plain(f"leases made by {CALLERS} callers, {name}", rate, "a second", None, Better.HIGHER),
            plain(f"the start of {LEASES:,} leases due at once, p50, {name}", cuts[49], "s late"),
            plain(f"the start of {LEASES:,} leases due at once, p99, {name}", cuts[98], "s late"),
            plain(f"{LEASES:,} leases due at once, until the last is ACTIVE, {name}", active, "s"),
        ]
    return [*lines, "a search for one host, of so many, with so many bookings", *_searches()]


@asynccontextmanager
async def _house(url: str) -> AsyncIterator[LeasesRuntime]:
    plugin = LeasesRuntime(ProcessContext(new_folder()))
    engine = Engine(store_at(url), plugin.kinds)
    plugin.bind_engine(engine)
    async with engine:
        for start in range(0, HOSTS, 200):
            names = [{"name": f"h{number}", "vcpus": 8} for number in range(start, min(start + 200, HOSTS))]
            await asyncio.gather(*(plugin.hosts.register(ME, one) for one in names))
        yield plugin


async def _measured(url: str) -> tuple[float, list[float], float]:
    async with _house(url) as plugin:
        await plugin.leases.list(ME.ns)
        seconds = await _make(plugin, LEASES, time() + DAY, CALLERS)
        due = time() + PENDING_EVENTS + LEASES / max(LEASES / seconds, 1)
        await _make(plugin, LEASES, due, CALLERS)
        engine = plugin.leases.engine
        while (LEASE.kind, "ACTIVE") not in (counts := await engine.store.reader.count_states(_LEASES)) or (
            counts[LEASE.kind, "ACTIVE"] < LEASES
        ):
            await asyncio.sleep(0.05)
        active = time() - due
        lines = await engine.store.reader.journal(0, 1_000_000, JournalFilter(ns=ME.ns, kind=LEASE.kind, actor="clock"))
        return LEASES / seconds, [line.at - due for line in lines if line.event == "start"], active


_LEASES = Selector(ME.ns, kind=LEASE.kind)


async def _make(plugin: LeasesRuntime, number: int, start: float, callers: int) -> float:
    """Make leases, so many callers at once; returns how many seconds that took."""
    left = iter(range(number))
    wish = {"resource_type": "physical:host", "min": 1, "max": 1}
    given = {"start_date": format_time(start), "end_date": format_time(start + HOUR), "reservations": [wish]}

    async def caller() -> None:
        for one in left:
            await plugin.leases.create(ME, {"name": f"lease {one}", **given})

    began = perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return perf_counter() - began


# --- searching -------------------------------------------------------------------------------------------------------


def _searches() -> Iterator[Line]:
    first = 0.0
    for hosts, bookings in SIZES:
        began = perf_counter()
        pool = _pool(hosts, bookings)
        built = perf_counter() - began
        free, full = _timed(pool, 0.0), _timed(pool, _FULL)
        yield (
            f"  {free * 1e6:7.0f} µs, where many are free; {full * 1e6:7.0f} µs, where none is"
            f"  {hosts:>6,} hosts, {bookings:>7,} bookings (read in {built:.1f} s)"
        )
        first = first or free
        few, many = f"{SIZES[0][0]} hosts, {SIZES[0][1]:,} bookings", f"{hosts:,} hosts, {bookings:,} bookings"
        if few != many:
            yield ratio(f"a search among {many}", free / first, f"the time among {few}")


_FULL = 400 * DAY


def _pool(hosts: int, bookings: int) -> HostPool:
    """Return hosts that are booked here and there for a year, and all of them for a day after it."""
    chance, pool = Random(1), HostPool()
    for number in range(hosts):
        starts = sorted(chance.sample(range(0, 365 * 24, 6), bookings // hosts - 1))
        taken = [Booking("l", f"r{start}", start * HOUR, (start + chance.randint(1, 5)) * HOUR) for start in starts]
        name = f"h{number}"
        seen = HostSeen((*taken, Booking("l", "full", _FULL, _FULL + DAY)))
        row = Object("ns", name, HOST.kind, "up", 0.0, 1, 1, None, name, None, "{}", "{}", None, 0.0)
        pool.put(LeaseHost(row, HostSpec(name, Share(8, 8, 8)), seen))
    return pool


def _timed(pool: HostPool, at: float) -> float:
    """Return the seconds that a search takes: at no full hour, so that some hosts have to be looked at."""
    chance, taken = Random(2), []
    for _ in range(SEARCHES):
        start = at + (chance.random() * 20 * HOUR if at else chance.random() * 360 * DAY)
        booking = Booking("new", "new", start, start + 2 * HOUR)
        began = perf_counter()
        pool.search(Demand(1, 1), booking)
        taken.append(perf_counter() - began)
    return median(taken)
