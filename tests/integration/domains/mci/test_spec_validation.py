"""Requests over the general API are validated like requests over the domain's own API."""

import json
from typing import Any

import pytest
from msgspec import to_builtins

from stateward.domains.mci.lifecycle import CONNECTION, IMAGE, MCI, SECURITY_GROUP, SPEC, SSH_KEY, VM, VNET
from stateward.domains.mci.model import (
    DEPLOYMENT_NS,
    KeySpec,
    NetworkSpec,
    Subnet,
    mci_of,
    network_of,
    record_id,
    vm_of,
)
from stateward.errors import BadInput
from stateward.server.routes.object_routes import replace_labels
from stateward.store.records import Key, Object, Status
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, mci

NET = NetworkSpec(
    "net", "uid-net", "aws-ap-northeast-2", "aws", "ap-northeast-2", subnets=(Subnet("a", "10.0.1.0/24"),)
)


async def refused(harness: MciHarness, action: str, id_: str = "m1", **how: Any) -> BadInput:
    with pytest.raises(BadInput) as error:
        await harness.engine.act(NS, id_, action, **how)
    return error.value


@pytest.mark.parametrize("action", ["scale out", "scale in"])
async def test_a_scaling_without_arguments_is_refused_and_changes_nothing(harness: MciHarness, action: str) -> None:
    await harness.created(mci())
    before = await harness.engine.record(NS, "m1")
    error = await refused(harness, action)
    assert (error.field, "which is Running" in error.allowed, "count" in error.allowed) == ("args.group", True, True)
    assert await harness.engine.record(NS, "m1") == before


async def test_a_scaling_by_its_arguments_alone_keeps_the_record_in_step(harness: MciHarness) -> None:
    await harness.created(mci())
    for action, count, size in (("scale out", 3, 5), ("scale in", 4, 1)):
        accepted = await harness.engine.act(NS, "m1", action, args={"group": "g1", "count": count})
        assert (await harness.ended(accepted)).status is Status.SUCCEEDED
        assert mci_of(await harness.engine.record(NS, "m1")).groups[0].size == size
        assert len(await harness.service.vms(NS, "m1")) == size


@pytest.mark.parametrize("lifecycle", [MCI, VM, VNET, SECURITY_GROUP, SSH_KEY, SPEC, IMAGE], ids=lambda one: one.kind)
async def test_nothing_is_made_of_a_spec_that_is_none(harness: MciHarness, lifecycle: Any) -> None:
    action = "register" if lifecycle in (SPEC, IMAGE) else "create"
    with pytest.raises(BadInput, match="spec"):
        await harness.engine.create(NS, "x", lifecycle.kind, action, spec={"provider": "aws", "region": "r"})
    assert await harness.engine.store.reader.object(Key(NS, "x")) is None


async def test_a_key_whose_public_half_is_none_is_refused_over_the_general_api_too(harness: MciHarness) -> None:
    spec = to_builtins(KeySpec("k1", "uid-k1", "aws-ap-northeast-2", "aws", "ap-northeast-2", "garbage"))
    with pytest.raises(BadInput) as error:
        await harness.engine.create(NS, "sshKey:k1", SSH_KEY.kind, spec=spec)
    assert error.value.field == "spec.public_key"
    assert await harness.engine.store.reader.object(Key(NS, "sshKey:k1")) is None


async def test_what_is_wrong_with_a_spec_is_told_with_its_place(harness: MciHarness) -> None:
    spec = to_builtins(mci()) | {"groups": [{"name": "g1", "size": "many", "spec": "s", "image": "i"}]}
    with pytest.raises(BadInput) as error:
        await harness.engine.create(NS, "m1", MCI.kind, spec=spec)
    assert (error.value.field, error.value.state) == ("spec.groups[0].size", None)


async def test_more_vms_than_one_request_may_ask_for_are_refused_in_any_form(harness: MciHarness) -> None:
    await harness.created(mci())
    assert (await refused(harness, "scale out", args={"group": "g1", "count": 99_999_999})).field == "args.count"
    many = to_builtins(mci("m2")) | {"groups": [{"name": "g1", "size": 99_999_999, "spec": "s", "image": "i"}]}
    with pytest.raises(BadInput) as error:
        await harness.engine.create(NS, "m2", MCI.kind, spec=many)
    assert error.value.field == "spec.groups"
    assert await harness.engine.store.reader.object(Key(NS, "m2")) is None


@pytest.mark.parametrize(("id_", "parent", "field"), [("loose", "m1", "id"), ("m1.g1-9", None, "parent")])
async def test_a_vm_is_part_of_the_mci_in_its_spec(
    harness: MciHarness, id_: str, parent: str | None, field: str
) -> None:
    await harness.created(mci())
    (first, *_) = await harness.service.vms(NS, "m1")
    spec = to_builtins(vm_of(first)) | {"name": "g1-9", "uid": "another"}
    with pytest.raises(BadInput) as error:
        await harness.engine.create(NS, id_, VM.kind, spec=spec, parent=parent)
    assert error.value.field == field
    assert len(await harness.service.vms(NS, "m1")) == 2


async def test_a_vm_that_says_it_is_another_one_gets_a_machine_of_its_own(harness: MciHarness) -> None:
    await harness.created(mci())
    (first, *_) = await harness.service.vms(NS, "m1")
    spec = to_builtins(vm_of(first)) | {"name": "g1-9"}
    made = await harness.engine.create(NS, "m1.g1-9", VM.kind, spec=spec, parent="m1")
    assert (await harness.engine.wait_record(NS, made.op.id, 30)).status is Status.SUCCEEDED
    assert vm_of(await harness.engine.record(NS, "m1.g1-9")).uid not in ("", vm_of(first).uid)


async def test_a_vm_keeps_the_labels_that_it_has_from_its_mci(harness: MciHarness) -> None:
    await harness.created(mci())
    (first, *_) = await harness.service.vms(NS, "m1")
    named = json.loads(first.labels)

    async def relabelled(labels: dict[str, str]) -> Object:
        kinds, key = harness.engine.kinds, first.key
        return await harness.engine.store.transact(
            lambda tx: replace_labels(tx, kinds, key, labels, None, "user", "ann")
        )

    with pytest.raises(BadInput, match="connection"):
        await relabelled({**named, "connection": "elsewhere"})
    for planted in ("host-key", "bastion"):
        with pytest.raises(BadInput, match=f"labels without {planted}"):
            await relabelled({**named, planted: "mine"})
    assert json.loads((await relabelled({**named, "tier": "gold"})).labels) == {**named, "tier": "gold"}


async def test_an_object_goes_by_the_name_in_its_spec(harness: MciHarness) -> None:
    with pytest.raises(BadInput, match="'vNet:net'"):
        await harness.engine.create(NS, "net", VNET.kind, spec=to_builtins(NET))


async def test_a_connection_cannot_be_changed_into_what_nobody_can_read(harness: MciHarness) -> None:
    key = DEPLOYMENT_NS, record_id("connection", "seoul")
    spec = {"name": "seoul", "provider": "aws", "region": "ap-northeast-2"}
    await harness.engine.create(*key, CONNECTION.kind, "register", spec=spec)
    for wrong in ({}, spec | {"options": 7}, spec | {"name": "tokyo"}):
        with pytest.raises(BadInput, match="spec"):
            await harness.engine.act(*key, "change", spec=wrong)
    assert "seoul" in [one.name for one in await harness.plugin.catalogue.connections()]


async def test_a_network_is_reshaped_into_something_and_stays_itself(harness: MciHarness) -> None:
    found, _ = await harness.service.create_resource(NS, "vNet", NET, ANN, 60.0)
    uid = network_of(found).uid
    error = await refused(harness, "reshape", "vNet:net")
    assert (error.field, error.state) == ("spec", "Available")
    error = await refused(harness, "reshape", "vNet:net", spec=to_builtins(NET) | {"uid": "another"})
    assert (error.field, error.state, repr(uid) in error.allowed) == ("spec.uid", "Available", True)
    error = await refused(harness, "reshape", "vNet:net", spec=to_builtins(NET) | {"subnets": 7})
    assert (error.field, error.state) == ("spec.subnets", "Available")
    wide = [{"name": "s", "cidr": "10.0.1.7/24"}]
    error = await refused(harness, "reshape", "vNet:net", spec=to_builtins(NET) | {"uid": uid, "subnets": wide})
    assert error.field == "spec.subnets[0].cidr"


async def test_a_network_of_all_addresses_is_refused_over_the_general_api(harness: MciHarness) -> None:
    for cidr in ("0.0.0.0/0", "10.0.0.5/16"):
        with pytest.raises(BadInput) as error:
            await harness.engine.create(NS, "vNet:net", VNET.kind, spec=to_builtins(NET) | {"cidr": cidr})
        assert error.value.field == "spec.cidr"
