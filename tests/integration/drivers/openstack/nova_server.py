"""The real Nova of the tests: one process for all tests of a worker, in the environment `.venv/nova`."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tools.reaper import make_run_folder, start_guard

VENV = Path(sys.prefix)
PYTHON = VENV / "nova" / "bin" / "python"
PROGRAM = Path(__file__).with_name("nova_process.py")
ROOT = PROGRAM.parents[4]
PATIENT = 240.0
REGION = "RegionOne"
PAGE = 5
"""How many records a page has, as `nova_process.py` sets it."""

MICROVERSION = "2.96"
_projects = count(1)


class NovaServer:
    """A running Nova; each test has a project of its own in it, and so an empty world."""

    def __init__(self) -> None:
        self._folder = make_run_folder()
        start_guard(self._folder)  # a process that is killed cannot stop its server
        self._log = self._folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(PYTHON), str(PROGRAM), str(self._folder)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(self._folder)},
            )
        self.url = self._wait_for_url()

    def _wait_for_url(self) -> str:
        end = time.monotonic() + PATIENT
        while self._process.poll() is None and time.monotonic() < end:
            for line in self._log.read_text().splitlines():
                if line.startswith("READY "):
                    return line.removeprefix("READY ")
            time.sleep(0.05)
        self.stop()
        raise AssertionError(f"Nova has not started: {self._log.read_text()}")

    def stop(self) -> None:
        """Stop it; its folder is removed by its guard."""
        self._process.terminate()
        self._process.wait(PATIENT)

    def new_project(self) -> str:
        """Return the name of a project that nobody has used."""
        return f"project-{os.getpid()}-{next(_projects)}"

    def client(self, project: str, user: str = "admin") -> "NovaClient":
        """Return a client of the tests' own."""
        return NovaClient(self.url, project, user)


class NovaClient:
    """Looks at a project, and changes it, without the driver and without its library."""

    def __init__(self, url: str, project: str, user: str) -> None:
        domain = {"domain": {"id": "default"}}
        identity = {"methods": ["password"], "password": {"user": {"name": user, "password": "any", **domain}}}
        auth = {"auth": {"identity": identity, "scope": {"project": {"name": project, **domain}}}}
        answer = httpx.post(f"{url}/identity/v3/auth/tokens", json=auth, verify=False)
        self.project_id: str = answer.json()["token"]["project"]["id"]
        headers = {
            "X-Auth-Token": answer.headers["X-Subject-Token"],
            "OpenStack-API-Version": f"compute {MICROVERSION}",
        }
        self._http = httpx.Client(base_url=url, headers=headers, timeout=PATIENT, verify=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str, **params: str) -> Any:
        """Return what is at a path: `/compute/v2.1/...`, `/network/v2.0/...`."""
        return self._http.get(path, params=params).raise_for_status().json()

    def send(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Send a request, and return its answer."""
        return self._http.request(method, path, json=body).raise_for_status()

    def servers(self) -> list[dict[str, Any]]:
        """Return all servers of the project."""
        found: list[dict[str, Any]] = []
        while True:
            marker = {"marker": found[-1]["id"]} if found else {}
            page = self.get("/compute/v2.1/servers/detail", **marker)
            found += page["servers"]
            if "servers_links" not in page:
                return found

    def server_of(self, key: str) -> dict[str, Any]:
        """Return the one server with a key."""
        (found,) = [one for one in self.servers() if one["metadata"].get("stateward:key") == key]
        return found

    def actions(self, native_id: str) -> list[str]:
        """Return what was done to a server, the latest first."""
        found = self.get(f"/compute/v2.1/servers/{native_id}/os-instance-actions")["instanceActions"]
        return [one["action"] for one in found]

    def kill(self, key: str) -> None:
        """Let a server fail, as Nova does if its host has lost it."""
        native = self.server_of(key)["id"]
        self.send("POST", f"/compute/v2.1/servers/{native}/action", {"os-resetState": {"state": "error"}})

    def set_quota(self, **limits: int) -> None:
        """Set quotas of the project."""
        self.send("PUT", f"/compute/v2.1/os-quota-sets/{self.project_id}", {"quota_set": limits})

    def clear(self) -> None:
        """Delete all servers, without waiting for it."""
        for server in self.servers():
            self._http.delete(f"/compute/v2.1/servers/{server['id']}")


@pytest.fixture(scope="session")
def nova_server() -> Iterator[NovaServer]:
    """Give the tests a Nova; start it only if one of them asks. Where it is not installed, they are skipped."""
    if not (VENV / ".nova").exists():
        pytest.skip("Nova is not installed: `make setup` brings it")
    server = NovaServer()
    yield server
    server.stop()
