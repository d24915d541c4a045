"""Locks by name exist only while they are used."""

import asyncio

from stateward.aio.named_locks import NamedLocks


async def test_a_lock_excludes_others_of_its_name_and_goes_with_its_last_user() -> None:
    locks, held, events = NamedLocks(), asyncio.Event(), list[str]()

    async def use(name: str) -> None:
        async with locks[name]:
            events.append(f"{name} begins")
            await held.wait()
            events.append(f"{name} ends")

    tasks = [asyncio.create_task(use(name)) for name in ("a", "a", "b")]
    while len(events) < 2:
        await asyncio.sleep(0)
    assert sorted(events) == ["a begins", "b begins"]
    assert len(locks) == 2
    held.set()
    await asyncio.gather(*tasks)
    tasks.clear()
    assert events.index("a ends") < [index for index, one in enumerate(events) if one == "a begins"][1]
    assert len(locks) == 0
