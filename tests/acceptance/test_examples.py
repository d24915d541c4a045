"""The examples run as they are, and print what their docstrings promise."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

import httpx

from tests.integration.server.server_processes import served
from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
KILLED_IN_COMPILE = """
import asyncio, os, signal, sys
import build_machine

async def work(step):
    if step == "compile":
        os.kill(os.getpid(), signal.SIGKILL)

build_machine.work = work
asyncio.run(build_machine.main(sys.argv[1]))
"""


def told(name: str) -> list[str]:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_build_machine_refuses_the_second_build_and_names_the_first() -> None:
    lines = told("build_machine.py")
    assert any("blocked by operation" in line for line in lines)
    assert "build succeeded {'artifacts': 3}" in lines
    assert lines[-1] == "building -> idle (succeeded by worker)"


def test_the_build_machine_continues_after_its_last_finished_step_when_it_was_killed(tmp_path: Path) -> None:
    database = str(tmp_path / "machines.db")
    killed = subprocess.run([sys.executable, "-c", KILLED_IN_COMPILE, database], cwd=EXAMPLES, timeout=60, check=False)
    assert killed.returncode == -SIGKILL
    command = [sys.executable, str(EXAMPLES / "build_machine.py"), database]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in ("fetch", "compile", "test")] == ["compile", "test"]
    assert "build succeeded {'artifacts': 3}" in lines


def test_the_phone_number_is_ported_in_and_a_late_word_does_not_count() -> None:
    lines = told("phone_number.py")
    assert lines[:2] == ["a late report about the first try counts: False", "the number is active"]
    assert any(line.startswith("rejected: ported by carrier") for line in lines)


def test_the_page_about_agents_shows_lines_of_its_example() -> None:
    page = (EXAMPLES.parent / "docs" / "howto" / "agent.md").read_text("utf-8")
    shown = re.findall(r"^```python sign_boards.py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    assert (
        set("".join(shown).splitlines()) - set((EXAMPLES / "sign_boards.py").read_text("utf-8").splitlines()) == set()
    )


def show(client: httpx.Client, text: str) -> None:
    asked = client.post("/api/v1/ns/default/objects/hall/actions/update", json={"spec": {"text": text}})
    assert asked.status_code == 202, asked.text


def test_the_agent_of_a_sign_board_shows_what_users_ask_for_also_while_it_was_away(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "sign_boards.py", tmp_path)
    shown, token = tmp_path / "hall.txt", tmp_path / "token"
    with (
        served(tmp_path / "data", environ={"STATEWARD_DOMAIN": "sign_boards:domain"}) as server,
        server.client() as client,
    ):
        made = client.post("/api/v1/tokens", json={"name": "hall", "role": "agent", "namespaces": ["default:hall"]})
        token.write_text(made.json()["token"])
        agent = [sys.executable, "sign_boards.py", "hall", str(shown), str(token), server.url.replace("http", "ws")]

        def is_shown(text: str) -> bool:
            state = client.get("/api/v1/ns/default/objects/hall").json()["state"]
            return state == "shown" and shown.exists() and shown.read_text().endswith(f" {text}\n")

        board = {"kind": "sign.board", "id": "hall", "spec": {"text": "Welcome"}}
        assert client.post("/api/v1/ns/default/objects", json=board).status_code == 202
        with subprocess.Popen(agent, cwd=tmp_path) as process:
            wait_until(lambda: is_shown("Welcome"))
            show(client, "Lunch is at noon")
            wait_until(lambda: is_shown("Lunch is at noon"))
            process.kill()
        show(client, "Closed")
        with subprocess.Popen(agent, cwd=tmp_path) as process:
            wait_until(lambda: is_shown("Closed"))
            process.terminate()
