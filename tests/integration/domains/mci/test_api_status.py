"""Status over HTTP: as stored, freshly from the providers with as few calls as can be, or only counted."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.drivers.simulated.temper import CALM
from tests.integration.domains.mci.api_house import DEAD, HERE, MICRO, NS, ApiHouse, group, mci, open_api

M1 = f"/ns/{NS}/mci/m1"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiHouse]:
    async with open_api(tmp_path) as opened:
        yield opened


async def everything(api: ApiHouse) -> int:
    """Return the number of the newest line: whatever changes anything writes one."""
    return await api.engine.store.reader.last_line()


async def test_reading_a_status_asks_no_provider_and_changes_nothing(api: ApiHouse) -> None:
    await api.created()
    before, asked = await everything(api), len(api.calls)
    for path in (M1, f"{M1}?option=status", f"/ns/{NS}/mci?option=status", f"{M1}?option=status&vm=none"):
        assert (await api.get(path)).status_code == 200
    assert (await everything(api), len(api.calls)) == (before, asked)


async def test_a_fresh_status_costs_one_call_per_connection(api: ApiHouse) -> None:
    await api.created(mci("m1", group("g1", 20), group("g2", 10, specId=MICRO)))
    before, asked = await everything(api), len(api.calls)
    status = await api.status(more="&fresh=true")
    assert len(api.calls) - asked == 2
    assert api.saved == {"aws": 19, "gcp": 9}
    assert {one["nativeStatus"] for one in status["vm"]} == {"running", "RUNNING"}
    assert await everything(api) == before


async def test_what_does_not_change_by_itself_is_not_asked_about(api: ApiHouse) -> None:
    await api.created(mci("m1", group("g1", 3), group("g2", 2, specId=MICRO)))
    for vm in ("g1-1", "g1-2", "g1-3"):
        await api.done(f"{M1}/vm/{vm}?action=suspend")
    asked = len(api.calls)
    await api.status(more="&fresh=true")
    assert [provider for provider, _ in api.calls[asked:]] == ["gcp"]
    assert api.saved == {"aws": 3, "gcp": 1}


async def test_many_readers_share_one_fetch(api: ApiHouse) -> None:
    await api.created(mci("m1", group("g1", 5)))
    asked = len(api.calls)
    await asyncio.gather(*(api.status(more="&fresh=true") for _ in range(10)))
    await api.status(more="&fresh=true")
    assert len(api.calls) - asked == 1
    assert api.saved == {"aws": 11 * 5 - 1}


async def test_a_listing_serves_for_as_long_as_it_is_fresh(tmp_path: Path) -> None:
    async with open_api(tmp_path, fresh_for=0.0) as api:
        await api.created()
        asked = len(api.calls)
        await api.status(more="&fresh=true")
        await api.status(more="&fresh=true")
        assert len(api.calls) - asked == 2


async def test_a_connection_says_for_how_long_its_listings_serve(api: ApiHouse) -> None:
    for name, seconds in (("often", "0"), ("seldom", "3600")):
        body = {"name": name, "provider": "aws", "region": "us-east-1", "options": {"fresh": seconds}}
        (await api.post("http://test/api/v1/mci/connections", body)).raise_for_status()
    groups = [group("g1", 2, connectionName="often"), group("g2", 2, connectionName="seldom")]
    await api.created(mci("m1", *groups))
    asked = len(api.calls)
    for _ in range(3):
        status = await api.status(more="&fresh=true")
        assert {one["nativeStatus"] for one in status["vm"]} == {"running"}
    assert len(api.calls) - asked == 3 + 1


@pytest.mark.parametrize("seconds", ["soon", "-1", "nan", "3601"])
async def test_a_time_that_is_none_is_bad_input(api: ApiHouse, seconds: str) -> None:
    body = {"name": "mine", "provider": "aws", "region": "us-east-1", "options": {"fresh": seconds}}
    answer = await api.post("http://test/api/v1/mci/connections", body)
    assert (answer.status_code, answer.json()["field"]) == (400, "fresh")
    assert (await api.get("/connConfig/mine")).status_code == 404


async def test_a_fresh_status_shows_what_happened_behind_our_back_and_leaves_the_record_alone(api: ApiHouse) -> None:
    stopped, ended = [one["uid"] for one in (await api.created())["vm"]]
    api.wing.cloud.stop(HERE, stopped)
    api.temper(replace(CALM, forgotten=0.0))
    api.wing.cloud.terminate(HERE, ended)
    vms = (await api.status(more="&fresh=true"))["vm"]
    assert [(one["status"], one["nativeStatus"]) for one in vms] == [("Running", "stopped"), ("Running", "not listed")]


async def test_a_provider_that_does_not_answer_proves_nothing(api: ApiHouse) -> None:
    await api.created(mci("m1", group("g1", 1)))
    api.temper(DEAD)
    vm = (await api.status(more="&fresh=true"))["vm"][0]
    assert (vm["status"], vm["nativeStatus"]) == ("Running", "unknown")
    assert (await api.get(f"{M1}/vm/g1-1?option=status")).json()["nativeStatus"] == "running"
    api.temper(CALM)


async def test_a_status_without_vms_is_only_counted(api: ApiHouse) -> None:
    await api.created(mci("m1", group("g1", 3)))
    await api.done(f"{M1}/vm/g1-2?action=suspend")
    full, counted = await api.status(), await api.status(more="&vm=none")
    assert counted["vm"] == []
    for field in ("status", "statusCount", "targetStatus", "targetAction", "id", "label"):
        assert counted[field] == full[field]
    listed = (await api.get(f"/ns/{NS}/mci?option=status&vm=none")).json()["mci"][0]
    assert (listed["status"], listed["vm"]) == ("Partial-Running:2 (R:2/3)", [])
