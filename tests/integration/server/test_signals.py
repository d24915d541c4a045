"""Signals to operations over HTTP."""

from typing import Any

from stateward.engine import Job
from tests.integration.server.server_harness import NS, ServerHarness
from tests.waiting import until

PUMP = f"/ns/{NS}/objects/p1/actions/pump"


async def waiting_pump(harness: ServerHarness) -> str:
    """Begin an operation that waits for a signal; returns its id."""

    async def wait(job: Job) -> None:
        harness.plant.begun["got"] = await job.wait_for("approved")

    await harness.built()
    harness.plant.works = wait
    op: str = (await harness.post(PUMP)).json()["operation"]["id"]
    worker = harness.engine.worker
    assert worker is not None
    await until(lambda: harness.plant.begun["pump"] == 1 and worker.busy == 0)
    return op


def path(op: str, name: str = "approved") -> str:
    return f"/ns/{NS}/operations/{op}/signals/{name}"


async def test_a_signal_lets_the_operation_go_on(harness: ServerHarness) -> None:
    op = await waiting_pump(harness)
    answer = await harness.post(path(op), {"payload": 7}, who="operator")
    assert (answer.status_code, answer.json()["id"]) == (202, op)
    ended = await harness.engine.wait_record(NS, op, 120)
    assert (ended.status, harness.plant.begun["got"]) == ("succeeded", 7)
    sent = [one for one in await harness.engine.history(NS, "p1") if one.event == "signal: approved"]
    assert [(one.who, one.op) for one in sent] == [("olga", op)]


async def test_why_tells_the_signal_that_is_waited_for(harness: ServerHarness) -> None:
    op = await waiting_pump(harness)
    why = (await harness.get(f"/ns/{NS}/objects/p1/why")).json()
    assert why["reason"] == "signal"
    assert why["text"].startswith("pump: it waits for the signal approved; it may take until 20")
    queue = (await harness.get(f"/ns/{NS}/objects/p1/queue")).json()["items"]
    assert [(one["op"], one["reason"]) for one in queue] == [(op, "signal")]


async def test_a_signal_is_sent_once_for_each_idempotency_key(harness: ServerHarness) -> None:
    op = await waiting_pump(harness)
    header = {"Idempotency-Key": "k"}
    first = await harness.post(path(op), {"payload": 1}, headers=header)
    again = await harness.post(path(op), {"payload": 1}, headers=header)
    assert (first.headers.get("idempotency-replayed"), again.headers["idempotency-replayed"]) == (None, "true")
    other = await harness.post(path(op), {"payload": 2}, headers=header)
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")


async def test_a_signal_that_nobody_can_take_is_refused(harness: ServerHarness) -> None:
    op = await waiting_pump(harness)
    await harness.post(path(op))
    await harness.engine.wait_record(NS, op, 120)
    late = await harness.post(path(op))
    assert (late.status_code, late.json()["code"]) == (409, "ended")
    assert (await harness.post(path("none"))).status_code == 404
    bad: list[Any] = [{"payload": 1, "more": 2}, {"load": 1}]
    for body in bad:
        assert (await harness.post(path(op), body)).status_code == 400


async def test_a_payload_that_is_nested_too_deeply_is_refused(harness: ServerHarness) -> None:
    op = await waiting_pump(harness)
    payload: Any = "]" * 200
    for _ in range(100):
        payload = [payload]
    refused = await harness.post(path(op), {"payload": [payload]})
    assert (refused.status_code, refused.json()["field"]) == (400, "payload")
    assert (await harness.post(path(op), {"payload": payload})).status_code == 202
