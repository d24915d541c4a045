import pytest

from stateward.server.routes import object_routes
from tests.integration.server.server_harness import NS, ServerHarness


async def test_an_object_is_made_by_the_only_way_its_lifecycle_begins(harness: ServerHarness) -> None:
    answer = await harness.post(f"/ns/{NS}/objects", {"id": "vm-1", "kind": "ovc.vm", "spec": {"cpus": 2}})
    assert answer.status_code == 202
    made = answer.json()
    assert made["operation"] is None
    assert made["object"] | {"since": "", "created": ""} == {
        "ns": NS,
        "id": "vm-1",
        "kind": "ovc.vm",
        "state": "VIRTUAL",
        "state_class": "stable",
        "since": "",
        "version": 1,
        "generation": 0,
        "op": None,
        "queue": "vm-1",
        "parent": None,
        "spec": {"cpus": 2},
        "seen": {},
        "labels": {},
        "error": None,
        "protected": "",
        "created": "",
    }


async def test_an_object_whose_lifecycle_has_create_is_made_by_it(harness: ServerHarness) -> None:
    answer = await harness.post(f"/ns/{NS}/objects", {"id": "a-1", "kind": "ovc.account"})
    assert answer.json()["operation"]["action"] == "create"


async def test_times_are_utc_that_people_can_read(harness: ServerHarness) -> None:
    await harness.built()
    created = (await harness.get(f"/ns/{NS}/objects/p1")).json()["created"]
    assert created.endswith("Z")
    assert created[10] == "T"


async def test_an_object_that_exists_is_not_made_again(harness: ServerHarness) -> None:
    await harness.built()
    answer = await harness.post(f"/ns/{NS}/objects", {"id": "p1", "kind": "test.pump"})
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.json()["code"], answer.json()["state"]) == ("exists", "idle")


async def test_a_kind_that_is_not_known_is_named_as_the_bad_field(harness: ServerHarness) -> None:
    answer = await harness.post(f"/ns/{NS}/objects", {"id": "p1", "kind": "test.pomp"})
    assert (answer.status_code, answer.json()["field"]) == (400, "kind")
    assert "test.pump" in answer.json()["detail"]


async def test_nobody_makes_tokens_or_quotas_as_objects(harness: ServerHarness) -> None:
    for kind in ("access.token", "access.quota"):
        answer = await harness.post(f"/ns/{NS}/objects", {"id": "t1", "kind": kind, "action": "issue"})
        assert (answer.status_code, answer.json()["field"]) == (400, "kind")


async def test_the_deployments_own_namespace_cannot_be_opened_by_name(harness: ServerHarness) -> None:
    for path in ("/ns/(system)/objects", f"/ns/(system)/objects/token-{harness.texts['admin'].split('_')[1]}"):
        assert (await harness.get(path)).status_code == 400


async def test_an_object_has_its_version_as_its_tag(harness: ServerHarness) -> None:
    await harness.built()
    first = await harness.get(f"/ns/{NS}/objects/p1")
    assert first.headers["etag"] == f'"{first.json()["version"]}"'
    again = await harness.get(f"/ns/{NS}/objects/p1", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    other = await harness.get(f"/ns/{NS}/objects/p1", headers={"If-None-Match": '"1"'})
    assert (other.status_code, other.json()) == (200, first.json())


async def test_an_object_that_does_not_exist_is_not_found(harness: ServerHarness) -> None:
    for path in ("", "/allowed", "/history", "/queue", "/why", "/at?time=2026-01-01T00:00:00Z"):
        answer = await harness.get(f"/ns/{NS}/objects/nobody{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path


async def test_a_list_is_walked_page_by_page(harness: ServerHarness) -> None:
    for number in range(5):
        await harness.post(f"/ns/{NS}/objects", {"id": f"vm-{number}", "kind": "ovc.vm"})
    seen, after = [], ""
    for _ in range(3):
        page = (await harness.get(f"/ns/{NS}/objects?limit=2{after}")).json()
        seen += [one["id"] for one in page["items"]]
        after = f"&after={page['next']}"
    assert seen == [f"vm-{number}" for number in range(5)]
    assert page["next"] is None


async def test_a_list_is_narrowed_by_kind_state_parent_labels_and_name(harness: ServerHarness) -> None:
    await harness.built("p1", labels={"tier": "web", "team": "red"}, parent="s1")
    await harness.built("p2", labels={"tier": "web"})
    await harness.post(f"/ns/{NS}/objects", {"id": "vm-1", "kind": "ovc.vm"})
    for query, expected in (
        ("kind=test.pump", ["p1", "p2"]),
        ("state=VIRTUAL", ["vm-1"]),
        ("state=VIRTUAL,idle", ["p1", "p2", "vm-1"]),
        ("kind=test.pump&state=broken", []),
        ("parent=s1", ["p1"]),
        ("label=tier=web", ["p1", "p2"]),
        ("label=tier=web&label=team=red", ["p1"]),
        ("label=tier=", []),
        ("q=VM", ["vm-1"]),
    ):
        found = (await harness.get(f"/ns/{NS}/objects?{query}")).json()["items"]
        assert [one["id"] for one in found] == expected, query


async def test_objects_are_counted_by_fields_with_the_filters_of_the_list(harness: ServerHarness) -> None:
    await harness.built("p1", labels={"tier": "web"}, parent="s1")
    await harness.built("p2", labels={"tier": "web"}, parent="s1")
    await harness.post(f"/ns/{NS}/objects", {"id": "counts", "kind": "ovc.vm"})
    pumps, vm = {"values": ["test.pump", "idle"], "count": 2}, {"values": ["ovc.vm", "VIRTUAL"], "count": 1}
    counted = (await harness.get(f"/ns/{NS}/counts")).json()
    assert counted == {"by": ["kind", "state"], "rows": [vm, pumps], "total": 3}
    for query, rows in (
        ("by=label.tier", [{"values": [None], "count": 1}, {"values": ["web"], "count": 2}]),
        ("by=label.tier,parent&kind=test.pump", [{"values": ["web", "s1"], "count": 2}]),
        ("state=VIRTUAL", [vm]),
        ("parent=s1", [pumps]),
        ("label=tier=web", [pumps]),
        ("q=COUNT", [vm]),
        ("q=nothing", []),
    ):
        assert (await harness.get(f"/ns/{NS}/counts?{query}")).json()["rows"] == rows, query
    assert (await harness.get(f"/ns/{NS}/objects/counts")).json()["id"] == "counts"


async def test_fields_that_objects_are_not_counted_by_are_named_with_those_there_are(harness: ServerHarness) -> None:
    for by in ("colour", "kind,", "label.", "kind,spec"):
        refused = await harness.get(f"/ns/{NS}/counts?by={by}")
        assert (refused.status_code, refused.json()["field"]) == (400, "by"), by
        assert "label.NAME" in refused.json()["detail"]


async def test_counts_in_too_many_groups_are_refused_and_not_cut_off(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_routes, "MAX_GROUPS", 1)
    await harness.built("p1", labels={"tier": "web"})
    await harness.built("p2", labels={"tier": "db"})
    assert (await harness.get(f"/ns/{NS}/counts")).json()["total"] == 2
    refused = await harness.get(f"/ns/{NS}/counts?by=label.tier")
    assert (refused.status_code, refused.json()["field"]) == (400, "by")


async def test_a_state_that_no_object_can_have_is_told_with_those_there_are(harness: ServerHarness) -> None:
    for query in ("state=NOPE", "kind=test.pump&state=NOPE", "kind=test.pump&state=idle,NOPE", "state=,"):
        refused = await harness.get(f"/ns/{NS}/objects?{query}")
        assert (refused.status_code, refused.json()["field"]) == (400, "state"), query
        assert "broken" in refused.text
    of_another = await harness.get(f"/ns/{NS}/objects?kind=test.pump&state=VIRTUAL")
    assert of_another.status_code == 400
    assert (await harness.get(f"/ns/{NS}/objects?kind=gone.kind&state=NOPE")).json()["items"] == []
    body = {"selector": {"kind": "test.pump", "states": ["NOPE"]}}
    group = await harness.post(f"/ns/{NS}/actions/mend", body)
    assert (group.status_code, group.json()["field"]) == (400, "selector.states")


async def test_more_labels_than_an_object_can_have_are_not_asked_for(harness: ServerHarness) -> None:
    await harness.built(labels={f"a{number}": "c" for number in range(100)})
    for wishes, status in ((100, 200), (101, 400), (1_500, 400)):
        query = "&".join(f"label=a{number}=b" for number in range(wishes))
        assert (await harness.get(f"/ns/{NS}/objects?{query}")).status_code == status, wishes


async def test_a_page_is_never_longer_than_the_limit_of_the_server(harness: ServerHarness) -> None:
    assert harness.app.state.service.page_size(10**9) == 1_000


async def test_labels_are_replaced_if_the_object_is_as_the_caller_saw_it(harness: ServerHarness) -> None:
    await harness.built(labels={"a": "1"})
    seen = (await harness.get(f"/ns/{NS}/objects/p1")).headers["etag"]
    changed = await harness.put(f"/ns/{NS}/objects/p1/labels", {"labels": {"b": "2"}}, headers={"If-Match": seen})
    assert (changed.status_code, changed.json()["labels"]) == (200, {"b": "2"})
    assert changed.headers["etag"] != seen
    late = await harness.put(f"/ns/{NS}/objects/p1/labels", {"labels": {"c": "3"}}, headers={"If-Match": seen})
    assert (late.status_code, late.json()["code"]) == (412, "version")
    assert (await harness.get(f"/ns/{NS}/objects?label=b=2")).json()["items"][0]["id"] == "p1"


async def test_a_change_of_labels_stands_in_the_history_with_who_made_it(harness: ServerHarness) -> None:
    await harness.built()
    await harness.put(f"/ns/{NS}/objects/p1/labels", {"labels": {"b": "2"}}, who="operator")
    last = (await harness.get(f"/ns/{NS}/objects/p1/history")).json()["items"][-1]
    assert (last["event"], last["who"], last["actor"]) == ("labels changed", "olga", "user")


async def test_labels_can_be_changed_while_the_object_is_worked_on(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.hold()
    begun = await harness.post(f"/ns/{NS}/objects/p1/actions/pump")
    assert (await harness.put(f"/ns/{NS}/objects/p1/labels", {"labels": {"b": "2"}})).status_code == 200
    harness.plant.release()
    await harness.ended(begun)
    found = (await harness.get(f"/ns/{NS}/objects/p1")).json()
    assert (found["state"], found["labels"]) == ("idle", {"b": "2"})


async def test_namespaces_are_those_that_the_token_opens_and_that_have_objects(harness: ServerHarness) -> None:
    await harness.built("p1", NS)
    await harness.built("p2", "bank")
    shop = {"ns": "shop", "counts": {"test.pump": {"idle": 1}}}
    bank = {"ns": "bank", "counts": {"test.pump": {"idle": 1}}}
    assert (await harness.get("/namespaces")).json() == [bank, shop]
    assert (await harness.get("/namespaces", "viewer")).json() == [shop]
    assert (await harness.get("/namespaces", "outsider")).json() == [bank]


async def test_what_may_be_done_now_is_told_with_why_not(harness: ServerHarness) -> None:
    await harness.built()
    allowed = (await harness.get(f"/ns/{NS}/objects/p1/allowed", "operator")).json()
    assert (allowed["state"], allowed["state_class"]) == ("idle", "stable")
    pump, mend = (next(one for one in allowed["actions"] if one["event"] == name) for name in ("pump", "mend"))
    assert pump == {
        "event": "pump",
        "allowed": True,
        "why_not": None,
        "needs": [],
        "target": "pumping",
        "desired": "idle",
        "within": 60.0,
    }
    assert not mend["allowed"]
    assert "must be one of broken, lost" in mend["why_not"]


async def test_an_action_that_needs_a_fact_says_which(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.hold()
    await harness.post(f"/ns/{NS}/objects/p1/actions/pump")
    allowed = (await harness.get(f"/ns/{NS}/objects/p1/allowed")).json()["actions"]
    scrap = next(one for one in allowed if one["event"] == "scrap")
    assert (scrap["allowed"], scrap["needs"], scrap["target"]) == (False, ["force"], "scrapping")


async def test_the_history_is_read_in_pages_and_outlives_the_object(harness: ServerHarness) -> None:
    await harness.built()
    for action in ("scrap", "forget"):
        await harness.post(f"/ns/{NS}/objects/p1/actions/{action}?wait=30")
    assert (await harness.get(f"/ns/{NS}/objects/p1")).status_code == 404
    first = (await harness.get(f"/ns/{NS}/objects/p1/history?limit=3")).json()
    rest = (await harness.get(f"/ns/{NS}/objects/p1/history?limit=3&after={first['next']}")).json()
    events = [line["event"] for line in first["items"] + rest["items"]]
    assert events == ["build", "succeeded", "scrap", "succeeded", "forget"]
    assert rest["next"] is None


async def test_the_state_at_a_time_is_told(harness: ServerHarness) -> None:
    await harness.built()
    lines = (await harness.get(f"/ns/{NS}/objects/p1/history")).json()["items"]
    for time, state, state_class in (
        ("2000-01-01T00:00:00Z", None, None),
        (lines[0]["at"], "building", "transitional"),
        (lines[1]["at"], "idle", "stable"),
    ):
        found = (await harness.get(f"/ns/{NS}/objects/p1/at", params={"time": time})).json()
        assert (found["state"], found["state_class"]) == (state, state_class)
