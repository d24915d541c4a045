"""`stateward new domain`: the package that it writes is installed, checked, tested and served."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.acceptance.fresh_environments import FreshEnvironment
from tests.integration.server.server_processes import run, served

TOOLS = Path(sys.executable).parent


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "stateward-acme"
    done = run("new", "domain", "acme", "--folder", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert "pip install -e '.[dev]'" in done.stdout
    return folder


def test_the_tools_of_a_package_are_an_extra_which_every_pip_knows(package: Path) -> None:
    assert tomllib.loads((package / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys() == {"dev"}
    for file in ("README.md", ".github/workflows/ci.yml"):
        assert "pip install -e '.[dev]'" in (package / file).read_text()


def test_what_is_written_is_installed_tested_and_served(package: Path, tmp_path: Path) -> None:
    """One test, so that the environment is made once."""
    environment = FreshEnvironment(tmp_path / "environment")
    environment.install(package)
    without = ["-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:faker"]
    tested = environment.run([str(environment.python), "-m", "pytest", "-q", *without], folder=package)
    assert "6 passed" in tested
    with (
        served(tmp_path / "data", "--only", "acme", program=environment.stateward) as server,
        server.client() as client,
    ):
        kind = client.get("/api/v1/kinds/acme.item").json()
        assert (kind["creatable"], kind["columns"]) == (True, ["spec.size"])
        where = ["--data", str(tmp_path / "data")]
        command = [str(environment.stateward), "create", "acme.item", "first", "--set", "size=3", "--wait", *where]
        assert "ready" in environment.run(command)
        body = {"args": {"size": 5}}
        answer = client.post("/api/v1/ns/default/objects/first/actions/resize", json=body)
        assert answer.status_code == 202
        resize = answer.json()["operation"]["id"]
        environment.run([str(environment.stateward), "wait", resize, *where])
        found = client.get("/api/v1/ns/default/objects/first").json()
        assert (found["state"], found["spec"]) == ("ready", {"size": 5})
        answer = client.post("/api/v1/ns/default/objects/first/actions/resize", json={"args": {"size": 500}})
        assert answer.is_client_error
        assert answer.json()["field"].endswith("size")


def test_what_is_written_has_one_format(package: Path) -> None:
    for command in (["ruff", "format", "--check", "."], ["ruff", "check", "--no-cache", "."]):
        _checked(package, *command)


@pytest.mark.long
def test_what_is_written_has_types(package: Path) -> None:
    _checked(package, "mypy", "--cache-dir", str(package / ".mypy_cache"))


def _checked(package: Path, program: str, *words: str) -> None:
    done = subprocess.run([TOOLS / program, *words], capture_output=True, text=True, cwd=package, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["Acme", "9lives", "a", "a-b", "mci", "stateward", "x" * 32, "", "a/b"])
def test_wrong_name_is_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    done = run("new", "domain", name, "--folder", str(tmp_path / "new"))
    assert done.returncode == 2
    assert "NAME" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_folder_that_exists_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for place in (tmp_path, tmp_path / "mine", tmp_path / "mine" / "below"):
        done = run("new", "domain", "acme", "--folder", str(place))
        assert done.returncode == 2
        assert "--folder" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]
