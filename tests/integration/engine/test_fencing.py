"""Fencing: a report of a former owner changes nothing, and is journaled as rejected."""

import re
from collections.abc import AsyncIterator, Callable
from itertools import count
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.aio.backoff import GrowingIntervals
from stateward.engine import Ending, Engine, Handler, Job, Kind, Request
from stateward.engine.finish.claim_reports import ClaimReport, Phase, Requeue
from stateward.engine.finish.completion import record_claim_reports
from stateward.engine.recovery import expedite_overdue, reap_dead_workers, release_worker_claims
from stateward.engine.requests import Creation, LockRequest
from stateward.engine.transaction_batcher import TransactionBatcher
from stateward.engine.work_errors import Fenced
from stateward.engine.worker.claims import claim
from stateward.engine.worker.job_store import JobStore
from stateward.engine.worker.lease import reconcile_owned_work
from stateward.lifecycle import (
    BACK,
    CLOCK,
    CONTROLLER,
    DAY,
    MINUTE,
    NEW,
    NO_FACTS,
    STABLE,
    TRANSITIONAL,
    UNKNOWN,
    USER,
    State,
    declare,
    failure,
    request,
    step,
    success,
    timeout,
)
from stateward.store.changes import Changes
from stateward.store.port import Store
from stateward.store.records import Claim, Key, Status, WorkerRecord
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import PUMP, Plant
from tests.waiting import until

OWNER = "somebody/1"


class Former:
    """An engine without a worker, in which a test claims for itself and loses what it has claimed."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.store = engine, engine.store
        reports: TransactionBatcher[ClaimReport, bool] = TransactionBatcher(self._report, Random(1))
        self.notes = JobStore(self.store, engine.kinds, OWNER, reports, GrowingIntervals(lambda: 0.0))

    async def claim(self) -> Claim:
        """Claim the one operation that there is."""
        (claim,) = await self.store.transact(lambda tx: tx.claim({"": 10}, OWNER))
        return claim

    async def lose(self, claim: Claim, how: str) -> None:
        """Let a claim go: to the same worker once more, or by a fence."""
        work = replace(claim.work, owner=None) if how == "claimed again" else replace(claim.work, fenced=True)
        await self.store.transact(lambda tx: tx.apply(Changes(work=[work])))
        if how == "claimed again":
            again = await self.claim()
            assert (again.work.owner, again.work.epoch) == (OWNER, claim.work.epoch + 1)

    async def _report(self, reports: Any) -> list[bool]:
        return await self.store.transact(lambda tx: record_claim_reports(tx, self.engine.kinds, reports))

    async def says(self, claim: Claim, what: Ending | Phase | Requeue) -> bool:
        """Report on a claim."""
        (counted,) = await self._report([ClaimReport(claim.operation, OWNER, claim.work.epoch, what)])
        return counted

    async def rejected(self, name: str = "p1") -> list[str]:
        """Return what the journal has of words that did not count."""
        lines = await self.engine.history("ns", name)
        return [line.event for line in lines if line.event.startswith("rejected")]


@pytest.fixture
async def former(new_store: Callable[[], Store]) -> AsyncIterator[Former]:
    async with Engine(new_store(), [Plant().pump()], works=False) as engine:
        await engine.create("ns", "p1", PUMP.kind, "build")
        yield Former(engine)


LOST = ("claimed again", "fenced")


@pytest.mark.parametrize("how", LOST)
async def test_notes_on_a_lost_claim_are_refused_though_the_owner_is_the_same(former: Former, how: str) -> None:
    claim = await former.claim()
    job = Job(claim, former.notes)
    await former.notes.progress(job, "begun", 1, 2)
    await former.lose(claim, how)
    with pytest.raises(Fenced):
        await former.notes.progress(job, "half", 1, 2)
    with pytest.raises(Fenced):
        await former.notes.checkpoint(job, {"half": True})
    with pytest.raises(Fenced):
        await former.notes.phase(job, Phase("succeeded", CONTROLLER, NO_FACTS, "{}"))
    key = claim.operation.key
    assert [one.text for one in await former.store.reader.progress_of(key, 0)] == ["begun"]
    operation = await former.store.reader.operation(key)
    assert operation is not None
    assert operation.steps == "{}"


@pytest.mark.parametrize("how", LOST)
async def test_the_former_holder_of_a_claim_begins_no_children(former: Former, how: str) -> None:
    claim = await former.claim()
    child = Request("ns", "child", "build", "", creates=Creation(PUMP.kind))
    await former.lose(claim, how)
    with pytest.raises(Fenced):
        await former.notes.spawn(Job(claim, former.notes), "children", [child])
    assert await former.store.reader.object(Key("ns", "child")) is None
    assert await former.store.reader.children_of(claim.operation.key) == []


async def test_a_cancelled_operation_begins_no_children(former: Former) -> None:
    claim = await former.claim()
    await former.engine.cancel("ns", claim.operation.id)
    child = Request("ns", "child", "build", "", creates=Creation(PUMP.kind))
    with pytest.raises(Fenced):
        await former.notes.spawn(Job(claim, former.notes), "children", [child])
    assert await former.store.reader.object(Key("ns", "child")) is None


async def test_a_worker_that_counts_as_dead_is_alive_with_its_next_claim(former: Former) -> None:
    worker = WorkerRecord(OWNER, 15.0, 0.0, "here", 1)
    result = await former.store.transact(lambda tx: claim(tx, former.engine.kinds, worker, 10))
    assert [one.object.id for one in result.claims] == ["p1"]
    (seen,) = await former.store.reader.workers()
    assert seen.id == OWNER
    assert seen.is_alive(result.claimed_at)
    assert await former.store.transact(lambda tx: reap_dead_workers(tx, "other/1")) == 0


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("what", [Ending(result="1"), Ending("failed", error="late"), Requeue(0.0, "late")])
async def test_a_late_report_changes_nothing_and_is_journaled(former: Former, how: str, what: Ending | Requeue) -> None:
    claim = await former.claim()
    await former.lose(claim, how)
    before = await former.engine.get("ns", "p1")
    assert not await former.says(claim, what)
    assert await former.engine.get("ns", "p1") == before
    assert await former.rejected() == [f"rejected: {what.event if isinstance(what, Ending) else 'retry'}"]


async def test_a_report_after_the_end_is_journaled_too(former: Former) -> None:
    claim = await former.claim()
    assert await former.says(claim, Ending())
    assert not await former.says(claim, Ending())
    assert await former.rejected() == ["rejected: succeeded"]
    assert await former.engine.state_at("ns", "p1", await former.store.reader.time()) == "idle"


@pytest.mark.parametrize("running", [False, True], ids=["waiting", "running"])
async def test_a_cancelled_update_leaves_the_spec_that_was_there_before(site: Site, running: bool) -> None:
    await site.built("p1", spec={"size": 1})
    site.plant.hold()
    asked = await site.engine.act("ns", "p1", "tune", spec={"size": 2}, not_before=0.0 if running else 1e12)
    if running:
        await until(lambda: site.plant.inside["p1"] == 1)
    assert (await site.engine.get("ns", "p1")).spec == {"size": 2}
    await site.engine.cancel("ns", asked.op.id, "ann")
    assert (await site.ended(asked)).status is Status.CANCELLED
    found = await site.engine.get("ns", "p1")
    assert (found.state, found.spec) == ("idle", {"size": 1})


async def test_locks_are_granted_in_the_order_of_asking_whatever_the_operations_are_called(
    new_store: Callable[[], Store],
) -> None:
    """Ids of operations grow with time, so that order by id would pass for order of asking."""
    plant, backwards, order = Plant(), count(10**9, -1), list[str]()

    async def noted(job: Job) -> None:
        if job.action == "pump":
            order.append(job.object)
        await plant.run(job)

    kind = Kind(PUMP, dict.fromkeys(PUMP.actions, Handler(noted, plant.observe)))
    async with Engine(new_store(), [kind], new_id=lambda: f"{next(backwards):032}") as engine:
        site, names = Site(engine, plant), ["p9", "p5", "p7", "p1", "p3"]
        for name in names:
            await site.built(name)
        plant.hold()
        wish = [LockRequest("/a", "X")]
        asked = [await engine.act("ns", name, "pump", tree="t", locks=wish, wait=True) for name in names]
        await until(lambda: order == names[:1])
        plant.release()
        for one in asked:
            assert (await site.ended(one)).status is Status.SUCCEEDED
    assert order == names
    assert sorted(names) != names


# --- reports that count, and moves of others meanwhile ---------------------------------------------------------------


class Valve(State):
    SHUT = "shut", STABLE
    OPENING = "opening", TRANSITIONAL
    TURNING = "turning", TRANSITIONAL
    OPEN = "open", STABLE
    STUCK = "stuck", STABLE


V = Valve

VALVE = declare(
    "test.valve",
    Valve,
    (
        step(   NEW,                   "make",   USER,       V.SHUT),
        request(V.SHUT | V.STUCK,      "open",   USER,       V.OPENING, V.OPEN, V.STUCK, 1 * MINUTE),
        step(   V.OPENING,             "turn",   CONTROLLER, V.TURNING, within=1 * DAY),
        step(   V.OPENING | V.TURNING, "block",  USER,       V.STUCK),
        success(V.OPENING | V.TURNING, "opened", CONTROLLER, V.OPEN),
        failure(V.OPENING | V.TURNING, "failed", CONTROLLER, V.STUCK),
        timeout(V.OPENING | V.TURNING, BACK),
    ),
    USER | CONTROLLER | CLOCK,
)  # fmt: skip


@pytest.fixture
async def opening(new_store: Callable[[], Store]) -> AsyncIterator[Former]:
    """A worker that is about to open the valve v1."""
    kind = Kind(VALVE, {"open": Handler(Plant().run)})
    async with Engine(new_store(), [kind], works=False) as engine:
        await engine.create("ns", "v1", VALVE.kind, "make")
        await engine.act("ns", "v1", "open")
        yield Former(engine)


async def test_a_phase_that_is_reported_twice_is_entered_once(opening: Former) -> None:
    claim = await opening.claim()
    phase = Phase("turn", CONTROLLER, NO_FACTS, '{"turn": null}')
    assert [await opening.says(claim, phase) for _ in range(2)] == [True, True]
    found, lines = await opening.engine.get("ns", "v1"), await opening.engine.history("ns", "v1")
    assert (found.state, [line.event for line in lines]) == ("turning", ["make", "open", "turn"])


async def test_a_move_of_another_party_renews_the_deadline_of_work_that_is_owned(opening: Former) -> None:
    claim = await opening.claim()
    await opening.engine.act("ns", "v1", "turn", actor=CONTROLLER)
    (work,) = await opening.store.reader.queue_of(Key("ns", "v1"))
    assert (work.owner, work.epoch) == (OWNER, claim.work.epoch)
    assert work.deadline is not None
    assert claim.work.deadline is not None
    assert work.deadline > claim.work.deadline + DAY / 2


async def test_a_step_to_rest_ends_the_operation_that_held_the_object(opening: Former) -> None:
    claim = await opening.claim()
    await opening.engine.act("ns", "v1", "block")
    operation = await opening.store.reader.operation(claim.operation.key)
    assert operation is not None
    assert (operation.status, str(operation.error).partition(" (after ")[0]) == (Status.CANCELLED, "block by user")
    assert not await opening.says(claim, Ending("opened", CONTROLLER))
    assert (await opening.engine.get("ns", "v1")).state == "stuck"
    assert await opening.rejected("v1") == ["rejected: opened"]
    assert await opening.store.reader.queue_of(Key("ns", "v1")) == []


async def test_an_operation_that_fails_without_a_word_says_by_which_event_and_after_how_long(opening: Former) -> None:
    claim = await opening.claim()
    assert await opening.says(claim, Ending("failed", CONTROLLER))
    operation, found = await opening.store.reader.operation(claim.operation.key), await opening.engine.get("ns", "v1")
    assert operation is not None
    assert re.fullmatch(r"failed by controller \(after \d+\.\d s\)", operation.error or "")
    assert found.error == operation.error


async def test_an_end_that_the_table_does_not_name_leads_back_to_where_the_operation_began(opening: Former) -> None:
    assert await opening.says(await opening.claim(), Ending(UNKNOWN, error="nobody can say"))
    assert (await opening.engine.get("ns", "v1")).state == "shut"


async def test_work_that_is_to_be_looked_at_first_stays_so_when_it_is_put_back(opening: Former) -> None:
    claim = await opening.claim()
    lost = replace(claim.work, observe=True)
    await opening.store.transact(lambda tx: tx.apply(Changes(work=[lost])))
    assert await opening.says(claim, Requeue(0.0, "the provider does not answer"))
    (work,) = await opening.store.reader.queue_of(Key("ns", "v1"))
    assert (work.owner, work.observe) == (None, True)


@pytest.mark.parametrize("after", [3600.0, None])
async def test_cancelled_work_that_is_put_back_can_be_claimed_at_once(former: Former, after: float | None) -> None:
    claim = await former.claim()
    await former.engine.cancel("ns", claim.operation.id)
    assert await former.says(claim, Requeue(after, "busy"))
    again = await former.claim()
    assert (again.operation.id, again.work.cancelled) == (claim.operation.id, True)


async def test_cancelled_work_whose_worker_has_vanished_is_looked_at_before_it_ends(former: Former) -> None:
    claim = await former.claim()
    await former.store.transact(lambda tx: release_worker_claims(tx, [OWNER]))
    await former.engine.cancel("ns", claim.operation.id)
    again = await former.claim()
    assert (again.work.cancelled, again.work.observe) == (True, True)


# --- the healer ------------------------------------------------------------------------------------------------------

EXPIRED = WorkerRecord(OWNER, -1.0, 0.0, "here", 1)
"""The owner, with a lease that the store takes for expired."""


async def test_a_worker_that_the_store_takes_for_dead_does_not_take_its_own_work_from_itself(opening: Former) -> None:
    claim = await opening.claim()
    await opening.store.transact(lambda tx: tx.heartbeat(EXPIRED))
    assert await opening.store.transact(lambda tx: reap_dead_workers(tx, OWNER)) == 0
    assert await opening.store.reader.queue_of(Key("ns", "v1")) == [claim.work]
    assert await opening.store.transact(lambda tx: reap_dead_workers(tx, "other/1")) == 1
    (work,) = await opening.store.reader.queue_of(Key("ns", "v1"))
    assert (work.owner, work.observe) == (None, True)


async def test_overdue_work_is_left_to_its_owner_and_taken_by_others_at_once(opening: Former) -> None:
    claim, kinds = await opening.claim(), opening.engine.kinds
    late = replace(claim.work, deadline=1.0, not_before=1e12)
    await opening.store.transact(lambda tx: tx.apply(Changes(work=[late])))
    await opening.store.transact(lambda tx: tx.heartbeat(EXPIRED))
    assert await opening.store.transact(lambda tx: expedite_overdue(tx, kinds, OWNER, 10)) == 0
    assert await opening.store.reader.queue_of(Key("ns", "v1")) == [late]
    assert await opening.store.transact(lambda tx: expedite_overdue(tx, kinds, "other/1", 10)) == 1
    again = await opening.claim()
    assert (again.work.epoch, again.work.observe) == (claim.work.epoch + 1, True)


@pytest.mark.parametrize("how", ["dead", "overdue", "stray"])
async def test_fenced_work_leaves_its_queue_when_its_worker_is_gone(opening: Former, how: str) -> None:
    claim, kinds = await opening.claim(), opening.engine.kinds
    await opening.store.transact(lambda tx: tx.apply(Changes(work=[replace(claim.work, deadline=1.0)])))
    await opening.engine.act("ns", "v1", "block")
    (ghost,) = await opening.store.reader.queue_of(Key("ns", "v1"))
    assert (ghost.owner, ghost.fenced) == (OWNER, True)
    waiting = await opening.engine.act("ns", "v1", "open")
    if how == "dead":
        await opening.store.transact(lambda tx: release_worker_claims(tx, [OWNER]))
    elif how == "overdue":
        await opening.store.transact(lambda tx: expedite_overdue(tx, kinds, "other/1", 10))
    else:
        await opening.store.transact(lambda tx: reconcile_owned_work(tx, OWNER, lambda _: False, lambda _: None))
    (work,) = await opening.store.reader.queue_of(Key("ns", "v1"))
    assert (work.op, work.ready) == (waiting.op.id, True)
    assert "put back" not in [line.event for line in await opening.engine.history("ns", "v1")]
