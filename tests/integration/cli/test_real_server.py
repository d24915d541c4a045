"""The command line beside `stateward serve`: it finds the server by its folder, and works without one."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stateward.cli.main import app as command_line
from tests.integration.cli.cli_server import WIDE
from tests.integration.cli.vm_spec import with_spec
from tests.integration.server.server_processes import Process, kill_machines_below, served


def run(folder: Path, *words: str, **environ: str) -> Result:
    return CliRunner().invoke(command_line, [*with_spec(folder, words), "--data", str(folder)], env={**WIDE, **environ})


def test_a_folder_leads_to_its_server_and_after_its_death_to_its_database(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with served(folder, "--demo", "--only", "mci") as server:
        assert run(folder, "create", "mci.mci/m").exit_code == 0
        done = run(folder, "create", "mci.vm/m.web-1", "--label", "provider=aws", "--wait", "--json")
        made = json.loads(done.stdout)[0]
        assert made["operation"]["status"] in ("succeeded", "failed")  # clouds fail now and then, simulated ones too
        assert done.exit_code == (0 if made["operation"]["status"] == "succeeded" else 1)
        watched = run(folder, "watch", "m.web-1", "--after", "0", "--count", "1").stdout
        assert "m.web-1 create (new) -> Creating" in watched
        assert "1 worker" in run(folder, "top", "--once").stdout
        server.stop(signal.SIGKILL)
    kill_machines_below(folder)
    assert (folder / "server.json").exists()
    assert run(folder, "get", "vm/m.web-1").exit_code == 0
    waiting = run(folder, "create", "mci.vm/m.web-2")
    assert waiting.exit_code == 0, waiting.output
    assert "the work waits" in waiting.stderr


def test_after_the_death_of_the_server_a_waiting_command_names_the_operation_that_goes_on(tmp_path: Path) -> None:
    folder, file = tmp_path / "data", tmp_path / "fleet.yaml"
    file.write_text("name: m1\ngroups:\n  - {name: g1, size: 1, spec: local+here+tiny, image: sh}\n")
    words = (
        "mci",
        "exec",
        "m1",
        "--data",
        str(folder),
        "--",
        "echo up; while [ ! -e go ]; do sleep 0.1; done; echo on",
    )
    try:
        with served(folder, "--local", "--only", "mci") as server:
            assert run(folder, "mci", "connection", "grant", "local", "default").exit_code == 0
            assert run(folder, "mci", "create", "-f", str(file), "--wait").exit_code == 0
            waiting = Process(folder, *words)
            waiting.until("g1-1: up")
            server.stop(signal.SIGKILL)
            assert waiting.ended() == 3, waiting.output
        (op,) = re.findall(r"Operation (\w+) goes on; to follow it: stateward logs -f \1 -n default", waiting.output)
        with served(folder, "--local", "--only", "mci"):
            following = Process(folder, "logs", "-f", op, "-n", "default", "--data", str(folder))
            following.until("g1-1: up")
            assert run(folder, "mci", "exec", "m1", "touch go").exit_code == 0
            assert (following.ended(), "g1-1: on" in following.output) == (0, True), following.output
    finally:
        kill_machines_below(folder)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run([*command, *names], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is needed to make a certificate")
    return certificate, key


def test_a_certificate_must_be_one_that_is_trusted(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    folder, (known, key) = tmp_path / "data", certificate
    with served(folder, "--only", "mci", "--tls-cert", str(known), "--tls-key", str(key)):
        refused = run(folder, "list")
        assert refused.exit_code == 3
        assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr
        assert run(folder, "watch", "--after", "0", "--count", "1").exit_code == 3
        assert run(folder, "list", SSL_CERT_FILE=str(known)).exit_code == 0
        assert run(folder, "create", "mci.mci/m", SSL_CERT_FILE=str(known)).exit_code == 0
        watched = run(folder, "watch", "m", "--after", "0", "--count", "1", SSL_CERT_FILE=str(known))
        assert "m create" in watched.stdout
