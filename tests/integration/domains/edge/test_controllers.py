"""Several controllers on one PostgreSQL, and an agent that goes to whichever is left, encrypted where they are."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from stateward.store import open_store
from tests.integration.server.processes import PATIENT, Process, Served, served
from tests.servers import PostgresServer

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
async def database(postgres_server: PostgresServer) -> str:
    """A database that is ready for use."""
    dsn = postgres_server.new_database()
    store = open_store(dsn, migrate=True)
    await store.open()
    await store.close()
    return dsn


@pytest.fixture
def controllers(tmp_path: Path, database: str, certificate: tuple[Path, Path]) -> Iterator[list[Served]]:
    """Two controllers, of which the first is only reached encrypted."""
    tls = ("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]))
    with ExitStack() as stack:
        shared = ("--database", database)
        yield [
            stack.enter_context(served(tmp_path / "one", *shared, *tls)),
            stack.enter_context(served(tmp_path / "two", *shared)),
        ]


def until(client: httpx.Client, path: str, state: str, **conditions: Any) -> None:
    end = time.monotonic() + PATIENT
    while True:
        found = client.get(f"{BASE}{path}").json()
        if found.get("state") == state and conditions.items() <= found["conditions"].items():
            return
        assert time.monotonic() < end, found
        time.sleep(0.03)


def other(server: Served, client: httpx.Client) -> httpx.Client:
    """Return a client of another controller, with the administrator's token, of which there is one."""
    return httpx.Client(base_url=server.url, headers=client.headers, timeout=PATIENT, trust_env=False)


def connected(client: httpx.Client) -> list[str]:
    """Return the cloudlets whose agents are connected to this very controller."""
    return [one["cloudlet"] for one in client.get(f"{BASE}/agents").json()["agents"]]


def test_an_agent_goes_on_with_another_controller_when_the_first_dies(
    tmp_path: Path, controllers: list[Served], certificate: tuple[Path, Path]
) -> None:
    first, second = controllers
    body = {"name": "munich", "role": "agent", "namespaces": ["lab:munich"]}
    with first.client(verify=False) as safe, other(second, safe) as client:
        (tmp_path / "token").write_text(client.post("/api/v1/tokens", json=body).json()["token"])
        assert client.post(f"{BASE}/cloudlets", json={"name": "munich"}).status_code == 202
        addresses = [one.url.replace("http", "ws", 1) for one in controllers]
        agent = Process(
            tmp_path / "agent", "agent", "--controller", addresses[0], "--controller", addresses[1],
            "--cloudlet", "munich", "--namespace", "lab", "--token-file", str(tmp_path / "token"),
            "--driver", "simulated", "--data", str(tmp_path / "site"), environ={"SSL_CERT_FILE": str(certificate[0])},
        )  # fmt: skip
        try:
            until(client, "/cloudlets/munich", "Ready", online=True)
            assert (connected(safe), connected(client)) == (["munich"], [])
            made = {"name": "c1", "nodes": 1}
            assert client.post(f"{BASE}/cloudlets/munich/clusterinsts", json=made).status_code == 202
            until(client, "/cloudlets/munich/clusterinsts/c1", "Ready")
            first.process.kill()
            first.ended()
            end = time.monotonic() + PATIENT
            while connected(client) != ["munich"]:
                assert time.monotonic() < end, agent.output
                time.sleep(0.03)
            until(client, "/cloudlets/munich", "Ready", online=True)
            client.delete(f"{BASE}/cloudlets/munich/clusterinsts/c1")
            until(client, "/cloudlets/munich/clusterinsts/c1", "NotPresent")
        finally:
            agent.process.kill()
            agent.ended()
