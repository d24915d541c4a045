import asyncio

import pytest

from stateward.store.errors import StoreError, Unavailable
from stateward.store.postgres.failover import DatabaseHost, PreferredHost, hosts_of, required_session_attrs

READER = {"default_transaction_read_only": "on"}


class Line:
    """A connection that can tell whether it was given up."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.given_up = False

    def terminate(self) -> None:
        self.given_up = True


class Town:
    """Hosts that answer, refuse, or say nothing at all."""

    def __init__(self, **manners: str) -> None:
        self.manners = manners
        self.asked: list[str] = []
        self.lines: list[Line] = []

    async def dial(self, host: DatabaseHost) -> Line:
        self.asked.append(host.name)
        match self.manners[host.name]:
            case "silent":
                await asyncio.Event().wait()
            case "refuses":
                raise Unavailable("it refuses")
            case "hates us":
                raise StoreError("wrong password")
        self.lines.append(Line(host.name))
        return self.lines[-1]


def named(*names: str) -> list[DatabaseHost]:
    return [DatabaseHost(name, f"postgresql://{name}/db") for name in names]


def test_each_host_of_a_url_is_a_url_of_its_own() -> None:
    found = hosts_of("postgresql://me:pass%40word@db1:5432,db2,[::1]:5433/stateward?sslmode=require")
    assert [one.name for one in found] == ["db1:5432", "db2", "[::1]:5433"]
    assert found[2].dsn == "postgresql://me:pass%40word@[::1]:5433/stateward?sslmode=require"


@pytest.mark.parametrize("dsn", ["postgresql:///db", "postgresql://a@/db?host=/tmp,/run", "postgresql://db1/db"])
def test_a_url_with_one_host_or_with_hosts_elsewhere_is_left_as_it_is(dsn: str) -> None:
    assert [one.dsn for one in hosts_of(dsn)] == [dsn]


def test_who_only_reads_asks_for_the_primary_because_it_would_find_itself_read_only() -> None:
    assert required_session_attrs("postgresql://a,b/db?target_session_attrs=read-write", READER) == "primary"
    assert required_session_attrs("postgresql://a,b/db?target_session_attrs=read-write", {}) is None
    assert required_session_attrs("postgresql://a,b/db", READER) is None


async def test_a_host_that_says_nothing_keeps_nobody_from_the_next() -> None:
    town = Town(a="silent", b="refuses", c="answers")
    found = await PreferredHost().connect_first(named("a", "b", "c"), town.dial, next_after=0.0)
    assert (found.host, town.asked) == ("c", ["a", "b", "c"])


async def test_who_answered_last_is_asked_first() -> None:
    town, favourite = Town(a="refuses", b="answers", c="answers"), PreferredHost()
    await favourite.connect_first(named("a", "b", "c"), town.dial)
    await favourite.connect_first(named("a", "b", "c"), town.dial)
    assert town.asked == ["a", "b", "b"]


async def test_one_who_answers_too_late_is_given_up() -> None:
    town = Town(a="answers", b="answers")
    gate = asyncio.Event()

    async def dial(host: DatabaseHost) -> Line:
        if host.name == "a":
            await gate.wait()
        else:
            gate.set()
        return await town.dial(host)

    found = await PreferredHost().connect_first(named("a", "b"), dial, next_after=0.0)
    for _ in range(20):  # it is not waited for
        await asyncio.sleep(0)
    assert [line.given_up for line in town.lines if line is not found] in ([], [True])
    assert not found.given_up


async def test_one_who_answers_while_it_is_given_up_is_given_up_all_the_same() -> None:
    town, found = Town(a="answers", b="answers"), asyncio.Event()

    async def dial(host: DatabaseHost) -> Line:
        if host.name == "a":
            try:
                await found.wait()
            except asyncio.CancelledError:
                return await town.dial(host)
        return await town.dial(host)

    chosen = await PreferredHost().connect_first(named("a", "b"), dial, next_after=0.0)
    for _ in range(20):  # it is not waited for
        await asyncio.sleep(0)
    assert {line.host: line.given_up for line in town.lines} == {"a": True, "b": False}
    assert chosen.host == "b"


async def test_where_nobody_answers_it_is_told_of_each_why() -> None:
    town = Town(a="refuses", b="refuses")
    with pytest.raises(Unavailable, match="a: it refuses; b: it refuses"):
        await PreferredHost().connect_first(named("a", "b"), town.dial)


async def test_what_is_no_matter_of_hosts_is_told_at_once() -> None:
    town = Town(a="hates us", b="answers")
    with pytest.raises(StoreError, match="wrong password"):
        await PreferredHost().connect_first(named("a", "b"), town.dial)
    assert town.asked == ["a"]
