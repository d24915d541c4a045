"""The values of a service's environment: its instances get them, and no response contains them."""

from collections.abc import AsyncIterator, Callable

import pytest

from stateward.access import Role
from stateward.domains.systems.backends.port import InstanceSpec, ServiceRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import read
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.engine import Accepted
from stateward.server.live.feeds import encode_entry
from stateward.store.filters import JournalFilter
from stateward.store.port import Store
from tests.integration.domains.systems.conftest import PATIENT
from tests.readable_routes import READERS, ReadableApp, open_to_readers, readable_paths

NS = "default"
SECRET = "hunter2"
WITH_SECRET = "services: {web: {command: run %s, deadline: 0.3, env: {PASSWORD: %s-%s, MODE: %s-x}}}"


class ListeningBackend(SimulatedBackend):
    """Remembers the environment of what it was asked to run."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[dict[str, str]] = []

    async def start(self, ref: ServiceRef, want: InstanceSpec) -> None:
        """Begin to run an instance."""
        self.given.append(dict(want.service.env))
        await super().start(ref, want)


class Scene:
    """A server, and callers with different rights."""

    def __init__(self, served: ReadableApp, backend: ListeningBackend) -> None:
        self.engine, self.app, self.clients, self.backend = served.engine, served.app, served.clients, backend

    async def ended(self, accepted: Accepted) -> str:
        """Wait for the end of an operation."""
        return str((await self.engine.wait_record(NS, accepted.op.id, PATIENT)).status)

    async def deployed(self, version: str) -> str:
        """Deploy a version with a secret, and wait for the end."""
        tree = read(WITH_SECRET % (version, SECRET, version, SECRET))
        return await self.ended(await SystemActions(self.engine, NS, "ann").deploy("shop", "/", tree))


@pytest.fixture
async def scene(new_store: Callable[[], Store]) -> AsyncIterator[Scene]:
    """A system whose service was deployed, changed, rolled back, and changed in vain."""
    backend = ListeningBackend()
    plugin = SystemsRuntime({"simulated": backend})
    async with open_to_readers(new_store(), plugin, NS) as served:
        found = Scene(served, backend)
        actions = SystemActions(served.engine, NS, "ann")
        await found.ended(await actions.create("shop", "simulated"))
        assert [await found.deployed(version) for version in ("v1", "v2")] == ["succeeded"] * 2
        assert await found.ended(await actions.rollback("shop", None, None)) == "succeeded"
        backend.fail("/web", "v3")
        assert await found.deployed("v3") == "failed"
        yield found


@pytest.mark.parametrize("role", READERS)
async def test_no_way_out_has_a_value_of_an_environment(scene: Scene, role: Role) -> None:
    reader, client = scene.engine.store.reader, scene.clients[role]
    paths = await readable_paths(scene.app, reader, NS, system=["shop"], secret=[], run=[], node=[])
    answers = {path: (await client.get(path)).text for path in [*paths, f"/api/v1/systems/{NS}/shop/logs?path=/web"]}
    export = await client.get(f"/api/v1/journal?ns={NS}", headers={"Accept": "application/x-ndjson"})
    answers["export"] = export.text
    assert [path for path, text in answers.items() if SECRET in text] == []
    for path in (f"/api/v1/systems/{NS}/shop", f"/api/v1/ns/{NS}/objects/shop:web", "export"):
        assert "PASSWORD" in answers[path]
        assert "***" in answers[path]


async def test_the_stream_has_no_value_of_an_environment(scene: Scene) -> None:
    lines = await scene.engine.store.reader.journal(0, 10_000, JournalFilter(ns=NS))
    for internal in (False, True):
        texts = [encode_entry(scene.engine.kinds, line, internal) or "" for line in lines]
        assert any("PASSWORD" in text for text in texts)
        assert not any(SECRET in text for text in texts)


async def test_instances_get_the_true_values_also_after_a_rollback(scene: Scene) -> None:
    versions = [one["PASSWORD"] for one in scene.backend.given]
    assert versions[:4] == [f"{SECRET}-{version}" for version in ("v1", "v2", "v1", "v3")]


async def test_a_mistake_in_an_environment_is_told_without_its_values(scene: Scene) -> None:
    for env in (f"{{PASSWORD: [{SECRET}]}}", f"{{1BAD: {SECRET}}}", f"{{PASSWORD: '{SECRET}\\0"):
        body = {"definition": f"{{command: x, env: {env}}}", "path": "/a"}
        answer = await scene.clients[Role.ADMIN].post(f"/api/v1/systems/{NS}/shop/deploys", json=body)
        assert (answer.status_code, SECRET in answer.text) == (400, False)
