"""`why` for operations that wait for an agent, on both stores."""

import asyncio
from typing import Any

import httpx

from stateward.access import Role, Tokens
from stateward.config import Config
from stateward.domains.edge.model import CloudletSpec, ClusterInst
from stateward.engine.transitions import time_text
from stateward.server.app import create_app
from stateward.store.records import Key, WorkItem
from tests.integration.domains.edge.conftest import ANN, NS, PATIENT, EdgeHarness, hold_work
from tests.waiting import until

C1 = "munich:c1"


async def why(harness: EdgeHarness, object_id: str = C1) -> Any:
    """Return what the API says about an object."""
    tokens = Tokens(harness.engine)
    token, _ = await tokens.issue("vic", Role.VIEWER, [NS])
    transport = httpx.ASGITransport(create_app(harness.engine, tokens, Config()))  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client:
        answer = await client.get(f"/api/v1/ns/{NS}/objects/{object_id}/why")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def parked(harness: EdgeHarness) -> WorkItem:
    """Wait until the work on the cluster is left to the agent."""
    async with asyncio.timeout(PATIENT):
        while True:
            (work,) = await harness.engine.store.reader.queue_of(Key(NS, C1))
            if work.is_parked and (await harness.get(C1)).state == "Creating":
                return work
            await asyncio.sleep(0.005)


async def test_why_names_the_agent_its_last_report_and_the_deadline_and_that_its_cloudlet_is_offline(
    harness: EdgeHarness,
) -> None:
    harness.hub.retry_s = 3600.0  # an order that is sent again is answered again, which renews its time
    runner = await harness.cloudlet()
    gate = hold_work(runner)
    accepted = await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    await harness.until_progress(accepted, 1)
    work = await parked(harness)
    (report,) = await harness.engine.store.reader.progress_of(accepted.op.key, 0)
    assert work.deadline is not None
    told = await why(harness)
    assert told["reason"] == "another party works on it"
    since = f"since {time_text(accepted.op.created)}"
    end = f"; last report at {time_text(report.at)}: step 1; it may take until {time_text(work.deadline)}"
    assert told["text"] == f"create: the agent of cloudlet munich has worked on it {since}{end}"
    await runner.kill()
    offline = await harness.until("munich", "Offline")
    away = f"which is not connected: munich is Offline since {time_text(offline.since)}"
    assert (await why(harness))["text"] == (
        f"create: it has waited for the agent of cloudlet munich {since}, {away}{end}"
    )
    gate.set()


async def test_why_says_of_a_new_cloudlet_that_no_agent_is_connected(harness: EdgeHarness) -> None:
    accepted = await harness.service.create_cloudlet(NS, "oslo", CloudletSpec(), ANN)
    await until(lambda: harness.engine.store.reader.queue_of(Key(NS, "oslo")), lambda queue: queue[0].is_parked)
    begun = time_text(accepted.op.created)
    text = (await why(harness, "oslo"))["text"]
    assert text.startswith(
        f"create: it has waited for the agent of cloudlet oslo since {begun}, which is not connected: "
        f"oslo is Init since {begun}; "
    )
    assert ": the cloudlet waits for its agent to connect; it may take until " in text


async def test_why_names_the_cluster_of_an_app_and_then_the_cloudlet(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    await harness.deployed()
    assert [one["id"] for one in (await why(harness, f"{C1}:web"))["parents"]] == [C1, "munich"]
