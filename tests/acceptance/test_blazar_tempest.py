"""The API tests of OpenStack Blazar itself, as its tempest plug-in publishes them, against a real server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.integration.server.server_processes import PATIENT, Served, served

VENV = Path(sys.prefix)
TEMPEST = VENV / "tempest" / "bin" / "python"
RUNNER = Path(__file__).with_name("blazar_tempest.py")
TESTS = 22
"""How many tests the locked version of the plug-in has."""

SETTINGS = """
[oslo_concurrency]
lock_path = {folder}
[identity]
uri_v3 = {url}/identity/v3
[auth]
admin_username = admin
admin_password = of no account
admin_project_name = admin
admin_domain_name = Default
create_isolated_networks = false
[service_available]
neutron = false
"""
DOMAIN = {"id": "default", "name": "Default"}
ADMIN = {"id": "admin", "name": "admin"}
"""What Keystone knows: one domain, and one role, project and user."""

HYPERVISORS = {"hypervisors": [{"id": "1", "hypervisor_hostname": "compute-1", "state": "up", "status": "enabled"}]}


class Cloud(BaseHTTPRequestHandler):
    """The services that Blazar needs in a cloud: Keystone and Nova, as far as the tests call them.

    What is asked of the reservation service goes to the real server, and its answers come back as they are.
    """

    server: "CloudServer"
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith("/reservation/"):
            self._pass_on(body)
            return
        match self.command, self.path.partition("?")[0]:
            case "POST", "/identity/v3/auth/tokens":
                self._send(201, identity(self.server.url), {"X-Subject-Token": self.server.stateward.token})
            case "POST", "/identity/v3/projects" | "/identity/v3/users":
                self._send(201, {what: {**ADMIN, **given} for what, given in json.loads(body).items()})
            case "PUT", path if path.endswith("/roles/admin"):
                self._send(204)
            case "GET", "/identity/v3/domains":
                self._send(200, {"domains": [DOMAIN]})
            case "GET", "/identity/v3/roles":
                self._send(200, {"roles": [ADMIN]})
            case "GET", "/compute/v2.1/os-hypervisors":
                self._send(200, HYPERVISORS)
            case _:
                self._send(404, {})

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names are the base class's

    def _pass_on(self, body: bytes) -> None:
        path = self.path.replace("/reservation/", "/blazar/", 1)
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in ("host", "accept-encoding")
        }
        url = f"{self.server.stateward.url}{path}"
        answer = httpx.request(self.command, url, content=body, headers=headers, timeout=PATIENT, verify=False)
        self._send(answer.status_code, answer.json() if answer.content else None)

    def _send(self, status: int, answer: Any = None, headers: dict[str, str] = {}) -> None:  # noqa: B006 - only read
        body = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json", "Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class CloudServer(ThreadingHTTPServer):
    """Serves the cloud around a server."""

    daemon_threads = True

    def __init__(self, stateward: Served) -> None:
        super().__init__(("127.0.0.1", 0), Cloud)
        self.stateward = stateward
        self.url = f"http://127.0.0.1:{self.server_port}"


def identity(url: str) -> dict[str, Any]:
    """Return Keystone's answer to an authentication, with its catalogue."""
    endpoints = [
        {"id": one, "interface": one, "region": "RegionOne", "region_id": "RegionOne", "url": f"{url}/identity"}
        for one in ("public", "admin")
    ]
    here = {**ADMIN, "domain": DOMAIN}
    token = {
        "issued_at": "2020-01-01T00:00:00.000000Z",
        "expires_at": "2099-01-01T00:00:00.000000Z",
        "methods": ["password"],
        "user": here,
        "project": here,
        "roles": [ADMIN],
        "catalog": [{"id": "keystone", "type": "identity", "name": "keystone", "endpoints": endpoints}],
    }
    return {"token": token}


@contextmanager
def cloud(stateward: Served) -> Iterator[str]:
    """Serve the cloud around a server; yields where."""
    with CloudServer(stateward) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run all tests, and return the result of each."""
    if not (VENV / ".tempest").exists():
        pytest.skip("Blazar's API tests are not installed: `make setup` brings them")
    folder = tmp_path_factory.mktemp("tempest")
    with served(tmp_path_factory.mktemp("leases") / "data", "--only", "leases") as stateward, cloud(stateward) as url:
        (folder / "tempest.conf").write_text(SETTINGS.format(folder=folder, url=url))
        done = subprocess.run(
            [str(TEMPEST), str(RUNNER), f"{url}/"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PATIENT,
            check=False,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_api_test_of_blazar_passes(told: dict[str, str]) -> None:
    assert {name: why for name, why in told.items() if why} == {}
    assert len(told) == TESTS
