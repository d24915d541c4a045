"""Write a database with history and with operations under way, over HTTP alone: `python -m tests.stored.write OUT`.

The program that writes it is the `stateward` of the environment, or the one that `--stateward` names: the database of a
former version is made with that version. The server is killed while operations of every domain are under way.
"""

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from tests.servers import PostgresServer

NS = "stored"
PATIENCE_S = 60.0
SPECS = ("aws+ap-northeast-2+t3.micro", "gcp+us-central1+e2-small", "azure+westeurope+Standard_B2s")
SYSTEM = 'services:\n  web: {command: [serve, "1"], instances: 2}\n  store: {services: {api: {command: [api, "1"]}}}\n'


def agent_arguments(url: str, folder: Path) -> list[str]:
    """Return how the agent of the cloudlet is started."""
    options = {
        "--controller": url.replace("http", "ws", 1),
        "--cloudlet": "site",
        "--namespace": NS,
        "--token-file": str(folder / "agent" / "token"),
        "--driver": "simulated",
        "--data": str(folder / "agent" / "data"),
    }
    return ["agent", *(word for pair in options.items() for word in pair)]


class Site:
    """A server of some version, and its administrator's client."""

    def __init__(self, program: str, folder: Path, database: str) -> None:
        self.folder = folder
        environ = {name: value for name, value in os.environ.items() if not name.startswith("STATEWARD_")}
        environ |= {"STATEWARD_DATABASE": database} if database else {}
        if database:
            subprocess.run([program, "migrate"], env=environ, check=True, capture_output=True)
        self.process = subprocess.Popen(
            [program, "serve", "--data", str(folder), "--port", "0", "--lease", "5"],
            env=environ,
            stdout=subprocess.DEVNULL,
        )
        self.wait_for(lambda: (folder / "server.json").exists() and (folder / "admin-token").exists())
        url = json.loads((folder / "server.json").read_bytes())["url"]
        token = (folder / "admin-token").read_text().strip()
        self.client = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S, trust_env=False
        )
        self.wait_for(self._is_ready)
        (folder / "agent").mkdir(mode=0o700)
        made = self.call("POST", "/api/v1/tokens", {"name": "site", "role": "agent", "namespaces": [f"{NS}:site"]})
        (folder / "agent" / "token").write_text(made["token"])
        (folder / "agent" / "token").chmod(0o600)
        self.agent = subprocess.Popen(
            [program, *agent_arguments(url, folder)], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _is_ready(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "it takes too long"
            time.sleep(0.02)

    def call(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        """Call, and return the answer."""
        answer = self.client.request(method, path, json=body, headers={"Idempotency-Key": key} if key else {})
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def wait_for_rest(self, id_: str) -> None:
        """Wait until nothing is under way on an object."""
        self.wait_for(lambda: self.call("GET", f"/api/v1/ns/{NS}/objects/{id_}")["op"] is None)

    def make(self, path: str, body: Any) -> str:
        """Make an object, wait until it is at rest, and return its id."""
        id_: str = self.call("POST", path, body)["object"]["id"]
        self.wait_for_rest(id_)
        return id_


def write_history(site: Site) -> dict[str, str]:
    """Make objects of every domain, and end some of them; returns the ids that the rest needs."""
    site.call("POST", "/tumblebug/ns", {"name": NS})
    group = {"name": "g", "subGroupSize": 3, "specId": SPECS[0], "imageId": "ubuntu22.04"}
    site.call("POST", f"/tumblebug/ns/{NS}/mciDynamic", {"name": "fleet", "subGroups": [group]})
    site.wait_for_rest("fleet")
    site.make(f"/api/v1/edge/ns/{NS}/cloudlets", {"name": "site"})
    ovc = f"/api/v1/ovc/{NS}"
    site.make(f"{ovc}/nodes", {"name": "node", "driver": "simulated"})
    account = site.make(f"{ovc}/accounts", {"name": "account"})
    space = site.make(f"{ovc}/cloudspaces", {"name": "space", "account": account})
    image = site.make(f"{ovc}/images", {"name": "image", "account": account})
    machines = [
        site.make(f"{ovc}/machines", {"name": f"vm {n}", "cloudspace": space, "image": image}) for n in range(3)
    ]
    for name in ("h1", "h2"):
        site.call("POST", f"/ns/{NS}/blazar/v1/os-hosts", {"name": name, "vcpus": 4})
    site.call("POST", f"/api/v1/systems/{NS}", {"name": "shop", "backend": "simulated"})
    site.wait_for_rest("shop")
    return {"space": space, "image": image, "machine": machines[0], "other": machines[1]}


def lease_body(name: str, start: str, hours: float) -> dict[str, Any]:
    """Return the request for a lease of one host."""
    end = (datetime.now(UTC) + timedelta(hours=hours)).strftime("%Y-%m-%d %H:%M")
    wanted = {"resource_type": "physical:host", "min": 1, "max": 1}
    return {"name": name, "start_date": start, "end_date": end, "reservations": [wanted]}


def begin_operations(site: Site, ids: dict[str, str]) -> None:
    """Begin operations in every domain, and wait for none of them."""
    ovc = f"/api/v1/ovc/{NS}"
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%d %H:%M")
    site.call("POST", f"/ns/{NS}/blazar/v1/leases", lease_body("later", later, 24 * 365 * 50))
    site.call("POST", f"/ns/{NS}/blazar/v1/leases", lease_body("now", "now", 24 * 365 * 50))
    groups = [
        {"name": f"g{n}", "subGroupSize": 4, "specId": one, "imageId": "ubuntu22.04"} for n, one in enumerate(SPECS)
    ]
    site.client.timeout = 0.05
    with suppress(httpx.TimeoutException):  # the route answers when all machines are made
        site.call("POST", f"/tumblebug/ns/{NS}/mciDynamic", {"name": "growing", "subGroups": groups})
    site.client.timeout = PATIENCE_S
    site.wait_for(lambda: len(site.call("GET", f"/api/v1/ns/{NS}/objects?kind=mci.vm&limit=100")["items"]) > 10)

    site.call("POST", f"{ovc}/machines/{ids['machine']}/stop", None, "stop-a-machine")
    site.call("POST", f"{ovc}/machines/{ids['other']}/reboot")
    site.call("POST", f"{ovc}/machines", {"name": "vm new", "cloudspace": ids["space"], "image": ids["image"]})
    site.call("POST", f"/api/v1/systems/{NS}/shop/deploys", {"definition": SYSTEM})
    site.call("POST", f"/api/v1/edge/ns/{NS}/cloudlets/site/clusterinsts", {"name": "k8s", "nodes": 1})


def write(program: str, folder: Path, database: str) -> None:
    """Run a server and an agent, use them, and kill them."""
    site = Site(program, folder, database)
    try:
        begin_operations(site, write_history(site))
    finally:
        for process in (site.agent, site.process):
            process.send_signal(signal.SIGKILL)
            process.wait()
        site.client.close()


def pack(folder: Path, to: Path) -> None:
    """Pack a data folder; what SQLite has in its logs is written into the databases first."""
    for path in folder.rglob("*.db"):
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    with tarfile.open(to, "w:gz") as archive:
        archive.add(folder, arcname=".")


def main(options: argparse.Namespace) -> int:
    """Write one archive for each sort of store."""
    server = PostgresServer()
    try:
        for store in ("sqlite", "postgres"):
            with TemporaryDirectory() as parent:
                folder = Path(parent) / "data"
                database = server.new_database() if store == "postgres" else ""
                write(options.stateward, folder, database)
                if database:
                    (folder / "dump.sql").write_bytes(server.dump(database))
                pack(folder, options.out / f"{store}.tar.gz")
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    found = argparse.ArgumentParser(prog="python -m tests.stored.write", description=__doc__)
    found.add_argument("out", type=Path)
    found.add_argument("--stateward", default=str(Path(sys.executable).parent / "stateward"))
    sys.exit(main(found.parse_args()))
