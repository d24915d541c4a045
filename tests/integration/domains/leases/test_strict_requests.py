"""Requests to the reservation API that must be refused rather than half understood, and slow answers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stateward.access import Role
from stateward.domains.leases import service
from stateward.domains.leases.lifecycle import HOST
from stateward.domains.leases.model import host_key
from stateward.errors import BadInput
from stateward.lifecycle import USER
from tests.integration.domains.leases.conftest import NS, Opening
from tests.integration.domains.leases.test_api import HOSTS, LEASES, NIGHT, WISH, open_api

WARNING = {"event_type": "before_end_lease", "event_date": "2030-01-02 05:00"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with open_api(tmp_path) as api, await api.client() as opened:
        await opened.post(HOSTS, json={"name": "node", "vcpus": 8})
        yield opened


@pytest.mark.parametrize(
    ("wrong", "field", "nearest"),
    [
        ({"strat_date": "2030-01-01 22:00"}, "strat_date", "start_date"),
        ({"reservations": [{**WISH, "resource_propertes": '["==", "$gpu", "1"]'}]}, "reservations.resource_propertes",
         "resource_properties"),
        ({"reservations": [{**WISH, "before_end": "snapshot"}]}, "reservations.before_end", None),
        ({"events": [{**WARNING, "event_data": "x"}]}, "events.event_data", "event_date"),
    ],
)  # fmt: skip
async def test_a_mistyped_field_of_a_lease_is_refused_with_the_nearest(
    client: httpx.AsyncClient, wrong: dict[str, Any], field: str, nearest: str | None
) -> None:
    answer = await client.post(LEASES, json={**NIGHT, **wrong})
    assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text
    if nearest is not None:
        assert answer.json()["nearest"] == nearest
    assert (await client.get(LEASES)).json() == {"leases": []}
    made = await client.post(LEASES, json={**NIGHT, "reservations": [{**WISH, "before_end": "default"}]})
    lease = made.json()["lease"]
    changed = [{"id": lease["reservations"][0]["id"], "maxx": 2}]
    for body in ({"end_dat": "2030-01-02 07:00"}, {"reservations": changed}):
        assert (await client.put(f"{LEASES}/{lease['id']}", json=body)).status_code == 400
    assert (await client.get(f"{LEASES}/{lease['id']}")).json()["lease"] == lease
    assert (await client.patch(f"{HOSTS}/properties/vcpus", json={"private": True, "x": 1})).status_code == 400


async def test_a_dry_run_in_the_query_does_not_create_a_lease(client: httpx.AsyncClient) -> None:
    answer = await client.post(f"{LEASES}?dry_run=true", json=NIGHT)
    assert (answer.status_code, answer.json()["field"]) == (400, "dry_run")
    assert (await client.get(LEASES)).json() == {"leases": []}


@pytest.mark.parametrize("ns", ["%2e%2e", "*", "%20", "a%20b", "-x"])
async def test_a_namespace_must_be_a_name(tmp_path: Path, ns: str) -> None:
    async with open_api(tmp_path) as api, await api.client(Role.ADMIN, "*") as client:
        for method, path, body in (
            ("GET", "", None),
            ("GET", "/v1/leases", None),
            ("POST", "/v1/os-hosts", {"name": "h"}),
        ):
            answer = await client.request(method, f"/ns/{ns}/blazar{path}", json=body)
            assert (answer.status_code, answer.json()["field"]) == (400, "namespace"), (method, path, answer.text)


async def test_a_host_keeps_its_name_and_what_the_server_says_about_it(client: httpx.AsyncClient) -> None:
    shown = (await client.get(f"{HOSTS}/node")).json()["host"]
    for field, value in (("status", "down"), ("id", "other"), ("name", "other"), ("hypervisor_hostname", "other"),
                         ("created_at", None), ("service_name", "x"), ("trust_id", "t")):  # fmt: skip
        answer = await client.put(f"{HOSTS}/node", json={"rack": "r1", field: value})
        assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text
        made = await client.post(
            HOSTS, json={"name": "n2", **({field: value} if field != "name" else {"status": "up"})}
        )
        assert made.status_code == 400, (field, made.text)
    assert (await client.get(f"{HOSTS}/node")).json()["host"] == shown
    back = await client.put(f"{HOSTS}/node", json={**shown, "rack": "r1"})
    assert (back.status_code, back.json()["host"]["rack"]) == (200, "r1"), back.text
    assert "name" not in {
        one["property"] for one in (await client.get(f"{HOSTS}/properties")).json()["resource_properties"]
    }


@pytest.mark.parametrize("name", ["allocations", "properties", "."])
async def test_a_host_that_no_path_could_show_is_refused(
    client: httpx.AsyncClient, opening: Opening, name: str
) -> None:
    answer = await client.post(HOSTS, json={"name": name})
    assert (answer.status_code, answer.json()["field"]) == (400, "name")
    async with opening() as site:
        with pytest.raises(BadInput, match="another name than"):
            await site.engine.create(*host_key(NS, name), HOST.kind, "register", spec={"name": name}, actor=USER)


async def test_a_denial_by_policy_says_forbidden_everywhere(client: httpx.AsyncClient) -> None:
    answer = await client.post(LEASES, json={**NIGHT, "end_date": "2030-03-01 06:00"})
    told = answer.json()
    assert (answer.status_code, told["status"], told["error_code"]) == (403, 403, 403)
    assert (told["title"], told["error_name"]) == ("Forbidden", "Forbidden")
    assert told["detail"].startswith("max duration")


async def test_a_lease_that_takes_long_is_answered_with_what_it_does(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "OUTCOME_TIMEOUT_S", 0.0)
    async with opening(works=False) as site:
        await site.hosts("h1")
        lease = await site.lease("night")
        assert (lease.object.state, [*next(iter(lease.seen.reservations.values())).hosts]) == ("CREATING", ["h1"])
        assert (await site.now(lease)).object.id == lease.object.id
