"""Selectors and pages of objects."""

import json

import pytest

from stateward.store import Page, Selector, Store
from stateward.store.filters import GroupColumn, GroupField
from tests.contract.samples import NS, an_object
from tests.contract.store_calls import ask, write

ODD = ("%", "_", "\\", "'", '"', "a.b", "$.x", "ä", "Ä", "日本", "🙂", " ", "a/b:c", "--", "{}", "\u200b", "é")
ALL = Selector(NS)


async def listed(store: Store, selector: Selector, page: Page | None = None) -> list[str]:
    """Return the ids of a page."""
    return [one.id for one in await store.reader.list_objects(selector, page or Page())]


async def chosen(store: Store, selector: Selector) -> list[str]:
    """Return the ids of what is chosen, as a function and as a reader see them."""
    found = [one.id for one in await ask(store, "select", selector)]
    assert [one.id for one in await ask(store, "peek_selected", selector)] == found
    assert await listed(store, selector) == found
    assert sum((await store.reader.count_states(selector)).values()) == len(found)
    assert await ask(store, "count_selected", selector) == len(found)
    return found


@pytest.fixture
async def fleet(store: Store) -> Store:
    """Give a store with a handful of objects that differ in one thing each."""
    await write(
        store,
        objects=[
            an_object("vm-3", parent="mci-1", labels='{"tier": "web", "env": "prod"}'),
            an_object("vm-1", parent="mci-1", labels='{"tier": "db", "env": "prod"}'),
            an_object("vm-2", parent="mci-2", state="Suspended"),
            an_object("mci-1", kind="mci"),
            an_object("mci-2", kind="mci", state="Suspended"),
            an_object("vm-0", parent="mci-1", removed=True),
            an_object("vm-1", ns="other", state="Foreign", parent="mci-1"),
        ],
    )
    return store


async def test_all_of_a_namespace_are_chosen_in_the_order_of_their_ids(fleet: Store) -> None:
    assert await chosen(fleet, ALL) == ["mci-1", "mci-2", "vm-1", "vm-2", "vm-3"]
    assert await chosen(fleet, Selector("nowhere")) == []


async def test_removed_objects_are_never_chosen(fleet: Store) -> None:
    assert "vm-0" not in await chosen(fleet, ALL)
    assert "vm-0" not in await chosen(fleet, Selector(NS, kind="vm", parent="mci-1"))
    assert "vm-0" not in await chosen(fleet, Selector(NS, kind="vm"))


async def test_objects_are_chosen_by_the_beginning_of_their_ids(fleet: Store) -> None:
    await write(fleet, objects=[an_object("vm"), an_object("vn"), an_object("vm\U0010fffe"), an_object("Vm-1")])
    assert await chosen(fleet, Selector(NS, id_prefix="vm")) == ["vm", "vm-1", "vm-2", "vm-3", "vm\U0010fffe"]
    assert await chosen(fleet, Selector(NS, "vm", "mci-1", id_prefix="vm-")) == ["vm-1", "vm-3"]
    assert await chosen(fleet, Selector(NS, states=("Suspended",), id_prefix="vm-")) == ["vm-2"]
    assert await chosen(fleet, Selector(NS, id_prefix="%")) == []


async def test_objects_are_chosen_by_kind(fleet: Store) -> None:
    assert await chosen(fleet, Selector(NS, kind="mci")) == ["mci-1", "mci-2"]
    assert await chosen(fleet, Selector(NS, kind="nothing")) == []


async def test_objects_are_chosen_by_one_of_several_parents(fleet: Store) -> None:
    assert await chosen(fleet, Selector(NS, parent=("mci-2", "nobody", "mci-1"))) == ["vm-1", "vm-2", "vm-3"]
    assert await chosen(fleet, Selector(NS, parent=("mci-2",), states=("Suspended",))) == ["vm-2"]
    assert await chosen(fleet, Selector(NS, parent=())) == []


async def test_objects_are_chosen_by_state(fleet: Store) -> None:
    assert await chosen(fleet, Selector(NS, states=("Suspended",))) == ["mci-2", "vm-2"]
    assert await chosen(fleet, Selector(NS, kind="vm", states=("Suspended", "Running", "Suspended"))) == [
        "vm-1",
        "vm-2",
        "vm-3",
    ]


async def test_objects_are_chosen_by_their_ids(fleet: Store) -> None:
    assert await chosen(fleet, Selector(NS, ids=("vm-3", "mci-1", "vm-0", "nobody"))) == ["mci-1", "vm-3"]
    assert await chosen(fleet, Selector(NS, kind="vm", parent="mci-1", ids=("vm-3", "vm-2"))) == ["vm-3"]
    assert await chosen(fleet, Selector(NS, kind="vm", ids=())) == []


async def test_no_state_at_all_chooses_nothing(fleet: Store) -> None:
    assert await chosen(fleet, Selector(NS, states=())) == []
    assert await chosen(fleet, Selector(NS, kind="vm", states=())) == []
    assert await chosen(fleet, Selector(NS, parent="mci-1", states=())) == []


async def test_objects_are_chosen_by_parent(fleet: Store) -> None:
    assert await chosen(fleet, Selector(NS, parent="mci-1")) == ["vm-1", "vm-3"]
    assert await chosen(fleet, Selector(NS, kind="vm", parent="mci-2", states=("Suspended",))) == ["vm-2"]


async def test_objects_are_chosen_by_labels(fleet: Store) -> None:
    assert await chosen(fleet, Selector(NS, labels=(("env", "prod"),))) == ["vm-1", "vm-3"]
    assert await chosen(fleet, Selector(NS, kind="vm", labels=(("env", "prod"), ("tier", "web")))) == ["vm-3"]
    assert await chosen(fleet, Selector(NS, labels=(("env", "test"),))) == []
    assert await chosen(fleet, Selector(NS, labels=(("missing", "prod"),))) == []


async def test_objects_are_chosen_by_a_part_of_their_name_in_any_case(fleet: Store) -> None:
    assert await chosen(fleet, Selector(NS, name_like="M-")) == ["vm-1", "vm-2", "vm-3"]
    assert await chosen(fleet, Selector(NS, name_like="1")) == ["mci-1", "vm-1"]
    assert await chosen(fleet, Selector(NS, name_like="")) == await chosen(fleet, ALL)


async def test_states_are_counted_by_kind(fleet: Store) -> None:
    assert await fleet.reader.count_states(ALL) == {
        ("mci", "Running"): 1,
        ("mci", "Suspended"): 1,
        ("vm", "Running"): 2,
        ("vm", "Suspended"): 1,
    }
    assert await fleet.reader.count_states(Selector(NS, parent="mci-1")) == {("vm", "Running"): 2}
    assert await fleet.reader.count_states(Selector("nowhere")) == {}


async def test_objects_are_counted_by_columns_and_labels(fleet: Store) -> None:
    tier, parent = GroupField(GroupColumn.LABELS, "tier"), GroupField(GroupColumn.PARENT)
    vms = Selector(NS, kind="vm")
    assert await fleet.reader.count_groups(vms, (parent, tier)) == {
        ("mci-1", "db"): 1,
        ("mci-1", "web"): 1,
        ("mci-2", None): 1,
    }
    env = GroupField(GroupColumn.LABELS, "env")
    assert await fleet.reader.count_groups(Selector(NS), (env,)) == {("prod",): 2, (None,): 3}
    assert await fleet.reader.count_groups(Selector(NS, labels=(("tier", "web"),)), (env, tier)) == {("prod", "web"): 1}
    assert len(await fleet.reader.count_groups(Selector(NS), (parent, env), 2)) == 2
    assert await fleet.reader.count_groups(Selector("nowhere"), (env,)) == {}


@pytest.mark.parametrize("odd", ODD)
async def test_odd_characters_stand_for_themselves(store: Store, odd: str) -> None:
    await write(
        store,
        objects=[
            an_object(f"x{odd}y", kind=odd, state=odd, parent=odd, labels=json.dumps({odd: odd, "k": odd})),
            an_object("xzy", kind="z", state="z", parent="z", labels=json.dumps({"z": "z", "k": "z"})),
        ],
    )
    for selector in (
        Selector(NS, kind=odd),
        Selector(NS, states=(odd,)),
        Selector(NS, kind=odd, states=(odd, "z")),
        Selector(NS, parent=odd),
        Selector(NS, labels=((odd, odd),)),
        Selector(NS, labels=(("k", odd),)),
        Selector(NS, name_like=f"x{odd}Y"),
    ):
        assert await chosen(store, selector) == [f"x{odd}y"], selector
    by_label = (GroupField(GroupColumn.LABELS, odd),)
    assert await store.reader.count_groups(ALL, by_label) == {(odd,): 1, (None,): 1}


async def test_labels_are_found_however_they_are_spelled_in_json(store: Store) -> None:
    await write(
        store,
        objects=[an_object("a", labels='{"gr\\u00f6\\u00dfe": "\\u5927"}'), an_object("b", labels='{"größe": "大"}')],
    )
    assert await chosen(store, Selector(NS, labels=(("größe", "大"),))) == ["a", "b"]


async def test_ids_are_ordered_by_their_characters_and_not_by_language(store: Store) -> None:
    names = ["a", "B", "ä", "Z", "z", "é", "e", "日", "🙂", "\uffee", "10", "9", "a-b", "a b", "a_b", "aB"]
    await write(store, objects=[an_object(name) for name in names])
    assert await chosen(store, ALL) == sorted(names)
    assert list(await ask(store, "objects", [an_object(name).key for name in names])) == [
        (NS, name) for name in sorted(names)
    ]


@pytest.mark.parametrize("selector", [ALL, Selector(NS, kind="vm"), Selector(NS, states=("Running", "Suspended"))])
async def test_pages_follow_each_other_without_gap_or_overlap(store: Store, selector: Selector) -> None:
    names = [f"vm {chr(0x3B1 + number % 20)}{number:03}" for number in range(120)]
    await write(
        store,
        objects=[an_object(name, state=("Running", "Suspended")[number % 2]) for number, name in enumerate(names)],
    )
    found: list[str] = []
    while page := await listed(store, selector, Page(found[-1] if found else None, 17)):
        assert len(page) <= 17
        found += page
    assert found == sorted(names)


async def test_a_page_may_begin_where_nothing_is(fleet: Store) -> None:
    assert await listed(fleet, ALL, Page("mci-1\x7f", 2)) == ["mci-2", "vm-1"]
    assert await listed(fleet, Selector(NS, kind="vm"), Page("vm-2", 5)) == ["vm-3"]
    assert await listed(fleet, ALL, Page("zzz", 5)) == []
    assert await listed(fleet, ALL, Page(None, 0)) == []


async def test_a_kind_with_many_states_is_listed_in_order(store: Store) -> None:
    names = [f"o{number:03}" for number in range(150)]
    await write(
        store, objects=[an_object(name, state=f"state {number * 7 % 150}") for number, name in enumerate(names)]
    )
    assert await listed(store, Selector(NS, kind="vm"), Page(limit=200)) == names
    assert await listed(store, Selector(NS, kind="vm"), Page("o100", 3)) == ["o101", "o102", "o103"]
