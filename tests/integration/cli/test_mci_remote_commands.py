"""`stateward mci exec`, `ssh`, `copy` and `forget-host-key` against a real server, on simulated clouds."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateward.domains.mci.handlers import command_handlers
from stateward.domains.mci.handlers.command_handlers import OutputStream
from stateward.domains.mci.model import command_of
from stateward.domains.mci.provider.key_pairs import new_pair
from stateward.domains.mci.remote.host_key_pins import pin_host_key
from stateward.drivers.ssh.host_key import bare_key
from tests.integration.cli.mci_cli_server import MciServer
from tests.integration.domains.mci.ssh_servers import show_ssh_port

FLEET = """
name: m1
groups:
  - {name: web, size: 2, spec: aws+ap-northeast-2+t3.nano, image: ubuntu22.04}
"""
HOST_KEY = bare_key(new_pair("host").public)


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MciServer]:
    server = MciServer(tmp_path_factory.mktemp("mci"))
    with server.opened():
        assert server.made(FLEET)["operation"]["status"] == "succeeded"
        yield server


def test_exec_prints_what_each_vm_writes_with_its_name_and_exits_as_the_command_does(cli: MciServer) -> None:
    done = cli.run("mci", "exec", "m1", "--", "echo", "a b")
    assert (done.exit_code, sorted(done.stdout.splitlines())) == (0, ["web-1: echo 'a b'", "web-2: echo 'a b'"])
    failed = cli.run("mci", "exec", "m1/web-2", "--", "exit 3")
    (newest, *_) = cli.json("operations", "list", "--kind", "mci.command")
    assert "0 of 1" not in (logged := cli.run("logs", newest["id"]).stdout)
    assert "output 1 of 1" in logged
    assert (failed.exit_code, failed.stdout) == (3, "")
    assert "web-2: 'exit 3' ended with exit status 3" in failed.stderr
    shown = json.loads(cli.run("mci", "exec", "m1/web-1", "--json", "--", "true").stdout)
    assert shown["results"]["web-1"]["runs"] == [
        {"written": "true\n", "status": 0, "stderr": "", "written_cut": 0, "stderr_cut": 0}
    ]


def test_exec_prints_what_a_vm_writes_to_stderr_there(cli: MciServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(self: OutputStream, vm: str, stdout: str, stderr: str = "") -> bool:
        return whole(self, vm, stdout, f"bad {stdout}")

    whole = OutputStream.add
    monkeypatch.setattr(OutputStream, "add", add)
    done = cli.run("mci", "exec", "m1/web-1", "--", "a: b")
    assert (done.stdout, done.stderr) == ("web-1: a: b\n", "web-1: bad a: b\n")


def test_exec_says_on_stderr_how_much_of_the_output_of_each_vm_is_left_out(
    cli: MciServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_handlers, "MAX_STREAMED_CHARS", 1)
    done = cli.run("mci", "exec", "m1/web-1", "--", "one\ntwo\nthree")
    assert (done.exit_code, done.stdout) == (0, "web-1: one\n")
    assert "web-1: 10 bytes of its output are left out" in done.stderr


def test_a_secret_is_an_environment_variable_that_is_set(cli: MciServer) -> None:
    refused = cli.run("mci", "exec", "m1", "--secret", "STATEWARD_NO_SUCH_VARIABLE", "--", "true")
    assert refused.exit_code == 2
    assert "an environment variable that is set" in refused.stderr


@pytest.mark.parametrize("words", [("m1/",), ("m1", "--group", ""), ("m1", "--label", "")])
def test_a_selection_that_is_empty_never_means_all_vms(cli: MciServer, tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "f"
    file.touch()
    for refused in (
        cli.run("mci", "exec", *words, "--", "true"),
        cli.run("mci", "copy", str(file), f"{words[0]}:/tmp/", *words[1:]),
    ):
        assert (refused.exit_code, refused.stdout) == (2, "")


def test_copy_says_why_a_machine_without_ssh_gets_no_file(cli: MciServer, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\0\r\n--x")
    done = cli.run("mci", "copy", str(tmp_path / "f"), "m1/web-1:/tmp/")
    assert done.exit_code == 1
    assert "web-1: f was not copied to /tmp/: files are copied over SSH" in done.stderr
    assert cli.run("mci", "copy", str(tmp_path / "f"), "m1").exit_code == 2
    (tmp_path / "g\n").touch()
    assert "without control characters" in cli.run("mci", "copy", str(tmp_path / "g\n"), "m1:/tmp/").stderr
    assert cli.run("mci", "copy", str(tmp_path / "none"), "m1:/tmp/").exit_code == 2


def test_copy_sends_the_exact_name_and_the_permissions_of_a_file(cli: MciServer, tmp_path: Path) -> None:
    odd = tmp_path / '-it\'s "odd" \\ $HOME \N{SNOWMAN}'
    odd.touch()
    odd.chmod(0o4751)
    cli.run("mci", "copy", str(odd), "m1/web-1:/tmp/")
    listed = cli.run("list", "--kind", "mci.command", "--json").stdout
    specs = [command_of(cli.ask(cli.engine.record("default", one["id"]))) for one in json.loads(listed)]
    assert (odd.name, "751") in [(one.file, one.mode) for one in specs]


def test_ssh_starts_the_local_program_with_the_pinned_host_key(
    cli: MciServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ssh"
    program.write_text(
        '#!/bin/sh\nfor one in "$@"; do echo "$one"; done >"$RECORD"\n'
        'for one in "$@"; do case "$one" in UserKnown*) cat "${one#*=}" >>"$RECORD";; esac; done\nexit 7\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    show_ssh_port(monkeypatch, 22)
    assert cli.made(FLEET.replace("m1", "m2"))["operation"]["status"] == "succeeded"
    vm = cli.ask(cli.plugin.service.vm("default", "m2", "web-1"))
    assert cli.ask(cli.engine.store.transact(lambda tx: pin_host_key(tx, vm, HOST_KEY))) == HOST_KEY
    done = cli.run("mci", "ssh", "m2/web-1", "-i", "mine", "--", "-v")
    assert done.exit_code == 7
    record = (tmp_path / "record").read_text()
    access = cli.ask(cli.plugin.service.vm("default", "m2", "web-1"))
    assert access.id == "m2.web-1"
    for part in ("-p\n22\n", "StrictHostKeyChecking=yes\n", "-i\nmine\n", "\n-l\nubuntu\n--\n", "\n-v\n"):
        assert part in record, record
    assert f"default.m2.web-1 {HOST_KEY}\n" in record
    assert cli.run("mci", "ssh", "m1").exit_code == 2
    refused = cli.run("mci", "ssh", "m1/web-1")
    assert (refused.exit_code, "the driver of this one offers no SSH" in refused.stderr) == (2, True)
    forgotten = cli.run("mci", "forget-host-key", "m2/web-1")
    assert (forgotten.exit_code, "is forgotten" in forgotten.stderr) == (0, True)
    assert cli.run("mci", "ssh", "m2/web-1").exit_code == 7
    assert "StrictHostKeyChecking=ask\n" in (tmp_path / "record").read_text()
