"""One process after the other: killed, stopped, asked to leave. What was begun goes on, once, and nothing is left."""

from collections.abc import Callable

from tests.chaos.conftest import NewSite
from tests.chaos.ledger import What, entries
from tests.chaos.processes import Site
from tests.chaos.verdict import effects_of
from tests.chaos.yard import asking, count, open_yard, raise_cranes, statuses, until, witnessed

EVEN = range(0, 16, 2)  # cranes whose work is not limited by a lane
ENDLESS = ("--pace", "3600")
QUICK = ("--pace", "0.02")


async def test_an_embedded_process_continues_at_once_after_kill_9(
    new_site: NewSite, say: Callable[[object], None]
) -> None:
    site = new_site("sqlite", 60.0)  # whoever waited for this lease would be seen
    await open_yard(site.store)
    first = await site.worker("first", "--cranes", "8", *ENDLESS)
    await until(lambda: len(witnessed(site, What.BEGIN)) == 8)
    killed = await first.kill()
    second = await site.worker("second", *QUICK)
    await until(lambda: len(witnessed(site, What.END, "second")) == 8)
    went_on = witnessed(site, What.LOOK, "second")[0].at
    say(f"embedded: {went_on - killed:.2f} s after kill -9, {went_on - await second.ready():.3f} s after the restart")
    assert went_on - killed < 30
    assert await second.finish() == 0
    assert (await statuses(site), await count(site, "work")) == (["succeeded"] * 8, 0)


async def test_whoever_is_asked_to_leave_ends_what_it_has_and_leaves_nothing_owned(site: Site) -> None:
    worker = await site.worker("leaving", "--pace", "0.4", "--slots", "4")
    async with asking(site.store) as engine:
        await raise_cranes(engine, EVEN)
    await until(lambda: len(witnessed(site, What.BEGIN)) >= 3)
    assert await worker.finish() == 0
    assert await count(site, "work WHERE owner IS NOT NULL") == await count(site, "workers") == 0
    assert len(witnessed(site, What.BEGIN)) == len(witnessed(site, What.END))
    heir = await site.worker("heir", *QUICK)
    await until(lambda: _nothing_left(site))
    assert await heir.finish() == 0
    assert await statuses(site) == ["succeeded"] * len(EVEN)


async def test_a_worker_that_stood_still_for_longer_than_its_lease_changes_nothing_and_works_on(site: Site) -> None:
    stale = await site.worker("stale", "--pace", "0.3")
    async with asking(site.store) as engine:
        await raise_cranes(engine, EVEN)
        await until(lambda: len(witnessed(site, What.BEGIN)) >= 4)
        stale.stop()
        heir = await site.worker("heir", *QUICK)
        await until(lambda: _nothing_left(site))
        before = await count(site, "journal WHERE target IS NOT NULL")
        stale.wake()
        await until(lambda: len(witnessed(site, What.END, "stale")) == len(witnessed(site, What.BEGIN, "stale")))
        assert await heir.finish() == 0
        assert await count(site, "journal WHERE target IS NOT NULL") == before
        await raise_cranes(engine, [100])
        await until(lambda: _nothing_left(site))
    assert await stale.finish() == 0
    assert await statuses(site) == ["succeeded"] * (len(EVEN) + 1)
    assert len(effects_of(entries(site.ledger_path)).applied) == len(EVEN) + 1
    assert await count(site, "workers") == 0


async def _nothing_left(site: Site) -> bool:
    return await count(site, "work") == 0
