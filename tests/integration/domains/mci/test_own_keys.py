"""Keys of a dynamic MCI: named, given by the caller, or created for its VMs."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import asyncssh
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from msgspec.structs import replace

from stateward.aio.coalescer import CallCoalescer
from stateward.domains.mci.model import MciSpec, mci_of, vm_id, vm_of, vm_seen
from stateward.domains.mci.provider.encrypted_keys import open_encrypted
from stateward.domains.mci.provider.key_pairs import new_pair, owner_of, remove_ownerless_keys
from stateward.drivers import MachineSpec, MachineState, Observation, Outcome, ResourceKind
from stateward.drivers.process import driver as process_driver
from stateward.drivers.simulated.driver import SimulatedDriver
from stateward.errors import BadInput
from stateward.store.records import Key
from tests.integration.domains.mci.api_harness import AWS, HERE, MICRO, NS, ApiHarness, group, mci
from tests.integration.domains.mci.conftest import ANN, MciHarness
from tests.integration.domains.mci.conftest import mci as wanted
from tests.integration.domains.mci.ssh_servers import show_ssh_port
from tests.integration.drivers.local.host_machines import kill_all_in
from tests.integration.drivers.local.ssh_logins import log_in

M1 = f"/ns/{NS}/mci/m1"
KEYS = f"/ns/{NS}/resources/sshKey"
GCP = "gcp-asia-northeast3"


def at_provider(api: ApiHarness) -> list[str]:
    """Return the public keys that the provider knows."""
    parts = api.plugin.cloud.region(HERE).resources.all()
    return [one.facts["public_key"] for one in parts if one.kind is ResourceKind.SSH_KEY]


async def key_of(api: ApiHarness, vm: str = "g1-1") -> Any:
    """Return the key resource of a VM."""
    return (await api.get(f"{KEYS}/{(await api.get(f'{M1}/vm/{vm}')).json()['sshKeyId']}")).json()


async def test_a_request_that_names_no_key_makes_a_pair_and_shows_its_private_half(api: ApiHarness) -> None:
    shown = await api.created(mci("m1", group("g1", 2), group("g2", 1, specId=MICRO)))
    pair = shown["newKeyPair"]
    private = load_ssh_private_key(pair["privateKey"].encode(), None)
    assert load_ssh_public_key(pair["publicKey"].encode()) == private.public_key()
    assert at_provider(api) == [pair["publicKey"]]
    for vm, place in (("g1-1", AWS), ("g1-2", AWS), ("g2-1", GCP)):
        key = await key_of(api, vm)
        assert (key["publicKey"], key["connectionName"], key["status"]) == (pair["publicKey"], place, "InUse")


async def test_every_request_has_a_pair_of_its_own(api: ApiHarness) -> None:
    one = (await api.created(mci("m1")))["newKeyPair"]
    two = (await api.created(mci("m2")))["newKeyPair"]
    more = (await api.post(f"{M1}/subGroupDynamic?wait=60", group("g2", 1))).json()["newKeyPair"]
    assert len({pair["publicKey"] for pair in (one, two, more)}) == 3
    assert sorted(at_provider(api)) == sorted(pair["publicKey"] for pair in (one, two, more))
    assert (await key_of(api, "g2-1"))["publicKey"] == more["publicKey"]


async def test_the_private_half_is_shown_once_and_is_nowhere_else(
    api: ApiHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"x-request-id": "mine-1"}
    made = (await api.post(f"/ns/{NS}/mciDynamic?wait=60", mci(), headers=headers)).json()
    secret = made["newKeyPair"]["privateKey"].splitlines()[2]
    general = f"http://test/api/v1/ns/{NS}"
    paths = [M1, f"{M1}?option=accessinfo", f"/ns/{NS}/mci", f"{M1}/vm/g1-1", KEYS, "/requests", "/request/mine-1"]
    paths += [f"{general}/objects?limit=100", f"{general}/objects/m1", "http://test/api/v1/journal?limit=1000"]
    for path in paths:
        answer = await api.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert secret not in answer.text, path
        assert "PRIVATE" not in answer.text, path
    assert secret not in caplog.text


async def test_a_key_that_is_named_is_the_one_that_vms_get(api: ApiHarness) -> None:
    await api.post(KEYS, {"name": "mine", "connectionName": AWS})
    shown = await api.created(mci("m1", group("g1", 1, sshKeyId="mine"), group("g2", 1)))
    assert [one["sshKeyId"] == "mine" for one in shown["vm"]] == [True, False]
    assert shown["newKeyPair"]  # for the other one
    native = (await api.get(f"{KEYS}/mine")).json()["cspResourceId"]
    assert shown["vm"][0]["cspSshKeyId"] == native
    await api.post(f"{M1}/subGroupDynamic?wait=60", group("g3", 1, sshKeyId="mine"))
    assert (await api.get(f"{M1}/vm/g3-1")).json()["sshKeyId"] == "mine"


async def test_nothing_is_made_where_every_subgroup_names_a_key(api: ApiHarness) -> None:
    await api.post(KEYS, {"name": "mine", "connectionName": AWS})
    shown = await api.created(mci("m1", group("g1", 1, sshKeyId="mine")))
    assert shown["newKeyPair"] is None
    assert (await api.get(f"{KEYS}?option=id")).json() == {"output": ["mine"]}


async def test_a_key_of_another_connection_is_refused_before_anything_is_made(api: ApiHarness) -> None:
    await api.post(KEYS, {"name": "mine", "connectionName": GCP})
    answer = await api.post(f"/ns/{NS}/mciDynamic", mci("m1", group("g1", 1, sshKeyId="mine")))
    assert (answer.status_code, answer.json()["field"]) == (400, "subGroups[0].sshKeyId")
    assert GCP in answer.json()["message"]
    assert (await api.get(M1)).status_code == 404


async def test_a_public_key_that_is_brought_along_needs_no_private_half(api: ApiHarness) -> None:
    public = new_pair("ann").public
    shown = await api.created(mci("m1", group("g1", 1), group("g2", 1, specId=MICRO), publicKey=public))
    assert shown["newKeyPair"] is None
    assert at_provider(api) == [public]
    answer = await api.post(f"/ns/{NS}/mciDynamic", mci("m2", publicKey="garbage"))
    assert (answer.status_code, answer.json()["field"]) == (400, "publicKey")


async def test_a_subgroup_that_grows_keeps_its_key(api: ApiHarness) -> None:
    shown = await api.created()
    await api.post(f"{M1}/subgroup/g1?wait=60", {"numVMsToAdd": 1})
    assert (await key_of(api, "g1-3"))["publicKey"] == shown["newKeyPair"]["publicKey"]


async def test_the_way_in_is_told_with_user_key_addresses_and_port(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_ssh_port(monkeypatch, 22)
    shown = await api.created(mci("m1", group("g1", 1), group("g2", 1, vmUserName="bob", imageId="debian12")))
    first, second = shown["vm"]
    assert [one["vmUserName"] for one in (first, second)] == ["ubuntu", "bob"]
    groups = (await api.get(f"{M1}?option=accessinfo")).json()["MciSubGroupAccessInfo"]
    (access,) = groups[0]["MciVmAccessInfo"]
    assert (access["vmUserName"], access["sshKeyId"]) == ("ubuntu", first["sshKeyId"])
    assert (access["publicIP"], access["privateIP"], access["sshPort"]) == (first["publicIP"], first["privateIP"], 22)
    assert access["publicIP"]
    assert (await api.get(f"{M1}/vm/g1-1?option=accessinfo")).json()["sshKeyId"] == first["sshKeyId"]


async def test_a_machine_whose_driver_has_no_ssh_shows_no_port(api: ApiHarness) -> None:
    await api.created()
    access = (await api.get(f"{M1}/vm/g1-1?option=accessinfo")).json()
    assert (access["sshPort"], access["sshKeyId"], bool(access["publicIP"])) == (0, "", True)


async def test_a_vm_of_this_host_can_be_logged_in_to_with_the_pair_that_was_made(
    api: ApiHarness, tmp_path: Path
) -> None:
    await api.plugin.service.grant("local", [NS], ANN)
    shown = await api.created(mci("m1", group("p", 1, specId="local+here+tiny", imageId="sh")))
    access = (await api.get(f"{M1}/vm/p-1?option=accessinfo")).json()
    try:
        seen = Observation("", "", MachineState.RUNNING, "", ssh_port=access["sshPort"], host_key=await host_key(api))
        private = asyncssh.import_private_key(shown["newKeyPair"]["privateKey"])
        async with log_in(seen, private, access["vmUserName"] or "root") as connection:
            assert (await connection.run("echo $STATEWARD_NAME")).stdout == "m1-p-1\n"
    finally:
        kill_all_in(tmp_path / "machines" / "process" / "here")


async def host_key(api: ApiHarness) -> str:
    """Return the host key of the only VM, as it is stored."""
    found = await api.engine.store.reader.object(Key(NS, vm_id("m1", "p-1")))
    assert found is not None
    return vm_seen(found).host_key


async def test_a_vm_that_nobody_can_log_in_to_is_told_without_port_and_key(
    api: ApiHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_driver, "is_ssh_installed", lambda: False)
    await api.plugin.service.grant("local", [NS], ANN)
    shown = await api.created(mci("m1", group("p", 1, specId="local+here+tiny", imageId="sh")))
    access = (await api.get(f"{M1}/vm/p-1?option=accessinfo")).json()
    kill_all_in(tmp_path / "machines" / "process" / "here")
    assert (access["privateIP"], access["sshPort"], access["sshKeyId"]) == ("127.0.0.1", 0, "")
    assert shown["vm"][0]["sshPort"] == 0


async def test_keys_go_when_their_mci_is_gone_and_not_before(api: ApiHarness) -> None:
    await api.created(mci("m1"))
    await api.created(mci("m2"))
    await api.post(KEYS, {"name": "mine", "connectionName": AWS})
    await remove_ownerless_keys(api.engine)
    assert len((await api.get(KEYS)).json()["sshKey"]) == 3
    assert (await api.delete(f"{M1}?option=terminate")).status_code == 200
    await api.plugin.reconciler.reconcile_all()
    for one in await api.plugin.service.resources(NS, "sshKey"):
        if one.op is not None:
            await api.engine.wait_record(NS, one.op, 60.0)
    left = await api.plugin.service.resources(NS, "sshKey")
    owner = mci_of(await api.plugin.service.mci(NS, "m2")).uid
    assert sorted(owner_of(one) for one in left) == sorted(["", owner])
    assert len(at_provider(api)) == 2


async def test_a_key_that_was_made_for_a_creation_is_removed_when_that_is_withdrawn(api: ApiHarness) -> None:
    answer = await api.post(f"/ns/{NS}/mciDynamic?option=hold", mci())
    assert answer.json()["newKeyPair"]
    await api.held()
    assert len(at_provider(api)) == 1
    await api.done(f"{M1}?action=withdraw")
    assert at_provider(api) == []


async def test_an_mci_over_the_general_api_may_bring_a_public_key(harness: MciHarness) -> None:
    def bringing(public: str) -> MciSpec:
        asked = wanted()
        return replace(asked, groups=tuple(replace(one, public_key=public) for one in asked.groups))

    with pytest.raises(BadInput) as refused:
        await harness.created(bringing("garbage"))
    assert refused.value.field == "spec.groups[0].public_key"
    public = new_pair().public
    await harness.created(bringing(public))
    parts = harness.cloud.region(HERE).resources.all()
    assert [one.facts["public_key"] for one in parts if one.kind is ResourceKind.SSH_KEY] == [public]


# --- encrypted for the caller, and the server's own key --------------------------------------------------------------


@pytest.fixture(scope="module")
def recipient() -> tuple[str, bytes]:
    """A caller's RSA key: the public half, and the private one."""
    key = generate_private_key(65537, 2048)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return public, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


async def test_the_private_half_leaves_the_server_only_encrypted_if_the_caller_asks_for_that(
    api: ApiHarness, recipient: tuple[str, bytes]
) -> None:
    public, private = recipient
    shown = await api.created(mci("m1", encryptFor=public))
    group_reply = (await api.post(f"{M1}/subGroupDynamic?wait=60", group("g2", 1, encryptFor=public))).json()
    key_reply = (await api.post(KEYS, {"name": "k", "connectionName": AWS, "encryptFor": public})).json()
    for pair in (shown["newKeyPair"], group_reply["newKeyPair"], key_reply):
        assert "privateKey" not in pair
        opened = open_encrypted(pair["encryptedPrivateKey"].encode(), private)
        assert load_ssh_private_key(opened.encode(), None).public_key() == load_ssh_public_key(
            pair["publicKey"].encode()
        )


async def test_a_key_to_encrypt_for_that_is_none_is_refused_before_anything_is_made(api: ApiHarness) -> None:
    numbers = generate_private_key(65537, 2048).public_key().public_numbers()
    even = RSAPublicNumbers(numbers.e, numbers.n - 1).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    for bad in ("ssh-ed25519 AAAA", even.decode()):
        for path, body in (
            (f"/ns/{NS}/mciDynamic", mci("m1")),
            (f"/ns/{NS}/mciDynamicReview", mci("m1")),
            (KEYS, {"name": "k", "connectionName": AWS}),
        ):
            answer = await api.post(path, {**body, "encryptFor": bad})
            assert (answer.status_code, answer.json()["field"]) == (400, "encryptFor")
    assert (await api.get(M1)).status_code == 404
    assert (await api.get(f"{KEYS}/k")).status_code == 404


async def test_every_vm_trusts_the_key_of_its_namespace_beside_that_of_its_caller(api: ApiHarness) -> None:
    client = await api.plugin.clients.by_name(AWS)
    machines: list[MachineSpec] = []

    async def spy(specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        machines.extend(specs)
        return await SimulatedDriver.create(cast("SimulatedDriver", client.driver), specs)

    client._creates = CallCoalescer(spy, 10)
    await api.created(mci("m1", group("g1", 2)))
    own = api.plugin.access_keys.public_key(NS)
    assert own
    assert [list(one.authorized_keys) for one in machines] == [[own], [own]]
    assert vm_of(await api.engine.record(NS, "m1.g1-1")).access_key == own
