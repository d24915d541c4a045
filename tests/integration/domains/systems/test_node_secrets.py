"""Secrets on nodes: instances get them at each start, and no file of the controller or of the agent has a value."""

import hashlib
import os
import signal
from pathlib import Path

import httpx

from tests.integration.domains.systems.local_backend_harness import PYTHON
from tests.integration.domains.systems.node_harness import URL, Hosts, serving_hosts
from tests.kept_ports import keep_port

VALUE, NEWER = "hunter2-hunter2-hunter2", "correct horse battery staple"

PROGRAM = """
import hashlib, http.server, os, pathlib
value = os.environ["PASSWORD"]
assert pathlib.Path(os.environ["PASSWORD_FILE"]).read_text() == value
body = (hashlib.sha256(value.encode()).hexdigest() + " " + str(os.getpid())).encode()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""


def served_value(port: int) -> str:
    """Return the digest of the secret that the service has, and the process that has it; empty if none answers."""
    try:
        return httpx.get(
            f"http://127.0.0.1:{port}/", headers={"Connection": "close"}, trust_env=False, verify=False
        ).text
    except httpx.HTTPError:
        return ""


def digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def files_with(folder: Path, *values: str) -> list[Path]:
    """Return the files below a folder that have one of the values."""
    files = [one for one in folder.rglob("*") if one.is_file() and not one.is_symlink()]
    return [one for one in files if any(value.encode() in one.read_bytes() for value in values)]


def kill_instances(hosts: Hosts) -> None:
    for pid in hosts.agents["a"].living():
        os.kill(pid, signal.SIGKILL)


def test_an_instance_on_a_node_gets_its_secrets_at_every_start_and_no_file_has_them(tmp_path: Path) -> None:
    port = keep_port()
    with serving_hosts(tmp_path, lease_s=60.0) as hosts:
        hosts.register("a")
        hosts.join("a")
        hosts.until(lambda: hosts.node("a")["state"] == "ready")
        assert hosts.node("a")["secrets"]  # over the loopback address
        hosts.http.post(f"{URL}/-/secrets", json={"name": "db", "value": VALUE}).raise_for_status()
        refs = {"PASSWORD": {"secret": "db"}, "PASSWORD_FILE": {"secret": "db", "as": "file"}}
        web = {"command": [PYTHON, "-I", "-S", "-c", PROGRAM], "health": {"http": "/", "interval": 0.2}}
        check = {"command": ["sh", "-c", '[ "$(cat "$PASSWORD_FILE")" = "$PASSWORD" ]'], "secrets": refs}
        hosts.deploy({"check": check}, web={**web, "secrets": refs, "address": port, "redeploy_on_secret_change": True})
        hosts.until(lambda: served_value(port).startswith(digest(VALUE)))

        # A job gets them, too.
        assert hosts.ended(hosts.http.post(f"{URL}/shop/runs", json={"path": "/check"})) == "succeeded"

        # After a kill -9 of the agent, the next one takes the instance over, and asks again when it has crashed.
        before = served_value(port)
        hosts.agents["a"].signal(signal.SIGKILL)
        hosts.agents["a"].start()
        hosts.until(lambda: hosts.node("a")["connected"])
        assert served_value(port) == before
        kill_instances(hosts)
        hosts.until(lambda: served_value(port) not in ("", before))
        assert served_value(port).startswith(digest(VALUE))

        # A new value starts a rolling update.
        hosts.http.put(f"{URL}/-/secrets/db", json={"value": NEWER}).raise_for_status()
        hosts.until(lambda: served_value(port).startswith(digest(NEWER)))

        # Nothing on a disk has a value.
        assert files_with(tmp_path, "PASSWORD_FILE")  # the search finds what is there
        assert files_with(tmp_path, VALUE, NEWER) == []
