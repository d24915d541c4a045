"""What is made over the general API cannot reach what another namespace has at the provider."""

from typing import Any

import pytest
from msgspec.structs import replace

from stateward.domains.mci.lifecycle import MCI, SECURITY_GROUP, SSH_KEY, VM, VNET
from stateward.domains.mci.model import (
    KeySpec,
    NetworkSpec,
    Subnet,
    mci_of,
    resource_identity,
    resource_seen,
    to_builtins,
    vm_of,
)
from stateward.drivers import ProviderRegion
from stateward.errors import BadInput
from stateward.store.records import Key, Status
from tests.integration.domains.mci.conftest import ANN, NS, PATIENT, House, group, mci

SEOUL = ProviderRegion("aws", "ap-northeast-2")
PLACE = {"connection": "aws-ap-northeast-2", "provider": "aws", "region": "ap-northeast-2"}
NET = NetworkSpec("net", "", subnets=(Subnet("a", "10.0.1.0/24"),), **PLACE)
MALLORY = "mallory"
A_VM = {
    "name": "g-1", "uid": "", "mci": "m", "group": "g", **PLACE, "spec": "aws+ap-northeast-2+t3.nano",
    "image": "ubuntu22.04", "csp_spec": "t3.nano", "csp_image": "ubuntu22.04",
}  # fmt: skip


async def victim(house: House) -> tuple[str, str]:
    """Make a network and a key in a namespace; return their uids."""
    network, _ = await house.service.create_resource(NS, "vNet", NET, ANN, PATIENT)
    key, _ = await house.service.create_resource(NS, "sshKey", KeySpec("key", "", **PLACE), ANN, PATIENT)
    return resource_identity(network).uid, resource_identity(key).uid


def at_provider(house: House) -> set[str]:
    return {one.key for one in house.cloud.region(SEOUL).resources.all()}


async def forged(house: House, id_: str, kind: str, spec: dict[str, Any], parent: str | None = None) -> Any:
    """Make an object in another namespace as the general API does; return it."""
    made = await house.engine.create(MALLORY, id_, kind, spec=spec, parent=parent)
    assert (await house.engine.wait(MALLORY, made.op.id, PATIENT)).status is Status.SUCCEEDED
    return await house.engine.get(MALLORY, id_)


async def refused(house: House, id_: str, kind: str, spec: dict[str, Any], parent: str | None = None) -> str:
    """Return the field for which an object is refused, of which nothing is left."""
    with pytest.raises(BadInput) as error:
        await house.engine.create(MALLORY, id_, kind, spec=spec, parent=parent)
    assert await house.engine.store.reader.object(Key(MALLORY, id_)) is None
    return error.value.field


async def test_a_part_with_the_uid_of_another_namespaces_part_is_one_of_its_own(house: House) -> None:
    network, key = await victim(house)
    theirs = at_provider(house)
    for id_, kind, spec in (
        ("vNet:net", VNET.kind, to_builtins(NET) | {"uid": network, "subnets": [{"name": "b", "cidr": "10.0.2.0/24"}]}),
        ("sshKey:key", SSH_KEY.kind, {"name": "key", "uid": key, **PLACE}),
    ):
        made = await forged(house, id_, kind, spec)
        assert resource_identity(made).uid not in ("", network, key)
        assert resource_seen(made).native_id != resource_seen(await house.engine.get(NS, id_)).native_id
        deleted = await house.engine.act(MALLORY, id_, "delete")
        assert (await house.engine.wait(MALLORY, deleted.op.id, PATIENT)).status is Status.SUCCEEDED
    assert at_provider(house) == theirs


async def test_a_security_group_belongs_to_a_network_of_its_namespace(house: House) -> None:
    await victim(house)
    spec = {"name": "wall", "uid": "u", "network": "net", **PLACE}
    assert await refused(house, "securityGroup:wall", SECURITY_GROUP.kind, spec) == "spec.network"
    await forged(house, "vNet:net", VNET.kind, to_builtins(NET))
    assert resource_identity(await forged(house, "securityGroup:wall", SECURITY_GROUP.kind, spec)).uid not in ("", "u")


async def test_a_vm_is_never_made_in_the_network_of_another_namespace(house: House) -> None:
    await victim(house)
    seen = resource_seen(await house.engine.get(NS, "vNet:net"))
    spec = A_VM | {"parts": {"vNet": seen.native_id, "subnet": seen.subnets["a"]}}
    assert vm_of(await forged(house, "m.g-1", VM.kind, spec, "m")).parts == {}
    own = resource_seen(await forged(house, "vNet:net", VNET.kind, to_builtins(NET)))
    spec |= {"name": "g-2", "network": "net", "subnet": "a"}
    assert vm_of(await forged(house, "m.g-2", VM.kind, spec, "m")).parts == {
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
async def test_a_vm_names_what_its_namespace_has(house: House, field: str, value: Any) -> None:
    await victim(house)
    assert await refused(house, "m.g-1", VM.kind, A_VM | {field: value}, "m") == f"spec.{field}"


WRONG_NAMES = [
    ("spec", "huge"), ("image", "none"), ("connection", "nowhere"), ("network", "net"), ("groups", ("wall",)),
    ("key", "key"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG_NAMES)
async def test_an_mci_that_names_what_is_not_there_is_refused_before_it_is_accepted(
    house: House, field: str, value: Any
) -> None:
    await victim(house)
    wrong = to_builtins(mci("m1", group("good"), group("bad", **{field: value})))
    assert await refused(house, "m1", MCI.kind, wrong) == f"spec.groups[1].{field}"


@pytest.mark.parametrize(("field", "value"), WRONG_NAMES)
async def test_a_new_subgroup_that_names_what_is_not_there_is_refused_before_it_is_accepted(
    house: House, field: str, value: Any
) -> None:
    await house.created(mci("m1"))
    before = await house.engine.get(NS, "m1")
    grown = replace(mci_of(before), groups=(*mci_of(before).groups, group("bad", 1, **{field: value})))
    with pytest.raises(BadInput) as error:
        await house.engine.act(NS, "m1", "scale out", spec=to_builtins(grown), args={"group": "bad", "count": 1})
    assert (error.value.field, error.value.state) == (f"spec.groups[1].{field}", "Running")
    assert await house.engine.get(NS, "m1") == before


async def test_a_part_is_at_a_known_connection_and_in_its_lane(house: House) -> None:
    spec = {"name": "key", "uid": "u", **PLACE}
    assert await refused(house, "sshKey:key", SSH_KEY.kind, spec | {"connection": "no"}) == "spec.connection"
    made = await forged(house, "sshKey:key", SSH_KEY.kind, spec | {"provider": "gcp", "region": "elsewhere"})
    assert (resource_identity(made).provider, resource_identity(made).region) == ("aws", "ap-northeast-2")


async def test_an_action_changes_nothing_of_a_vm_or_an_mci_that_was_accepted(house: House) -> None:
    await house.created(mci())
    (vm, *_) = await house.service.vms(NS, "m1")
    whole = to_builtins(mci()) | {"uid": mci_of(await house.engine.get(NS, "m1")).uid}
    many = [one | {"size": 99_999_999} for one in whole["groups"]]
    for id_, action, spec, field in (
        (vm.id, "suspend", to_builtins(vm_of(vm)) | {"parts": {"vNet": "net-1"}}, "parts"),
        (vm.id, "suspend", to_builtins(vm_of(vm)) | {"uid": "another"}, "uid"),
        ("m1", "refine", whole | {"groups": many}, "groups"),
        ("m1", "refine", whole | {"uid": "another"}, "uid"),
    ):
        with pytest.raises(BadInput) as error:
            await house.engine.act(NS, id_, action, spec=spec)
        assert error.value.field == f"spec.{field}"


async def test_an_mci_gets_a_uid_that_no_caller_has_chosen(house: House) -> None:
    made = await house.engine.create(NS, "m1", MCI.kind, spec=to_builtins(mci()))
    assert mci_of(made.object).uid not in ("", mci().uid)
