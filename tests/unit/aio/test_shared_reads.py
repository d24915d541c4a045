"""Reads that are shared."""

import asyncio

import pytest

from stateward.server.telemetry.snapshot import SharedReads


class Gated:
    """A source whose number rises with each read, which ends when the gate is open."""

    def __init__(self) -> None:
        self.reads = 0
        self.gate = asyncio.Event()

    async def read(self, wanted: str) -> str:
        self.reads += 1
        answer = f"{wanted}{self.reads}"
        await self.gate.wait()
        if wanted == "bad":
            raise ValueError(answer)
        return answer


async def turns() -> None:
    """Let the other tasks come to their next await."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_callers_who_come_during_a_read_share_the_next_one() -> None:
    source = Gated()
    shared = SharedReads(source.read)
    first = asyncio.create_task(shared.get("a"))
    await turns()
    later = [asyncio.create_task(shared.get("a")) for _ in range(100)]
    await turns()
    source.gate.set()
    assert await first == "a1"
    assert set(await asyncio.gather(*later)) == {"a2"}
    assert source.reads == 2
    assert await shared.get("a") == "a3"
    assert not shared._next
    assert not shared._running


async def test_a_caller_that_leaves_and_a_read_that_fails_disturb_no_other() -> None:
    source = Gated()
    shared = SharedReads(source.read)
    leaving, failing, staying = (asyncio.create_task(shared.get(one)) for one in ("a", "bad", "a"))
    await turns()
    leaving.cancel()
    source.gate.set()
    assert (await staying)[0] == "a"
    with pytest.raises(ValueError, match="bad"):
        await failing
    assert not shared._running
