"""The fork server of the tests: one that was killed is started again, one that fails says why."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fork_server import Command, ForkedProcess, ForkServer, ForkServerEnded


@pytest.fixture
def server() -> Iterator[ForkServer]:
    opened = ForkServer()
    yield opened
    opened.close()


def print_version(server: ForkServer) -> ForkedProcess:
    with tempfile.TemporaryFile() as output:
        return server.start(Command(["stateward", "--version"], dict(os.environ), "/"), output, output)


def test_a_fork_server_that_was_killed_is_started_again(server: ForkServer) -> None:
    assert print_version(server).wait(60) == 0
    server._process.kill()
    server._process.wait()
    assert print_version(server).wait(60) == 0


def test_a_process_whose_fork_server_was_killed_says_so(server: ForkServer, tmp_path: Path) -> None:
    serve = ["stateward", "serve", "--port", "0", "--data", str(tmp_path)]
    with tempfile.TemporaryFile() as output:
        lasting = server.start(Command(serve, dict(os.environ), str(tmp_path)), output, output)
    server._process.kill()
    with pytest.raises(ForkServerEnded, match="has ended with -9"):
        lasting.wait(60)
    os.kill(lasting.pid, signal.SIGKILL)


def test_a_fork_server_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    server = ForkServer()
    with pytest.raises(ForkServerEnded, match="has ended with 1"):
        print_version(server)
    server.close()
