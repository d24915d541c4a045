"""At a terminal: live displays, Ctrl-C, the Tab key, and no token in any output."""

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stateward.cli.main import app as command_line
from tests.integration.cli.cli_server import WIDE, CliServer

PROGRAM = "import sys; from stateward.cli.main import app; app(sys.argv[1:])"
ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0
CURSOR_BACK = "\x1b[?25h"


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], side: int) -> None:
        self.process, self._side, self.shown = process, side, ""

    def until(self, words: str) -> None:
        """Read until something is shown."""
        while words not in self.shown:
            self.shown += self._read() or pytest.fail(f"{words!r} was not shown:\n{self.shown}")

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self._side, f"{line}\n".encode())

    def interrupt(self) -> int:
        """Press Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def answer(self, words: str) -> int:
        """Type an answer and Enter; returns the exit code."""
        os.write(self._side, f"{words}\n".encode())
        return self.end()

    def end(self) -> int:
        """Read to the end; returns the exit code."""
        while more := self._read():
            self.shown += more
        return self.process.wait(120)

    def _read(self) -> str:
        if not select.select([self._side], [], [], PATIENCE_S)[0]:
            pytest.fail(f"nothing more was shown after:\n{self.shown}")
        try:
            return os.read(self._side, 65536).decode(errors="replace")
        except OSError:  # the other side is closed
            return ""


@contextmanager
def terminal(cli: CliServer, *words: str) -> Iterator[Terminal]:
    mine, its = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, *words]
    env = {**os.environ, **cli.env, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=env, cwd=ROOT)
    os.close(its)
    try:
        yield Terminal(process, mine)
    finally:
        process.kill()
        process.wait(120)
        os.close(mine)


def test_ctrl_c_leaves_a_waiting_command_with_130_and_the_cursor_back(cli: CliServer) -> None:
    cli.built("p1", provider="aws", region="eu-1")
    cli.built("p2", provider="gcp")
    cli.do(cli.plant.hold)
    with terminal(cli, "do", "tune", "--selector", "kind=pump", "--wait", "--yes") as screen:
        screen.until("0/1")
        assert screen.interrupt() == 130
    assert "aws/eu-1" in screen.shown
    assert "gcp" in screen.shown
    assert CURSOR_BACK in screen.shown[screen.shown.rindex("0/1") :]
    assert "Traceback" not in screen.shown
    assert screen.shown.count("to follow it: stateward logs -f ") == 2
    assert cli.json("get", "p1")["object"]["state"] == "tuning"


def test_ctrl_c_leaves_top_with_the_former_screen_back(cli: CliServer) -> None:
    cli.built("p1")
    with terminal(cli, "top") as screen:
        screen.until("idle")
        assert screen.interrupt() == 130
    assert screen.shown.rindex("\x1b[?1049l") > screen.shown.rindex("\x1b[?1049h")
    assert CURSOR_BACK in screen.shown[screen.shown.rindex("idle") :]
    assert "Traceback" not in screen.shown


@pytest.mark.parametrize("words", [["watch", "--after", "0"], ["list", "--watch"], ["list", "--watch", "--json"]])
def test_ctrl_c_ends_whatever_goes_on_for_ever(cli: CliServer, words: list[str]) -> None:
    cli.built("p1")
    with terminal(cli, *words) as screen:
        screen.until("idle")
        assert screen.interrupt() == 130
    assert "Traceback" not in screen.shown


def completed(cli: CliServer, *words: str) -> list[str]:
    env = {
        **os.environ,
        **cli.env,
        "PYTHONPATH": str(ROOT),
        "_STATEWARD_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": " ".join(["stateward", *words]),
    }
    program = PROGRAM.replace("(sys.argv[1:])", "(prog_name='stateward')")
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [word for word in done.stdout.split('"') if word.strip() and "_arguments" not in word]


def test_the_tab_key_offers_kinds_actions_and_objects(cli: CliServer) -> None:
    cli.built("web-1")
    cli.built("db-1")
    assert "test.pump" in str(completed(cli, "create", "test.p"))
    assert "pump" in str(completed(cli, "do", "pum"))
    assert "pump/web-1" in str(completed(cli, "get", "pump/we"))
    assert "db-1" not in str(completed(cli, "get", "we"))


def test_the_tab_key_offers_nothing_where_no_server_answers(cli: CliServer) -> None:
    offered = completed(cli, "get", "--server", "http://127.0.0.1:1", "we")
    assert "web-1" not in str(offered)
    assert "Traceback" not in str(offered)


SECRET = "sw_0123456789ab_a-secret-that-nobody-may-see"


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--token", SECRET],
        ["list", "--json", "--token", SECRET],
        ["watch", "--token", SECRET],
        ["list", "--token", SECRET, "--server", "http://127.0.0.1:1"],
        ["list", "--token", SECRET + "\n", "--server", f"http://x:{SECRET}@127.0.0.1:1"],
        ["list", "--token", SECRET + " x"],
        ["list", "--token", SECRET, "--token-file", "nowhere"],
        ["list", "--token", SECRET, "--data", "nowhere"],
    ],
)
def test_a_token_never_appears_in_what_is_printed_or_logged(
    cli: CliServer, words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        done = cli.run(*words)
    assert done.exit_code in (2, 3, 4), done.output
    assert SECRET not in done.output + done.stderr + str(done.exception)
    assert SECRET not in caplog.text


def test_a_token_in_the_wrong_place_is_not_repeated(cli: CliServer) -> None:
    done = cli.run("get", SECRET, token=SECRET)
    assert done.exit_code == 4
    assert SECRET not in done.output + done.stderr
    assert SECRET not in cli.run("get", SECRET).stderr
    assert SECRET not in cli.run("get", SECRET, "--json").stdout


def test_no_server_at_the_address_exits_with_3() -> None:
    for words in (["list"], ["watch"], ["top"]):
        done = CliRunner().invoke(command_line, [*words, "--server", "http://127.0.0.1:1"], env=WIDE)
        assert done.exit_code == 3, done.output
        assert "no server answers at http://127.0.0.1:1: connection refused" in done.stderr
        assert "`stateward serve` starts one" in done.stderr


def test_login_asks_for_the_server_and_for_a_token_that_is_not_shown(
    cli: CliServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEWARD_CLIENT_FILE", str(tmp_path / "client.json"))
    with terminal(cli, "login", "--context", "plant") as shown:
        shown.until("Server: ")
        shown.type(cli.url)
        shown.until("Token: ")
        shown.type(cli.token)
        shown.until("Signed in to")
        assert cli.token not in shown.shown
    assert (tmp_path / "tokens" / "plant").read_text() == f"{cli.token}\n"
