"""Secrets as objects: set, listed, used, rotated and deleted; no answer and no row has a value."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stateward.access import Role
from stateward.domains.systems.backends.port import ServiceRef, SystemRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.controllers import InstanceController
from stateward.domains.systems.definition import read
from stateward.domains.systems.errors import SecretMissing
from stateward.domains.systems.job_service import JobActions
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.secrets.keyring import KeyRing, SealingKey
from stateward.domains.systems.secrets.secret_actions import SecretReader
from stateward.domains.systems.service import SystemActions
from stateward.engine import Accepted, Engine
from stateward.store.filters import JournalFilter
from stateward.store.port import Store
from stateward.store.records import Key, Operation
from tests.integration.domains.systems.conftest import PATIENT
from tests.readable_routes import READERS, ReadableApp, open_to_readers, readable_paths
from tests.waiting import until

NS = "default"
HOME = f"/api/v1/systems/{NS}/-/secrets"
ROTATION = f"/api/v1/systems/{NS}/-/secret-rotation"
VALUE, NEWER = "hunter2-hunter2", "correct horse battery staple"
OLD, NEW = "11" * 32, "22" * 32
USING = "services: {web: {command: run v1, redeploy_on_secret_change: %s, secrets: {PASSWORD: {secret: db}}}}"

WEB = ServiceRef(SystemRef(NS, "shop"), "/web")


class Vault:
    """A server with keys, and callers with different rights."""

    def __init__(self, served: ReadableApp, file: Path, backend: SimulatedBackend, plugin: SystemsRuntime) -> None:
        self.engine: Engine = served.engine
        self.app, self.clients, self.admin = served.app, served.clients, served.clients[Role.ADMIN]
        self._file, self.backend, self.plugin = file, backend, plugin
        self.actions = SystemActions(served.engine, NS, "ann")

    def put_keys(self, *keys: str) -> None:
        """Replace the file of keys."""
        new = self._file.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text("\n".join(keys))
        new.replace(self._file)

    async def ended(self, accepted: Accepted) -> Operation:
        """Wait for the end of an operation."""
        return await self.engine.wait_record(NS, accepted.op.id, PATIENT)

    async def deployed(self, redeploys: str = "false") -> None:
        """Deploy a service that uses the secret."""
        done = await self.ended(await self.actions.deploy("shop", "/", read(USING % redeploys)))
        assert done.status == "succeeded", done.error

    async def becomes(self, state: str) -> None:
        """Wait until the service is in a state."""
        await until(lambda: self.engine.record(NS, "shop:web"), lambda obj: obj.state == state)

    async def rotated(self) -> Operation:
        """Rotate the keys, and wait for the end."""
        answer = await self.admin.post(ROTATION)
        assert answer.status_code == 202, answer.text
        return await self.engine.wait_record(NS, answer.json()["operation"], PATIENT)

    async def keys(self) -> set[str]:
        """Return the ids of the keys that secrets have."""
        return {one["key"] for one in (await self.admin.get(HOME)).json()}

    async def revision(self) -> str | None:
        """Return the one revision of the instances; None while there are several, or one is not ready."""
        seen = await self.backend.instances(WEB)
        found = {one.revision if one.ready else None for one in seen}
        return found.pop() if len(found) == 1 else None


@pytest.fixture
async def vault(new_store: Callable[[], Store], tmp_path: Path) -> AsyncIterator[Vault]:
    backend, file = SimulatedBackend(), tmp_path / "keys"
    plugin = SystemsRuntime({"simulated": backend}, secrets=SecretReader(KeyRing(None, str(file))))
    async with open_to_readers(new_store(), plugin, NS) as served:
        opened = Vault(served, file, backend, plugin)
        opened.put_keys(OLD)
        await opened.ended(await opened.actions.create("shop", "simulated"))
        made = await opened.admin.post(HOME, json={"name": "db", "value": VALUE})
        assert made.status_code == 201, made.text
        yield opened


async def test_a_secret_is_created_updated_listed_and_deleted(vault: Vault) -> None:
    again = await vault.admin.post(HOME, json={"name": "db", "value": VALUE})
    assert (again.status_code, again.json()["code"]) == (409, "exists")
    first = (await vault.admin.get(f"{HOME}/db")).json()
    changed = await vault.admin.put(f"{HOME}/db", json={"value": NEWER})
    assert (first["version"], changed.json()["version"]) == (1, 2)
    assert changed.json()["changed"] > first["changed"]
    assert [one["name"] for one in (await vault.clients[Role.VIEWER].get(HOME)).json()] == ["db"]
    assert (await vault.admin.delete(f"{HOME}/db")).status_code == 200
    assert (await vault.admin.get(f"{HOME}/db")).status_code == 404
    events = [(one.event, one.who) for one in await vault.engine.history(NS, "secret+db")]
    assert events == [(event, "admin") for event in ("create", "update", "delete")]


async def test_a_repeated_request_is_the_same_request(vault: Vault) -> None:
    headers = {"Idempotency-Key": "one"}
    for _ in range(2):
        answer = await vault.admin.put(f"{HOME}/db", json={"value": NEWER}, headers=headers)
        assert answer.json()["version"] == 2, answer.text
    other = await vault.admin.put(f"{HOME}/db", json={"value": VALUE}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
async def test_only_who_may_govern_sets_deletes_and_rotates(vault: Vault, role: Role) -> None:
    client = vault.clients[role]
    body = {"value": NEWER}
    assert (await client.post(HOME, json={"name": "x", **body})).status_code == 403
    assert (await client.put(f"{HOME}/db", json=body)).status_code == 403
    assert (await client.delete(f"{HOME}/db")).status_code == 403
    assert (await client.post(ROTATION)).status_code == 403


async def test_the_general_api_takes_no_value(vault: Vault) -> None:
    general = f"/api/v1/ns/{NS}/objects"
    body = {"kind": "systems.secret", "id": "secret+x", "spec": {"value": VALUE}}
    made = await vault.admin.post(general, json=body)
    assert (made.status_code, VALUE in made.text) == (403, False)
    for spec in ({"version": 7}, {"value": VALUE}):
        acted = await vault.admin.post(f"{general}/secret+db/actions/update", json={"spec": spec, "args": spec})
        assert acted.status_code in (400, 409, 422), acted.text
        assert VALUE not in acted.text
    assert (await vault.admin.get(f"{HOME}/db")).json()["version"] == 1


@pytest.mark.parametrize(
    "body", [{"value": ""}, {"value": "a\0b"}, {"value": "x" * 65_537}, {"value": 7}, {}, {"value": VALUE, "x": VALUE}]
)
async def test_a_bad_value_is_refused_and_not_repeated(vault: Vault, body: dict[str, object]) -> None:
    answer = await vault.admin.put(f"{HOME}/db", json=body)
    assert answer.status_code == 400, answer.text
    assert "value" in answer.text or "x" in answer.json()["detail"]
    assert VALUE not in answer.text
    assert len(answer.text) < 2_000


@pytest.mark.parametrize("role", READERS)
async def test_no_way_out_has_a_value_or_its_encrypted_text(vault: Vault, role: Role) -> None:
    await vault.deployed("true")
    await vault.admin.put(f"{HOME}/db", json={"value": NEWER})
    vault.put_keys(NEW, OLD)
    await vault.rotated()
    found = await vault.engine.store.reader.object(Key(NS, "secret+db"))
    assert found is not None
    encrypted = found.seen.split('"value":"')[1].split('"')[0]
    reader = vault.engine.store.reader
    paths = await readable_paths(vault.app, reader, NS, system=["shop"], secret=["db"], run=[], node=[])
    answers = {path: (await vault.clients[role].get(path)).text for path in paths}
    for path in ("journal", "objects"):
        exported = await vault.clients[role].get(f"/api/v1/{path}?ns={NS}", headers={"Accept": "application/x-ndjson"})
        answers[f"export of {path}"] = exported.text
    for text in (VALUE, NEWER, encrypted):
        assert [path for path, answer in answers.items() if text in answer] == []
    assert '"***"' in answers[f"/api/v1/ns/{NS}/objects/secret+db"]
    journal = await reader.journal(0, 10_000, JournalFilter(ns=NS))
    assert not any(encrypted in (one.spec or "") for one in journal)  # it would keep the texts of former keys


async def test_without_a_key_nothing_is_set_and_the_error_says_what_to_do(vault: Vault) -> None:
    vault._file.unlink()
    for answer in (
        await vault.admin.post(HOME, json={"name": "x", "value": VALUE}),
        await vault.admin.put(f"{HOME}/db", json={"value": VALUE}),
        await vault.admin.post(ROTATION),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "no_secrets_key")
        assert "systems_secrets_key_file" in answer.json()["detail"]
    assert [one["name"] for one in (await vault.admin.get(HOME)).json()] == ["db"]


async def test_a_deploy_with_an_unknown_secret_is_refused_and_names_the_field(vault: Vault) -> None:
    definition = (USING % "false").replace("secret: db", "secret: dp")
    answer = await vault.admin.post(f"/api/v1/systems/{NS}/shop/deploys", json={"definition": definition})
    assert answer.status_code == 400
    found = answer.json()
    assert (found["field"], found["known"]) == ("definition, line 1, services.web.secrets.PASSWORD.secret", ["db"])


async def test_a_used_secret_is_not_deleted_and_the_error_names_the_users(vault: Vault) -> None:
    await vault.deployed()
    assert (await vault.admin.get(f"{HOME}/db")).json()["used_by"] == ["shop:web"]
    answer = await vault.admin.delete(f"{HOME}/db")
    assert (answer.status_code, answer.json()["code"]) == (409, "secret_in_use")
    assert "shop:web" in answer.json()["detail"]
    await vault.ended(await vault.actions.teardown("shop"))
    assert (await vault.admin.delete(f"{HOME}/db")).status_code == 200
    with pytest.raises(Exception, match="secret"):
        await vault.actions.deploy("shop", "/", read(USING % "false"))


async def test_a_secret_that_an_open_deploy_would_need_to_go_back_is_not_deleted(vault: Vault) -> None:
    other = "api: {command: api %s}"
    before = read(f"{(USING % 'false')[:-1]}, {other % 'v1'}}}")
    assert (await vault.ended(await vault.actions.deploy("shop", "/", before))).status == "succeeded"
    vault.backend.fail("/api", "v2")  # which keeps the deploy open
    deploy = await vault.actions.deploy("shop", "/", read(f"services: {{web: {{command: run v1}}, {other % 'v2'}}}"))
    await until(lambda: vault.admin.get(f"{HOME}/db"), lambda answer: not answer.json()["used_by"])
    assert f"is used by {deploy.object.id};" in (await vault.admin.delete(f"{HOME}/db")).text
    await vault.actions.cancel("shop", deploy.object.id)
    assert (await vault.ended(deploy)).status == "cancelled"
    assert "is used by shop:web;" in (await vault.admin.delete(f"{HOME}/db")).text


async def test_a_secret_of_a_run_that_is_still_open_is_not_deleted(vault: Vault) -> None:
    job = "jobs: {report: {command: work%s}}"
    with_secret = read(job % ", secrets: {PASSWORD: {secret: db}}")
    assert (await vault.ended(await vault.actions.deploy("shop", "/", with_secret))).status == "succeeded"
    vault.backend.hang("/report")
    run = await JobActions(vault.engine, NS, "ann").run("shop", "/report")
    assert (await vault.ended(await vault.actions.deploy("shop", "/", read(job % "")))).status == "succeeded"
    assert f"is used by {run.object.id};" in (await vault.admin.delete(f"{HOME}/db")).text
    vault.backend.mend_all()
    assert (await vault.ended(run)).status == "succeeded"
    assert (await vault.admin.delete(f"{HOME}/db")).status_code == 200


async def test_of_a_deletion_and_a_deploy_at_once_one_is_refused(vault: Vault) -> None:
    await asyncio.gather(
        vault.actions.deploy("shop", "/", read(USING % "false")),
        vault.admin.delete(f"{HOME}/db"),
        return_exceptions=True,
    )
    found = await vault.admin.get(f"{HOME}/db")
    deploys = await vault.actions.deploys("shop")
    assert (found.status_code == 404) == (deploys == [])


async def test_a_changed_secret_replaces_the_instances_that_ask_for_it(vault: Vault) -> None:
    await vault.deployed("true")
    before = await vault.revision()
    await vault.admin.put(f"{HOME}/db", json={"value": NEWER})
    await until(vault.revision, lambda revision: revision not in (None, before))
    after = await vault.revision()
    vault.put_keys(NEW, OLD)
    assert (await vault.rotated()).status == "succeeded"
    await vault.deployed("true")  # neither a rotation nor the same definition is a change
    assert await vault.revision() == after
    locks = (await vault.admin.get(f"/api/v1/systems/{NS}/shop/locks")).json()
    assert locks == []


async def test_a_changed_secret_does_not_touch_other_instances(vault: Vault) -> None:
    await vault.deployed("false")
    before = await vault.revision()
    await vault.admin.put(f"{HOME}/db", json={"value": NEWER})
    await vault.deployed("false")
    assert await vault.revision() == before


async def test_a_rotation_encrypts_all_secrets_with_the_first_key(vault: Vault) -> None:
    for number in range(7):
        await vault.admin.post(HOME, json={"name": f"s{number}", "value": VALUE})
    vault.put_keys(NEW, OLD)
    assert await vault.keys() == {SealingKey(bytes.fromhex(OLD)).id}
    assert (await vault.rotated()).status == "succeeded"
    assert await vault.keys() == {SealingKey(bytes.fromhex(NEW)).id}
    vault.put_keys(NEW)
    assert (await vault.rotated()).status == "succeeded"  # again, without the former key
    assert [one["version"] for one in (await vault.admin.get(HOME)).json()] == [1] * 8


async def test_a_rotation_without_the_former_key_fails_and_names_it(vault: Vault) -> None:
    vault.put_keys(NEW)
    failed = await vault.rotated()
    assert failed.status == "failed"
    assert f"secret db cannot be decrypted: it is encrypted with key {SealingKey(bytes.fromhex(OLD)).id}" in str(
        failed.error
    )
    vault.put_keys(NEW, OLD)
    assert (await vault.rotated()).status == "succeeded"


async def test_a_missing_secret_is_told_by_its_name(vault: Vault) -> None:
    reader = SecretReader(KeyRing(None, str(vault._file)))
    reader.engine = vault.engine
    assert await reader.values(NS, ["db"]) == {"db": VALUE}
    with pytest.raises(SecretMissing, match="there is no secret tls"):
        await reader.values(NS, ["tls"])


async def test_a_service_whose_instances_fail_with_a_new_value_stays_failed_until_there_is_another(
    vault: Vault,
) -> None:
    await vault.deployed("true, deadline: 0.2")
    vault.backend.fail("/web")
    await vault.admin.put(f"{HOME}/db", json={"value": NEWER})
    await vault.becomes("failed")
    controller = InstanceController(vault.plugin.context, "simulated", vault.backend)
    for _ in range(3):
        await controller._reconcile(WEB)
    updates = [one for one in await vault.engine.history(NS, "shop:web") if one.event == "updating" and one.op]
    assert len({one.op for one in updates}) == 2, updates  # the deploy, and the new value
    vault.backend.mend_all()
    await vault.admin.put(f"{HOME}/db", json={"value": "another"})
    await vault.becomes("stable")
