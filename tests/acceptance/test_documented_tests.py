"""The project of the page about testing: its tests pass, and the one that is to fail prints what the page says."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "test.md"
BLOCK = re.compile(r"^```python (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TRACE = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIME = re.compile(r"^ *\d+\.\d+ ")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = defaultdict(list)
    for name, code in BLOCK.findall(PAGE.read_text()):
        files[name].append(code)
    for name, parts in files.items():
        (tmp_path / name).write_text(f"# {name}\n" + "\n\n".join(parts))
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    plugins = ("stateward.pytest_plugin", "no:cacheprovider", "no:asyncio", "no:schemathesis", "no:faker")
    command = [sys.executable, "-m", "pytest", "-q", *(f"-p{one}" for one in plugins), *arguments]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)


def test_documented_tests_pass(project: Path) -> None:
    done = run(project, "test_lamps.py", "test_stock.py", "test_protocol.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout


def test_documented_failure_prints_what_the_page_says(project: Path) -> None:
    done = run(project, "test_forgetful.py")
    assert done.returncode == 1, done.stdout + done.stderr
    (trace,) = TRACE.findall(PAGE.read_text())
    printed = [TIME.sub("", line.removeprefix("E").strip()) for line in done.stdout.splitlines()]
    told = [TIME.sub("", line).strip() for line in trace.splitlines()]
    first = printed.index(told[0])
    assert printed[first : first + len(told)] == told, done.stdout
    assert re.search(r"the handler cannot be repeated at .*lamps.py:\d+, in make: return await job.once", done.stdout)
