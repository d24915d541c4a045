"""Concurrent requests over HTTP: one wins, and the errors of the others name it. On both stores."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stateward.domains.mci.service import Service
from stateward.drivers.simulated.faults import CALM
from stateward.engine import Accepted
from stateward.store.port import Store
from tests.integration.domains.mci.api_harness import AWS, DEAD, NS, ApiHarness, group, mci, open_api

M1 = f"/ns/{NS}/mci/m1"
SUBNET = {"name": "a", "ipv4_CIDR": "10.0.1.0/24"}


@pytest.fixture
async def api(new_store: Callable[[], Store], tmp_path: Path) -> AsyncIterator[ApiHarness]:
    async with open_api(tmp_path, new_store()) as opened:
        yield opened


async def test_of_many_equal_creates_one_wins(api: ApiHarness) -> None:
    answers = await asyncio.gather(*(api.post(f"/ns/{NS}/mciDynamic?wait=60", mci()) for _ in range(8)))
    assert Counter(one.status_code for one in answers) == {200: 1, 409: 7}
    assert (await api.status())["status"] == "Running:2 (R:2/2)"


async def test_of_many_actions_one_wins_and_the_others_name_it(api: ApiHarness) -> None:
    await api.created(mci("m1", group(size=5)))
    api.set_profile(DEAD)
    actions = ["suspend", "reboot", "terminate", "suspend"]
    answers = await asyncio.gather(*(api.post(f"{M1}?action={action}") for action in actions))
    assert Counter(one.status_code for one in answers) == {200: 1, 409: 3}
    winner = next(one.json()["operation"] for one in answers if one.status_code == 200)
    assert all(one.json()["blocker"]["op"] == winner for one in answers if one.status_code == 409)
    counts = (await api.status())["statusCount"]
    assert [counts[name] for name in counts if counts[name]] == [5, 5]
    api.set_profile(CALM)


async def test_a_subgroup_is_scaled_by_one_at_a_time(api: ApiHarness) -> None:
    await api.created()
    answers = await asyncio.gather(*(api.post(f"{M1}/subgroup/g1?wait=60", {"numVMsToAdd": 1}) for _ in range(4)))
    codes = Counter(one.status_code for one in answers)
    assert codes.keys() <= {200, 409}
    assert codes[200] >= 1
    total = 2 + codes[200]
    assert (await api.status())["status"] == f"Running:{total} (R:{total}/{total})"


async def test_a_namespace_and_a_key_are_made_once(api: ApiHarness) -> None:
    namespaces = await asyncio.gather(*(api.post("/ns", {"name": "ns01"}) for _ in range(5)))
    assert Counter(one.status_code for one in namespaces) == {200: 1, 409: 4}
    body = {"name": "k1", "connectionName": "aws-ap-northeast-2"}
    keys = await asyncio.gather(*(api.post(f"/ns/{NS}/resources/sshKey", body) for _ in range(5)))
    assert Counter(one.status_code for one in keys) == {200: 1, 409: 4}
    assert sum("privateKey" in one.json() for one in keys) == 1


async def test_a_size_is_reached_even_if_the_subgroup_is_scaled_after_it_was_read(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.created()
    scaled, scale = asyncio.Event(), Service.scale

    async def overtaken(service: Service, *args: Any) -> Accepted:
        if not scaled.is_set():
            scaled.set()
            answer = await api.post(f"{M1}/subgroup/g1?wait=60", {"numVMsToAdd": 3})
            assert answer.status_code == 200, answer.text
        return await scale(service, *args)

    monkeypatch.setattr(Service, "scale", overtaken)
    assert (await api.post(f"{M1}/subgroup/g1?wait=60", {"size": 4})).status_code == 200
    assert (await api.status())["status"] == "Running:4 (R:4/4)"


async def test_of_two_subnets_that_overlap_one_is_added(api: ApiHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    network, body = f"/ns/{NS}/resources/vNet", {"name": "v1", "connectionName": AWS, "cidrBlock": "10.0.0.0/16"}
    assert (await api.post(network, body | {"subnetInfoList": [SUBNET]})).is_success
    read, reshape = asyncio.Event(), Service._reshape

    async def overtaken(service: Service, *args: Any) -> Accepted:
        if not read.is_set():
            read.set()
            assert (
                await api.post(f"{network}/v1/subnet", SUBNET | {"name": "b", "ipv4_CIDR": "10.0.2.0/24"})
            ).is_success
        return await reshape(service, *args)

    monkeypatch.setattr(Service, "_reshape", overtaken)
    answer = await api.post(f"{network}/v1/subnet", SUBNET | {"name": "c", "ipv4_CIDR": "10.0.2.128/25"})
    assert (answer.status_code, answer.json()["field"]) == (400, "subnetInfoList[2].ipv4_CIDR")
    assert (await api.get(f"{network}/v1/subnet?option=id")).json() == {"output": ["a", "b"]}
