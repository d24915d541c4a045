"""Objects that are created over the general API cannot reach the machines and resources of another namespace."""

from typing import Any

import msgspec
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from stateward.domains.mci.lifecycle import MCI, SECURITY_GROUP, SSH_KEY, VM, VNET
from stateward.domains.mci.model import (
    KeySpec,
    NetworkSpec,
    Subnet,
    mci_of,
    resource_identity,
    resource_seen,
    vm_of,
)
from stateward.engine.errors import Occupied
from stateward.errors import BadInput
from stateward.store.records import Key, Status
from tests.integration.domains.mci.conftest import ANN, NS, PATIENT, MciHarness, group, mci
from tests.integration.domains.mci.request_races import SEOUL, SLOW, alive, go_on

PLACE = {"connection": "aws-ap-northeast-2", "provider": "aws", "region": "ap-northeast-2"}
NET = NetworkSpec("net", "", subnets=(Subnet("a", "10.0.1.0/24"),), **PLACE)
MALLORY = "mallory"
A_VM = {
    "name": "g-1", "uid": "", "mci": "m", "group": "g", **PLACE, "spec": "aws+ap-northeast-2+t3.nano",
    "image": "ubuntu22.04", "csp_spec": "t3.nano", "csp_image": "ubuntu22.04",
}  # fmt: skip


async def victim(harness: MciHarness) -> tuple[str, str]:
    """Make a network and a key in a namespace; return their uids."""
    network, _ = await harness.service.create_resource(NS, "vNet", NET, ANN, PATIENT)
    key, _ = await harness.service.create_resource(NS, "sshKey", KeySpec("key", "", **PLACE), ANN, PATIENT)
    return resource_identity(network).uid, resource_identity(key).uid


async def hold_mci(harness: MciHarness, ns: str) -> None:
    """Create the MCI of the VM, and no other VMs in it."""
    await harness.engine.create(ns, "m", MCI.kind, spec=to_builtins(mci("m", group("h"), hold=True)))


def at_provider(harness: MciHarness) -> set[str]:
    return {one.key for one in harness.cloud.region(SEOUL).resources.all()}


async def forged(harness: MciHarness, id_: str, kind: str, spec: dict[str, Any], parent: str | None = None) -> Any:
    """Make an object in another namespace as the general API does; return it."""
    made = await harness.engine.create(MALLORY, id_, kind, spec=spec, parent=parent)
    assert (await harness.engine.wait_record(MALLORY, made.op.id, PATIENT)).status is Status.SUCCEEDED
    return await harness.engine.record(MALLORY, id_)


async def refused(harness: MciHarness, id_: str, kind: str, spec: dict[str, Any], parent: str | None = None) -> str:
    """Return the field for which an object is refused, of which nothing is left."""
    with pytest.raises(BadInput) as error:
        await harness.engine.create(MALLORY, id_, kind, spec=spec, parent=parent)
    assert await harness.engine.store.reader.object(Key(MALLORY, id_)) is None
    return error.value.field


async def test_a_part_with_the_uid_of_another_namespaces_part_is_one_of_its_own(harness: MciHarness) -> None:
    network, key = await victim(harness)
    theirs = at_provider(harness)
    for id_, kind, spec in (
        ("vNet:net", VNET.kind, to_builtins(NET) | {"uid": network, "subnets": [{"name": "b", "cidr": "10.0.2.0/24"}]}),
        ("sshKey:key", SSH_KEY.kind, {"name": "key", "uid": key, **PLACE}),
    ):
        made = await forged(harness, id_, kind, spec)
        assert resource_identity(made).uid not in ("", network, key)
        assert resource_seen(made).native_id != resource_seen(await harness.engine.record(NS, id_)).native_id
        deleted = await harness.engine.act(MALLORY, id_, "delete")
        assert (await harness.engine.wait_record(MALLORY, deleted.op.id, PATIENT)).status is Status.SUCCEEDED
    assert at_provider(harness) == theirs


async def test_a_security_group_belongs_to_a_network_of_its_namespace(harness: MciHarness) -> None:
    await victim(harness)
    spec = {"name": "wall", "uid": "u", "network": "net", **PLACE}
    assert await refused(harness, "securityGroup:wall", SECURITY_GROUP.kind, spec) == "spec.network"
    await forged(harness, "vNet:net", VNET.kind, to_builtins(NET))
    assert resource_identity(await forged(harness, "securityGroup:wall", SECURITY_GROUP.kind, spec)).uid not in (
        "",
        "u",
    )


async def test_a_vm_is_never_made_in_the_network_of_another_namespace(harness: MciHarness) -> None:
    await victim(harness)
    await hold_mci(harness, MALLORY)
    seen = resource_seen(await harness.engine.record(NS, "vNet:net"))
    spec = A_VM | {"parts": {"vNet": seen.native_id, "subnet": seen.subnets["a"]}}
    assert vm_of(await forged(harness, "m.g-1", VM.kind, spec, "m")).parts == {}
    own = resource_seen(await forged(harness, "vNet:net", VNET.kind, to_builtins(NET)))
    spec |= {"name": "g-2", "network": "net", "subnet": "a"}
    assert vm_of(await forged(harness, "m.g-2", VM.kind, spec, "m")).parts == {
        "vNet": own.native_id,
        "subnet": own.subnets["a"],
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("network", "net"), ("groups", ["wall"]), ("key", "key"), ("connection", "nowhere"), ("spec", "huge"),
        ("image", "none"),
    ],
)  # fmt: skip
async def test_a_vm_names_what_its_namespace_has(harness: MciHarness, field: str, value: Any) -> None:
    await victim(harness)
    await hold_mci(harness, MALLORY)
    assert await refused(harness, "m.g-1", VM.kind, A_VM | {field: value}, "m") == f"spec.{field}"


async def test_a_vm_needs_an_mci_that_exists(harness: MciHarness) -> None:
    assert await refused(harness, "m.g-1", VM.kind, A_VM, "m") == "parent"
    await hold_mci(harness, MALLORY)
    made = await forged(harness, "m.g-1", VM.kind, A_VM, "m")
    assert msgspec.json.decode(made.labels)["connection"] == PLACE["connection"]


async def test_an_mci_that_is_being_deleted_gets_no_vm(harness: MciHarness) -> None:
    await harness.created(mci("m", group("h", 1)))
    harness.cloud.set_profile(SEOUL, SLOW)
    deleting, _ = await harness.service.delete(NS, "m", "terminate", ANN)
    with pytest.raises(Occupied, match="delete by user"):
        await harness.engine.create(NS, "m.g-1", VM.kind, spec=A_VM, parent="m")
    go_on(harness)
    assert (await harness.ended(deleting)).status is Status.SUCCEEDED
    with pytest.raises(BadInput, match="an MCI that exists"):
        await harness.engine.create(NS, "m.g-1", VM.kind, spec=A_VM, parent="m")
    assert alive(harness) == []


WRONG_NAMES = [
    ("spec", "huge"), ("image", "none"), ("connection", "nowhere"), ("network", "net"), ("groups", ("wall",)),
    ("key", "key"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG_NAMES)
async def test_an_mci_that_names_what_is_not_there_is_refused_before_it_is_accepted(
    harness: MciHarness, field: str, value: Any
) -> None:
    await victim(harness)
    wrong = to_builtins(mci("m1", group("good"), group("bad", **{field: value})))
    assert await refused(harness, "m1", MCI.kind, wrong) == f"spec.groups[1].{field}"


@pytest.mark.parametrize(("field", "value"), WRONG_NAMES)
async def test_a_new_subgroup_that_names_what_is_not_there_is_refused_before_it_is_accepted(
    harness: MciHarness, field: str, value: Any
) -> None:
    await harness.created(mci("m1"))
    before = await harness.engine.record(NS, "m1")
    grown = replace(mci_of(before), groups=(*mci_of(before).groups, group("bad", 1, **{field: value})))
    with pytest.raises(BadInput) as error:
        await harness.engine.act(NS, "m1", "scale out", spec=to_builtins(grown), args={"group": "bad", "count": 1})
    assert (error.value.field, error.value.state) == (f"spec.groups[1].{field}", "Running")
    assert await harness.engine.record(NS, "m1") == before


async def test_a_part_is_at_a_known_connection_and_in_its_lane(harness: MciHarness) -> None:
    spec = {"name": "key", "uid": "u", **PLACE}
    assert await refused(harness, "sshKey:key", SSH_KEY.kind, spec | {"connection": "no"}) == "spec.connection"
    made = await forged(harness, "sshKey:key", SSH_KEY.kind, spec | {"provider": "gcp", "region": "elsewhere"})
    assert (resource_identity(made).provider, resource_identity(made).region) == ("aws", "ap-northeast-2")


async def test_an_action_changes_nothing_of_a_vm_or_an_mci_that_was_accepted(harness: MciHarness) -> None:
    await harness.created(mci())
    (vm, *_) = await harness.service.vms(NS, "m1")
    whole = to_builtins(mci()) | {"uid": mci_of(await harness.engine.record(NS, "m1")).uid}
    many = [one | {"size": 99_999_999} for one in whole["groups"]]
    for id_, action, spec in (
        (vm.id, "suspend", to_builtins(vm_of(vm)) | {"parts": {"vNet": "net-1"}}),
        (vm.id, "suspend", to_builtins(vm_of(vm)) | {"uid": "another"}),
        ("m1", "refine", whole | {"groups": many}),
        ("m1", "refine", whole | {"uid": "another"}),
    ):
        with pytest.raises(BadInput) as error:
            await harness.engine.act(NS, id_, action, spec=spec)
        assert error.value.field == "spec"


async def test_nobody_sets_the_labels_by_which_the_domain_finds_its_objects(harness: MciHarness) -> None:
    await harness.created(mci("m", group("g", 1)))
    key = {"name": "key", "uid": "", **PLACE}
    for id_, kind, spec, labels in (
        ("m.g-9", VM.kind, A_VM | {"name": "g-9"}, {"mci": "other"}),
        ("m.g-9", VM.kind, A_VM | {"name": "g-9"}, {"connection": "gcp-asia-northeast3"}),
        ("m.g-9", VM.kind, A_VM | {"name": "g-9"}, {"host-key": "ssh-ed25519 AAAA"}),
        ("sshKey:key", SSH_KEY.kind, key, {"shared": "yes"}),
        ("sshKey:key", SSH_KEY.kind, key, {"made-for": "x"}),
        ("sshKey:key", SSH_KEY.kind, key, {"owned-by": "x"}),
    ):
        parent = "m" if kind == VM.kind else None
        with pytest.raises(BadInput) as refusal:
            await harness.engine.create(NS, id_, kind, spec=spec, parent=parent, labels=labels)
        assert refusal.value.field == f"labels.{next(iter(labels))}"
        assert await harness.engine.store.reader.object(Key(NS, id_)) is None
    await harness.engine.create(NS, "sshKey:key", SSH_KEY.kind, spec=key, labels={"team": "a"})
    own = {"mci": "m", "provider": "aws", "connection": PLACE["connection"], "team": "a"}
    await harness.engine.create(NS, "m.g-9", VM.kind, spec=A_VM | {"name": "g-9"}, parent="m", labels=own)


async def test_an_mci_gets_a_uid_that_no_caller_has_chosen(harness: MciHarness) -> None:
    made = await harness.engine.create(NS, "m1", MCI.kind, spec=to_builtins(mci()))
    assert mci_of(made.object).uid not in ("", mci().uid)
