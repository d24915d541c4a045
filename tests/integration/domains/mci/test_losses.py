"""What VMs stand on may be lost at the provider: it is found, told, and repaired when it is needed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.domains.mci.lifecycle import ResourceState
from stateward.domains.mci.model import RESOURCE_LIFECYCLES, KeySpec, record_id, resource_identity, resource_seen
from stateward.domains.mci.provider import provider_client
from stateward.drivers import ProviderRegion, ResourceKind
from stateward.drivers.simulated.faults import CALM, CallFate
from stateward.lifecycle import PROVIDER
from stateward.store.port import Store
from stateward.store.records import Object, Status
from tests.integration.domains.mci.conftest import ANN, NS, House, mci, open_house

SEOUL = ProviderRegion("aws", "ap-northeast-2")
SHARED = "default-shared-aws-ap-northeast-2"


@pytest.fixture(autouse=True)
def _absent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 0.0)


async def part(house: House, word: str) -> Object:
    return await house.service.resource(NS, word, SHARED)


async def lose(house: House, word: str) -> None:
    """Remove a part at the provider."""
    house.cloud.remove_resource(SEOUL, ResourceKind(word), resource_identity(await part(house, word)).uid)


@pytest.mark.parametrize("word", list(RESOURCE_LIFECYCLES))
async def test_a_part_that_is_lost_is_an_error_that_tells_what_is_missing(house: House, word: str) -> None:
    await house.created(mci())
    await lose(house, word)
    await house.plugin.reconciler.reconcile_all()
    found = await part(house, word)
    assert (found.state, resource_seen(found).missing) == (ResourceState.ERROR, (f"{word} {SHARED}",))
    line = (await house.engine.history(NS, record_id(word, SHARED)))[-1]
    assert (line.actor, line.event) == (PROVIDER, "shows none")
    others = [await part(house, other) for other in RESOURCE_LIFECYCLES if other != word]
    assert {one.state for one in others} == {ResourceState.AVAILABLE}


async def test_a_network_without_one_of_its_subnets_is_an_error(house: House) -> None:
    await house.created(mci())
    uid = resource_identity(await part(house, "vNet")).uid
    house.cloud.remove_resource(SEOUL, ResourceKind.SUBNET, f"{uid}-{SHARED}")
    await house.plugin.reconciler.reconcile_all()
    assert resource_seen(await part(house, "vNet")).missing == (f"subnet {SHARED}",)


async def test_the_next_mci_finds_what_was_lost_repaired(house: House) -> None:
    await house.created(mci("m1"))
    before = resource_seen(await part(house, "sshKey")).native_id
    await lose(house, "sshKey")
    await house.plugin.reconciler.reconcile_all()
    assert (await house.created(mci("m2"))).status is Status.SUCCEEDED
    found = await part(house, "sshKey")
    assert (found.state, resource_seen(found).missing) == (ResourceState.AVAILABLE, ())
    assert resource_seen(found).native_id != before


async def test_a_listing_that_fails_proves_no_loss(house: House) -> None:
    await house.created(mci())
    house.cloud.set_profile(SEOUL, CALM)
    for fate in (CallFate.TRANSIENT, CallFate.THROTTLED):
        house.cloud.region(SEOUL).fault_injector.script_next(CallFate.DONE, fate)  # the listing of machines comes first
        await house.plugin.reconciler.reconcile_all()
    assert {(await part(house, word)).state for word in RESOURCE_LIFECYCLES} == {ResourceState.AVAILABLE}


async def test_a_part_that_is_not_shown_once_is_not_lost(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 3600.0)
    await house.created(mci())
    await lose(house, "sshKey")
    await house.plugin.reconciler.reconcile_all()
    assert (await part(house, "sshKey")).state == ResourceState.AVAILABLE


async def test_a_part_that_is_shown_again_is_available_again(house: House) -> None:
    await house.created(mci())
    wanted = resource_identity(await part(house, "sshKey"))
    kept = house.cloud.region(SEOUL).resources.get(ResourceKind.SSH_KEY, wanted.uid)
    assert kept is not None
    await lose(house, "sshKey")
    await house.plugin.reconciler.reconcile_all()
    assert (await part(house, "sshKey")).state == ResourceState.ERROR
    house.cloud.region(SEOUL).ensure(kept)
    await house.plugin.reconciler.reconcile_all()
    found = await part(house, "sshKey")
    assert (found.state, resource_seen(found).missing) == (ResourceState.AVAILABLE, ())


async def test_a_process_without_a_worker_tells_the_private_key_that_it_has_made(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    want = KeySpec("k1", "uid-k1", "aws-ap-northeast-2", "aws", "ap-northeast-2")
    async with open_house(new_store(), tmp_path / "a") as working:
        async with open_house(new_store(), tmp_path / "b", works=False, cloud=working.cloud) as asking:
            found, secret = await asking.service.create_resource(NS, "sshKey", want, ANN, 60.0)
        assert (found.state, "PRIVATE KEY" in secret) == (ResourceState.AVAILABLE, True)
        lines = await working.engine.history(NS, found.id)
        assert "PRIVATE" not in f"{lines}{await working.engine.get(NS, found.id)}"
