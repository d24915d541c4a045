"""Previews: what an action would do, before anybody asks for it; nothing is written."""

from typing import Any

import pytest

from stateward.engine import Denied, Permanent
from tests.integration.server.server_harness import NS, ServerHarness

PUMPS = {"selector": {"kind": "test.pump"}}


class StillWarm(Denied, code="warm"):
    """A guard's refusal."""

    text = "it is still warm"


async def preview(harness: ServerHarness, path: str, body: Any = None, who: str = "operator") -> dict[str, Any]:
    """Return a preview, and see that it has changed nothing."""
    before = await harness.everything()
    answer = await harness.post(f"/ns/{NS}/{path}/preview", body, who=who)
    assert answer.status_code == 200, answer.text
    assert await harness.everything() == before
    shown: dict[str, Any] = answer.json()
    return shown


async def break_pump(harness: ServerHarness, name: str) -> None:
    await harness.built(name)
    harness.plant.fail("pump", Permanent("the pipe is broken"))
    await harness.post(f"/ns/{NS}/objects/{name}/actions/pump?wait=30")


async def test_a_preview_of_one_object_says_where_it_would_go(harness: ServerHarness) -> None:
    await harness.built("p1", labels={"provider": "aws", "region": "eu-west-1"})
    assert await preview(harness, "objects/p1/actions/scrap") == {
        "action": "scrap",
        "accepted": True,
        "problem": None,
        "total": 1,
        "targets": [{"kind": "test.pump", "state": "idle", "via": "scrapping", "desired": "scrapped", "count": 1}],
        "places": [{"place": "aws/eu-west-1", "count": 1}],
        "refused": [],
        "protected": 0,
        "protected_examples": [],
        "removes": True,
        "undo": None,
        "within": 60.0,
        "effects": [],
    }


async def test_a_preview_of_a_change_at_once_has_no_state_in_between(harness: ServerHarness) -> None:
    await break_pump(harness, "p1")
    shown = await preview(harness, "objects/p1/actions/mend")
    assert shown["targets"] == [
        {"kind": "test.pump", "state": "broken", "via": None, "desired": "idle", "count": 1},
    ]
    assert (shown["removes"], shown["undo"], shown["within"]) == (False, None, None)


async def test_a_preview_of_a_refused_action_has_the_problem_of_the_action(harness: ServerHarness) -> None:
    await harness.built()
    shown = await preview(harness, "objects/p1/actions/mend")
    refused = await harness.post(f"/ns/{NS}/objects/p1/actions/mend", who="operator")
    assert shown["problem"] == refused.json()
    assert (shown["accepted"], shown["total"], shown["targets"], shown["refused"]) == (False, 0, [], [])


async def test_the_preview_of_a_group_counts_equal_answers_together(harness: ServerHarness) -> None:
    for number in range(8):
        await harness.built(f"p{number}")
    await break_pump(harness, "q1")
    shown = await preview(harness, "actions/mend", PUMPS)
    assert (shown["accepted"], shown["total"]) == (True, 1)
    (refused,) = shown["refused"]
    assert (refused["code"], refused["state"], refused["count"]) == ("not_from_here", "idle", 8)
    assert refused["examples"] == ["p0", "p1", "p2", "p3", "p4"]
    assert "mend" in refused["detail"]


async def test_a_group_can_be_named_by_ids(harness: ServerHarness) -> None:
    for name in ("p1", "p2", "p3"):
        await harness.built(name)
    named = {"objects": ["p1", "p3", "nothing"]}
    shown = await preview(harness, "actions/scrap", named)
    assert (shown["total"], [(one["code"], one["examples"]) for one in shown["refused"]]) == (
        2,
        [("not_found", ["nothing"])],
    )
    answer = (await harness.post(f"/ns/{NS}/actions/scrap", named, who="operator")).json()
    assert sorted(one["object"]["id"] for one in answer["begun"]) == ["p1", "p3"]
    assert {name: why["code"] for name, why in answer["skipped"].items()} == {"nothing": "not_found"}
    for path in ("actions/scrap", "actions/scrap/preview"):
        unknown = await harness.post(f"/ns/{NS}/{path}", {"objects": ["nothing", "nobody"]})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found"), path


async def test_a_preview_depends_on_the_version_that_the_caller_has_seen(harness: ServerHarness) -> None:
    await harness.built()
    path = f"/ns/{NS}/objects/p1/actions/pump"
    refused = await harness.post(path, headers={"If-Match": '"999"'})
    shown = await harness.post(f"{path}/preview", headers={"If-Match": '"999"'})
    assert (shown.json()["accepted"], shown.json()["problem"]) == (False, refused.json())


@pytest.mark.parametrize(
    "body",
    [{}, {"selector": {"q": "p"}, "objects": ["p1"]}, {"objects": []}, {"selector": {}}, {"selector": {"labels": {}}}],
)
async def test_a_group_is_chosen_in_one_way(harness: ServerHarness, body: dict[str, Any]) -> None:
    for path in ("actions/scrap", "actions/scrap/preview"):
        answer = await harness.post(f"/ns/{NS}/{path}", body)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")


async def test_a_group_of_which_none_allows_the_action_would_be_refused(harness: ServerHarness) -> None:
    await harness.built()
    shown = await preview(harness, "actions/mend", PUMPS)
    assert (shown["accepted"], shown["problem"]["code"], shown["total"]) == (False, "none_allowed", 0)
    assert (await preview(harness, "actions/mend", {"selector": {"kind": "test.none"}}))["accepted"] is False


async def test_members_that_only_a_guard_tells_apart_are_planned_one_by_one(harness: ServerHarness) -> None:
    for number in range(45):
        await harness.built(f"p{number:02}")

    async def refuse_p44(_uow: object, _request: object, found: Any) -> None:
        if found.id in ("p00", "p44"):
            raise StillWarm

    harness.engine.kinds["test.pump"].guard = refuse_p44
    shown = await preview(harness, "actions/scrap", PUMPS)
    assert shown["total"] == 43
    assert [(one["code"], one["examples"]) for one in shown["refused"]] == [("warm", ["p00", "p44"])]


async def test_a_preview_needs_the_right_to_act(harness: ServerHarness) -> None:
    await harness.built()
    for path in ("objects/p1/actions/scrap", "actions/scrap"):
        answer = await harness.post(f"/ns/{NS}/{path}/preview", PUMPS if path[0] == "a" else None, who="viewer")
        assert answer.status_code == 403


async def test_a_preview_of_what_does_not_exist_is_answered_as_the_action_is(harness: ServerHarness) -> None:
    await harness.built()
    for path in ("objects/none/actions/scrap", "objects/p1/actions/scarp"):
        shown, done = [await harness.post(f"/ns/{NS}/{path}{more}") for more in ("/preview", "")]
        assert shown.status_code == done.status_code == 404
        assert shown.json() == done.json()
