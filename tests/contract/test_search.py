"""Search for a text in ids, labels, errors and ids of operations."""

import pytest

from stateward.store import Store
from stateward.store.filters import SearchText
from stateward.store.port import SearchHits
from tests.contract.samples import NS, an_object, an_operation
from tests.contract.store_calls import write
from tests.contract.test_selection import ODD


async def search(store: Store, text: str, *namespaces: str, limit: int = 50) -> SearchHits:
    return await store.reader.search(namespaces or (NS,), SearchText(text), limit)


@pytest.fixture
async def fleet(store: Store) -> Store:
    """Give a store with objects that have a text in different places."""
    await write(
        store,
        objects=[
            an_object("web-1", labels='{"tier": "web", "region": "eu-west"}'),
            an_object("my-web", state="Failed", error="Quota of vCPU exceeded: 100%"),
            an_object("db-1", labels='{"tier": "db"}'),
            an_object("db-2", labels='{"tier": "db"}'),
            an_object("web-old", removed=True, error="quota", labels='{"tier": "gone"}'),
            an_object("web-9", ns="other", labels='{"tier": "foreign"}', error="quota of others"),
        ],
        operations=[
            an_operation("018f22aa01", "web-1"),
            an_operation("018f22bb02", "db-1"),
            an_operation("018f22bb03", "web-9", ns="other"),
        ],
    )
    return store


async def test_objects_are_found_by_the_beginning_and_then_by_any_part_of_their_id(fleet: Store) -> None:
    assert [one.id for one in (await search(fleet, "web")).objects] == ["web-1", "my-web"]
    assert [one.id for one in (await search(fleet, "WEB")).objects] == ["my-web", "web-1"]
    assert [one.id for one in (await search(fleet, "web", limit=1)).objects] == ["web-1"]


async def test_objects_are_found_by_their_error(fleet: Store) -> None:
    assert [one.id for one in (await search(fleet, "quota of")).failed] == ["my-web"]
    assert [one.id for one in (await search(fleet, "100%")).failed] == ["my-web"]
    assert (await search(fleet, "1_0")).failed == []


async def test_different_sets_of_labels_are_found_by_name_and_value(fleet: Store) -> None:
    assert (await search(fleet, "TIER=d")).labels == ['{"tier": "db"}']
    assert (await search(fleet, "eu-")).labels == ['{"tier": "web", "region": "eu-west"}']
    assert (await search(fleet, "=")).labels == []


async def test_operations_are_found_by_the_beginning_of_their_id(fleet: Store) -> None:
    assert [one.id for one in (await search(fleet, "018f22b")).operations] == ["018f22bb02"]
    assert (await search(fleet, "22b")).operations == []


async def test_other_namespaces_and_removed_objects_are_not_found(fleet: Store) -> None:
    found = await search(fleet, "o")
    assert all(one.ns == NS for one in found.objects)
    assert (await search(fleet, "foreign")).labels == (await search(fleet, "gone")).labels == []
    assert [one.ns for one in (await search(fleet, "web-9", NS, "other")).objects] == ["other"]
    assert await search(fleet, "web", "nowhere") == SearchHits([], [], [], [])


@pytest.mark.parametrize("odd", ODD)
async def test_odd_characters_stand_for_themselves(store: Store, odd: str) -> None:
    await write(store, objects=[an_object(f"x{odd}y", error=f"x{odd}y"), an_object("xzy", error="xzy")])
    found = await search(store, f"x{odd}y")
    assert {one.id for one in (*found.objects, *found.failed)} == {f"x{odd}y"}
