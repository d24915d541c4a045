import asyncio

import pytest

from stateward.engine import Permanent, Temporary, privacy
from stateward.store.records import Key, Object
from tests.integration.server.server_harness import NS, ServerHarness, open_server
from tests.waiting import until

PUMP = f"/ns/{NS}/objects/p1/actions/pump"


async def test_an_action_is_accepted_with_its_operation(harness: ServerHarness) -> None:
    await harness.built()
    answer = await harness.post(PUMP, {"args": {"litres": 3}}, who="operator")
    assert answer.status_code == 202
    accepted = answer.json()
    assert (accepted["object"]["state"], accepted["object"]["state_class"]) == ("pumping", "transitional")
    assert accepted["object"]["op"] == accepted["operation"]["id"]
    operation = accepted["operation"]
    assert (operation["action"], operation["actor"], operation["who"]) == ("pump", "user", "olga")
    assert (operation["args"], operation["desired"]) == ({"litres": 3}, "idle")


async def test_who_waits_is_answered_when_the_operation_has_ended(harness: ServerHarness) -> None:
    await harness.built()
    answer = await harness.post(f"{PUMP}?wait=30")
    assert answer.status_code == 200
    assert answer.json()["operation"]["status"] == "succeeded"
    assert answer.json()["operation"]["result"] == {"attempt": 1}
    assert answer.json()["object"]["state"] == "idle"
    assert answer.headers["etag"] == f'"{answer.json()["object"]["version"]}"'


async def test_who_waits_too_short_is_told_how_it_is_by_then(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.hold()
    answer = await harness.post(f"{PUMP}?wait=0.01")
    assert (answer.status_code, answer.json()["object"]["state"]) == (202, "pumping")


async def test_an_operation_that_fails_is_told_with_its_error(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.fail("pump", Permanent("the pipe is broken"))
    answer = await harness.post(f"{PUMP}?wait=30")
    assert answer.json()["operation"]["status"] == "failed"
    assert (answer.json()["object"]["state"], answer.json()["object"]["error"]) == ("broken", "the pipe is broken")


async def test_only_administrators_see_the_traceback_of_a_handler(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.fail("pump", ZeroDivisionError("oops"))
    op = (await harness.post(f"{PUMP}?wait=30")).json()["operation"]["id"]
    paths = (f"/ns/{NS}/operations/{op}", f"/ns/{NS}/operations?object=p1", f"/ns/{NS}/operations/{op}/events")
    for path in paths:
        for who in ("admin", "local admin"):
            answer = await harness.get(path, who)
            assert "in run" in answer.text
            assert "$traceback" not in answer.text
        for who in ("viewer", "operator"):
            answer = await harness.get(path, who)
            assert (answer.status_code, "oops" in answer.text) == (200, True)
            assert "in run" not in answer.text
            assert "$traceback" not in answer.text
    shown = (await harness.get(paths[0], "viewer")).json()
    assert (shown["error"], shown["result"], shown["traceback"]) == ("ZeroDivisionError: oops", None, None)


async def test_a_change_at_once_has_no_operation_and_is_over_for_who_waits(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.fail("pump", Permanent("broken"))
    await harness.post(f"{PUMP}?wait=30")
    answer = await harness.post(f"/ns/{NS}/objects/p1/actions/mend?wait=30")
    assert (answer.status_code, answer.json()["operation"]) == (200, None)


async def test_the_second_action_is_refused_and_names_the_first(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.hold()
    first = (await harness.post(PUMP, who="operator")).json()["operation"]
    answer = await harness.post(f"/ns/{NS}/objects/p1/actions/tune", who="operator")
    assert answer.status_code == 409
    problem = answer.json()
    assert (problem["code"], problem["state"], problem["state_class"]) == ("in_transition", "pumping", "transitional")
    assert (problem["allowed"], problem["allowed_with"]) == ([], {"scrap": ["force"]})
    assert problem["retry"] is True
    blocker = problem["blocker"]
    assert (blocker["op"], blocker["action"], blocker["actor"]) == (first["id"], "pump", "user")
    assert (blocker["who"], blocker["since"]) == ("olga", first["created"])


async def test_a_forced_action_pre_empts_the_one_under_way(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.hold()
    await harness.post(PUMP)
    without = await harness.post(f"/ns/{NS}/objects/p1/actions/scrap")
    assert (without.json()["code"], without.json()["missing"]) == ("needs_fact", ["force"])
    answer = await harness.post(f"/ns/{NS}/objects/p1/actions/scrap", {"facts": ["force"]})
    assert (answer.status_code, answer.json()["object"]["state"]) == (202, "scrapping")


async def test_an_action_that_nobody_knows_is_not_found_and_the_nearest_is_named(harness: ServerHarness) -> None:
    await harness.built()
    answer = await harness.post(f"/ns/{NS}/objects/p1/actions/pomp")
    assert (answer.status_code, answer.json()["nearest"]) == (404, "pump")


async def test_an_action_for_administrators_is_refused_to_others(harness: ServerHarness) -> None:
    await harness.post(f"/ns/{NS}/objects", {"id": "vm-1", "kind": "ovc.vm"})
    await harness.post(f"/ns/{NS}/objects/vm-1/actions/deploy?wait=30")
    answer = await harness.post(f"/ns/{NS}/objects/vm-1/actions/migrate", who="operator")
    assert (answer.status_code, answer.json()["code"]) == (403, "not_yours")
    assert (await harness.post(f"/ns/{NS}/objects/vm-1/actions/migrate")).status_code == 202


async def test_the_same_key_gets_the_same_answer_and_works_once(harness: ServerHarness) -> None:
    await harness.built()
    key = {"Idempotency-Key": "monday"}
    first = await harness.post(PUMP, headers=key)
    again = await harness.post(PUMP, headers=key)
    await harness.ended(first)
    assert again.json()["operation"]["id"] == first.json()["operation"]["id"]
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert harness.plant.done["pump"] == 1


async def test_a_key_for_another_request_is_refused(harness: ServerHarness) -> None:
    await harness.built()
    key = {"Idempotency-Key": "monday"}
    await harness.post(f"{PUMP}?wait=30", headers=key)
    answer = await harness.post(f"/ns/{NS}/objects/p1/actions/tune", headers=key)
    assert (answer.status_code, answer.json()["code"], answer.json()["retry"]) == (409, "key_reused", False)


async def test_an_object_is_made_once_under_one_key(harness: ServerHarness) -> None:
    body, key = {"id": "a-1", "kind": "ovc.account"}, {"Idempotency-Key": "once"}
    first = await harness.post(f"/ns/{NS}/objects", body, headers=key)
    again = await harness.post(f"/ns/{NS}/objects", body, headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["operation"]["id"] == again.json()["operation"]["id"]
    assert ("idempotency-replayed" in first.headers, again.headers.get("idempotency-replayed")) == (False, "true")


async def test_an_action_depends_on_the_version_that_the_caller_has_seen(harness: ServerHarness) -> None:
    await harness.built()
    seen = (await harness.get(f"/ns/{NS}/objects/p1")).headers["etag"]
    for tags, status in ((f"W/{seen}", 412), ('"999"', 412), ('"x"', 412), (f'"999", {seen}', 202)):
        answer = await harness.post(f"{PUMP}?wait=30", headers={"If-Match": tags})
        assert answer.status_code in (status, 200 if status == 202 else status), tags
        assert "not 0" not in answer.text
    for tags in ("abc", "2", "W/2", '"2', '"2" "3"'):
        answer = await harness.post(PUMP, headers={"If-Match": tags})
        assert (answer.status_code, answer.json()["field"]) == (400, "If-Match"), tags
    assert (await harness.post(f"{PUMP}?wait=30", headers={"If-Match": "*"})).status_code == 200
    late = await harness.post(PUMP, headers={"If-Match": seen})
    assert (late.status_code, late.json()["code"]) == (412, "version")


async def test_a_plan_tells_what_would_happen_and_does_nothing(harness: ServerHarness) -> None:
    await harness.built()
    before = await harness.everything()
    wishes = [("p1", "pump"), ("p1", "tune"), ("p9", "pump"), ("p1", "dance")]
    body = {"requests": [{"object": name, "action": action} for name, action in wishes]}
    told = (await harness.post(f"/ns/{NS}/plan", body)).json()
    assert [one["would"] for one in told] == ["accept", "deny", "deny", "deny"]
    assert told[0]["state"] == "pumping"
    assert (told[1]["problem"]["code"], told[1]["state"]) == ("in_transition", "pumping")
    assert [one["problem"]["status"] for one in told[1:]] == [409, 404, 404]
    assert await harness.everything() == before


async def test_a_group_action_begins_where_it_may_and_tells_who_was_skipped(harness: ServerHarness) -> None:
    for name in ("p1", "p2", "p3"):
        await harness.built(name, labels={"tier": "web"})
    harness.plant.hold()
    await harness.post(f"/ns/{NS}/objects/p2/actions/tune")
    body = {"selector": {"kind": "test.pump", "labels": {"tier": "web"}}}
    answer = await harness.post(f"/ns/{NS}/actions/pump", body)
    assert answer.status_code == 202
    told = answer.json()
    assert [one["object"]["id"] for one in told["begun"]] == ["p1", "p3"]
    assert (told["whole"], told["skipped"]["p2"]["code"]) == (None, "in_transition")


async def test_a_group_action_on_named_objects_is_done_once_under_its_key(harness: ServerHarness) -> None:
    for name in ("p1", "p2", "p3"):
        await harness.built(name)
    path, body, key = f"/ns/{NS}/actions/pump", {"objects": ["p1", "p3"]}, {"Idempotency-Key": "monday"}
    first = await harness.post(path, body, headers=key)
    again = await harness.post(path, body, headers=key)
    assert [one["object"]["id"] for one in first.json()["begun"]] == ["p1", "p3"]
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json()["group"] == first.json()["group"] == first.json()["begun"][0]["operation"]["id"]
    both = await harness.post(path, {**body, "selector": {"kind": "test.pump"}})
    assert (both.status_code, both.json()["field"]) == (400, "selector")
    assert (await harness.post(path, {})).status_code == 400


async def test_all_of_an_action_on_many_objects_is_cancelled_or_one_of_them(harness: ServerHarness) -> None:
    names = ["p1", "p2", "p3"]
    for name in names:
        await harness.built(name)
    harness.plant.hold()
    begun = (await harness.post(f"/ns/{NS}/actions/pump", {"objects": names})).json()
    group, _, last = [one["operation"]["id"] for one in begun["begun"]]
    assert (await harness.post(f"/ns/{NS}/operations/{group}/cancel")).status_code == 202
    await harness.engine.wait(NS, group, 30)
    assert (await harness.get(f"/ns/{NS}/operations/{last}")).json()["status"] in ("waiting", "running")
    assert (await harness.post(f"/ns/{NS}/operations/{group}/cancel?parts=true")).status_code == 202
    await harness.engine.wait(NS, last, 30)
    assert (await harness.get(f"/ns/{NS}/operations/{group}")).json()["parts"] == {"cancelled": 3}


async def test_a_group_action_has_a_whole_that_waits_for_its_members(harness: ServerHarness) -> None:
    await harness.post(f"/ns/{NS}/objects", {"id": "s1", "kind": "test.station"})
    for name in ("p1", "p2"):
        await harness.built(name, parent="s1")
    harness.plant.hold()
    body = {"selector": {"parent": "s1"}, "whole": {"object": "s1", "action": "pump"}}
    told = (await harness.post(f"/ns/{NS}/actions/pump", body)).json()
    whole = told["whole"]["operation"]["id"]
    children = (await harness.get(f"/ns/{NS}/operations/{whole}/children")).json()["items"]
    assert {one["id"] for one in children} == {one["operation"]["id"] for one in told["begun"]}
    why = (await harness.get(f"/ns/{NS}/objects/s1/why")).json()
    assert (why["reason"], len(why["children"])) == ("children", 2)
    above = (await harness.get(f"/ns/{NS}/objects/p1/why")).json()["parents"]
    assert [(one["id"], one["operation"]["id"]) for one in above] == [("s1", whole)]


async def test_why_tells_the_last_trouble_of_what_is_tried_again_and_of_whom_a_whole_waits_for(
    harness: ServerHarness,
) -> None:
    await harness.post(f"/ns/{NS}/objects", {"id": "s1", "kind": "test.station"})
    await harness.built("p1", parent="s1")
    harness.plant.fail("pump", Temporary("the valve is shut", after=0.0), Temporary("the valve is stuck", after=30.0))
    body = {"selector": {"parent": "s1"}, "whole": {"object": "s1", "action": "pump"}}
    await harness.post(f"/ns/{NS}/actions/pump", body)
    await until(lambda: harness.get(f"/ns/{NS}/objects/p1/why"), lambda answer: "stuck" in answer.json()["text"])
    assert "; it had trouble: the valve is stuck" in (await harness.get(f"/ns/{NS}/objects/p1/why")).json()["text"]
    assert "; p1 had trouble: the valve is stuck" in (await harness.get(f"/ns/{NS}/objects/s1/why")).json()["text"]
    assert (await harness.get(f"/ns/{NS}/objects/p1")).json()["error"] == "the valve is stuck"


async def test_what_a_whole_waits_for_is_read_at_once_however_many_parts_there_are(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.post(f"/ns/{NS}/objects", {"id": "s1", "kind": "test.station"})
    for number in range(9):
        await harness.built(f"p{number}", parent="s1")
    harness.plant.hold()
    body = {"selector": {"parent": "s1"}, "whole": {"object": "s1", "action": "pump"}}
    await harness.post(f"/ns/{NS}/actions/pump", body)
    read, asked = harness.engine.store.reader.object, list[Key]()

    async def noting(key: Key) -> Object | None:
        asked.append(key)
        return await read(key)

    monkeypatch.setattr(harness.engine.store.reader, "object", noting)
    assert len((await harness.get(f"/ns/{NS}/objects/s1/why")).json()["children"]) == 9
    assert {key.id for key in asked} == {"s1"}
    harness.plant.release()


async def test_a_group_action_that_no_member_allows_is_refused_with_every_reason(harness: ServerHarness) -> None:
    await harness.built("p1")
    answer = await harness.post(f"/ns/{NS}/actions/mend", {"selector": {"kind": "test.pump"}})
    assert (answer.status_code, answer.json()["code"]) == (409, "none_allowed")
    assert answer.json()["skipped"]["p1"]["code"] == "not_from_here"


async def test_locks_are_waited_for_or_refused_with_their_holder(harness: ServerHarness) -> None:
    await harness.built("p1")
    await harness.built("p2")
    harness.plant.hold()
    wish = {"tree": "site", "locks": [{"path": "/a", "mode": "X"}]}
    first = (await harness.post(PUMP, wish)).json()["operation"]["id"]
    refused = await harness.post(f"/ns/{NS}/objects/p2/actions/pump", wish)
    assert (refused.status_code, refused.json()["code"]) == (409, "locked")
    blocker = refused.json()["blocker"]
    assert (blocker["op"], blocker["path"], blocker["mode"]) == (first, "/a", "X")
    waiting = await harness.post(f"/ns/{NS}/objects/p2/actions/pump", wish | {"wait_for_locks": True})
    assert waiting.status_code == 202
    locks = (await harness.get(f"/ns/{NS}/locks/site")).json()
    assert [(one["op"], one["waiting"]) for one in locks] == [(first, False), (waiting.json()["operation"]["id"], True)]
    why = (await harness.get(f"/ns/{NS}/objects/p2/why")).json()
    assert why["reason"] == "locks"
    assert first in why["text"]


async def test_an_action_locks_no_tree_of_an_object_that_it_is_not_part_of(harness: ServerHarness) -> None:
    await harness.built("p1")
    await harness.built("p2")
    wish = {"tree": "p2", "locks": [{"path": "/", "mode": "X"}]}
    refused = await harness.post(PUMP, wish)
    assert (refused.status_code, refused.json()["field"]) == (400, "tree")
    assert (await harness.get(f"/ns/{NS}/locks/p2")).json() == []
    assert (await harness.post(PUMP, wish | {"tree": "p1"})).status_code == 202


async def test_an_operation_starts_within_a_year(harness: ServerHarness) -> None:
    await harness.built("p1")
    for answer in (
        await harness.post(PUMP, {"not_before": "9998-12-31T00:00:00Z"}),
        await harness.post(
            f"/ns/{NS}/objects", {"id": "p9", "kind": "test.pump", "not_before": "9998-12-31T00:00:00Z"}
        ),
    ):
        assert (answer.status_code, answer.json()["field"]) == (400, "not_before")


async def test_locks_without_a_tree_are_bad_input(harness: ServerHarness) -> None:
    await harness.built()
    answer = await harness.post(PUMP, {"locks": [{"path": "/a", "mode": "X"}]})
    assert (answer.status_code, answer.json()["field"]) == (400, "tree")


async def test_a_path_of_a_lock_that_cannot_be_read_is_bad_input(harness: ServerHarness) -> None:
    await harness.built()
    answer = await harness.post(PUMP, {"tree": "site", "locks": [{"path": "/a/../b", "mode": "X"}]})
    assert (answer.status_code, answer.json()["field"]) == (400, "locks.path")


async def test_an_operation_is_found_listed_and_cancelled(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.hold()
    op = (await harness.post(PUMP)).json()["operation"]["id"]
    await until(lambda: harness.plant.begun["pump"] == 1)
    assert (await harness.get(f"/ns/{NS}/operations/{op}")).json()["status"] == "running"
    listed = (await harness.get(f"/ns/{NS}/operations?object=p1")).json()["items"]
    assert [one["action"] for one in listed] == ["pump", "build"]
    answer = await harness.post(f"/ns/{NS}/operations/{op}/cancel")
    assert answer.status_code == 202
    await harness.engine.wait_record(NS, op, 120)
    late = await harness.post(f"/ns/{NS}/operations/{op}/cancel")
    assert (late.status_code, late.json()["code"]) == (409, "ended")


async def test_an_operation_that_does_not_exist_is_not_found(harness: ServerHarness) -> None:
    for path in ("", "/children"):
        assert (await harness.get(f"/ns/{NS}/operations/none{path}")).status_code == 404
    assert (await harness.post(f"/ns/{NS}/operations/none/cancel")).status_code == 404


async def test_what_stands_in_a_queue_is_told_with_what_it_waits_for(harness: ServerHarness) -> None:
    await harness.built("p1")
    harness.plant.hold()
    hidden = (await harness.post(f"/ns/{NS}/objects/p1/actions/move")).json()["operation"]["id"]
    await until(lambda: harness.plant.begun["move"] == 1)
    await harness.post(PUMP)
    queue = (await harness.get(f"/ns/{NS}/objects/p1/queue")).json()
    assert [(one["position"], one["action"], one["reason"]) for one in queue["items"]] == [
        (0, "move", "running"),
        (1, "pump", "queue"),
    ]
    assert hidden in queue["items"][1]["text"]


async def test_who_waits_when_the_engine_stops_is_told_that_it_was_accepted(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.hold()
    waiting = asyncio.create_task(harness.post(f"{PUMP}?wait=30"))
    await until(lambda: harness.plant.begun["pump"] == 1)
    await harness.engine._waiters.stop()
    answer = await waiting
    assert (answer.status_code, answer.json()["object"]["state"]) == (202, "pumping")


async def test_operations_that_a_caller_does_not_see_take_no_place_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy, "internal_actions", lambda _lifecycle: frozenset({"move"}))
    async with open_server() as harness:
        await harness.built()
        assert (await harness.post(f"{PUMP}?wait=30")).status_code == 200
        for _ in range(2):
            assert (await harness.post(f"/ns/{NS}/objects/p1/actions/move?wait=30")).status_code == 200
        for who, newest in (("admin", "move"), ("viewer", "pump")):
            listed = await harness.get(f"/ns/{NS}/operations?object=p1&limit=1", who=who)
            assert [one["action"] for one in listed.json()["items"]] == [newest]


async def test_why_tells_the_error_of_an_object_that_waits_for_nothing_and_what_is_allowed_now(
    harness: ServerHarness,
) -> None:
    await harness.built("p1")
    harness.plant.fail("pump", Permanent("the valve is broken"))
    await harness.post(f"/ns/{NS}/objects/p1/actions/pump", {})
    async with asyncio.timeout(30):
        while (why := (await harness.get(f"/ns/{NS}/objects/p1/why")).json())["operation"] is not None:
            await asyncio.sleep(0.01)
    assert why["error"] == "the valve is broken"
    assert why["text"] == f"it waits for nothing; error: the valve is broken; allowed now: {', '.join(why['allowed'])}"
    assert why["allowed"] == ["scrap", "mend"]
