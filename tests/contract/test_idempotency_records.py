"""An idempotency key gets one record."""

import asyncio

import pytest

from stateward.store import Changes, Store, Tx
from stateward.store.errors import WriteConflict
from stateward.store.records import IdempotencyRecord
from tests.contract.samples import NS, a_key_record, an_object, key
from tests.contract.store_calls import ask, write


async def test_an_answer_is_found_by_its_key(store: Store) -> None:
    answer = IdempotencyRecord(NS, "request 1", "sha", None, "vm", 12.5)
    await write(store, idempotency_records=[answer, a_key_record("request 2")])
    assert await ask(store, "idempotency_records", [key("request 1"), key("unheard of")]) == {key("request 1"): answer}


async def test_the_same_key_in_another_namespace_is_another_key(store: Store) -> None:
    await write(store, idempotency_records=[a_key_record("k", ns="other")])
    assert await ask(store, "idempotency_records", [key("k")]) == {}


async def test_a_second_answer_is_in_conflict_and_undoes_its_change(store: Store) -> None:
    await write(store, idempotency_records=[a_key_record("k", op="first")])
    with pytest.raises(WriteConflict):
        await write(store, objects=[an_object("a")], idempotency_records=[a_key_record("k", op="second")])
    assert (await ask(store, "idempotency_records", [key("k")]))[key("k")].op == "first"
    assert await store.reader.object(key("a")) is None


async def test_of_racing_requests_with_one_key_all_get_the_first_ones_answer(store: Store, second: Store) -> None:
    def request(number: int) -> asyncio.Future[str | None]:
        async def function(tx: Tx) -> str | None:
            known = await tx.idempotency_records([key("k")])
            if known:
                return known[key("k")].op
            await tx.apply(
                Changes(
                    objects=[an_object(f"by {number}")],
                    idempotency_records=[a_key_record("k", op=f"{number}")],
                )
            )
            return f"{number}"

        return asyncio.ensure_future((store, second)[number % 2].transact(function))

    got = await asyncio.gather(*map(request, range(20)))
    assert len(set(got)) == 1
    made = await ask(store, "objects", [key(f"by {number}") for number in range(20)])
    assert list(made) == [key(f"by {got[0]}")]
