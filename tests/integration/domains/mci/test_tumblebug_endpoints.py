"""Every endpoint of Tumblebug's API: docs/tumblebug.md, the routes, and the answers say the same."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from stateward.domains.mci.api import MODULES
from stateward.domains.mci.api.before_routing import PathTable
from stateward.domains.mci.api.release_names import FIELDS, OLDER_FIELDS, SEGMENTS, present_path, rename_fields
from stateward.domains.mci.api.routes import not_offered
from tests.integration.domains.mci.api_harness import NANO, NS, UBUNTU, ApiHarness, open_api

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "tumblebug.md").read_text()
ROW = re.compile(r"^\| `(\w+) (/[^`]*)` \| ([^|]*) \| ?([^|]*) ?\|$", re.MULTILINE)
FURTHER = re.compile(r"^\| `(\w+) (/[^`]*)` \| [^|]+ \|$", re.MULTILINE)
REASON = re.compile(r"^\| ([^`|]+) \| ([^|]+) \|$", re.MULTILINE)
OLDER = {new: old for old, new in SEGMENTS.items()}

Endpoint = tuple[str, str]

on_module_loop = pytest.mark.asyncio(loop_scope="module")


def plain(path: str) -> str:
    """Return a path with the older names, and with parameters that have no names."""
    return re.sub(r"{[^}]*}", "{}", "/".join(OLDER.get(one, one) for one in path.split("/")))


ROWS = {(method, plain(path)): (word.strip(), note.strip()) for method, path, word, note in ROW.findall(PAGE)}
NOTED = {(method, plain(path)) for method, path in FURTHER.findall(PAGE)}
MISSING = {(method, plain(path)): why for (method, path), why in not_offered.REASONS.items()}
SERVED: set[Endpoint] = {
    (method, plain(path))
    for module in MODULES
    for handler in module.ROUTES
    for path in handler.paths
    for method in handler.http_methods
    if path != not_offered.PATH
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiHarness]:
    async with open_api(tmp_path_factory.mktemp("endpoints")) as opened:
        yield opened


def test_the_page_has_all_endpoints_and_each_with_one_of_three_words() -> None:
    assert len(ROWS) == 334
    assert {word for word, _ in ROWS.values()} == {"works", "differs", "not offered"}
    assert all(note for word, note in ROWS.values() if word != "works")


@pytest.mark.parametrize("page", ["README.md", "docs/tumblebug.md"])
def test_a_page_that_counts_the_endpoints_counts_right(page: str) -> None:
    counts = Counter(word for word, _ in ROWS.values())
    text = re.sub(r"\s+", " ", (ROOT / page).read_text("utf-8"))
    assert f"{len(ROWS)} endpoints" in text
    found = re.search(r"(\d+) work, (\d+) differ(?:,| and) (\d+) are not offered", text)
    assert found is not None
    assert [int(one) for one in found.groups()] == [counts["works"], counts["differs"], counts["not offered"]]


def test_what_works_or_differs_has_a_route_and_what_is_not_offered_has_a_reason() -> None:
    assert {one for one, (word, _) in ROWS.items() if word != "not offered"} <= SERVED
    assert {one for one, (word, _) in ROWS.items() if word == "not offered"} == MISSING.keys()
    assert not SERVED & MISSING.keys()


def test_every_route_is_on_the_page() -> None:
    assert ROWS.keys() | NOTED >= SERVED
    assert NOTED <= SERVED


def test_the_page_has_the_reasons() -> None:
    reasons = {why: what for what, why in REASON.findall(PAGE)}
    for one, why in MISSING.items():
        assert ROWS[one][1] == reasons[why]


@on_module_loop
async def test_what_is_not_offered_says_why(api: ApiHarness) -> None:
    for (method, path), why in not_offered.REASONS.items():
        for shown in {path, present_path(path)}:
            url = re.sub(r"{[^}]*}", "default", shown)
            answer = await api.client().request(method, url)
            assert answer.status_code == 501, (method, url)
            if method != "HEAD":
                assert answer.json()["message"].endswith(f"{url} is not offered: {why}")


@on_module_loop
async def test_what_is_not_offered_is_told_to_callers_with_a_token(api: ApiHarness) -> None:
    assert (await api.get("/nlb/support", "nobody")).status_code == 401
    assert (await api.get("/not-offered")).status_code == 404


@on_module_loop
async def test_an_mci_is_made_controlled_and_deleted_under_the_present_names(api: ApiHarness) -> None:
    group = {"name": "g1", "nodeGroupSize": 1, "specId": NANO, "imageId": UBUNTU, "label": {"vm": "mci"}}
    made = await api.post(f"/ns/{NS}/infraDynamic?wait=60", {"name": "i1", "nodeGroups": [group]})
    assert made.status_code == 200, made.text
    assert (made.json()["resourceType"], made.json()["node"][0]["nodeGroupId"]) == ("infra", "g1")
    assert made.json()["node"][0]["label"] == {"vm": "mci"}
    assert not FIELDS.keys() & (made.json().keys() | made.json()["node"][0].keys())
    older = (await api.get(f"/ns/{NS}/mci/i1")).json()
    assert older["vm"][0]["id"] == (await api.get(f"/ns/{NS}/infra/i1/node/g1-1")).json()["id"] == "g1-1"
    assert (await api.get(f"/ns/{NS}/infra/i1/nodegroup")).json() == {"output": ["g1"]}
    access = (await api.get(f"/ns/{NS}/infra/i1?option=accessinfo")).json()
    assert access["InfraNodeGroupAccessInfo"][0]["NodeAccessInfo"][0]["nodeId"] == "g1-1"
    for value, ids in (("g1", ["g1-1"]), ("g2", [])):
        url = f"/ns/{NS}/infra/i1?option=id&filterKey=nodeGroupId&filterVal={value}"
        assert (await api.get(url)).json() == {"output": ids}
    done = await api.get(f"/ns/{NS}/control/infra/i1/node/g1-1?action=suspend&wait=60")
    assert done.json()["operationStatus"] == "succeeded"
    scaled = await api.post(f"/ns/{NS}/infra/i1/nodegroup/g1?wait=60", {"numNodesToAdd": "1"})
    assert scaled.json()["newNodeList"] == ["g1-2"]
    assert (await api.delete(f"/ns/{NS}/infra/i1?option=terminate")).status_code == 200


@on_module_loop
async def test_an_error_names_the_field_as_the_caller_does(api: ApiHarness) -> None:
    group = {"name": "g1", "nodeGroupSize": 1, "specId": "nothing", "imageId": UBUNTU}
    refused = await api.post(f"/ns/{NS}/infraDynamic", {"name": "i2", "nodeGroups": [group]})
    assert (refused.status_code, refused.json()["field"]) == (400, "nodeGroups[0].specId")
    older = {"name": "i2", "subGroups": [{**group, "subGroupSize": 1}]}
    assert (await api.post(f"/ns/{NS}/mciDynamic", older)).json()["field"] == "subGroups[0].specId"


@on_module_loop
async def test_a_request_under_the_present_name_is_found_as_it_was_sent(api: ApiHarness) -> None:
    await api.get(f"/ns/{NS}/infra/nothing", headers={"x-request-id": "present-1"})
    shown = (await api.get("/request/present-1")).json()
    assert shown["requestInfo"]["url"] == f"/tumblebug/ns/{NS}/infra/nothing"


@on_module_loop
async def test_names_of_objects_are_not_renamed_in_paths(api: ApiHarness) -> None:
    assert (await api.post("/ns", {"name": "infra"})).status_code == 200
    assert (await api.get("/ns/infra/infra")).json() == {"infra": []}
    assert (await api.get("/ns/infra/mci")).json() == {"mci": []}
    assert "'node'" in (await api.get("/ns/infra/infra/node")).json()["message"]
    assert (await api.delete("/ns/infra")).status_code == 200


def test_each_renamed_field_has_one_older_name() -> None:
    assert len(OLDER_FIELDS) == len({name.lower() for name in FIELDS})
    assert rename_fields([{"vm": [{"vmId": "a"}], "count": 1}]) == [{"node": [{"nodeId": "a"}], "count": 1}]
    unknown = {"field": "x", "known": ["vmId"], "nearest": "vmId"}
    assert rename_fields(unknown, error=True) == {"field": "x", "known": ["nodeId"], "nearest": "nodeId"}
    assert rename_fields({"known": ["vm"]}, error=True) == {"known": ["vm"]}  # names of objects are the users' own


# fmt: off
ERROR_TEXTS = [
    ("subGroups[0].vmUserName: must be",   "nodeGroups[0].nodeUserName: must be"),
    ("vm[0].name",                         "node[0].name"),
    ("while mci.mci is Failed",            "while mci.mci is Failed"),
    ("no mci.vm",                          "no mci.vm"),
    ("mci.vm: no",                         "mci.vm: no"),
    ("Known: async, subGroupId, vmId",     "Known: async, nodeGroupId, nodeId"),
    ("did you mean 'vmId'?",               "did you mean 'nodeId'?"),
    ("my-vmId and my-vm: no",              "my-vmId and my-vm: no"),
]
# fmt: on


@pytest.mark.parametrize(("older", "present"), ERROR_TEXTS)
def test_an_error_names_fields_of_the_present_release_and_leaves_kinds(older: str, present: str) -> None:
    assert rename_fields({"message": older}, error=True) == {"message": present}


def test_a_fixed_segment_comes_before_a_parameter() -> None:
    table = PathTable([("/a/{x}", "any"), ("/a/b", "b")])
    assert (table.find("/a/b"), table.find("/a/c"), table.find("/a"), table.find("/a/")) == ("b", "any", None, None)
