import json
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from stateward.aio.open_files import WANTED_OPEN_FILES
from tests.integration.server.server_processes import (
    PATIENT,
    STATEWARD,
    Process,
    Served,
    kill_machines_below,
    run,
    served,
)
from tests.servers import PostgresServer

OBJECTS = "/api/v1/ns/a/objects"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def vm(name: str) -> dict[str, str]:
    """Want a VM at one of the simulated regions."""
    region = ("ap-northeast-2", "ap-northeast-1", "us-east-1", "us-west-2")[sum(name.encode()) % 4]
    place = {"connection": f"aws-{region}", "provider": "aws", "region": region}
    make = {"spec": f"aws+{region}+t3.nano", "image": "ubuntu22.04", "csp_spec": "t3.nano", "csp_image": "ubuntu22.04"}
    return {"name": name, "uid": f"uid-{name}", "mci": "m", "group": "g", **place, **make}


MCI_OF_VMS = {
    "name": "m",
    "uid": "uid-m",
    "groups": [{"name": "h", "size": 1, "spec": "aws+ap-northeast-2+t3.nano", "image": "ubuntu22.04"}],
    "hold": True,
}


def created(client: httpx.Client, name: str) -> httpx.Response:
    """Create a VM, and before it its MCI, which is held: it creates no VMs itself."""
    client.post(OBJECTS, json={"id": "m", "kind": "mci.mci", "spec": MCI_OF_VMS})
    body = {"id": f"m.{name}", "kind": "mci.vm", "parent": "m", "spec": vm(name)}
    return client.post(OBJECTS, json=body, headers={"Idempotency-Key": name})


def states(client: httpx.Client) -> dict[str, str]:
    found: dict[str, str] = {}
    after: str | None = None
    while True:
        page = client.get(
            OBJECTS, params={"kind": "mci.vm", "limit": 1000, **({} if after is None else {"after": after})}
        ).json()
        found |= {one["id"].removeprefix("m."): one["state"] for one in page["items"]}
        after = page["next"]
        if after is None:
            return found


def settled(client: httpx.Client, names: list[str]) -> dict[str, str]:
    """Wait until none of these objects is in transition any more."""
    for name in names:
        (operation, *_) = client.get("/api/v1/ns/a/operations", params={"object": f"m.{name}"}).json()["items"]
        with client.stream("GET", f"/api/v1/ns/a/operations/{operation['id']}/events") as events:
            assert "end" in events.read().decode()
    return states(client)


@pytest.fixture(autouse=True)
def _end_machines(tmp_path: Path) -> Iterator[None]:
    """End the machines of the demo: they outlive whoever made them."""
    yield
    kill_machines_below(tmp_path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Give the same server to all tests that only ask it something."""
    with served(tmp_path_factory.mktemp("serve") / "data") as started:
        yield started


class TestStarting:
    def test_a_server_makes_its_folder_and_a_token_that_only_its_owner_can_read(self, tmp_path: Path) -> None:
        with served(tmp_path / "data") as server:
            assert mode(server.folder) == 0o700
            assert mode(server.folder / "admin-token") == 0o600
            assert server.token.startswith("sw_")
            with server.client() as client:
                assert client.get("/api/v1/kinds").status_code == 200

    def test_a_folder_that_others_can_look_into_holds_a_database_that_they_cannot_read(self, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir(mode=0o755)
        with served(tmp_path / "data") as server:
            assert {mode(file) for file in server.folder.glob("stateward.db*") if file.suffix != ".lock"} == {0o600}

    def test_it_says_where_it_answers_where_the_token_is_and_what_to_try(self, server: Served) -> None:
        assert server.url in server.output
        assert f"info    server answers on {server.url}; its database is " in server.output
        assert f"{server.folder.name}/admin-token" in server.output
        server.until("top --once")
        commands = re.findall(r"^    stateward (.+)$", server.output, re.MULTILINE)
        assert len(commands) == 3
        for command in commands:
            words = [str(server.folder) if word == server.folder.name else word for word in command.split()]
            tried = run(*words)
            assert tried.returncode == 0, (command, tried.stderr)

    def test_the_token_itself_is_never_printed(self, tmp_path: Path) -> None:
        with served(tmp_path / "data", "--log-level", "debug", "--log-format", "json") as server:
            with server.client() as client:
                client.get(f"/api/v1/ns/a/objects/{server.token}")
                client.get("/api/v1/kinds", params={"token": server.token})
                client.get("/api/v1/kinds", headers={"Authorization": f"Bearer {server.token}x"})
            server.stop()
            assert server.token.split("_", 2)[2] not in server.output
            assert "sw_" in server.output

    def test_it_is_alive_and_ready_without_a_token(self, server: Served) -> None:
        assert httpx.get(server.url + "/healthz", trust_env=False).status_code == 200
        assert httpx.get(server.url + "/readyz", trust_env=False).json() == {"store": "ok", "worker": "ok"}

    def test_it_may_open_as_many_files_as_the_system_permits(self, tmp_path: Path) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))  # as a login shell does, which children inherit
        try:
            server = Served(tmp_path / "data", program=STATEWARD)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0] == min(hard, WANTED_OPEN_FILES)
        server.process.kill()
        server.ended()

    def test_the_token_survives_a_restart(self, tmp_path: Path) -> None:
        with served(tmp_path / "data") as server:
            token = server.token
            server.stop()
        with served(tmp_path / "data") as server, server.client() as client:
            assert server.token == token
            assert client.get("/api/v1/kinds").status_code == 200

    def test_a_lost_token_file_is_made_anew(self, tmp_path: Path) -> None:
        with served(tmp_path / "data") as server:
            server.stop()
        (tmp_path / "data" / "admin-token").unlink()
        with served(tmp_path / "data") as server, server.client() as client:
            assert client.get("/api/v1/kinds").status_code == 200

    def test_settings_come_from_flags_before_the_environment_before_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "s.toml"
        file.write_text(f'page_limit = 2\nbody_limit = 900\ndata = "{tmp_path / "wrong"}"')
        environ = {"STATEWARD_BODY_LIMIT": "600", "STATEWARD_CONFIG": str(file)}
        with served(tmp_path / "data", "--no-worker", environ=environ) as server, server.client() as client:
            for number in range(3):
                assert created(client, f"vm-{number}").status_code == 202
            assert len(client.get(OBJECTS).json()["items"]) == 2
            assert client.post(OBJECTS, json={"id": "x" * 800, "kind": "mci.vm"}).status_code == 413
            assert httpx.get(server.url + "/readyz", trust_env=False).json()["worker"] == "none here"

    def test_an_address_that_is_taken_is_told_in_one_line(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            done = run("serve", "--data", str(tmp_path / "data"), "--port", str(taken.getsockname()[1]))
        assert done.returncode == 2
        assert "cannot listen on 127.0.0.1" in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_folder_that_is_a_file_is_told_in_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("not a folder")
        done = run("serve", "--data", str(tmp_path / "data"))
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)

    def test_a_name_that_no_folder_can_have_is_told_in_one_line(self, tmp_path: Path) -> None:
        done = run("serve", "--data", str(tmp_path / ("x" * 300)))
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)

    def test_a_certificate_that_is_none_is_told_in_one_line(self, tmp_path: Path) -> None:
        for text in (None, "no certificate"):
            if text is not None:
                (tmp_path / "cert.pem").write_text(text)
            files = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "cert.pem"))
            done = run("serve", "--data", str(tmp_path / "data"), "--port", "0", *files)
            assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
            assert "tls_cert" in done.stderr

    def test_a_database_that_is_none_of_ours_is_told_without_its_password(self, tmp_path: Path) -> None:
        done = run("serve", "--data", str(tmp_path / "data"), "--database", "mysql://me:hunter2@host/db", "--port", "0")
        assert (done.returncode, "mysql://me:***@host/db" in done.stderr) == (2, True)
        assert "hunter2" not in done.stderr

    def test_https_is_served_with_a_certificate(self, tmp_path: Path) -> None:
        key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
        try:
            subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("openssl is needed to make a certificate")
        with served(tmp_path / "data", "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
            assert server.url.startswith("https://")
            with server.client() as client:
                answer = client.get("/api/v1/kinds")
        assert (answer.status_code, "strict-transport-security" in answer.headers) == (200, True)


class TestLimits:
    def test_a_head_that_is_too_large_is_refused(self, server: Served) -> None:
        with server.client() as client:
            assert client.get("/healthz", headers={"X-Long": "x" * 40_000}).status_code == 431
            assert client.get("/healthz").status_code == 200

    def test_a_head_that_never_ends_is_refused(self, server: Served) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), PATIENT) as endless:
            endless.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ")
            for _ in range(40):
                try:
                    endless.sendall(b"x" * 1000)
                except OSError:
                    break
            assert endless.recv(100).startswith(b"HTTP/1.1 431")


class TestStopping:
    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
    def test_it_stops_gracefully_and_takes_its_address_back(self, tmp_path: Path, how: signal.Signals) -> None:
        with served(tmp_path / "data") as server:
            assert server.stop(how) == 0
            assert not (server.folder / "server.json").exists()
            assert "Traceback" not in server.output

    def test_the_same_wish_told_twice_is_one(self, tmp_path: Path) -> None:
        with served(tmp_path / "data") as server:
            server.process.send_signal(signal.SIGTERM)
            assert server.stop() == 0
            assert "Traceback" not in server.output

    def test_sigterm_under_load_loses_nothing_that_was_accepted(self, tmp_path: Path) -> None:
        with served(tmp_path / "data", "--demo") as server:
            accepted = under_load(server, lambda: server.stop() == 0)
            assert "Traceback" not in server.output
        assert_everything_ends(tmp_path / "data", accepted)

    def test_kill_9_and_a_restart_go_on_with_everything_that_was_accepted(self, tmp_path: Path) -> None:
        with served(tmp_path / "data", "--demo") as server:
            accepted = under_load(server, lambda: server.stop(signal.SIGKILL) == -9)
        assert_everything_ends(tmp_path / "data", accepted)


def under_load(server: Served, stop: Callable[[], bool]) -> list[str]:
    """Let many clients create objects, stop the server in the middle, and return what it said that it accepted."""
    accepted: list[str] = []

    def create_many(client_number: int) -> None:
        with server.client() as client:
            for number in range(300):
                name = f"vm-{client_number}-{number}"
                try:
                    answer = created(client, name)
                except httpx.HTTPError:
                    return
                if answer.status_code != 202:
                    return
                accepted.append(name)

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(create_many, number) for number in range(4)]
        while len(accepted) < 20:
            assert not all(one.done() for one in clients), server.output
            time.sleep(0.01)
        assert stop()
        for one in clients:
            one.result()
    return accepted


def assert_everything_ends(folder: Path, accepted: list[str]) -> None:
    with served(folder, "--demo") as server, server.client() as client:
        found = settled(client, accepted)
        assert set(accepted) <= set(found)
        assert {found[name] for name in accepted} <= {"Running", "Failed"}
        server.stop()


class TestWorkers:
    def test_a_worker_alone_does_what_a_server_without_one_accepts(self, tmp_path: Path) -> None:
        with served(tmp_path / "data", "--no-worker", "--demo") as server, server.client() as client:
            assert created(client, "vm").status_code == 202
            worker = Process(server.folder, "worker", "--data", str(server.folder), "--demo")
            try:
                worker.until("is at work")
                assert settled(client, ["vm"])["vm"] in ("Running", "Failed")
                assert worker.stop() == 0
            finally:
                worker.process.kill()
                worker.ended()

    def test_a_second_process_with_a_worker_is_refused_at_once_and_one_without_is_not(self, tmp_path: Path) -> None:
        with served(tmp_path / "data") as first, first.client() as client:
            for command in ("serve", "worker"):
                port = ["--port", "0"] if command == "serve" else []
                refused = run(command, "--data", str(first.folder), *port)
                assert refused.returncode == 2
                assert f"used by process {first.process.pid}, which has a worker" in refused.stderr
                assert "--no-worker" in refused.stderr
            with served(tmp_path / "data", "--no-worker") as second, second.client() as other:
                assert created(other, "vm").status_code == 202
                assert settled(client, ["vm"])["vm"] == "Running"
            address = json.loads((first.folder / "server.json").read_text())
            assert address["pid"] == first.process.pid  # commands still find the one that goes on
            first.stop(signal.SIGKILL)
        with served(tmp_path / "data") as third:
            assert re.search(r"takes over \d+ operations of worker .*, which is gone", third.output), third.output
            assert third.stop() == 0

    def test_on_postgresql_the_work_of_a_killed_worker_is_taken_over(
        self, tmp_path: Path, postgres_server: PostgresServer
    ) -> None:
        database = postgres_server.new_database()
        refused = run("serve", "--data", str(tmp_path / "none"), "--database", database, "--port", "0")
        assert (refused.returncode, "stateward migrate" in refused.stderr) == (2, True)
        assert run("migrate", "--database", database).returncode == 0
        shared = ("--database", database, "--demo", "--lease", "2")
        with served(tmp_path / "data", "--no-worker", *shared) as server, server.client() as client:
            names = [f"vm-{number}" for number in range(6)]
            assert {created(client, name).status_code for name in names} == {202}
            workers = [Process(server.folder, "worker", *shared) for _ in range(2)]
            try:
                for worker in workers:
                    worker.until("is at work")
                workers[0].stop(signal.SIGKILL)
                assert set(settled(client, names).values()) <= {"Running", "Failed"}
                assert workers[1].stop() == 0
            finally:
                for worker in workers:
                    worker.process.kill()
                    worker.ended()


class TestConfig:
    def test_every_setting_is_shown_with_where_it_came_from(self) -> None:
        done = run("config", "--json", environ={"STATEWARD_PORT": "99"})
        found = {one["name"]: one for one in json.loads(done.stdout)}
        assert (found["port"]["value"], found["port"]["source"]) == (99, "environment")
        assert found["host"]["source"] == "default"
        assert all(one["about"] for one in found.values())

    def test_the_password_of_a_database_is_never_shown(self) -> None:
        direct = "postgresql://me:hunter2@host:5432/db?password=hunter2"
        environ = {
            "STATEWARD_DATABASE": "postgresql://me:hunter2@host/db",
            "STATEWARD_POOLER": "true",
            "STATEWARD_DIRECT_URL": direct,
        }
        for form in ([], ["--json"]):
            done = run("config", *form, environ=environ)
            assert (done.returncode, "hunter2" in done.stdout + done.stderr) == (0, False)
            assert "***" in done.stdout

    def test_the_settings_of_leases_are_settings_like_all_others(self, tmp_path: Path) -> None:
        file = tmp_path / "stateward.toml"
        file.write_text('leases_check_url = "http://policy.example"\n')
        environ = {"STATEWARD_LEASES_CLEANING": "60", "STATEWARD_LEASES_CHECK_TOKEN": "hunter2"}
        done = run("config", "--config", str(file), "--json", environ=environ)
        found = {one["name"]: (one["value"], one["source"]) for one in json.loads(done.stdout)}
        assert found["leases_check_url"] == ("http://policy.example", "file")
        assert found["leases_cleaning"] == (60.0, "environment")
        assert found["leases_before_end"] == (3600.0, "default")
        assert found["leases_check_token"] == ("***", "environment")

    def test_a_setting_of_leases_that_cannot_be_used_keeps_a_server_from_starting(self, tmp_path: Path) -> None:
        for command in ("serve", "worker"):
            done = run(command, "--data", str(tmp_path), "--set", "leases_check_url=http://[::1")
            assert (done.returncode, "leases_check_url (flag)" in done.stderr) == (2, True)
        twice = run("serve", "--port", "0", "--set", "port=1")
        assert (twice.returncode, "no other flag sets" in twice.stderr) == (2, True)

    def test_a_bad_setting_is_told_by_its_name(self) -> None:
        done = run("config", environ={"STATEWARD_PORT": "many"})
        assert (done.returncode, "port (environment)" in done.stderr) == (2, True)


def test_the_command_line_stays_quick_for_those_who_do_not_serve() -> None:
    program = "import sys, stateward.cli.main; sys.exit(any(name in sys.modules for name in ('litestar', 'uvicorn')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
