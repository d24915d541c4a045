"""Deploys of real services on this machine: under load, failing, and with the server killed in the middle."""

import asyncio
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from stateward.domains.systems.backends.local import LocalBackend
from stateward.domains.systems.backends.port import ServiceRef, SystemRef
from stateward.domains.systems.definition import Service, Tree
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.engine import Engine
from stateward.store import open_store
from stateward.store.records import Operation, Status
from tests.integration.domains.systems.local_backend_harness import PROGRAM, is_alive, kill_marked, program
from tests.integration.server.server_processes import served
from tests.waiting import until, wait_until

NS, HOME = "default", SystemRef("default", "shop")
PATIENT = 60.0


class Machine:
    """A system called shop on this machine."""

    def __init__(self, engine: Engine, backend: LocalBackend) -> None:
        self.engine, self.backend = engine, backend
        self.actions = SystemActions(engine, NS, "ann")

    async def deployed(self, **services: Any) -> Operation:
        """Deploy services, and wait until that has ended."""
        tree = Tree({f"/{name}": one for name, one in services.items()})
        accepted = await self.actions.deploy("shop", "/", tree)
        return await self.engine.wait_record(NS, accepted.op.id, PATIENT)

    async def pids(self, path: str) -> set[int | None]:
        """Return the processes of a service."""
        return {one.pid for one in await self.backend.instances(ServiceRef(HOME, path))}

    async def becomes(self, name: str, state: str) -> None:
        """Wait until an object is in a state."""
        await until(lambda: self.engine.record(NS, name), lambda obj: obj.state == state)

    async def lines(self, name: str) -> int:
        """Return how many lines an object has in the journal."""
        return len(await self.engine.history(NS, name))

    async def met(self, name: str, state: str, after: int) -> None:
        """Wait until an object has been in a state, after so many of its lines."""
        await until(
            lambda: self.engine.history(NS, name), lambda entries: state in [line.target for line in entries[after:]]
        )


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    backend = LocalBackend(tmp_path / "systems")
    plugin = SystemsRuntime({"local": backend})
    engine = Engine(open_store(str(tmp_path / "stateward.db")), plugin.kinds)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        opened = Machine(engine, backend)
        await engine.wait_record(NS, (await opened.actions.create("shop", "local")).op.id, PATIENT)
        yield opened
        deleted = await opened.actions.delete("shop", force=True)
        assert (await engine.wait_record(NS, deleted.op.id, PATIENT)).status is Status.SUCCEEDED
    assert kill_marked(tmp_path) == []  # nothing is left behind


async def test_a_rolling_update_under_load_loses_no_request(machine: Machine) -> None:
    first = program("first", instances=2, address=0)
    assert (await machine.deployed(web=first)).status is Status.SUCCEEDED
    port = await machine.backend.address(ServiceRef(HOME, "/web"), 0)
    answers: Counter[str] = Counter()
    over = asyncio.Event()
    load = [
        asyncio.create_task(send_requests(f"http://127.0.0.1:{port}{path}", answers, over))
        for path in ("/", "/", "/slow")
    ]
    for revisions, word in enumerate(("second", "third"), start=2):
        assert (await machine.deployed(web=program(word, instances=2, address=0))).status is Status.SUCCEEDED
        await until_revisions(answers, revisions)
    over.set()
    await asyncio.gather(*load)
    assert not [answer for answer in answers if answer.startswith("lost")], answers
    assert sum(answers.values()) > 20


async def until_revisions(answers: Counter[str], number: int) -> None:
    """Wait until so many revisions have answered, or a request is lost."""
    await until(lambda: len({answer.split()[0] for answer in answers}) >= number)


async def send_requests(url: str, answers: Counter[str], over: asyncio.Event) -> None:
    """Ask for a page again and again, each time by a connection of its own."""
    async with httpx.AsyncClient(trust_env=False, timeout=20, verify=False) as client:
        while not over.is_set():
            try:
                answers[(await client.get(url, headers={"Connection": "close"})).text] += 1
            except httpx.HTTPError as error:
                answers[f"lost: {error!r}"] += 1
            await asyncio.sleep(0.01)  # for the others: a machine that only answers us gets nothing else done


async def test_the_end_of_a_system_that_is_cancelled_while_its_processes_stop_is_not_told_as_not_done(
    machine: Machine,
) -> None:
    assert (await machine.deployed(web=replace(program("first", instances=2), drain=1.0))).status is Status.SUCCEEDED
    pids, ref = await machine.pids("/web"), ServiceRef(HOME, "/web")
    deleting = await machine.actions.delete("shop")
    await until(lambda: machine.backend.instances(ref), lambda instances: not all(one.is_wanted for one in instances))
    await machine.engine.cancel(NS, deleting.op.id)
    assert (await machine.engine.wait_record(NS, deleting.op.id, PATIENT)).status is Status.FAILED
    assert (await machine.engine.record(NS, "shop")).state == "failed"
    await until(lambda: not any(is_alive(pid) for pid in pids if pid is not None))


async def test_a_service_that_never_gets_healthy_fails_by_its_deadline_and_leaves_the_others_alone(
    machine: Machine,
) -> None:
    assert (await machine.deployed(web=program("v1"), other=program("other"))).status is Status.SUCCEEDED
    web, other = await machine.pids("/web"), await machine.pids("/other")
    broken = Service(command=("sleep", "60"), health=program().health, deadline=0.5, drain=0.05)
    ended = await machine.deployed(web=broken, other=program("other"))
    assert ended.status is Status.FAILED
    assert "shop:web: no progress within 0.5 s" in (ended.error or "")
    assert (await machine.pids("/web"), await machine.pids("/other")) == (web, other)
    await machine.becomes("shop", "stable")


async def test_scaling_keeps_what_runs(machine: Machine) -> None:
    await machine.deployed(web=program("v1", instances=2))
    before = await machine.pids("/web")
    await machine.deployed(web=program("v1", instances=3))
    grown = await machine.pids("/web")
    assert before < grown
    await machine.deployed(web=program("v1", instances=1))
    assert len(await machine.pids("/web")) == 1
    assert await machine.pids("/web") < grown


async def test_a_crash_degrades_the_service_and_the_system_until_it_is_mended(machine: Machine, tmp_path: Path) -> None:
    await machine.deployed(web=program("v1"), other=program("other"))
    (pid,) = await machine.pids("/web")
    assert pid is not None
    (work,) = tmp_path.glob("systems/*/shop/services/web/instances/*/work")
    ill = work / "ill"
    ill.touch()  # it is well again when this is gone, and not before somebody has looked
    os.kill(pid, signal.SIGKILL)
    await machine.becomes("shop", "degraded")
    assert (await machine.engine.record(NS, "shop:other")).state == "stable"
    ill.unlink()
    await machine.becomes("shop", "stable")
    states = [line.target for line in await machine.engine.history(NS, "shop:web")]
    assert states[-2:] == ["degraded", "stable"]


async def test_a_port_that_another_program_has_is_the_reason_until_it_is_free(machine: Machine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = await machine.deployed(web=replace(program("v1", address=port), deadline=2.0))
        assert ended.status is Status.FAILED
        (kept,) = await machine.backend.logs(ServiceRef(HOME, "/web"), None, None, 1_000)
        assert "v1" in kept.text  # the service is gone, and its log is not
        why = f"its address is not open: port {port} of this host is taken by another program"
        assert why in str(ended.error)
        (change, *_) = await machine.engine.store.reader.children_of(ended.key)  # the status shows it meanwhile
        assert f"waits: {why}" in [one.text for one in await machine.engine.store.reader.progress_of(change.key, 0)]
    assert (await machine.deployed(web=program("v1", address=port))).status is Status.SUCCEEDED


async def test_a_service_whose_address_is_lost_is_updating_until_it_stands_again(
    machine: Machine, tmp_path: Path
) -> None:
    await machine.deployed(web=program("v1", address=0))
    port = await machine.backend.address(ServiceRef(HOME, "/web"), 0)
    state = next(tmp_path.glob("systems/*/shop/services/web/gate/state.json"))
    gate, before = msgspec.json.decode(state.read_bytes())["process"]["pid"], await machine.pids("/web")
    lines = await machine.lines("shop:web")
    os.kill(gate, signal.SIGKILL)
    await machine.met("shop:web", "updating", after=lines)
    await machine.becomes("shop:web", "stable")
    assert await machine.backend.address(ServiceRef(HOME, "/web"), 0) == port
    assert await machine.pids("/web") == before


# --- a server that is killed -----------------------------------------------------------------------------------------

DEFINITION = """
services:
  quick: {command: [python3, -I, -S, program.py, quick], folder: ., health: {http: /, interval: 0.1}}
  slow:
    command: [sh, -c, 'while ! test -f go; do sleep 0.05; done; exec python3 -I -S program.py slow']
    folder: .
    health: {http: /, interval: 0.1}
"""

OPEN_TO_OWNER = {"STATEWARD_CONFINEMENT": "off", "STATEWARD_ONLY": "systems"}
"""Settings of a server whose instances run in the folder of a test, which is for its owner alone."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "program.py").write_text(PROGRAM)
    yield tmp_path
    kill_marked(tmp_path)


def test_a_server_killed_during_a_deploy_finds_its_instances_again_and_the_deploy_goes_on(folder: Path) -> None:
    data, environ = folder / "data", OPEN_TO_OWNER
    with served(data, environ=environ) as server, server.client() as client:
        assert client.post("/api/v1/systems/default", json={"name": "shop"}).status_code == 202
        system_that(client, lambda system: system["state"] == "stable")
        own = {"definition": f"services: {{web: {{command: x, address: {client.base_url.port}}}}}"}
        refused = client.post("/api/v1/systems/default/shop/deploys", json=own)
        assert "the Stateward server itself listens on" in refused.text
        body = {"definition": DEFINITION, "base": str(folder)}
        asked = client.post("/api/v1/systems/default/shop/deploys", json=body)
        assert asked.status_code == 202, asked.text
        found = system_that(client, lambda system: sorted(map(begun, instances(system))) == ["ready", "runs"])
        pids = {instance["name"]: instance["pid"] for instance in instances(found)}
        server.stop(signal.SIGKILL)
    assert all(map(is_alive, pids.values()))
    with served(data, environ=environ) as server, server.client() as client:
        (folder / "go").touch()
        until_ended(client, asked.json()["operation"])
        found = system_that(client, lambda system: system["state"] == "stable" and len(system["services"]) == 2)
        assert {instance["name"]: instance["pid"] for instance in instances(found)} == pids
        deploys = client.get("/api/v1/systems/default/shop/deploys").json()
        assert [one["state"] for one in deploys] == ["succeeded"]
        assert client.get("/api/v1/systems/default/shop/locks").json() == []
        assert client.delete("/api/v1/systems/default/shop").status_code == 202
        gone(client)
    assert not any(map(is_alive, pids.values()))


def system_that(client: httpx.Client, fits: Any) -> Any:
    """Wait until a system fits, and return it."""
    url, params = "/api/v1/systems/default/shop", {"instances": "true"}
    answer = wait_until(
        lambda: client.get(url, params=params), lambda answer: answer.is_success and fits(answer.json())
    )
    return answer.json()


def until_ended(client: httpx.Client, operation: str) -> None:
    """Wait until an operation has ended."""
    url = f"/api/v1/ns/default/operations/{operation}"
    wait_until(lambda: client.get(url), lambda answer: answer.json()["status"] not in ("waiting", "running"))


def gone(client: httpx.Client) -> None:
    """Wait until the system is gone."""
    wait_until(lambda: client.get("/api/v1/systems/default/shop").status_code == 404)


def begun(instance: Any) -> str:
    """Say how far an instance is."""
    return "ready" if instance["ready"] else "runs" if instance["pid"] else ""


def instances(found: Any) -> list[Any]:
    """Return all instances of a system."""
    return [instance for service in found["services"] for instance in service["instances"]]
