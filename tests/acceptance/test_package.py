"""The package as users get it: a wheel, installed into an empty environment, that serves."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from zipfile import ZipFile

import httpx
import msgspec
import pytest

from stateward import __version__

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "stateward"
PATIENT = 240.0
NEEDED = (
    "stateward/py.typed",
    "stateward/console/index.html",
    "stateward/domains/mci/console.js",
    "stateward/domains/mci/console.css",
    "stateward/store/sql/sqlite/001_initial.sql",
    "stateward/store/sql/postgres/001_initial.sql",
)


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, with the build backend that the lock names."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty environment, with the locked versions of what it depends on."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=PATIENT)
    locked = re.findall(r"^(\S+==\S+(?: ; [^\\\n]+)?)", (ROOT / "requirements" / "run.lock").read_text(), re.MULTILINE)
    (folder / "constraints").write_text("\n".join(locked))
    python, kept = str(folder / "bin" / "python"), str(folder / "constraints")
    words = ("install", "--constraint", kept, str(wheel))
    uv = Path(sys.executable).with_name("uv")
    by_uv = [str(uv), "pip", *words, "--python", python]
    if not uv.exists() or subprocess.run(by_uv, capture_output=True, timeout=PATIENT, check=False).returncode:
        pip("--python", python, *words, "--no-compile")  # uv takes a tenth of its time, but knows no index of pip's
    return folder / "bin"


def clean() -> dict[str, str]:
    """An environment without this checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("STATEWARD_", "PYTHON"))}


def test_the_wheel_has_everything_that_is_in_the_tree(wheel: Path) -> None:
    """The console, the SQL, the pages, py.typed: the modules use all files beside them."""
    there = {
        str(one.relative_to(SOURCE.parent))
        for one in SOURCE.rglob("*")
        if one.is_file() and "__pycache__" not in one.parts
    }
    packed = {name for name in ZipFile(wheel).namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert packed == there
    assert set(NEEDED) <= packed


def test_the_wheel_has_the_pytest_plug_in_under_the_name_of_its_module(wheel: Path) -> None:
    with ZipFile(wheel) as packed:
        (name,) = [one for one in packed.namelist() if one.endswith("/entry_points.txt")]
        told = packed.read(name).decode()
    assert "[pytest11]\nstateward.pytest_plugin = stateward.pytest_plugin\n" in told


def test_the_wheel_names_its_extras_and_its_licence(wheel: Path) -> None:
    with ZipFile(wheel) as packed:
        (name,) = [one for one in packed.namelist() if one.endswith("/METADATA")]
        told = packed.read(name).decode()
    documented = re.findall(r"^\| `stateward\[(\w+)\]`", (ROOT / "docs/howto/install.md").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"^Provides-Extra: (\w+)$", told, re.MULTILINE)) == sorted(documented)
    assert "License-Expression: Apache-2.0" in told


def test_an_empty_environment_gets_a_command_and_a_server_with_its_console(programs: Path, tmp_path: Path) -> None:
    """One test, so that the environment is made once, however pytest-xdist distributes tests."""
    stateward = str(programs / "stateward")
    told = subprocess.run([stateward, "--version"], capture_output=True, text=True, timeout=PATIENT, env=clean())
    assert told.stdout.strip() == __version__
    shown = [stateward, "lifecycle", "show", "mci.vm", "--format", "svg"]  # there is no Graphviz
    picture = subprocess.run(shown, capture_output=True, text=True, timeout=PATIENT, env=clean(), check=True)
    assert picture.stdout.strip() == (SOURCE / "domains/mci/pictures/mci.vm.svg").read_text("utf-8").strip()
    words = [stateward, "serve", "--data", "data", "--port", "0"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, cwd=tmp_path, env=clean())
    try:
        with httpx.Client(base_url=address(tmp_path, server), trust_env=False, timeout=PATIENT) as client:
            assert client.get("/readyz").status_code == 200
            assert "<title>" in client.get("/").text
            assert len(client.get("/docs/openapi.json").json()["paths"]) > 100
    finally:
        server.terminate()
        assert server.wait(PATIENT) == 0


def address(folder: Path, server: "subprocess.Popen[bytes]") -> str:
    """Wait until the server has written its address."""
    file, end = folder / "data" / "server.json", time.monotonic() + PATIENT
    while not file.exists():
        assert server.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.05)
    found: dict[str, str] = msgspec.json.decode(file.read_bytes())
    return found["url"]
