"""An upgrade with running operations: nothing is lost, and nothing is done twice."""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.engine import Engine, Handler, Job, Kind, Permanent
from stateward.store import migrations, open_store
from stateward.store.migrations import newest
from tests.chaos import aftermath, crane_kind, verdict
from tests.chaos.aftermath import query, stored
from tests.chaos.crane_yard import asking, count, open_yard, raise_cranes, until, witnessed
from tests.chaos.ledger import What, entries
from tests.chaos.next_version import LIFECYCLE, MAPPED, NEXT_CRANE, with_one_more
from tests.chaos.processes import Running
from tests.chaos.report import judged
from tests.chaos.runs import runs_of
from tests.chaos.upgrade import Upgrade, UpgradedSite, migrated
from tests.long_forms import in_long_form
from tests.servers import PostgresServer

EVEN = range(0, 16, 2)
LEASE = 2.0
STORES = ("sqlite", "postgres")
NewSite = Callable[[], UpgradedSite]


@pytest.fixture
async def new_site(tmp_path: Path, request: pytest.FixtureRequest, store: str) -> NewSite:
    """Return how to make a site on a sort of store."""

    def made() -> UpgradedSite:
        if store == "sqlite":
            return UpgradedSite(str(tmp_path / "chaos.db"), tmp_path, LEASE)
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return UpgradedSite(server.new_database(), tmp_path, LEASE)

    return made


@pytest.mark.parametrize("store", in_long_form(STORES, short=["postgres"]))
async def test_a_database_is_migrated_under_workers_of_the_version_before_who_leave_one_by_one(
    new_site: NewSite, monkeypatch: pytest.MonkeyPatch, say: Callable[[object], None]
) -> None:
    upgrade = Upgrade(new_site(), lambda: monkeypatch.setattr(migrations, "migrations", with_one_more))
    before = newest("postgres" if "://" in upgrade.site.store else "sqlite")
    await upgrade.blow(0)
    report = await judged(upgrade)
    say(f"upgrade with {upgrade.under_way} under way: {report}")
    assert report.faults == []
    assert upgrade.under_way > 0
    assert f"it is version {before + 1}, and this program knows versions up to {before}" in upgrade.refusal


# --- a lifecycle that has changed ------------------------------------------------------------------------------------


def recast(site: UpgradedSite, *mapped: str) -> dict[str, object]:
    """Run `stateward migrate` of a version in which cranes have changed; returns what it says."""
    options = [word for one in mapped for word in ("--map", one)]
    done = migrated(site.store, *options, environ={**os.environ, LIFECYCLE: "yes"})
    found: dict[str, object] = {**json.loads(done.stdout), "code": done.returncode}
    return found


async def leave_broken(site: UpgradedSite) -> None:
    """Let a crane break, as the version before does it."""

    async def fall(_: Job) -> None:
        raise Permanent("it fell over")

    kinds = [Kind(crane_kind.CRANE, dict.fromkeys(crane_kind.WORKED, Handler(fall))), Kind(crane_kind.YARD)]
    async with Engine(open_store(site.store), kinds, lease_s=LEASE) as engine:
        (op,) = await raise_cranes(engine, [100])
        await engine.wait_record(crane_kind.NS, op, 60)


async def lifts_under_way(site: UpgradedSite) -> Running:
    """Have cranes, each with a lift that does not end; returns the worker that is at it."""
    await open_yard(site.store)
    first = await site.worker("first", "--punctual", "--pace", "0")
    async with asking(site.store) as engine:
        await raise_cranes(engine, EVEN)
        await until(lambda: _nothing_left(site))
        assert await first.finish() == 0
        await leave_broken(site)
        former = await site.worker("former", "--punctual", "--pace", "3600")
        for number in EVEN:
            await engine.act(crane_kind.NS, f"crane-{number}", "lift")
    await until(lambda: len(witnessed(site, What.BEGIN, "former")) == len(EVEN))
    return former


async def states(site: UpgradedSite) -> set[str]:
    found = await query(site.store, f"SELECT DISTINCT state FROM objects WHERE kind = '{crane_kind.CRANE.kind}'")
    return {row[0] for row in found}


async def _nothing_left(site: UpgradedSite) -> bool:
    return await count(site, "work") == 0


@pytest.mark.parametrize("store", in_long_form(STORES, short=["sqlite"]))
async def test_a_changed_lifecycle_is_refused_until_it_is_mapped_and_then_what_was_under_way_goes_on(
    new_site: NewSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = new_site()
    former = await lifts_under_way(site)
    try:
        assert_refused(site, "8 in chaos.crane:lifting")
        assert_refused(site, "still at work: former", *MAPPED)
        await former.kill()
        await until(lambda: _is_dead(site))
        assert_refused(site, "chaos.crane:broken", MAPPED[0])
        assert_refused(
            site, "must be a transitional state, for an operation is under way", "chaos.crane:lifting=idle", MAPPED[1]
        )
        assert await states(site) == {"lifting", "broken"}
        assert recast(site, *MAPPED)["moved"] == [
            {"kind": "chaos.crane", "state": "broken", "objects": 1},
            {"kind": "chaos.crane", "state": "lifting", "objects": 8},
        ]
        assert await states(site) == {"hoisting", "lost"}
        await assert_gone_on(site, monkeypatch)
    finally:
        await site.clear()


def assert_refused(site: UpgradedSite, why: str, *mapped: str) -> None:
    said = recast(site, *mapped)
    assert said["code"] != 0
    assert why in str(said["message"])


async def _is_dead(site: UpgradedSite) -> bool:
    store = open_store(site.store)
    former = migrations.migrations
    migrations.migrations = with_one_more
    try:
        await store.open()
        now = await store.reader.time()
        return all(one.seen + one.lease <= now for one in await store.reader.workers())
    finally:
        await store.close()
        migrations.migrations = former


async def assert_gone_on(site: UpgradedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """See that the next version ends what the one before had begun, each once."""
    monkeypatch.setenv(LIFECYCLE, "yes")
    monkeypatch.setattr(migrations, "migrations", with_one_more)
    monkeypatch.setattr(aftermath, "WORDS", {**aftermath.WORDS, **{one.word: one for one in NEXT_CRANE.states}})
    site.upgraded = True
    heir = await site.worker("heir", "--pace", "0.02")
    await until(lambda: _nothing_left(site))
    assert await heir.finish() == 0
    store = open_store(site.store)
    await store.open()
    found = await stored(site.store, store.reader)
    await store.close()
    seen = entries(site.ledger_path)
    applied = verdict.effects_of(seen).applied
    done = {op: row for op, row in found.operations.items() if row[0] == "succeeded"}
    assert len(done) == 2 * len(EVEN)
    assert applied == done.keys()
    assert [*verdict.doubled(runs_of(seen, LEASE)), *aftermath.misreplayed(found), *aftermath.restless(found)] == []
    assert [*aftermath.ended_twice(found)] == []
