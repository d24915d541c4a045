"""What a command costs before it does its work: the start of the program, against an interpreter that does nothing.

Each round starts all programs once, in turns, so that the load of the machine disturbs them alike.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from bench.figures import Line, plain, ratio

ROUNDS = 15
OF = "the start of an interpreter that does nothing"
NOTHING = [sys.executable, "-c", "pass"]
PROGRAM = [sys.executable, "-m", "stateward"]
START_LIMIT_S, HELP_S, CALL_S = 60.0, 0.25, 0.35


def report() -> list[Line]:
    """Return the figures of `--help` and of a call to a running server."""
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [*PROGRAM, "serve", "--data", folder, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            _wait_for(Path(folder) / "server.json")
            return ["command line", *_figures(folder)]
        finally:
            server.terminate()
            server.communicate()


def _figures(folder: str) -> list[Line]:
    programs = {"--help": [*PROGRAM, "--help"], "list, from a running server": [*PROGRAM, "list", "--data", folder]}
    for words in programs.values():
        _seconds(words)  # the first start compiles
    rounds = [(_seconds(NOTHING), *map(_seconds, programs.values())) for _ in range(ROUNDS)]
    found: list[Line] = []
    for number, (name, target) in enumerate(zip(programs, (HELP_S, CALL_S), strict=True), 1):
        found.append(ratio(f"stateward {name}", median(one[number] / one[0] for one in rounds), OF))
        found.append(plain(f"stateward {name}", median(one[number] for one in rounds), "s", target))
    return found


def _seconds(words: Sequence[str]) -> float:
    begun = perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "STATEWARD_SERVER": ""})
    return perf_counter() - begun


def _wait_for(file: Path) -> None:
    until = perf_counter() + START_LIMIT_S
    while not file.exists() and perf_counter() < until:
        sleep(0.05)
