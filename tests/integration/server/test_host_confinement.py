"""A tenant who may run programs on the server's host gets nothing of the server's: neither tokens nor environment.

Every attack is tried on a real server, once as root and once as a user without rights.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import httpx
import pytest

from stateward.domains.systems.backends.local.launch import root_mark
from stateward.workloads.confinement import landlock
from tests.integration.server.server_processes import PATIENT, STATEWARD, Served, kill_machines_below, served

ROOT = Path(__file__).parents[3]
NOBODY = 65534
SECRET = "the-servers-own-secret"
PUBLIC = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
IS_ROOT = os.geteuid() == 0


def _packages() -> str:
    return os.pathsep.join([str(ROOT / "src"), *(one for one in sys.path if one.endswith("site-packages"))])


def _can_serve_as_nobody() -> bool:
    if not IS_ROOT or PUBLIC is None or not landlock.version():
        return False
    command = [PUBLIC, "-c", "import stateward.server.run"]
    done = subprocess.run(command, env={"PYTHONPATH": _packages()}, user=NOBODY, check=False, capture_output=True)
    return done.returncode == 0


class ServedAsNobody(Served):
    """A server that answers, and has no rights on its host."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.said = folder, folder.with_name("said.log")
        environ = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": _packages(), "PATH": os.environ["PATH"], **environ}
        command = [str(PUBLIC), "-m", "stateward", "serve", "--data", folder.name, "--port", "0"]
        with self.said.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environ, cwd=folder.parent, user=NOBODY, group=NOBODY,
                extra_groups=[],
            )  # fmt: skip
        self.until("  try")


@contextmanager
def serving(who: str) -> Iterator[Served]:
    """Run a server as root or as nobody, in a folder that its user can reach; nothing of it stays."""
    above = Path(mkdtemp(prefix="host-test-"))
    environ = {"A_SECRET": SECRET, "STATEWARD_SYSTEMS_LOCAL_NAMESPACES": "t1,t2,t3,t4"}
    try:
        if who == "as it is":
            with served(above / "data", environ=environ, program=STATEWARD) as server:
                yield server
        else:
            os.chown(above, NOBODY, NOBODY)
            server = ServedAsNobody(above / "data", environ)
            try:
                yield server
            finally:
                server.process.kill()
                server.ended()
    finally:
        kill_machines_below(above)
        _kill_all_below(above)
        shutil.rmtree(above)


def _kill_all_below(folder: Path) -> None:
    marks = (str(folder), root_mark(folder / "data" / "systems"))
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(
                mark in (one / name).read_text(errors="replace") for name in ("cmdline", "environ") for mark in marks
            ):
                os.kill(int(one.name), signal.SIGKILL)


@pytest.fixture(params=["as it is", "as nobody"], scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Served]:
    if request.param == "as nobody" and not _can_serve_as_nobody():
        pytest.skip("NOT PROVED HERE: a server without rights; that needs root, Landlock and a python3 for everybody")
    with serving(request.param) as found:
        yield found


def operator(server: Served, admin: httpx.Client, ns: str, role: str = "operator") -> httpx.Client:
    """Return a client with a token for one namespace alone, which each test has for itself."""
    admin.post("/tumblebug/ns", json={"name": ns}).raise_for_status()
    made = admin.post("/api/v1/tokens", json={"name": f"mallory-{ns}", "role": role, "namespaces": [ns]})
    made.raise_for_status()
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=PATIENT, trust_env=False)


def attack(server: Served) -> list[str]:
    """Return commands that look for the server's secrets, each in another way."""
    data, pid = server.folder, server.process.pid
    return [
        f"cat {data}/admin-token",
        f"tr '\\0' '\\n' </proc/{pid}/environ",
        f"cat /proc/{pid}/root{data}/admin-token /proc/{pid}/cwd/data/admin-token",
        "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep A_SECRET",
        f"grep -a -r -l . {data}",
        "env",
        f"ln {data}/admin-token ../jobs/stolen && cat ../jobs/stolen",
        f"truncate -s 0 {data}/stateward.db",
        f"kill -9 {pid}",
        f"ln -sf {data}/admin-token ../jobs/$(basename $0 .command).out",
    ]


def asked(commands: list[str], name: str = "m1") -> dict[str, Any]:
    group = {"name": "p", "subGroupSize": 1, "specId": "local+here+tiny", "imageId": "sh"}
    wrapped = [f"( {one} ) 2>&1; echo tried" for one in commands]
    return {"name": name, "subGroups": [group], "postCommand": {"command": wrapped}}


def test_an_operator_of_one_namespace_gets_neither_a_token_nor_the_environment_of_the_server(server: Served) -> None:
    with server.client() as admin, operator(server, admin, "t1") as mallory:
        refused = mallory.post("/tumblebug/ns/t1/mciDynamic", json=asked(attack(server)))
        assert refused.status_code == 403, refused.text
        for word in ("local", "t1", "administrator"):
            assert word in refused.text
        admin.post("/api/v1/mci/connections/local/grant", json={"namespaces": ["t1"]}).raise_for_status()
        made = mallory.post("/tumblebug/ns/t1/mciDynamic?wait=60", json=asked(attack(server)))
        assert made.status_code == 200, made.text
        assert "tried" in made.text  # the commands were run
        assert server.token not in made.text
        assert SECRET not in made.text
        assert admin.get("/readyz").status_code == 200  # it lives
        assert admin.get("/api/v1/ns/t1/objects").status_code in (200, 404)
        shown = mallory.get("/tumblebug/ns/t1/mci/m1").text
        assert server.token not in shown
        assert SECRET not in shown
        ended = mallory.delete("/tumblebug/ns/t1/mci/m1?option=terminate")
        assert ended.status_code == 200, ended.text


def test_one_machine_cannot_reach_the_folder_of_another(server: Served) -> None:
    with server.client() as admin, operator(server, admin, "t2") as mallory:
        admin.post("/api/v1/mci/connections/local/grant", json={"namespaces": ["t2"]}).raise_for_status()
        mine = ["echo a-secret-of-the-first >mine; chmod 644 mine; echo $HOME"]
        assert mallory.post("/tumblebug/ns/t2/mciDynamic?wait=60", json=asked(mine, "m1")).status_code == 200
        (file,) = server.folder.rglob("mine")
        places = f"{server.folder.parent} /proc/self/root{server.folder} /proc/{server.process.pid}/root{server.folder}"
        theirs = [f"cat {file}", f"find {places} -name mine -readable 2>/dev/null | xargs cat; ls {file.parents[2]}"]
        made = mallory.post("/tumblebug/ns/t2/mciDynamic?wait=60", json=asked(theirs, "m2"))
        assert "tried" in made.text
        assert "a-secret-of-the-first" not in made.text


def test_a_service_of_a_local_system_gets_neither_a_token_nor_the_environment_of_the_server(server: Served) -> None:
    with server.client() as admin, operator(server, admin, "t3", "admin") as mallory:
        admin.post("/api/v1/tokens", json={"name": "eve", "role": "admin", "namespaces": ["t9"]}).raise_for_status()
        refused = admin.post("/api/v1/systems/t9", json={"name": "shop"})
        assert refused.status_code == 403, refused.text
        assert "systems_local_namespaces" in refused.text
        made = mallory.post("/api/v1/systems/t3", json={"name": "shop"})
        assert made.status_code == 202, made.text
        script = "; ".join(f"( {one} ) 2>&1" for one in attack(server))
        _deploy(
            mallory, "t3", {"services": {"web": {"command": ["sh", "-c", f"{script}; echo tried; exec sleep 1000"]}}}
        )
        written = ""
        end = time.monotonic() + PATIENT
        while "tried" not in written and time.monotonic() < end:
            written = mallory.get("/api/v1/systems/t3/shop/logs", params={"path": "/web"}).text
            time.sleep(0.05)
        assert "tried" in written
        assert server.token not in written
        assert SECRET not in written
        assert mallory.delete("/api/v1/systems/t3/shop?force=true").status_code == 202


def test_a_service_gets_its_secret_within_its_limits_and_another_cannot_read_it(server: Served) -> None:
    value = "a-secret-of-the-first"
    with server.client() as admin, operator(server, admin, "t4", "admin") as owner:
        assert owner.post("/api/v1/systems/t4/-/secrets", json={"name": "db", "value": value}).status_code == 201
        assert owner.post("/api/v1/systems/t4", json={"name": "shop"}).status_code == 202
        mine = 'test "$(cat "$FILE")" = "$WORD" && stat -c "mode %a" "$FILE"; echo path $FILE; exec sleep 1000'
        secrets = {"WORD": {"secret": "db"}, "FILE": {"secret": "db", "as": "file"}}
        limits = {"cpu": 0.5, "memory": 64, "pids": 20}
        first = {"command": ["sh", "-c", mine], "secrets": secrets, "resources": limits}
        _deploy(owner, "t4", {"services": {"first": first}})
        told = _written(owner, "t4", "/first", "path ")
        assert "mode 400" in told
        path = told.partition("path ")[2].partition("\\n")[0]
        spy = f"cat {path} /dev/shm/*/*/*; cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep WORD; echo tried; sleep 999"
        _deploy(owner, "t4", {"services": {"first": first, "second": {"command": ["sh", "-c", f"( {spy} ) 2>&1"]}}})
        assert value not in _written(owner, "t4", "/second", "tried")
        assert value not in told
        kept = owner.get("/api/v1/systems/t4/shop", params={"instances": "true", "path": "/first"}).json()["services"]
        unlimited = {one for instance in kept[0]["instances"] for one in instance["unlimited"]}
        assert unlimited <= {"cpu", "pids", "memory of all its processes together"}
        assert owner.delete("/api/v1/systems/t4/shop?force=true").status_code == 202
        end = time.monotonic() + PATIENT
        while (found := owner.get("/api/v1/systems/t4/shop")).status_code != 404:  # it has files outside of its folder
            assert time.monotonic() < end, found.text
            time.sleep(0.05)


def _written(client: httpx.Client, ns: str, path: str, word: str) -> str:
    """Wait until a service has written a word, and return all that it has written."""
    end = time.monotonic() + PATIENT
    while word not in (written := client.get(f"/api/v1/systems/{ns}/shop/logs", params={"path": path}).text):
        assert time.monotonic() < end, written
        time.sleep(0.05)
    return written


def _deploy(client: httpx.Client, ns: str, definition: dict[str, Any]) -> None:
    end = time.monotonic() + PATIENT
    while True:
        asked = client.post(f"/api/v1/systems/{ns}/shop/deploys", json={"definition": json.dumps(definition)})
        if asked.status_code == 202:
            return
        assert time.monotonic() < end, asked.text
        time.sleep(0.05)
