"""The status of an MCI: how many calls to providers it takes, and how long it takes over HTTP.

The time is compared with the bare query that counts VMs by state, on the same database and in the same process, and
with the same call where there are many other MCIs; all three take turns.
"""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from shutil import copy
from time import perf_counter

from bench.engine.databases import new_file
from bench.figures import Line, ratio
from bench.loops import run
from bench.mci_fleet import ANN, NS, PLACES, Fleet, everywhere, new_fleet
from bench.measure import Timing
from bench.server import read_answer
from bench.server_child import listening
from stateward.access import Role, Tokens
from stateward.access.tokens import ANY
from stateward.config import Config
from stateward.domains.mci.api import routes
from stateward.domains.mci.model import vm_of
from stateward.server.app import create_app
from stateward.server.live.feeds import LiveFeeds
from stateward.store.sqlite.connections import SqliteSettings, open_writer

SMALL, LARGE, OTHERS = 1_000, 10_000, 40
SETTLED = 0.4
ROUNDS, WARM = 100, 5
ASKED, SLOWER = 0.05, 3.0
COUNT = """
SELECT state, count(*) FROM objects WHERE ns = ? AND kind = 'mci.vm' AND parent = ? AND removed = 0 GROUP BY state
"""
COPY = """
INSERT INTO objects ({columns})
SELECT {values} FROM objects WHERE ns = 'default' AND (id = 'large' OR parent = 'large')
"""


class Place:
    """A server's address and a token for it."""

    def __init__(self, address: str, token: str) -> None:
        self.host, port = address.split(":")
        self.port, self.token = int(port), token


def report() -> list[Line]:
    """Measure and return lines to print."""
    return [*run(calls()), *run(times())]


@asynccontextmanager
async def served(fleet: Fleet) -> AsyncIterator[Place]:
    """Serve the domain's API."""
    config = Config(port=0, rate=1_000_000_000)
    tokens = Tokens(fleet.engine)
    token, _ = await tokens.issue("bench", Role.ADMIN, [ANY])
    app = create_app(fleet.engine, tokens, config, routes=fleet.plugin.routes or routes(fleet.plugin))
    async with LiveFeeds(fleet.engine) as live_feeds, listening(app, config) as address:
        app.state.live_feeds = live_feeds
        yield Place(address, token)


# --- calls -----------------------------------------------------------------------------------------------------------


async def calls() -> list[Line]:
    """Count the calls to providers for one fresh status."""
    async with new_fleet() as fleet, served(fleet) as place:
        await fleet.made(everywhere("small", SMALL // len(PLACES)))
        await _settle(fleet)
        fleet.calls.clear()
        await asyncio.to_thread(_status, place, "small", "fresh=true")
        asked = sum(fleet.calls.values())
        settled = SMALL - (await fleet.states("small"))["Running"]
    alone = settled / SMALL
    return [
        f"fresh status of {SMALL:,} VMs over {len(PLACES)} regions, {alone:.0%} of them suspended or terminated",
        ratio(f"calls for a fresh status of {SMALL:,} VMs", asked / SMALL, "one call for each VM", ASKED),
        f"  {alone:7.1%} would be saved by not asking about settled VMs alone",
    ]


async def _settle(fleet: Fleet) -> None:
    """Suspend and terminate some VMs of every region, half and half."""
    each = SMALL // len(PLACES)
    for found in await fleet.plugin.service.vms(NS, "small"):
        number = int(found.id.rpartition("-")[2])
        if number <= each * SETTLED:
            action = "suspend" if number % 2 else "terminate"
            asked = await fleet.plugin.service.control_vm(NS, "small", vm_of(found).name, action, ANN)
            await fleet.engine.wait_record(NS, asked.op.id)


# --- time ------------------------------------------------------------------------------------------------------------


async def times() -> list[Line]:
    """Time the status of a large MCI, alone and among others."""
    file = new_file()
    async with new_fleet(file) as fleet:
        await fleet.made(everywhere("large", LARGE // len(PLACES)))
    crowded = str(Path(new_file()))
    copy(file, crowded)
    _add_others(crowded)
    async with new_fleet(file) as few, served(few) as alone, new_fleet(crowded) as many, served(many) as among:
        timings = await asyncio.to_thread(_in_turns, alone, among, file)
    http, bare, crowd = timings
    return [
        f"status of an MCI with {LARGE:,} VMs over HTTP",
        ratio(f"status of {LARGE:,} VMs over HTTP", http.times(bare), "the time of the bare count by state", SLOWER),
        ratio(f"the same among {OTHERS} MCIs of that size", crowd.times(http), "the time of it alone"),
        *(f"  {one.seconds * 1e3:7.2f} ms  {one.name}" for one in timings),
    ]


def _in_turns(alone: Place, among: Place, file: str) -> list[Timing]:
    taken: dict[str, list[float]] = {"over HTTP": [], "bare query": [], "over HTTP, among others": []}
    http, bare, crowd = taken.values()
    with closing(sqlite3.connect(file)) as database:
        for _ in range(ROUNDS):
            http.append(_status(alone, "large", "vm=none"))
            bare.append(_counted(database))
            crowd.append(_status(among, "large", "vm=none"))
    return [Timing(name, tuple(figures[WARM:])) for name, figures in taken.items()]


def _counted(database: sqlite3.Connection) -> float:
    began = perf_counter()
    assert dict(database.execute(COUNT, (NS, "large")).fetchall()) == {"Running": LARGE}
    return perf_counter() - began


def _status(place: Place, mci: str, how: str) -> float:
    """Ask for a status; returns how many seconds the answer took."""
    call = f"GET /tumblebug/ns/{NS}/mci/{mci}?option=status&{how} HTTP/1.1\r\nHost: {place.host}\r\n"
    with socket.create_connection((place.host, place.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = perf_counter()
        connection.sendall(f"{call}Authorization: Bearer {place.token}\r\n\r\n".encode())
        read_answer(connection, b"200")
        return perf_counter() - began


def _add_others(file: str) -> None:
    """Copy the MCI with all its VMs, many times."""
    database = open_writer(SqliteSettings(file))
    columns = [row[1] for row in database.execute("PRAGMA table_info(objects)")]
    changed = {
        "id": "'other' || :n || substr(id, 6)",
        "queue": "'other' || :n || substr(queue, 6)",
        "parent": "'other' || :n",
    }
    values = ", ".join(f"CASE WHEN {name} IS NULL THEN NULL ELSE {changed[name]} END" if name in changed else name
                       for name in columns)  # fmt: skip
    database.execute("BEGIN")
    for number in range(OTHERS):
        database.execute(COPY.format(columns=", ".join(columns), values=values), {"n": number})
    database.execute("COMMIT")
    database.close()
