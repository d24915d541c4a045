"""The list of operations: entries, filters, pages, and what a token may see."""

from typing import Any
from unittest.mock import AsyncMock

import pytest

from stateward.engine import Permanent, Temporary, queries
from stateward.server.routes import operation_routes
from tests.integration.server.server_harness import NS, ServerHarness

OPERATIONS = f"/ns/{NS}/operations"


async def listed(harness: ServerHarness, query: str = "", who: str = "admin") -> list[tuple[str, str]]:
    """Return the object and the action of each entry."""
    answer = await harness.get(f"{OPERATIONS}?{query}", who)
    assert answer.status_code == 200, answer.text
    return [(one["object"], one["action"]) for one in answer.json()["items"]]


async def two_pumps(harness: ServerHarness) -> dict[str, Any]:
    """Build two pumps, and let both pump by one action."""
    for name in ("p1", "p2"):
        await harness.built(name)
    answer = await harness.post(f"/ns/{NS}/actions/pump", {"selector": {"kind": "test.pump"}})
    assert answer.status_code == 202, answer.text
    group: dict[str, Any] = answer.json()
    for one in group["begun"]:
        await harness.engine.wait_record(NS, one["operation"]["id"])
    return group


async def test_an_action_on_many_objects_is_one_entry_with_its_parts(harness: ServerHarness) -> None:
    group = await two_pumps(harness)
    first = group["begun"][0]["operation"]
    assert group["group"] == first["id"] == first["group"] == group["begun"][1]["operation"]["group"]
    page = (await harness.get(OPERATIONS)).json()
    assert [(one["object"], one["action"]) for one in page["items"]] == [
        ("p1", "pump"),
        ("p2", "build"),
        ("p1", "build"),
    ]
    assert (page["items"][0]["parts"], page["items"][1]["parts"]) == ({"succeeded": 2}, None)
    assert {one for one, _ in await listed(harness, f"group={group['group']}")} == {"p1", "p2"}
    shown = (await harness.get(f"{OPERATIONS}/{group['group']}")).json()
    assert shown["parts"] == {"succeeded": 2}


async def test_pages_continue_where_the_one_before_ended(harness: ServerHarness) -> None:
    await two_pumps(harness)
    first = (await harness.get(f"{OPERATIONS}?limit=2")).json()
    rest = (await harness.get(OPERATIONS, params={"limit": 2, "after": first["next"]})).json()
    assert [len(first["items"]), len(rest["items"]), rest["next"]] == [2, 1, None]
    assert not {one["id"] for one in first["items"]} & {one["id"] for one in rest["items"]}
    answer = await harness.get(f"{OPERATIONS}?after=yesterday")
    assert (answer.status_code, answer.json()["field"]) == (400, "after")


async def test_filters_choose_by_object_action_status_and_who(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.fail("pump", Permanent("dry"))
    await harness.post(f"/ns/{NS}/objects/p1/actions/pump?wait=30", who="operator")
    assert await listed(harness, "object=p1") == [("p1", "pump"), ("p1", "build")]
    assert await listed(harness, "object=p1&limit=1") == [("p1", "pump")]
    assert await listed(harness, "status=failed,cancelled") == [("p1", "pump")]
    assert await listed(harness, "status=running") == []
    assert await listed(harness, "action=build") == [("p1", "build")]
    assert await listed(harness, "who=olga&kind=test.pump") == [("p1", "pump")]


@pytest.mark.parametrize(
    ("query", "nearest"), [("status=runing", "running"), ("action=pmup", "pump"), ("kind=test.pmup", "test.pump")]
)
async def test_an_unknown_value_is_refused_with_the_nearest_one(
    harness: ServerHarness, query: str, nearest: str
) -> None:
    for path in (OPERATIONS, "/operations"):
        answer = await harness.get(f"{path}?{query}")
        assert answer.status_code == 400, answer.text
        assert f"did you mean {nearest!r}" in answer.json()["detail"]
        assert answer.json()["field"] == query.partition("=")[0]


async def test_the_list_of_all_namespaces_has_those_of_the_token(harness: ServerHarness) -> None:
    await harness.built()
    await harness.built("p9", ns="other")
    everywhere = (await harness.get("/operations")).json()["items"]
    mine = (await harness.get("/operations", "operator")).json()["items"]
    assert [one["ns"] for one in everywhere] == ["other", NS]
    assert [one["ns"] for one in mine] == [NS]


async def test_a_running_operation_tells_when_it_was_started(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.hold()
    answer = await harness.post(f"/ns/{NS}/objects/p1/actions/pump?wait=0.01")
    op = answer.json()["operation"]["id"]
    shown = (await harness.get(f"{OPERATIONS}/{op}")).json()
    assert (shown["status"], shown["attempts"]) == ("running", 1)
    assert shown["created"] <= shown["started"]


async def test_the_timeline_tells_attempts_with_their_errors_and_the_waits_between(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.fail("pump", Temporary("no pressure", after=0.01))
    answer = await harness.post(f"/ns/{NS}/objects/p1/actions/pump?wait=30")
    op = answer.json()["operation"]["id"]
    found = (await harness.get(f"{OPERATIONS}/{op}/timeline")).json()
    shown = [(one["kind"], one["name"], one["status"], one["text"]) for one in found["spans"]]
    assert ("attempt", "attempt 1", "failed", "no pressure") in shown
    assert ("wait", "waits to be tried again", "done", "") in shown
    assert ("attempt", "attempt 2", "done", "") in shown
    assert [one["began"] for one in found["spans"]] == sorted(one["began"] for one in found["spans"])
    assert found["operation"]["steps"] == {}
    assert (await harness.get(f"{OPERATIONS}/none/timeline")).status_code == 404


async def test_changes_of_a_spec_are_told_field_by_field(harness: ServerHarness) -> None:
    await harness.built(spec={"litres": 3, "name": "north"})
    await harness.post(
        f"/ns/{NS}/objects/p1/actions/tune?wait=30", {"spec": {"litres": 5, "name": "north"}}, "operator"
    )
    (change,) = (await harness.get(f"/ns/{NS}/objects/p1/changes")).json()
    assert (change["who"], change["event"]) == ("olga", "tune")
    assert change["fields"] == [{"field": "litres", "how": "changed", "before": 3, "after": 5}]
    assert (await harness.get(f"/ns/{NS}/objects/none/changes")).status_code == 404


async def test_the_newest_changes_are_read_without_the_entries_before(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "FIRST_PAGE", 8)
    await harness.built(spec={"litres": 0})
    for litres in range(1, 6):
        await harness.post(f"/ns/{NS}/objects/p1/actions/tune?wait=30", {"spec": {"litres": litres}}, "operator")
    newest = AsyncMock(wraps=harness.engine.store.reader.newest_entries)
    monkeypatch.setattr(harness.engine.store.reader, "newest_entries", newest)
    changes = (await harness.get(f"/ns/{NS}/objects/p1/changes?limit=2")).json()
    assert [(one["fields"][0]["before"], one["fields"][0]["after"]) for one in changes] == [(4, 5), (3, 4)]
    newest.assert_awaited_once()
    assert len((await harness.get(f"/ns/{NS}/objects/p1/changes")).json()) == 5


@pytest.mark.parametrize("path", [OPERATIONS, "/operations"])
async def test_a_filter_that_matches_nothing_looks_at_so_many_operations_per_page(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(operation_routes, "READ_ROWS", 2)
    monkeypatch.setattr(operation_routes, "MAX_READS", 2)
    await harness.built("p0")
    for _ in range(8):
        await harness.ended(await harness.post(f"/ns/{NS}/objects/p0/actions/pump"))
    first = (await harness.get(f"{path}?action=build")).json()
    assert first["items"] == []
    found: list[dict[str, Any]] = []
    pages, after = 1, first["next"]
    while after is not None:
        page = (await harness.get(path, params={"action": "build", "after": after})).json()
        found, pages, after = [*found, *page["items"]], pages + 1, page["next"]
    assert [(one["object"], one["action"]) for one in found] == [("p0", "build")]
    assert pages > 1
    whole = (await harness.get(path)).json()
    assert (len(whole["items"]), whole["next"]) == (9, None)
