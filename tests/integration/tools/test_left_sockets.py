"""Sockets that a test leaves open are reported by that test."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CONFTEST = "from tests.left_sockets import pytest_runtest_setup, pytest_runtest_teardown\n"
TESTS = """
import gc
import socket

gc.disable()

def test_closes():
    socket.socket().close()

def test_leaves_one():
    cycle = [socket.socket()]
    cycle.append(cycle)

def test_later():
    gc.collect()
"""


def test_a_socket_is_reported_by_the_test_that_left_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    environ = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True)
    lines = [line.split(" - ")[0] for line in done.stdout.decode().splitlines()]
    assert [line for line in lines if line.startswith(("ERROR ", "FAILED "))] == ["ERROR test_it.py::test_leaves_one"]
    assert "PASSED test_it.py::test_later" in lines
