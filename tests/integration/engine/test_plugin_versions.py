"""Two versions of a plugin on one database: what only the new one knows is left to it, and a rolling upgrade works."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.engine import Engine, ExternalReport, Job
from stateward.engine.errors import UnknownVersion
from stateward.engine.kind_types import UnfitValue
from stateward.engine.recovery import resolve_overdue
from stateward.lifecycle import AGENT
from stateward.store.changes import Changes
from stateward.store.port import Store
from stateward.store.records import Key, Operation, Status, Timer
from tests.integration.engine.version_kinds import (
    LATER,
    MARKER,
    OLD,
    LaterSpec,
    OldSpec,
    later_kind,
    marker_kind,
    old_kind,
)
from tests.waiting import until

NewStore = Callable[[], Store]


class Deployment:
    """One database, and engines with an old and a later version of a plugin, which note the specs that they read."""

    def __init__(self, new_store: NewStore) -> None:
        self.new_store = new_store
        self.done: list[tuple[str, str, Any]] = []

    def old(self, **how: Any) -> Engine:
        return Engine(self.new_store(), [old_kind(self._note("old")), marker_kind()], **how)

    def later(self, **how: Any) -> Engine:
        return Engine(self.new_store(), [later_kind(self._note("later")), marker_kind()], **how)

    def _note(self, version: str) -> Callable[[Job], Awaitable[None]]:
        async def run(job: Job) -> None:
            self.done.append((version, job.action, job.spec))

        return run


@pytest.fixture
def deployment(new_store: NewStore) -> Deployment:
    return Deployment(new_store)


async def work_all_known(engine: Engine, name: str) -> None:
    """Let a worker do all that it knows: an operation that is accepted after all others is done after them."""
    waiting = await engine.create("ns", name, MARKER.kind, not_before=await engine.store.reader.time() + 0.001)
    await engine.wait("ns", waiting.op.id, 30)


async def record(api: Engine, name: str) -> Operation:
    return (await api.create("ns", name, LATER.kind, spec={"address": "192.0.2.1"})).op


async def statuses(api: Engine, ops: list[Operation]) -> set[tuple[Status, int]]:
    found = [await api.store.reader.operation(op.key) for op in ops]
    return {(one.status, one.attempts) for one in found if one is not None}


async def test_work_on_specs_of_a_later_version_is_left_to_workers_that_know_it(deployment: Deployment) -> None:
    async with deployment.later(works=False) as api:
        async with deployment.old() as old:
            ops = [await record(api, f"r{number}") for number in range(20)]
            await work_all_known(old, "marker")
            assert await statuses(api, ops) == {(Status.WAITING, 0)}
        assert deployment.done == []
        async with deployment.later():
            for op in ops:
                assert (await api.wait("ns", op.id, 30)).status is Status.SUCCEEDED
    assert deployment.done == [("later", "create", LaterSpec("192.0.2.1"))] * 20


async def test_work_in_states_and_with_actions_of_a_later_version_is_left_to_workers_that_know_them(
    deployment: Deployment,
) -> None:
    async with deployment.old() as old, deployment.later(works=False) as api:
        for name in ("moved", "signed"):
            await old.wait("ns", (await old.create("ns", name, OLD.kind, spec={"ip": "192.0.2.1"})).op.id, 30)
        await api.act("ns", "signed", "sign")
        ops = [(await api.act("ns", "moved", "move")).op, (await api.act("ns", "signed", "touch")).op]
        await work_all_known(old, "marker")
        assert await statuses(api, ops) == {(Status.WAITING, 0)}
        async with deployment.later():
            for op in ops:
                assert (await api.wait("ns", op.id, 30)).status is Status.SUCCEEDED
        assert {(await api.get("ns", name)).state for name in ("moved", "signed")} == {"served", "signed"}
    assert [done for done in deployment.done if done[1] != "create" and done[0] == "old"] == []


async def test_records_of_the_former_version_are_worked_on_by_both_and_nothing_fails_in_a_rolling_upgrade(
    deployment: Deployment,
) -> None:
    async with deployment.old(works=False) as old_api, deployment.later(works=False) as api:
        async with deployment.old():
            for number in range(5):
                made = await old_api.create("ns", f"o{number}", OLD.kind, spec={"ip": "192.0.2.1"})
                await old_api.wait("ns", made.op.id, 30)
            async with deployment.later():  # both versions work, and both accept
                ops = [(await old_api.act("ns", f"o{number}", "touch")).op for number in range(3)]
                changed = {"address": "192.0.2.9"}
                ops += [(await api.act("ns", f"o{number}", "touch", spec=changed)).op for number in range(3, 5)]
                ops += [await record(api, f"n{number}") for number in range(5)]
                for op in ops:
                    assert (await api.wait("ns", op.id, 30)).status is Status.SUCCEEDED
        async with deployment.later():  # the old ones are gone
            names = [*(f"o{number}" for number in range(5)), *(f"n{number}" for number in range(5))]
            for name in names:
                assert (await api.run("ns", name, "delete", seconds=30)).operation is not None
    assert {type(spec) for version, _, spec in deployment.done if version == "old"} == {OldSpec}
    assert {type(spec) for version, _, spec in deployment.done if version == "later"} == {LaterSpec}


async def test_timers_and_deadlines_of_a_later_version_are_left_to_it(deployment: Deployment) -> None:
    async with deployment.old() as old:
        made = await old.create("ns", "plain", OLD.kind, spec={"ip": "192.0.2.1"})
        await old.wait("ns", made.op.id, 30)
        async with deployment.later() as api:
            for name in ("r", "signed"):
                await api.wait("ns", (await record(api, name)).id, 30)
            await api.act("ns", "signed", "sign")
            await api.act("ns", "signed", "check")
        works = await old.store.reader.queue_of(Key("ns", "signed"))
        late = [replace(work, deadline=5.0) for work in works]
        await old.store.transact(lambda tx: tx.apply(Changes(work=late)))
        for name, event in (("r", "touch"), ("plain", "sign")):
            await old.set_timer(Timer("ns", f"t-{name}", 1.0, 0, name, event, "[]", "{}"))
        async with asyncio.timeout(30):  # each is passed over as soon as the old process has seen it
            while await old.store.reader.next_due_time(old.kinds.filter) == 1.0:
                await asyncio.sleep(0.02)
        left = await old.store.reader.timers("ns", 9)
        assert {timer.id: timer.due for timer in left} == {"t-r": 1.0, "t-plain": 1.0}, "others can fire them now"
        assert await resolve_overdue(old.store.transact, old.kinds, "me/1", 10) == 0
        assert (await old.record("ns", "signed")).state == "checking"
        assert await old.store.reader.next_due_time(old.kinds.filter) != 5.0
    async with deployment.later() as api, asyncio.timeout(30):
        await until(
            lambda: api.get("ns", "signed"),
            lambda obj: obj.state == "failed" and ("later", "touch") in (done[:2] for done in deployment.done),
        )
        await until(lambda: api.get("ns", "plain"), lambda obj: obj.state == "signed")


async def test_an_old_process_denies_requests_on_what_it_does_not_know_and_does_not_remember_the_denial(
    deployment: Deployment,
) -> None:
    async with deployment.later() as api, deployment.old(works=False) as old:
        await api.wait("ns", (await record(api, "r")).id, 30)
        for name in ("signed", "held"):
            made = await old.create("ns", name, OLD.kind, spec={"ip": "192.0.2.1"})
            await api.wait("ns", made.op.id, 30)
        await api.act("ns", "signed", "sign")
        with pytest.raises(UnknownVersion, match=r"does not know version 2 of the specs of dns\.record"):
            await old.act("ns", "r", "touch", key="k1")
        with pytest.raises(UnknownVersion, match=r"does not know the state signed of dns\.record"):
            await old.act("ns", "signed", "touch", key="k2")
        checking = (await api.act("ns", "signed", "check")).op
        with pytest.raises(UnknownVersion):
            await old.cancel("ns", checking.id)
        lost = ExternalReport("ns", "signed", checking.id, checking.generation, "checked", AGENT)
        assert not await old.report(lost)
        assert "rejected: checked" not in [one.event for one in await api.history("ns", "signed")]
        assert await api.report(lost)
        for name, key in (("r", "k1"), ("signed", "k2")):
            accepted = await api.act("ns", name, "touch", key=key)
            assert not accepted.again
            await api.wait("ns", accepted.op.id, 30)


async def test_a_worker_says_what_it_does_not_know(deployment: Deployment) -> None:
    async with deployment.later(works=False) as api, deployment.old() as old:
        await record(api, "r")
        await work_all_known(old, "marker")
        async with asyncio.timeout(30):
            while (worker := (await api.store.reader.workers())[0]).knows("dns.record", ["dns.record version 2"]):
                await asyncio.sleep(0.02)
        assert worker.knows("dns.record", ["dns.record version 1"])


async def test_a_request_cannot_give_the_version_of_its_spec(deployment: Deployment) -> None:
    async with deployment.later(works=False) as api:
        for kind in (MARKER.kind, LATER.kind):
            with pytest.raises(UnfitValue, match="the engine adds the version"):
                await api.create("ns", "x", kind, spec={"$version": 9, "address": "192.0.2.1"})
