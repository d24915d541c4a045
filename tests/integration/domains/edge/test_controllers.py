"""Several controllers on one PostgreSQL, and an agent that reconnects to any of them, with and without TLS."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from stateward.store import open_store
from stateward.store.filters import JournalFilter
from tests.integration.server.server_processes import PATIENT, Process, Served, served
from tests.kept_ports import keep_port
from tests.servers import PostgresServer
from tests.waiting import pauses, wait_until

BASE = "/api/v1/edge/ns/lab"
MAKE = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=controller"]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of this machine, with its key."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*MAKE, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is needed to make a certificate")
    return certificate, key


@pytest.fixture
def controllers(
    tmp_path: Path, postgres_server: PostgresServer, certificate: tuple[Path, Path]
) -> Iterator[list[Served]]:
    """Two controllers, of which the first is only reached encrypted."""
    tls = ("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]))
    with ExitStack() as stack:
        shared = ("--database", postgres_server.new_migrated_database(), "--set=only=edge")
        yield [
            stack.enter_context(served(tmp_path / "one", *shared, *tls)),
            stack.enter_context(served(tmp_path / "two", *shared)),
        ]


GONE: dict[str, Any] = {"state": "NotPresent", "conditions": {}}


def until(client: httpx.Client, path: str, state: str, **conditions: Any) -> None:
    end, pause_s = time.monotonic() + PATIENT, pauses()
    while True:
        answer = client.get(f"{BASE}{path}")
        found = answer.json() if answer.is_success else GONE
        if found.get("state") == state and conditions.items() <= found["conditions"].items():
            return
        assert time.monotonic() < end, found
        time.sleep(next(pause_s))


def other(server: Served, client: httpx.Client) -> httpx.Client:
    """Return a client of another controller, with the administrator's token, of which there is one."""
    return httpx.Client(base_url=server.url, headers=client.headers, timeout=PATIENT, trust_env=False, verify=False)


def connected(client: httpx.Client) -> list[str]:
    """Return the cloudlets whose agents are connected to this very controller."""
    return [one["cloudlet"] for one in client.get(f"{BASE}/agents").json()["agents"]]


@contextmanager
def running_agent(folder: Path, *controllers: str, **environ: str) -> Iterator[Process]:
    """Run an agent; whatever happens, it is gone in the end."""
    dialled = [word for one in controllers for word in ("--controller", one)]
    agent = Process(
        folder / "agent", "agent", *dialled, "--cloudlet", "munich", "--namespace", "lab",
        "--token-file", str(folder / "token"), "--driver", "simulated", "--data", str(folder / "site"),
        environ=environ,
    )  # fmt: skip
    try:
        yield agent
    finally:
        agent.process.kill()
        agent.ended()


def test_an_agent_goes_on_with_another_controller_when_the_first_dies(
    tmp_path: Path, controllers: list[Served], certificate: tuple[Path, Path]
) -> None:
    first, second = controllers
    body = {"name": "munich", "role": "agent", "namespaces": ["lab:munich"]}
    with first.client() as safe, other(second, safe) as client:
        (tmp_path / "token").write_text(client.post("/api/v1/tokens", json=body).json()["token"])
        assert client.post(f"{BASE}/cloudlets", json={"name": "munich"}).status_code == 202
        addresses = [one.url.replace("http", "ws", 1) for one in controllers]
        with running_agent(tmp_path, *addresses, SSL_CERT_FILE=str(certificate[0])) as agent:
            until(client, "/cloudlets/munich", "Ready", online=True)
            assert (connected(safe), connected(client)) == (["munich"], [])
            made = {"name": "c1", "nodes": 1}
            assert client.post(f"{BASE}/cloudlets/munich/clusterinsts", json=made).status_code == 202
            until(client, "/cloudlets/munich/clusterinsts/c1", "Ready")
            first.process.kill()
            first.ended()
            wait_until(lambda: connected(client), lambda names: names == ["munich"], lambda: agent.output)
            until(client, "/cloudlets/munich", "Ready", online=True)
            client.delete(f"{BASE}/cloudlets/munich/clusterinsts/c1")
            until(client, "/cloudlets/munich/clusterinsts/c1", "NotPresent")


# --- racing controllers ----------------------------------------------------------------------------------------------

CLUSTERS = f"{BASE}/cloudlets/munich/clusterinsts"
APPS = [f"app{n}" for n in range(8)]
ROUNDS = 4


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> str:
    """The database of two controllers."""
    return postgres_server.new_migrated_database()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, database: str) -> Iterator[list[Served]]:
    """Two controllers, each a process of its own, and an agent; each knows how the other reaches it."""
    folder = tmp_path_factory.mktemp("pair")
    with ExitStack() as stack:
        found = [stack.enter_context(_reachable(folder / name, database)) for name in ("one", "two")]
        client = stack.enter_context(found[0].client())
        body = {"name": "munich", "role": "agent", "namespaces": ["lab:munich"]}
        (folder / "token").write_text(client.post("/api/v1/tokens", json=body).json()["token"])
        assert client.post(f"{BASE}/cloudlets", json={"name": "munich"}).status_code == 202
        stack.enter_context(running_agent(folder, *(one.url.replace("http", "ws", 1) for one in found)))
        until(client, "/cloudlets/munich", "Ready", online=True)
        yield found


def _reachable(folder: Path, database: str) -> AbstractContextManager[Served]:
    port = keep_port()
    environ = {"STATEWARD_SERVER_URL": f"http://127.0.0.1:{port}", "STATEWARD_ONLY": "edge"}
    return served(folder, "--database", database, "--port", str(port), environ=environ)


@pytest.fixture
async def clients(pair: list[Served]) -> AsyncIterator[list[httpx.AsyncClient]]:
    """A client of each, with the administrator's token, of which there is one."""
    headers = {"Authorization": f"Bearer {pair[0].token}"}
    async with AsyncExitStack() as stack:
        made = [
            httpx.AsyncClient(base_url=one.url, headers=headers, timeout=PATIENT, trust_env=False, verify=False)
            for one in pair
        ]
        yield [await stack.enter_async_context(one) for one in made]


async def eventually(client: httpx.AsyncClient, path: str, *states: str) -> None:
    pause_s = pauses()
    async with asyncio.timeout(PATIENT):
        while _state(await client.get(path)) not in states:
            await asyncio.sleep(next(pause_s))


def _state(answer: httpx.Response) -> str:
    return str((answer.json() if answer.is_success else GONE)["state"])


async def race(clients: list[httpx.AsyncClient], late: int) -> tuple[bool, list[str]]:
    """Let both controllers create apps in a cluster, and after so many of them delete it.

    Tells whether it goes, and which apps come.
    """
    creates = [clients[n % 2].post(f"{CLUSTERS}/c1/appinsts", json={"app": app}) for n, app in enumerate(APPS)]
    deletes = [client.delete(f"{CLUSTERS}/c1") for client in clients]
    answers = await asyncio.gather(*creates[:late], *deletes, *creates[late:])
    assert {answer.status_code for answer in answers} <= {202, 404, 409}, [answer.text for answer in answers]
    accepted = [answer.status_code == 202 for answer in answers]
    come = [app for app, made in zip(APPS, accepted[:late] + accepted[late + 2 :], strict=True) if made]
    return any(accepted[late : late + 2]), come


async def apps_without_cluster(database: str) -> list[str]:
    """Return the moments, by the journal, in which an app was there and its cluster was not."""
    store = open_store(database)
    await store.open()
    lines = await store.reader.journal(0, 100_000, JournalFilter(ns="lab"))
    await store.close()
    present: dict[str, bool] = {}
    found = []
    for line in lines:
        if line.kind in ("edge.clusterinst", "edge.appinst") and line.target is not None:
            present[line.object] = line.target != "NotPresent"
            if any(there and one.count(":") == 2 for one, there in present.items()) and not present.get("munich:c1"):
                found.append(f"{line.seq}: {line.object} {line.event} -> {line.target}")
    assert present
    return found


async def test_with_two_controllers_that_race_no_app_is_at_any_moment_without_its_cluster(
    clients: list[httpx.AsyncClient], database: str
) -> None:
    one, other = clients
    for app in APPS:
        await one.put(f"{BASE}/apps/{app}", json={"command": "sleep 1000"})
    for nth in range(ROUNDS):
        assert (await one.post(CLUSTERS, json={"name": "c1"})).status_code == 202
        await eventually(clients[nth % 2], f"{CLUSTERS}/c1", "Ready")
        gone, come = await race(clients, late=nth % 4)
        assert gone != bool(come)
        for app in come:
            await eventually(other, f"{CLUSTERS}/c1/appinsts/{app}", "Ready")
            assert (await other.delete(f"{CLUSTERS}/c1/appinsts/{app}")).status_code == 202
        for app in come:
            await eventually(other, f"{CLUSTERS}/c1/appinsts/{app}", "NotPresent")
        if not gone:
            assert (await other.delete(f"{CLUSTERS}/c1")).status_code == 202
        await eventually(one, f"{CLUSTERS}/c1", "NotPresent")
    assert await apps_without_cluster(database) == []


async def test_logs_and_commands_reach_an_agent_through_every_controller(
    clients: list[httpx.AsyncClient],
) -> None:
    one, other = clients
    await one.put(f"{BASE}/apps/web", json={"command": "sleep 1000"})
    assert (await one.post(CLUSTERS, json={"name": "c2"})).status_code == 202
    await eventually(other, f"{CLUSTERS}/c2", "Ready")
    assert (await one.post(f"{CLUSTERS}/c2/appinsts", json={"app": "web"})).status_code == 202
    await eventually(other, f"{CLUSTERS}/c2/appinsts/web", "Ready")
    for client in clients:
        (part,) = (await client.get(f"{CLUSTERS}/c2/appinsts/web/logs", params={"most": 5})).json()
        assert part["text"] == "runs\n"
        words = {"argv": ["echo", "of a simulated site"]}
        found = await client.post(f"{CLUSTERS}/c2/appinsts/web/exec", json=words)
        assert found.json() == {"status": 0, "written": "echo of a simulated site\n", "omitted": 0}
        refused = await client.get(f"{CLUSTERS}/c2/appinsts/web/logs", params={"after": "half"})
        assert refused.status_code == 409
        assert "not the cursor" in refused.json()["detail"]
    viewer = (await one.post("/api/v1/tokens", json={"name": "v", "role": "viewer", "namespaces": ["lab"]})).json()
    headers = {"Authorization": f"Bearer {viewer['token']}"}
    for client in clients:
        denied = await client.post(f"{CLUSTERS}/c2/appinsts/web/exec", json=words, headers=headers)
        assert denied.status_code == 403
    await one.delete(f"{CLUSTERS}/c2/appinsts/web")
    await eventually(other, f"{CLUSTERS}/c2/appinsts/web", "NotPresent")
    await one.delete(f"{CLUSTERS}/c2")
    await eventually(other, f"{CLUSTERS}/c2", "NotPresent")
