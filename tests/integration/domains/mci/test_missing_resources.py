"""Resources that are missing at the provider: they are found, shown, and repaired when they are needed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.domains.mci.handlers.prerequisites import shared_group_name
from stateward.domains.mci.lifecycle import SECURITY_GROUP, ResourceState
from stateward.domains.mci.model import (
    RESOURCE_LIFECYCLES,
    KeySpec,
    SecurityGroupSpec,
    record_id,
    resource_identity,
    resource_seen,
)
from stateward.domains.mci.provider import provider_client
from stateward.drivers import ProviderRegion, ResourceKind
from stateward.drivers.simulated.faults import CALM, CallFate
from stateward.lifecycle import PROVIDER
from stateward.store.port import Store
from stateward.store.records import Object, Status
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, mci, open_harness

SEOUL = ProviderRegion("aws", "ap-northeast-2")
SHARED = "default-shared-aws-ap-northeast-2"


@pytest.fixture(autouse=True)
def _absent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 0.0)


def name_of(word: str) -> str:
    return f"{SHARED}-closed" if word == "securityGroup" else SHARED


async def part(harness: MciHarness, word: str) -> Object:
    return await harness.service.resource(NS, word, name_of(word))


async def lose(harness: MciHarness, word: str) -> None:
    """Remove a part at the provider."""
    harness.cloud.remove_resource(SEOUL, ResourceKind(word), resource_identity(await part(harness, word)).uid)


@pytest.mark.parametrize("word", list(RESOURCE_LIFECYCLES))
async def test_a_part_that_is_lost_is_an_error_that_tells_what_is_missing(harness: MciHarness, word: str) -> None:
    await harness.created(mci())
    await lose(harness, word)
    await harness.plugin.reconciler.reconcile_all()
    found = await part(harness, word)
    assert (found.state, resource_seen(found).missing) == (ResourceState.ERROR, (f"{word} {name_of(word)}",))
    line = (await harness.engine.history(NS, record_id(word, name_of(word))))[-1]
    assert (line.actor, line.event) == (PROVIDER, "shows none")
    others = [await part(harness, other) for other in RESOURCE_LIFECYCLES if other != word]
    assert {one.state for one in others} == {ResourceState.AVAILABLE}


async def test_a_network_without_one_of_its_subnets_is_an_error(harness: MciHarness) -> None:
    await harness.created(mci())
    uid = resource_identity(await part(harness, "vNet")).uid
    harness.cloud.remove_resource(SEOUL, ResourceKind.SUBNET, f"{uid}-{SHARED}")
    await harness.plugin.reconciler.reconcile_all()
    assert resource_seen(await part(harness, "vNet")).missing == (f"subnet {SHARED}",)


async def test_the_next_mci_finds_what_was_lost_repaired(harness: MciHarness) -> None:
    await harness.created(mci("m1"))
    before = resource_seen(await part(harness, "sshKey")).native_id
    await lose(harness, "sshKey")
    await harness.plugin.reconciler.reconcile_all()
    assert (await harness.created(mci("m2"))).status is Status.SUCCEEDED
    found = await part(harness, "sshKey")
    assert (found.state, resource_seen(found).missing) == (ResourceState.AVAILABLE, ())
    assert resource_seen(found).native_id != before


async def test_the_next_mci_repairs_a_network_before_a_group_that_could_not_be_made_without_it(
    harness: MciHarness,
) -> None:
    await harness.created(mci("m1"))
    await lose(harness, "vNet")
    await harness.plugin.reconciler.reconcile_all()
    other = mci("m2", access_from=("203.0.113.0/24",))
    network, name = record_id("vNet", SHARED), shared_group_name(other, SHARED)
    want = SecurityGroupSpec(name, "", "aws-ap-northeast-2", "aws", "ap-northeast-2", network=SHARED)
    id_ = record_id("securityGroup", name)
    accepted = await harness.engine.create(NS, id_, SECURITY_GROUP.kind, spec=want, queue=network)
    failed = await harness.engine.wait_record(NS, accepted.op.id)
    assert (failed.status, f"vNet {SHARED!r} is Error" in str(failed.error)) == (Status.FAILED, True)
    assert (await harness.created(other)).status is Status.SUCCEEDED
    assert (await harness.service.resource(NS, "securityGroup", name)).state == ResourceState.AVAILABLE


async def test_a_listing_that_fails_proves_no_loss(harness: MciHarness) -> None:
    await harness.created(mci())
    harness.cloud.set_profile(SEOUL, CALM)
    for fate in (CallFate.TRANSIENT, CallFate.THROTTLED):
        harness.cloud.region(SEOUL).fault_injector.script_next(
            CallFate.DONE, fate
        )  # the listing of machines comes first
        await harness.plugin.reconciler.reconcile_all()
    assert {(await part(harness, word)).state for word in RESOURCE_LIFECYCLES} == {ResourceState.AVAILABLE}


async def test_a_part_that_is_not_shown_once_is_not_lost(harness: MciHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 3600.0)
    await harness.created(mci())
    await lose(harness, "sshKey")
    await harness.plugin.reconciler.reconcile_all()
    assert (await part(harness, "sshKey")).state == ResourceState.AVAILABLE


async def test_a_part_that_is_shown_again_is_available_again(harness: MciHarness) -> None:
    await harness.created(mci())
    wanted = resource_identity(await part(harness, "sshKey"))
    kept = harness.cloud.region(SEOUL).resources.get(ResourceKind.SSH_KEY, wanted.uid)
    assert kept is not None
    await lose(harness, "sshKey")
    await harness.plugin.reconciler.reconcile_all()
    assert (await part(harness, "sshKey")).state == ResourceState.ERROR
    harness.cloud.region(SEOUL).ensure(kept)
    await harness.plugin.reconciler.reconcile_all()
    found = await part(harness, "sshKey")
    assert (found.state, resource_seen(found).missing) == (ResourceState.AVAILABLE, ())


async def test_a_process_without_a_worker_tells_the_private_key_that_it_has_made(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    want = KeySpec("k1", "uid-k1", "aws-ap-northeast-2", "aws", "ap-northeast-2")
    async with open_harness(new_store(), tmp_path / "a") as working:
        async with open_harness(new_store(), tmp_path / "b", works=False, cloud=working.cloud) as asking:
            found, pair = await asking.service.create_resource(NS, "sshKey", want, ANN, 60.0)
        assert pair is not None
        assert (found.state, "PRIVATE KEY" in pair.private) == (ResourceState.AVAILABLE, True)
        lines = await working.engine.history(NS, found.id)
        assert "PRIVATE" not in f"{lines}{await working.engine.record(NS, found.id)}"
