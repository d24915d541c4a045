"""Sorted pages of objects."""

import json

import pytest

from stateward.store import Selector, Store
from stateward.store.filters import MISSING_NUMBER, SortedPage, SortOrder
from stateward.store.records import Object
from tests.contract.samples import NS, an_object
from tests.contract.store_calls import write

ORDERS = {
    "id": SortOrder("id"),
    "state": SortOrder("state"),
    "parent": SortOrder("parent"),
    "since": SortOrder("since", is_number=True),
    "label": SortOrder("labels", ("tier",)),
    "label of an odd name": SortOrder("labels", ('tier "$.x',)),
    "text in the spec": SortOrder("spec", ("image", "name")),
    "number in the spec": SortOrder("spec", ("cpus",), is_number=True),
}
HUGE = 10**400
NAMES = ("zeta", "", "Äther", "alpha", "日本", "x" * 150, "🙂", "a\u0000b", "B")
TIERS = [name.replace("\0", "") for name in NAMES]


def value_of(order: SortOrder, one: Object) -> str | float:
    """Return the value by which an object is to be sorted."""
    if not order.path:
        return getattr(one, order.column) or ""
    found = json.loads(getattr(one, order.column))
    for name in order.path:
        found = (found or {}).get(name)
    if order.is_number:
        return (
            min(float(found), -MISSING_NUMBER) if found not in (None, HUGE) else MISSING_NUMBER * (1, -1)[bool(found)]
        )
    return str(found or "")[:100]


@pytest.fixture
async def fleet(store: Store) -> list[Object]:
    """Write objects with equal, missing, large and odd values, in two namespaces and one that nobody asks for."""
    made = [
        an_object(
            f"vm-{number:02}",
            ns=(NS, "beta")[number % 2],
            state=("Running", "Failed", "Suspended")[number % 3],
            since=100.0 + (number * 7 % 13) / 3,
            parent=(None, "mci-b", "mci-a")[number % 3],
            labels=json.dumps(
                {} if number % 4 == 0 else dict.fromkeys(("tier", 'tier "$.x'), TIERS[number % len(TIERS)])
            ),
            spec=json.dumps(
                {}
                if number % 5 == 0
                else {"image": {"name": NAMES[number % 7]}, "cpus": (2, 10, 0.5, HUGE)[number % 4]}
            ),
        )
        for number in range(30)
    ]
    await write(store, objects=[*made, an_object("else", ns="elsewhere"), an_object("gone", removed=True)])
    return made


async def pages(store: Store, selector: Selector, order: SortOrder, limit: int) -> list[Object]:
    """Read all pages, one after the other."""
    found: list[tuple[str | float, Object]] = []
    while True:
        after = (found[-1][0], found[-1][1].ns, found[-1][1].id) if found else None
        page = await store.reader.list_sorted(selector, SortedPage(order, after, limit))
        found += page
        if len(page) < limit:
            return [one for _, one in found]


@pytest.mark.parametrize("name", ORDERS)
async def test_pages_follow_each_other_in_the_order_of_their_values(
    store: Store, fleet: list[Object], name: str
) -> None:
    order = ORDERS[name]
    expected = [one.key for one in sorted(fleet, key=lambda one: (value_of(order, one), one.ns, one.id))]
    everywhere = Selector((NS, "beta"), kind="vm")
    assert [one.key for one in await pages(store, everywhere, order, 4)] == expected
    descending = SortOrder(order.column, order.path, order.is_number, is_descending=True)
    assert [one.key for one in await pages(store, everywhere, descending, 7)] == expected[::-1]
    here = [key for key in expected if key.ns == NS]
    assert [one.key for one in await pages(store, Selector(NS), order, 5)] == here


async def test_a_row_that_moves_does_not_hide_another(store: Store, fleet: list[Object]) -> None:
    order, everywhere = SortOrder("state"), Selector((NS, "beta"))
    first = await store.reader.list_sorted(everywhere, SortedPage(order, None, 5))
    await write(store, objects=[an_object("vm-00b", state="Aborted")])
    value, last = first[-1]
    rest = await store.reader.list_sorted(everywhere, SortedPage(order, (value, last.ns, last.id), 100))
    assert {one.key for _, one in (*first, *rest)} == {one.key for one in fleet}


async def test_pages_by_ids_follow_each_other_where_long_ids_begin_alike(store: Store) -> None:
    ids = ("a", "a" * 99, "a" * 100, "a" * 101, f"{'a' * 100}b", "a" * 99 + "b", "b", "\U0010fffe", "é")
    made = [an_object(id_, ns=ns) for ns in (NS, "beta", "zeta") for id_ in ids]
    await write(store, objects=[*made, an_object("a", ns="elsewhere"), an_object("aa", removed=True)])
    everywhere = Selector((NS, "beta", "zeta", "empty"))
    expected = [one.key for one in sorted(made, key=lambda one: (one.id[:100], one.ns, one.id))]
    for limit in range(1, len(made) + 1):
        assert [one.key for one in await pages(store, everywhere, SortOrder("id"), limit)] == expected
        backwards = await pages(store, everywhere, SortOrder("id", is_descending=True), limit)
        assert [one.key for one in backwards] == expected[::-1]
