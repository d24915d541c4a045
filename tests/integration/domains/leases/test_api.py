"""The reservation API over HTTP: what is answered, how errors are worded, and whose namespace it is about."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from stateward.access import Role, Tokens
from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.config import Config
from stateward.domains.leases import list_pages
from stateward.domains.leases.runtime import LeasesRuntime
from stateward.domains.leases.settings import Settings
from stateward.engine import Engine
from stateward.plugin.runtime import ProcessContext
from stateward.server.app import create_app
from stateward.store import open_store

on_module_loop = pytest.mark.asyncio(loop_scope="module")

LEASES, HOSTS = "/blazar/v1/leases", "/blazar/v1/os-hosts"
WISH = {"resource_type": "physical:host", "min": 1, "max": 1}
NIGHT = {
    "name": "night",
    "start_date": "2030-01-01 22:00",
    "end_date": "2030-01-02 06:00",
    "reservations": [WISH],
    "events": [],
    "before_end_date": None,
}


class Api:
    """Clients with different tokens."""

    def __init__(self, app: object, tokens: Tokens) -> None:
        self._transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        self._tokens = tokens

    async def client(self, role: Role = Role.OPERATOR, *namespaces: str) -> httpx.AsyncClient:
        token, _ = await self._tokens.issue("tester", role, [*namespaces] or ["team"])
        return httpx.AsyncClient(transport=self._transport, base_url="http://here", headers={"X-Auth-Token": token})


@asynccontextmanager
async def open_api(folder: Path) -> AsyncIterator[Api]:
    config = Config(data=str(folder), rate=100_000)
    plugin = LeasesRuntime(ProcessContext(folder), Settings(max_duration=86400.0))
    engine = Engine(open_store(config.store_url), [*plugin.kinds, token_kind(), quota_kind()])
    plugin.bind_engine(engine)
    async with engine:
        tokens = Tokens(engine)
        yield Api(create_app(engine, tokens, config, routes=plugin.routes), tokens)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with open_api(tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def empty_api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """An API for all tests whose requests change nothing."""
    async with open_api(tmp_path_factory.mktemp("leases")) as opened:
        yield opened


async def test_a_lease_is_answered_when_it_is_reserved(api: Api) -> None:
    async with await api.client() as client:
        assert (await client.post(HOSTS, json={"name": "node", "vcpus": 8})).status_code == 201
        answer = await client.post(LEASES, json=NIGHT)
        assert (answer.status_code, answer.headers["OpenStack-API-Version"]) == (201, "reservation 1.0")
        lease = answer.json()["lease"]
        assert (lease["status"], lease["project_id"], lease["user_id"]) == ("PENDING", "team", "tester")
        assert [one["status"] for one in lease["reservations"]] == ["pending"]
        assert {one["event_type"]: one["time"] for one in lease["events"]} == {
            "start_lease": "2030-01-01T22:00:00.000000",
            "before_end_lease": "2030-01-02T05:00:00.000000",
            "end_lease": "2030-01-02T06:00:00.000000",
        }
        assert (await client.get(f"{LEASES}/{lease['id']}")).json() == {"lease": lease}
        assert (await client.get(LEASES)).json() == {"leases": [lease]}
        found = (await client.get(f"{HOSTS}/node/allocation")).json()["allocation"]
        assert [one["lease_id"] for one in found["reservations"]] == [lease["id"]]
        changed = await client.put(f"{LEASES}/{lease['id']}", json={"name": "long night"})
        assert changed.json()["lease"]["name"] == "long night"
        gone = await client.delete(f"{LEASES}/{lease['id']}")
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await client.get(LEASES)).json() == {"leases": []}
        remembered = (await client.get(f"{LEASES}/{lease['id']}?deleted=true")).json()["lease"]
        assert [one["id"] for one in remembered["reservations"]] == [one["id"] for one in lease["reservations"]]
        assert (await client.delete(f"{HOSTS}/node")).status_code == 204


async def test_a_host_is_reported_as_failed_and_as_well_again(api: Api) -> None:
    async with await api.client() as client:
        await client.post(HOSTS, json={"name": "node", "vcpus": 8})
        for report, status in (("fail", "failed"), ("recover", "up")):
            answer = await client.post(f"{HOSTS}/node/{report}")
            assert (answer.status_code, answer.json()["host"]["status"]) == (200, status)


async def test_allocations_are_those_of_one_lease_if_it_is_named(api: Api) -> None:
    async with await api.client() as client:
        await client.post(HOSTS, json={"name": "node"})
        later = {"start_date": "2030-02-01 22:00", "end_date": "2030-02-02 06:00"}
        first, second = [(await client.post(LEASES, json={**NIGHT, **when})).json()["lease"] for when in ({}, later)]
        asked = {
            "": [first, second],
            f"?lease_id={second['id']}": [second],
            f"?reservation_id={first['reservations'][0]['id']}": [first],
            "?lease_id=none": [],
        }
        for query, wanted in asked.items():
            (found,) = (await client.get(f"{HOSTS}/allocations{query}")).json()["allocations"]
            assert [one["lease_id"] for one in found["reservations"]] == [one["id"] for one in wanted]
            assert (await client.get(f"{HOSTS}/node/allocation{query}")).json() == {"allocation": found}


@on_module_loop
@pytest.mark.parametrize("base", ["", "/ns/team"])
async def test_the_service_tells_its_versions_and_what_can_be_reserved(empty_api: Api, base: str) -> None:
    async with await empty_api.client() as client:
        for path in ("", "/", "/versions"):
            answer = await client.get(f"{base}/blazar{path}")
            assert answer.status_code == 300
            (version,) = answer.json()["versions"]
            assert (version["id"], version["status"], version["max_version"]) == ("v1.0", "CURRENT", "1.0")
            assert version["links"] == [{"href": f"http://here{base}/blazar/v1", "rel": "self"}]
        plugins = (await client.get(f"{base}/blazar/v1/plugins")).json()["plugins"]
        assert plugins == ["mci", "physical:host", "virtual:instance"]


@on_module_loop
@pytest.mark.parametrize(
    ("header", "status", "sentence"),
    [
        ("reservation 1.0", 200, ""),
        ("reservation latest", 200, ""),
        ("compute 2.90", 200, ""),
        ("compute 2.90, reservation 1.0", 200, ""),
        ("reservation 1.1", 406, "Version 1.1 is not supported by the API. Minimum is 1.0 and maximum is 1.0."),
        ("compute 2.90,reservation 2.0", 406, "Version 2.0 is not supported by the API."),
        ("reservation one", 400, "API Version String one is of invalid format."),
        ("reservation 1_0.0", 400, "API Version String 1_0.0 is of invalid format."),
    ],
)
async def test_an_unknown_version_of_the_api_is_not_acceptable(
    empty_api: Api, header: str, status: int, sentence: str
) -> None:
    async with await empty_api.client() as client:
        for path in (LEASES, HOSTS, "/blazar/v1/plugins"):
            answer = await client.get(path, headers={"OpenStack-API-Version": header})
            assert answer.status_code == status
            assert sentence in answer.json().get("error_message", "")
            assert answer.headers["Vary"] == "OpenStack-API-Version"


@on_module_loop
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"end_date": "2029-12-31 00:00"}, "End date must be later than start date."),
        ({"start_date": "Bogus 13:13"}, "Bogus 13:13 is an invalid date. Required format: %Y-%m-%d %H:%M"),
        ({"start_date": "2020-01-01 00:00"}, "Start date must be later than current date"),
    ],
)
async def test_a_bad_date_is_told_by_the_sentence_that_clients_know(
    empty_api: Api, given: dict[str, str], sentence: str
) -> None:
    async with await empty_api.client() as client:
        answer = await client.post(LEASES, json={**NIGHT, **given})
        assert (answer.status_code, answer.json()["error_message"]) == (400, sentence)


async def test_a_missing_parameter_and_a_long_key_are_told_by_the_sentences_that_clients_know(api: Api) -> None:
    async with await api.client() as client:
        without = await client.post(LEASES, json={"name": "n", "start_date": "now"})
        assert without.json()["error_message"] == "Missing parameter end_date"
        long = await client.post(HOSTS, json={"name": "node", "k" * 65: "v"})
        assert (long.status_code, long.json()["error_message"]) == (400, "Extra capability key too long")


async def test_a_lease_without_reservations_is_made(api: Api) -> None:
    async with await api.client() as client:
        bare = {name: value for name, value in NIGHT.items() if name != "reservations"}
        answer = await client.post(LEASES, json=bare)
        assert (answer.status_code, answer.json()["lease"]["reservations"]) == (201, [])


@on_module_loop
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/blazar/v1/nothing", 404),
        ("GET", "/blazar/v2/leases", 404),
        ("GET", "/ns/team/blazar/v1/nothing/at/all", 404),
        ("POST", f"{LEASES}/x/y/z", 404),
        ("PATCH", LEASES, 405),
    ],
)
async def test_a_path_that_is_not_there_is_told_as_clients_expect(
    empty_api: Api, method: str, path: str, status: int
) -> None:
    async with await empty_api.client() as client:
        answer = await client.request(method, path)
        told = answer.json()
        assert (answer.status_code, told["error_code"], bool(told["error_message"])) == (status, status, True)
        elsewhere = (await client.get("/nothing")).json()
        assert (elsewhere["status"], "error_message" in elsewhere) == (404, False)


async def test_an_end_now_of_what_has_not_started_says_what_would_be_allowed(api: Api) -> None:
    async with await api.client() as client:
        await client.post(HOSTS, json={"name": "node"})
        lease = (await client.post(LEASES, json=NIGHT)).json()["lease"]
        answer = await client.put(f"{LEASES}/{lease['id']}", json={"end_date": "now"})
        told = answer.json()
        assert (answer.status_code, told["field"], told["state"]) == (400, "end_date", "PENDING")
        assert "delete it" in told["detail"]
        assert (await client.get(f"{LEASES}/{lease['id']}")).json()["lease"] == lease


async def test_a_host_whose_name_no_database_can_hold_is_refused_each_time(api: Api) -> None:
    async with await api.client() as client:
        for _ in range(2):
            assert (await client.post(HOSTS, json={"name": "node\0"})).status_code == 400


async def test_a_token_sees_the_leases_of_its_own_namespace(api: Api) -> None:
    async with await api.client() as team, await api.client(Role.ADMIN, "*") as boss:
        await team.post(HOSTS, json={"name": "node"})
        await team.post(LEASES, json=NIGHT)
        assert (await boss.get(LEASES)).json() == {"leases": []}
        assert len((await boss.get("/ns/team/blazar/v1/leases")).json()["leases"]) == 1
        other = await team.get("/ns/other/blazar/v1/leases")
        assert (other.status_code, other.json()["error_code"]) == (403, 403)


async def test_a_private_property_is_listed_only_where_all_are_asked_for(api: Api) -> None:
    async with await api.client() as client:
        await client.post(HOSTS, json={"name": "node", "gpu": "a100", "rack": "7"})
        for private, listed in (
            (True, ["hypervisor_hostname", "rack"]),
            (False, ["gpu", "hypervisor_hostname", "rack"]),
        ):
            answer = await client.patch(f"{HOSTS}/properties/gpu", json={"private": private})
            assert answer.json() == {"resource_property": {"property": "gpu", "private": private, "values": ["a100"]}}
            found = (await client.get(f"{HOSTS}/properties")).json()["resource_properties"]
            assert [one["property"] for one in found] == listed
            every = (await client.get(f"{HOSTS}/properties?all=True&detail=True")).json()["resource_properties"]
            assert every[0] == {"property": "gpu", "private": private, "values": ["a100"]}
        assert (await client.patch(f"{HOSTS}/properties/none", json={"private": True})).status_code == 404


@on_module_loop
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", LEASES, {"name": "n"}, 400),
        ("POST", LEASES, {**NIGHT, "end_date": "soon"}, 400),
        ("POST", LEASES, {**NIGHT, "events": [{"event_type": "party", "event_date": "2030-01-02 00:00"}]}, 400),
        ("POST", LEASES, {**NIGHT, "events": [{"event_type": "before_end_lease"}]}, 400),
        ("POST", LEASES, {**NIGHT, "reservations": [{"resource_type": "tape"}]}, 400),
        *(("POST", LEASES, {**NIGHT, "reservations": [{**WISH, "max": odd}]}, 400) for odd in ("+2", "02", 1.0)),
        ("POST", LEASES, {**NIGHT, "end_date": "2031-01-01 00:00"}, 403),
        ("POST", LEASES, NIGHT, 409),
        ("GET", f"{LEASES}/nobody", None, 404),
        ("PUT", f"{LEASES}/nobody", {"name": "n"}, 404),
        ("DELETE", f"{LEASES}/nobody", None, 404),
        ("GET", f"{HOSTS}/nobody", None, 404),
        ("POST", HOSTS, {"vcpus": 8}, 400),
        ("POST", HOSTS, {"name": "node", "vcpus": "many"}, 400),
    ],
)
async def test_errors_are_worded_as_clients_expect(
    empty_api: Api, method: str, path: str, body: object, status: int
) -> None:
    async with await empty_api.client() as client:
        answer = await client.request(method, path, json=body)
        told = answer.json()
        assert (answer.status_code, told["error_code"]) == (status, status)
        assert told["error_message"]
        assert told["error_name"]
        assert answer.headers["OpenStack-API-Version"] == "reservation 1.0"


async def test_who_may_only_look_may_only_look(api: Api) -> None:
    async with await api.client(Role.VIEWER) as client:
        assert (await client.get(LEASES)).status_code == 200
        assert (await client.post(LEASES, json=NIGHT)).status_code == 403


async def test_who_has_no_token_is_told_so(api: Api) -> None:
    async with await api.client() as client:
        answer = await client.get(LEASES, headers={"X-Auth-Token": "nobody's"})
        assert (answer.status_code, answer.json()["error_name"]) == (401, "Unauthorized")


# --- pages of lists --------------------------------------------------------------------------------------------------


async def test_a_list_that_is_cut_says_so_and_its_links_lead_to_the_end(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_pages, "MAX_LISTED", 2)
    async with await api.client() as client:
        for number in range(5):
            assert (await client.post(HOSTS, json={"name": f"h{number}"})).status_code == 201
            wish = {**NIGHT, "name": f"night {number}", "reservations": []}
            assert (await client.post(LEASES, json=wish)).status_code == 201
        for path, field, most in ((LEASES, "leases", ""), (HOSTS, "hosts", ""), (HOSTS, "hosts", "?limit=1")):
            sizes, names, following = [], set(), f"{path}{most}"
            while following:
                page = (await client.get(following)).json()
                sizes.append(len(page[field]))
                names |= {one["id"] for one in page[field]}
                links = page.get(f"{field}_links", [])
                following = links[0]["href"] if links else ""
            assert (len(names), sizes) == (5, [1] * 5 if most else [2, 2, 1])
        some = (await client.get(f"{HOSTS}/allocations?limit=2&marker=h1")).json()
        assert [one["resource_id"] for one in some["allocations"]] == ["h2", "h3"]
        assert "marker=h3" in some["allocations_links"][0]["href"]
        monkeypatch.undo()
        assert set((await client.get(LEASES)).json()) == {"leases"}
        assert (await client.get(f"{LEASES}?limit=0")).status_code == 400
