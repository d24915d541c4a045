"""Status over HTTP: stored, fresh from the providers with few calls, or counted."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.domains.mci.api import live_status
from stateward.drivers import ProviderRegion
from stateward.drivers.simulated.faults import CALM
from stateward.store.changes import Changes
from tests.integration.domains.mci.api_harness import DEAD, HERE, MICRO, NS, ApiHarness, group, mci, open_api

M1 = f"/ns/{NS}/mci/m1"
ELSEWHERE = ProviderRegion("gcp", "asia-northeast3")


async def everything(api: ApiHarness) -> int:
    """Return the number of the newest line: whatever changes anything writes one."""
    return await api.engine.store.reader.last_journal_seq()


async def test_reading_what_has_just_changed_asks_no_provider_and_changes_nothing(api: ApiHarness) -> None:
    await api.created()
    before, asked = await everything(api), len(api.calls)
    for path in (M1, f"{M1}?option=status", f"/ns/{NS}/mci?option=status", f"{M1}?option=status&vm=none"):
        assert (await api.get(path)).status_code == 200
    assert (await everything(api), len(api.calls)) == (before, asked)


async def test_a_fresh_status_costs_one_call_per_connection(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 20), group("g2", 10, specId=MICRO)))
    before, asked = await everything(api), len(api.calls)
    status = await api.status(more="&fresh=true")
    assert len(api.calls) - asked == 2
    assert api.saved == {"aws": 19, "gcp": 9}
    assert {one["nativeStatus"] for one in status["vm"]} == {"running", "RUNNING"}
    assert await everything(api) == before


@pytest.mark.parametrize("state", ["Undefined", "Failed"])
async def test_the_last_native_status_of_a_vm_of_which_nothing_is_known_is_not_shown_as_current(
    api: ApiHarness, state: str
) -> None:
    await api.created()
    found = await api.engine.record(NS, "m1.g1-1")
    changed = replace(found, state=state, version=found.version + 1)
    await api.engine.store.transact(lambda tx: tx.apply(Changes(objects=[changed])))
    shown = [(await api.status())["vm"][0], (await api.get(f"{M1}/vm/g1-1")).json()]
    assert [(one["status"], one["nativeStatus"]) for one in shown] == [(state, "unknown (last running)")] * 2


async def test_what_does_not_change_by_itself_is_not_asked_about(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 3), group("g2", 2, specId=MICRO)))
    for vm in ("g1-1", "g1-2", "g1-3"):
        await api.done(f"{M1}/vm/{vm}?action=suspend")
    asked = len(api.calls)
    await api.status(more="&fresh=true")
    assert [provider for provider, _ in api.calls[asked:]] == ["gcp"]
    assert api.saved == {"aws": 3, "gcp": 1}


async def test_many_readers_share_one_fetch(api: ApiHarness) -> None:
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


async def test_a_connection_says_for_how_long_its_listings_serve(api: ApiHarness) -> None:
    for name, seconds in (("often", "0"), ("seldom", "3600")):
        body = {"name": name, "provider": "aws", "region": "ap-northeast-2", "options": {"fresh": seconds}}
        (await api.post("http://test/api/v1/mci/connections", body)).raise_for_status()
    groups = [group("g1", 2, connectionName="often"), group("g2", 2, connectionName="seldom")]
    await api.created(mci("m1", *groups))
    asked = len(api.calls)
    for _ in range(3):
        status = await api.status(more="&fresh=true")
        assert {one["nativeStatus"] for one in status["vm"]} == {"running"}
    assert len(api.calls) - asked == 3 + 1


async def test_a_time_that_is_none_is_bad_input(api: ApiHarness) -> None:
    for seconds in ("soon", "-1", "nan", "3601"):
        body = {"name": "mine", "provider": "aws", "region": "us-east-1", "options": {"fresh": seconds}}
        answer = await api.post("http://test/api/v1/mci/connections", body)
        assert (answer.status_code, answer.json()["field"]) == (400, "fresh"), seconds
    assert (await api.get("/connConfig/mine")).status_code == 404


async def test_a_fresh_status_shows_what_happened_behind_our_back_and_lets_it_count(api: ApiHarness) -> None:
    stopped, ended = [one["uid"] for one in (await api.created())["vm"]]
    api.plugin.cloud.stop(HERE, stopped)
    api.set_profile(replace(CALM, forgotten=0.0))
    api.plugin.cloud.terminate(HERE, ended)
    vms = (await api.status(more="&fresh=true"))["vm"]
    assert [(one["status"], one["nativeStatus"]) for one in vms] == [
        ("Suspended", "stopped"),
        ("Running", "not listed"),
    ]
    line = (await api.engine.history(NS, "m1.g1-1"))[-1]
    assert (line.actor, line.event, line.source, line.target) == ("provider", "shows suspended", "Running", "Suspended")


# --- a plain status --------------------------------------------------------------------------------------------------


@pytest.fixture
def _nothing_is_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_status, "RECENT_LISTING_S", 0.0)


@pytest.mark.usefixtures("_nothing_is_recent")
async def test_a_plain_status_asks_once_per_region_and_lets_count_what_is_shown(tmp_path: Path) -> None:
    async with open_api(tmp_path, fresh_for=0.0) as api:
        stopped, _ = [one["uid"] for one in (await api.created())["vm"]]
        api.plugin.cloud.stop(HERE, stopped)
        asked = len(api.calls)
        answers = await asyncio.gather(*(api.status() for _ in range(10)))
        assert len(api.calls) - asked == 1
        assert {one["status"] for one in answers} == {"Partial-Suspended:1 (R:1/2)"}
        assert {vm["status"] for one in answers for vm in one["vm"]} == {"Running", "Suspended"}
        lines = [one for one in await api.engine.history(NS, "m1.g1-1") if one.actor == "provider"]
        assert [line.target for line in lines] == ["Suspended"]
        listed = (await api.get(f"/ns/{NS}/mci?option=status")).json()["mci"][0]
        single = (await api.get(f"{M1}/vm/g1-1?option=status")).json()
        assert (listed["status"], single["status"]) == ("Partial-Suspended:1 (R:1/2)", "Suspended")


async def test_a_plain_status_is_served_by_a_recent_listing_whoever_asked_for_it(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, _ = [one["uid"] for one in (await api.created())["vm"]]
    api.plugin.cloud.stop(HERE, stopped)
    await api.status(more="&fresh=true")
    asked = len(api.calls)
    monkeypatch.setattr(live_status.StatusQuery, "needs_check", lambda _, vm: vm.state == "Running")
    assert (await api.status())["status"] == "Partial-Suspended:1 (R:1/2)"
    assert len(api.calls) == asked


@pytest.mark.usefixtures("_nothing_is_recent")
async def test_a_dead_region_does_not_hold_up_what_is_known_of_the_others(tmp_path: Path) -> None:
    async with open_api(tmp_path, fresh_for=0.0) as api:
        await api.created(mci("m1", group("g1", 1), group("g2", 1, specId=MICRO)))
        other = next(one["uid"] for one in (await api.status())["vm"] if one["id"] == "g2-1")
        api.set_profile(replace(CALM, dead=True, patience=3600.0))
        api.plugin.cloud.stop(ELSEWHERE, other)
        async with asyncio.timeout(30):
            for _ in range(5):
                found = {one["id"]: one["status"] for one in (await api.status())["vm"]}
        assert found == {"g1-1": "Running", "g2-1": "Suspended"}
        api.set_profile(CALM)


async def test_a_provider_that_does_not_answer_proves_nothing(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 1)))
    api.set_profile(DEAD)
    vm = (await api.status(more="&fresh=true"))["vm"][0]
    assert (vm["status"], vm["nativeStatus"]) == ("Running", "unknown")
    assert (await api.get(f"{M1}/vm/g1-1?option=status")).json()["nativeStatus"] == "running"
    api.set_profile(CALM)


async def test_a_status_without_vms_is_only_counted(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 3)))
    await api.done(f"{M1}/vm/g1-2?action=suspend")
    full, counted = await api.status(), await api.status(more="&vm=none")
    assert counted["vm"] == []
    for field in ("status", "statusCount", "targetStatus", "targetAction", "id", "label"):
        assert counted[field] == full[field]
    listed = (await api.get(f"/ns/{NS}/mci?option=status&vm=none")).json()["mci"][0]
    assert (listed["status"], listed["vm"]) == ("Partial-Running:2 (R:2/3)", [])
