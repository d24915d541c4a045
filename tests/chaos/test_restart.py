"""Restarts after kill, suspension and shutdown: started work goes on, once, and nothing is left behind."""

from collections.abc import Callable

from tests.chaos.conftest import NewSite
from tests.chaos.crane_yard import (
    asking,
    count,
    open_yard,
    raise_cranes,
    statuses,
    stop_between_transactions,
    until,
    witnessed,
)
from tests.chaos.ledger import What, entries
from tests.chaos.processes import Running, Site
from tests.chaos.verdict import effects_of

EVEN = range(0, 16, 2)  # cranes whose work is not limited by a lane
ENDLESS = ("--punctual", "--pace", "3600")
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
    await until(lambda: _nothing_left(site))
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
        await stop_between_transactions(site, stale)
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


async def test_the_late_word_of_a_worker_that_was_taken_for_dead_does_not_count(site: Site) -> None:
    stale = await site.worker("stale", "--punctual", "--pace", "0.5")  # its work is done before it notices the time
    await _stop_in_the_middle(site, stale)
    heir = await site.worker("heir", *ENDLESS)
    await until(lambda: _all_are_with(site, "heir"))
    before = await count(site, "work")
    stale.wake()
    await until(lambda: len(witnessed(site, What.END, "stale")) == len(witnessed(site, What.BEGIN, "stale")))
    await until(lambda: _renewed(site, "stale"))
    assert await count(site, "work") == before
    await heir.kill()
    await until(lambda: _nothing_left(site))
    assert await stale.finish() == 0
    assert set(await statuses(site)) == {"succeeded"}


async def _stop_in_the_middle(site: Site, worker: Running) -> None:
    """Stop a worker that has begun and not ended, however slow this machine is."""
    async with asking(site.store) as engine:
        for first in range(0, 2000, 16):
            await raise_cranes(engine, range(first, first + 16, 2))
            await until(lambda first=first: len(witnessed(site, What.BEGIN)) >= first / 2 + 8)  # type: ignore[misc]
            await stop_between_transactions(site, worker)
            if await count(site, "work"):
                return
            worker.wake()


async def _all_are_with(site: Site, worker: str) -> bool:
    return await count(site, "work") == await count(site, f"work WHERE owner LIKE '{worker}%'")


async def _renewed(site: Site, worker: str) -> bool:
    return await count(site, f"workers WHERE id LIKE '{worker}%'") == 1


async def _nothing_left(site: Site) -> bool:
    return await count(site, "work") == 0
