import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.engine import Accepted, AlreadyExists, NotFound, Permanent, Refused
from stateward.engine.accept.idempotency import was_created_by
from stateward.engine.errors import KeyReused, Occupied, VersionMismatch
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import FORCE
from stateward.store.changes import Changes
from stateward.store.records import Key, Status
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import PUMP
from tests.waiting import until


async def test_an_action_is_accepted_worked_and_ends_where_the_table_says(site: Site) -> None:
    await site.built("p1")
    accepted = await site.engine.act("ns", "p1", "pump")
    assert (accepted.object.state, accepted.op.action) == ("pumping", "pump")
    ended = await site.ended(accepted)
    assert (ended.status, ended.result) == (Status.SUCCEEDED, {"attempt": 1})
    assert await site.state("p1") == "idle"


async def test_the_second_action_is_refused_and_names_the_first(site: Site) -> None:
    await site.built("p1")
    site.plant.hold()
    first = await site.engine.act("ns", "p1", "pump", who="ann")
    with pytest.raises(Refused) as caught:
        await site.engine.act("ns", "p1", "tune")
    assert caught.value.blocker is not None
    assert (caught.value.blocker.op, caught.value.blocker.who) == (first.op.id, "ann")
    assert caught.value.refusal.state == "pumping"
    site.plant.release()


async def test_of_many_racing_requests_exactly_one_wins(site: Site) -> None:
    await site.built("p1")
    site.plant.hold()
    answers = await asyncio.gather(*(site.engine.act("ns", "p1", "pump") for _ in range(50)), return_exceptions=True)
    won = [answer for answer in answers if isinstance(answer, Accepted)]
    lost = [answer for answer in answers if isinstance(answer, Refused)]
    assert (len(won), len(lost)) == (1, 49)
    assert {one.blocker.op for one in lost if one.blocker} == {won[0].op.id}
    site.plant.release()
    await site.ended(won[0])
    assert site.plant.done["pump"] == 1


async def test_a_denied_request_changes_nothing(site: Site) -> None:
    await site.built("p1")
    before, lines = await site.engine.get("ns", "p1"), await site.engine.history("ns", "p1")
    for error, request in (
        (Refused, site.engine.act("ns", "p1", "mend")),
        (NotFound, site.engine.act("ns", "p9", "pump")),
        (AlreadyExists, site.engine.create("ns", "p1", PUMP.kind, "build")),
        (VersionMismatch, site.engine.act("ns", "p1", "pump", version=99)),
        (UnknownName, site.engine.act("ns", "p1", "dance")),
        (UnknownName, site.engine.create("ns", "p2", "test.pumpp", "build")),
    ):
        with pytest.raises(error):
            await request
    assert await site.engine.get("ns", "p1") == before
    assert await site.engine.history("ns", "p1") == lines


async def test_a_queue_is_that_of_an_object_that_exists(site: Site) -> None:
    await site.built("host")
    await site.ended(await site.engine.create("ns", "guest", PUMP.kind, "build", queue="host"))
    await site.ended(await site.engine.act("ns", "host", "scrap"))
    await site.engine.act("ns", "host", "forget")
    for missing in ("host", "nothing"):
        with pytest.raises(BadInput, match=f"queue: '{missing}' must be the id of an existing object"):
            await site.engine.create("ns", "late", PUMP.kind, "build", queue=missing)
    await site.ended(await site.engine.act("ns", "guest", "pump"))  # it waits in the queue of its former host


async def test_a_repeated_idempotency_key_gets_the_same_answer_and_works_once(site: Site) -> None:
    await site.built("p1")
    first = await site.engine.act("ns", "p1", "pump", key="k1")
    again = await site.engine.act("ns", "p1", "pump", key="k1")
    await site.ended(first)
    later = await site.engine.act("ns", "p1", "pump", key="k1")
    assert {first.op.id} == {again.op.id, later.op.id}
    assert again.again
    assert site.plant.done["pump"] == 1


@pytest.mark.parametrize(
    "other", [{"action": "tune"}, {"facts": (FORCE,)}, {"args": {"litres": 5}}, {"spec": {"size": 2}}, {"priority": 7}]
)
async def test_an_idempotency_key_for_another_request_is_refused(site: Site, other: dict[str, Any]) -> None:
    await site.built("p1")
    await site.engine.act("ns", "p1", "pump", key="k1")
    with pytest.raises(KeyReused):
        await site.engine.act("ns", "p1", **{"action": "pump", "key": "k1", **other})


async def test_a_request_submitted_again_after_a_lost_answer_is_not_accepted_twice(site: Site) -> None:
    await site.built("p1")
    request = site.engine.request("ns", "p1", "pump")
    first = await site.engine.submit(request)
    again = await site.engine.submit(request)
    assert (again.again, again.op.id) == (True, first.op.id)


async def test_a_plan_tells_what_would_happen_and_writes_nothing(site: Site) -> None:
    await site.built("p1")
    before = await site.engine.history("ns", "p1")
    would, would_not = await site.engine.plan(
        [site.engine.request("ns", "p1", "pump"), site.engine.request("ns", "p1", "mend")]
    )
    assert isinstance(would, Accepted)
    assert would.object.state == "pumping"
    assert isinstance(would_not, Refused)
    assert await site.state("p1") == "idle"
    assert await site.engine.history("ns", "p1") == before


async def test_a_hidden_operation_shows_nowhere_and_lets_one_request_wait_behind_it(site: Site) -> None:
    await site.built("p1")
    site.plant.hold()
    moving = await site.engine.act("ns", "p1", "move")
    assert await site.state("p1") == "idle"
    pumping = await site.engine.act("ns", "p1", "pump")
    assert await site.state("p1") == "pumping"
    with pytest.raises(Refused):
        await site.engine.act("ns", "p1", "tune")
    assert site.plant.begun["pump"] == 0
    site.plant.release()
    assert (await site.ended(moving)).status is Status.SUCCEEDED
    assert (await site.ended(pumping)).status is Status.SUCCEEDED
    assert site.plant.most["p1"] == 1


async def test_a_second_hidden_operation_is_refused_with_the_first_named(site: Site) -> None:
    await site.built("p1")
    site.plant.hold()
    moving = await site.engine.act("ns", "p1", "move")
    with pytest.raises(Occupied) as caught:
        await site.engine.act("ns", "p1", "move")
    assert (caught.value.blocker.op, caught.value.blocker.action) == (moving.op.id, "move")
    site.plant.release()
    await site.ended(moving)


async def test_force_pre_empts_and_never_lets_two_work_at_once(site: Site) -> None:
    await site.built("p1")
    site.plant.hold()
    pumping = await site.engine.act("ns", "p1", "pump")
    await until(lambda: site.plant.begun["pump"] == 1)
    scrapping = await site.engine.act("ns", "p1", "scrap", facts={"force"})
    voided = await site.ended(pumping)
    assert voided.status is Status.CANCELLED
    assert voided.error is not None
    assert scrapping.op.id in voided.error
    await until(lambda: site.plant.begun["scrap"] == 1)
    site.plant.release()
    assert (await site.ended(scrapping)).status is Status.SUCCEEDED
    assert await site.state("p1") == "scrapped"
    assert site.plant.most["p1"] == 1
    assert site.plant.done["pump"] == 0


async def test_a_removed_object_can_be_made_again_and_begins_its_next_life(site: Site) -> None:
    await site.built("p1")
    await site.ended(await site.engine.act("ns", "p1", "scrap"))
    await site.engine.act("ns", "p1", "forget")
    with pytest.raises(NotFound):
        await site.engine.get("ns", "p1")
    again = await site.engine.create("ns", "p1", PUMP.kind, "build")
    assert again.object.generation == 2


async def test_objects_in_two_namespaces_are_unrelated(site: Site) -> None:
    await site.built("p1")
    await site.ended(await site.engine.create("other", "p1", PUMP.kind, "build"))
    site.plant.hold()
    await site.engine.act("ns", "p1", "pump")
    await site.engine.act("other", "p1", "pump")
    site.plant.release()


async def test_a_failed_update_restores_the_spec(site: Site) -> None:
    await site.built("p1", spec={"flow": 1})
    site.plant.fail("tune", Permanent("no"))
    tuned = await site.engine.act("ns", "p1", "tune", spec={"flow": 2})
    assert tuned.object.spec == '{"flow":2}'
    assert (await site.ended(tuned)).status is Status.FAILED
    found = await site.engine.get("ns", "p1")
    assert (found.state, found.spec, found.error) == ("idle", {"flow": 1}, "no")


@pytest.mark.parametrize(("ns", "name"), [("ns", "p\0"), ("n\0s", "p1")])
async def test_a_name_that_a_database_cannot_hold_is_refused(site: Site, ns: str, name: str) -> None:
    with pytest.raises(BadInput, match="without NUL"):
        await site.engine.create(ns, name, PUMP.kind, "build")


@pytest.mark.parametrize("invisible", ["\u200b", "\u3164", "\u034f", "\u2800", "\ufe0f"])
async def test_a_name_with_a_character_that_cannot_be_seen_is_refused(site: Site, invisible: str) -> None:
    for ns, name in (("ns", f"p{invisible}"), (f"n{invisible}", "p1")):
        with pytest.raises(BadInput, match="invisible"):
            await site.engine.create(ns, name, PUMP.kind, "build")


@pytest.mark.parametrize("name", ["a/b", "", ".", "..", "p" * 251])
async def test_a_name_that_no_request_can_address_is_refused_for_new_objects_only(site: Site, name: str) -> None:
    for ns, new in (("ns", name), (name, "p1")):
        with pytest.raises(BadInput, match="must be a"):
            await site.engine.create(ns, new, PUMP.kind, "build")
    await site.built("p1")
    stored = replace(await site.engine.record("ns", "p1"), id=name, queue=name, version=1)
    await site.engine.store.transact(lambda tx: tx.apply(Changes(objects=[stored])))  # as earlier versions accepted it
    await site.ended(await site.engine.act("ns", name, "pump"))
    assert await site.state(name) == "idle"


@pytest.mark.parametrize("ns", ["*", " ", "my team", "_shop", "(", "(shop", "n" * 201])
async def test_a_new_object_needs_a_namespace_that_requests_can_name(site: Site, ns: str) -> None:
    with pytest.raises(BadInput, match=r"ns: .* must be a name of letters"):
        await site.engine.create(ns, "p1", PUMP.kind, "build")


async def test_whoever_made_an_object_is_known_though_others_have_worked_on_it_since(site: Site) -> None:
    await site.built("p1", who="ann")
    await site.ended(await site.engine.act("ns", "p1", "pump", who="bob"))
    reader, key = site.engine.store.reader, Key("ns", "p1")
    assert await was_created_by(reader, key, "ann")
    assert not await was_created_by(reader, key, "bob")
    assert not await was_created_by(reader, Key("ns", "p2"), "ann")
