"""Signals are kept in the order of their arrival, until each is taken once."""

import pytest
from msgspec.structs import replace

from stateward.store import Store
from stateward.store.errors import WriteConflict
from tests.contract.samples import a_signal, an_object, key
from tests.contract.store_calls import ask, write


async def test_signals_are_found_by_their_operation_in_the_order_of_their_arrival(store: Store) -> None:
    for name, payload in (("go", "1"), ("stop", "null"), ("go", '{"n": 2}')):
        await write(store, signals=[a_signal("op", name, payload=payload, at=12.5)])
    await write(store, signals=[a_signal("other", "go"), a_signal("op", "go", ns="elsewhere")])
    found = await ask(store, "signals", [key("op"), key("unheard of")])
    assert [replace(one, seq=0) for one in found] == [
        a_signal("op", name, payload=payload, at=12.5)
        for name, payload in (("go", "1"), ("stop", "null"), ("go", '{"n": 2}'))
    ]
    assert [one.seq for one in found] == sorted({one.seq for one in found})


async def test_a_signal_that_comes_after_one_was_taken_is_the_last(store: Store) -> None:
    await write(store, signals=[a_signal("op", "a"), a_signal("op", "b")])
    first, last = await ask(store, "signals", [key("op")])
    await write(store, signals_gone=[last])
    await write(store, signals=[a_signal("op", "c")])
    assert [one.name for one in await ask(store, "signals", [key("op")])] == ["a", "c"]
    assert first.name == "a"


async def test_a_signal_is_taken_once_and_the_second_taking_undoes_its_change(store: Store) -> None:
    await write(store, signals=[a_signal("op", "go")])
    taken = await ask(store, "signals", [key("op")])
    await write(store, signals_gone=taken)
    with pytest.raises(WriteConflict):
        await write(store, objects=[an_object("a")], signals_gone=taken)
    assert await ask(store, "signals", [key("op")]) == []
    assert await store.reader.object(key("a")) is None
