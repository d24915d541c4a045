"""Deletion protection of systems: neither a deploy nor a teardown removes protected parts."""

import pytest

from stateward.engine.errors import Protected
from stateward.store.records import Status
from tests.integration.domains.systems.conftest import NS, SHOP, SystemsHarness, service
from tests.integration.domains.systems.test_locks import begun

WITHOUT_API = "services: {db: {command: db v1}}"
POOL = "node_pools: {main: {nodes: 1, slots: 2}}\n"


async def test_a_protected_system_keeps_its_services_and_node_pools(harness: SystemsHarness) -> None:
    await harness.deployed("/", POOL + SHOP)
    await harness.engine.protect(NS, "shop", "production")
    removals = (
        (harness.actions.teardown("shop"), "'teardown' would remove 'shop:"),
        (harness.deploy("/store", WITHOUT_API), "'deploy' would remove 'shop:store.api'"),
        (harness.deploy("/", SHOP), "'deploy' would remove 'shop~main'"),
    )
    for removal, words in removals:
        with pytest.raises(Protected, match=words) as caught:
            await removal
        assert (caught.value.holder, caught.value.reason) == ("shop", "production")
    assert (await harness.deployed("/", POOL + SHOP.replace("v1", "v2"))).status is Status.SUCCEEDED
    assert (await harness.deployed("/new", service())).status is Status.SUCCEEDED
    await harness.engine.protect(NS, "shop", None)
    assert (await harness.ended(await harness.actions.teardown("shop"))).status is Status.SUCCEEDED


async def test_a_protected_service_is_not_removed_and_others_are(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    await harness.engine.protect(NS, "shop:store.api")
    for removal in (harness.actions.teardown("shop"), harness.deploy("/store", WITHOUT_API)):
        with pytest.raises(Protected) as caught:
            await removal
        assert caught.value.holder == "shop:store.api"
    await harness.deployed("/web", "services: {}")
    assert set(await harness.states()) == {"store.api", "store.db"}


async def test_what_is_protected_while_a_change_waits_is_not_removed(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    blocker = await begun(harness, "/store/a")
    changes = [
        await harness.deploy("/store", WITHOUT_API, wait=600),
        await harness.actions.teardown("shop", wait=600),
    ]
    await harness.engine.protect_namespace(NS, "freeze")
    await harness.actions.cancel("shop", blocker)
    for change in changes:
        ended = await harness.ended(change)
        assert ended.status is Status.FAILED
        assert "namespace 'default' is protected (freeze)" in (ended.error or "")
    assert set(await harness.states()) == {"web", "store.api", "store.db"}
