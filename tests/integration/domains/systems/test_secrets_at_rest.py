"""A real server with secrets: instances get them through every crash, and no file on the disk has a value.

The story is one test, because each of its steps writes something that the scan at its end has to find clean.
"""

import asyncio
import hashlib
import os
import pty
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import httpx
import pytest

from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.lifecycle import ROTATION
from stateward.domains.systems.object_ids import ROTATION_ID, secret_id
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.secrets import key_rotation
from stateward.domains.systems.secrets.keyring import KEYS_VARIABLE, KeyRing, SealingKey
from stateward.domains.systems.secrets.secret_actions import SecretActions, SecretReader
from stateward.domains.systems.secrets.secret_model import sealed_value
from stateward.lifecycle import ADMIN
from stateward.testing import CrashRun, crash_everywhere
from tests.integration.domains.systems.local_backend_harness import PYTHON, kill_marked
from tests.integration.server.server_processes import STATEWARD, Served, invoke, run, served
from tests.waiting import wait_until

NS, PATIENT = "default", 60.0
HOME = f"/api/v1/systems/{NS}/-/secrets"
VALUE, NEWER, OTHER = "hunter2-hunter2-hunter2", "correct horse battery staple", "Tr0ub4dor&3-Tr0ub4dor&3"
OLD, NEW = "11" * 32, token_hex(32)  # the scan of processes is for a key that no other test has
MANY = 205
"""How many secrets are rotated: several batches."""

PROGRAM = """
import hashlib, http.server, os, pathlib, signal, threading
value = os.environ["PASSWORD"]
assert pathlib.Path(os.environ["PASSWORD_FILE"]).read_text() == value
body = hashlib.sha256(value.encode()).hexdigest().encode()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
server.daemon_threads = False
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever(poll_interval=0.02)
server.server_close()
"""
DEFINITION = f"""
services:
  web:
    command: [{PYTHON}, -I, -S, web.py]
    folder: .
    instances: 2
    address: 0
    health: {{http: /, interval: 0.1}}
    drain: 0.5
    redeploy_on_secret_change: true
    secrets:
      PASSWORD: {{secret: db}}
      PASSWORD_FILE: {{secret: db, as: file}}
"""


def digest(value: str) -> str:
    """Return what an instance answers that has this secret."""
    return hashlib.sha256(value.encode()).hexdigest()


class Story:
    """A server on a folder, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.keys = folder, folder / "keys"
        self.environ = {
            "STATEWARD_SYSTEMS_SECRETS_KEY_FILE": str(self.keys),
            "STATEWARD_MACHINE_PATHS": str(folder / "code"),
            "STATEWARD_LOG_LEVEL": "debug",
            "STATEWARD_ONLY": "systems",
        }
        (folder / "code").mkdir(mode=0o755)
        (folder / "code" / "web.py").write_text(PROGRAM)
        self.put_keys(OLD)
        self.answers: list[str] = []

    def put_keys(self, *keys: str) -> None:
        """Replace the file of keys."""
        new = self.folder / "new-keys"
        new.touch(mode=0o600)
        new.write_text("\n".join(keys))
        new.replace(self.keys)

    def command(self, server: Served, *words: str, stdin: str | None = None) -> str:
        """Run a command, and return all that it prints."""
        where = ["--server", server.url, "--token-file", str(server.folder / "admin-token")]
        done = invoke(*words, *where, stdin=stdin)
        assert done.returncode == 0, done.stderr
        self.answers.append(done.stdout + done.stderr)
        return done.stdout

    def typed(self, server: Served, name: str, value: str) -> None:
        """Create a secret at a terminal: the value is asked for twice, and not echoed."""
        where = ["--server", server.url, "--token-file", str(server.folder / "admin-token")]
        ours, theirs = pty.openpty()
        command = [str(STATEWARD), "system", "secret", "create", name, *where]
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
            os.close(theirs)
            shown = b""
            for question in (b"Value: ", b"confirmation: "):
                while question not in shown:
                    shown += os.read(ours, 1_000)
                os.write(ours, value.encode() + b"\n")
            with suppress(OSError):  # the terminal ends with the process
                while more := os.read(ours, 1_000):
                    shown += more
            assert process.wait(PATIENT) == 0, shown
        os.close(ours)
        self.answers.append(shown.decode())

    def pids(self, client: httpx.Client) -> list[int]:
        """Return the processes of the ready instances."""
        answer = client.get(f"/api/v1/systems/{NS}/shop", params={"instances": "true"})
        self.answers.append(answer.text)
        return [one["pid"] for one in answer.json()["services"][0]["instances"] if one["ready"]]

    def crash(self, client: httpx.Client) -> None:
        """Kill an instance, and wait until there are two again."""
        killed = self.pids(client)[0]
        os.killpg(killed, signal.SIGKILL)
        wait_until(lambda: len(found := self.pids(client)) == 2 and killed not in found)

    def port(self) -> int:
        """Return the port of the service."""
        order = next(self.folder.glob("data/systems/*/shop/services/web/gate/order.json"))
        return int(order.read_text().split('"port":')[1].split(",")[0].rstrip("}"))


def find_text(text: str) -> set[int]:
    """Return the processes of this host that have a text in their environment or arguments."""
    found = set()
    for name in ("environ", "cmdline"):
        for file in Path("/proc").glob(f"[0-9]*/{name}"):
            with suppress(OSError):
                if text.encode() in file.read_bytes():
                    found.add(int(file.parent.name))
    return found


def keys_of(client: httpx.Client) -> Counter[str]:
    """Return how many secrets each key has."""
    return Counter(one["key"] for one in client.get(HOME).json())


async def request_until(url: str, wanted: str, answers: Counter[str]) -> None:
    """Ask for a page again and again, until twenty answers in a row are the wanted one."""
    row = 0
    async with asyncio.timeout(PATIENT):
        async with httpx.AsyncClient(trust_env=False, timeout=20, verify=False) as client:
            while row < 20:
                text = (await client.get(url, headers={"Connection": "close"})).text
                answers[text] += 1
                row = row + 1 if text == wanted else 0


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    tmp_path.chmod(0o755)
    yield Story(tmp_path)
    kill_marked(tmp_path)


def test_no_file_has_a_value_after_create_deploy_crash_kill_update_rotate_and_delete(story: Story) -> None:
    new_key = SealingKey(bytes.fromhex(NEW)).id
    with served(story.folder / "data", environ=story.environ) as server, server.client() as client:
        story.command(server, "system", "secret", "create", "db", stdin=VALUE + "\n")
        story.command(server, "system", "create", "shop", "--wait")
        (story.folder / "code" / "shop.yaml").write_text(DEFINITION)
        story.command(server, "system", "deploy", "shop", "-f", str(story.folder / "code" / "shop.yaml"), "--wait")
        url = f"http://127.0.0.1:{story.port()}/"
        assert httpx.get(url, trust_env=False, verify=False).text == digest(VALUE)
        story.crash(client)
        server.stop(signal.SIGKILL)
    with served(story.folder / "data", environ=story.environ) as server, server.client() as client:
        story.crash(client)  # the next server gives the secret again
        assert httpx.get(url, trust_env=False, verify=False).text == digest(VALUE)
        story.command(server, "system", "secret", "update", "db", stdin=NEWER)
        answers: Counter[str] = Counter()
        asyncio.run(request_until(url, digest(NEWER), answers))
        assert set(answers) <= {digest(VALUE), digest(NEWER)}  # none was lost
        for number in range(MANY):
            made = client.post(HOME, json={"name": f"s{number}", "value": OTHER})
            assert made.status_code == 201, made.text
        story.put_keys(NEW, OLD)
        begun = client.post(f"/api/v1/systems/{NS}/-/secret-rotation")
        assert begun.status_code == 202, begun.text
        server.stop(signal.SIGKILL)
    # From here on the environment has the keys: no process that the server starts may inherit them.
    del story.environ["STATEWARD_SYSTEMS_SECRETS_KEY_FILE"]
    story.environ[KEYS_VARIABLE] = f"{NEW} {OLD}"
    with served(story.folder / "data", environ=story.environ, program=STATEWARD) as server, server.client() as client:
        wait_until(lambda: keys_of(client) == {new_key: MANY + 1})
        rotation = f"/api/v1/ns/{NS}/operations/{begun.json()['operation']}"
        wait_until(lambda: client.get(rotation).json()["status"] == "succeeded")
        story.typed(server, "typed", OTHER)
        story.crash(client)
        assert {pid for pid in find_text(NEW) if pid != server.process.pid} == set()
        server.stop(signal.SIGKILL)
    story.environ[KEYS_VARIABLE] = NEW
    with served(story.folder / "data", environ=story.environ) as server, server.client() as client:
        story.crash(client)  # the former key is not needed any more
        assert client.delete(f"{HOME}/s0").status_code == 200
        story.answers.append(run("config", "--data", str(story.folder / "data"), environ=story.environ).stdout)
        for words in (["secret", "list"], ["secret", "show", "db"], ["status", "shop"], ["deploys", "shop"]):
            story.command(server, "system", *words)
        for words in (["describe", "secret+db"], ["describe", "shop:web"], ["history", "secret+db"], ["operations"]):
            story.command(server, *words)
        backup = run("backup", str(story.folder / "copy.db"), "--data", str(story.folder / "data"))
        assert backup.returncode == 0, backup.stderr
        story.command(server, "system", "delete", "shop", "--wait")
        assert server.stop() == 0
    story.keys.unlink()
    found = {str(file): file.read_bytes() for file in story.folder.rglob("*") if file.is_file()}
    found["answers"] = "\n".join(story.answers).encode()
    assert len(found[str(story.folder / "copy.db")]) > 100_000
    assert any(b"secret+db" in content for content in found.values())  # so the scan can find something
    for value in (VALUE, NEWER, OTHER, NEW):
        assert [name for name, content in found.items() if value.encode() in content] == []


class FixedKeys(KeyRing):
    """Keys without a file."""

    def __init__(self, *keys: str) -> None:
        super().__init__()
        self._keys = tuple(SealingKey(bytes.fromhex(one)) for one in keys)

    def _all(self) -> tuple[SealingKey, ...]:
        return self._keys


async def rotate_five(run: CrashRun) -> None:
    keys = FixedKeys(OLD)
    engine = await run.start(lambda: SystemsRuntime({"simulated": SimulatedBackend()}, secrets=SecretReader(keys)))
    actions = SecretActions(engine, keys, NS, "ann")
    names = [f"s{number}" for number in range(5)]
    for name in names:
        await actions.create(name, VALUE)
    keys._keys = FixedKeys(NEW, OLD)._keys
    begun = await engine.create(NS, ROTATION_ID, ROTATION.kind, "rotate", actor=ADMIN, who="ann")
    await engine.wait(NS, begun.op.id, check=True)
    for name in names:
        sealed = sealed_value(await engine.record(NS, secret_id(name)))
        assert sealed.key == keys.first
        assert keys.unseal(NS, name, sealed) == VALUE


def test_a_rotation_survives_a_crash_at_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_rotation, "BATCH", 2)
    assert crash_everywhere(rotate_five).points > 10
