"""A parent for long runs: `python -m tools.reaper COMMAND...` runs a command and lets nothing of it remain.

Tests and benchmarks start databases, machines, agents and browsers, many of them in sessions of their own. A test that
times out, a killed pytest worker or a Ctrl-C leaves them without a parent, and their temporary folders stay.

So the command gets one temporary folder for everything, and this process adopts the orphans of all its descendants
(Linux's child subreaper). When the command ends, whatever the reason, remaining processes are killed and the folder is
removed, with the container networks and the shared memory that files in it name. A run that succeeded but left any of
these behind fails. With `--in-memory` before the command the folder is in memory, where there is room.

A guard does the same for a folder whose owner is killed: it is a process that waits for the end of a pipe which its
owner holds open, kills every process that the folder appears in, and removes it (`start_guard`). Each run begins with
what is left of runs that neither has cleaned up, because the machine stopped.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

PREFIX = "stateward-run-"
GUARD = "--guard"
CLAIMED_UIDS = Path("/run/stateward/uids")
"""Links from user numbers to folders. A confined program shows no folder of its run, but runs as such a number."""

IN_MEMORY = "--in-memory"
MEMORY, MIN_FREE_BYTES = Path("/dev/shm"), 6 << 30

OWNER = "owner"
"""The file in a run's folder that names the process that will clean up: its pid and its start time."""

SHARED_FOLDERS = (
    "run/stateward/*", "run/stateward", f"dev/shm/stateward-{os.geteuid()}", "run/netns", "run/runc", "run/containers",
    "sys/fs/cgroup/*/libpod_parent/conmon", "sys/fs/cgroup/*/libpod_parent", "sys/fs/cgroup/libpod_parent/conmon",
    "sys/fs/cgroup/libpod_parent",
)  # fmt: skip
"""Where confined programs, network namespaces and containers of a run are, outside of its folder."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
IPC_RMID = 0
OWN_CHAIN = re.compile(r"NETAVARK-(DN-)?[0-9A-F]+")
"""The chains that Netavark makes for one network."""
TABLES = ("nat", "filter")
LEAVE_GRACE_S, FAILED_GRACE_S = 5.0, 0.5
"""How long processes may take to end by themselves after the command has succeeded, and after it has not."""
STOP_GRACE_S = 30.0
"""How long a command that was told to stop may take."""
POLL_S = 0.05


def main(command: list[str]) -> int:
    """Run a command; return its exit status, or 1 if it succeeded and left something behind."""
    if command[:1] == [IN_MEMORY]:
        command = command[1:]
        use_memory()
    if not command:
        sys.exit(f"usage: python -m tools.reaper [{IN_MEMORY}] COMMAND [ARGUMENT...]")
    sweep_stale_runs()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    folder, there = make_run_folder(), set(_shared_folders())
    start_guard(folder)
    restore_signals()
    child = subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(folder)},
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
        process_group=0,  # so that a terminal's Ctrl-C reaches it once, through this process
    )
    status = _wait_for(child)
    left = _reap_descendants(FAILED_GRACE_S if status else LEAVE_GRACE_S)
    left += remove_outside(folder)
    shutil.rmtree(folder, ignore_errors=True)
    remove_empty(one for one in _shared_folders() if one not in there)
    for line in left:
        print(f"left behind, and removed: {line}", file=sys.stderr)
    return status or int(bool(left))


def use_memory() -> None:
    """Make temporary folders in memory, where there is room: a test that kills a process needs no disk that syncs."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= MIN_FREE_BYTES and not found.f_flag & os.ST_NOEXEC:
        tempfile.tempdir = str(MEMORY)


def make_run_folder() -> Path:
    """Make a temporary folder that this process is to clean up."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    folder.chmod(0o755)  # a database server of another user has to reach its folder inside
    unnamed = folder / f"{OWNER}.new"  # another run would take an owner without a name for one that has ended
    unnamed.write_text(identity_of(os.getpid()))
    unnamed.rename(folder / OWNER)
    return folder


def start_guard(folder: Path) -> None:
    """Start the process that cleans a folder up if this one is killed; it ends with this one."""
    reader, _held_open = os.pipe()
    command = [sys.executable, "-I", __file__, GUARD, str(folder)]
    actions = [(os.POSIX_SPAWN_DUP2, reader, 0)]
    environ = {"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"}
    os.posix_spawn(sys.executable, command, environ, file_actions=actions, setsid=True)
    os.close(reader)


def _guard(folder: Path) -> None:
    """Wait until the owner has ended; clean up, unless it has."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.read(0, 1)
    if folder.exists():
        remove_run(folder)
    else:
        remove_outside(folder)


def restore_signals() -> None:
    """Let signals end programs again where they are ignored, as they are for background jobs of a script.

    An ignored signal stays ignored in every program that is started, and a test of Ctrl-C would wait for ever.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


def sweep_stale_runs() -> None:
    """Clean up after runs whose owner has died without doing so."""
    for owner in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{OWNER}"):
        with suppress(OSError):
            pid = owner.read_text().partition(" ")[0]
            if not pid.isdigit() or identity_of(int(pid)) != owner.read_text():
                remove_run(owner.parent)


def remove_run(folder: Path) -> None:
    """Kill every process that a run's folder appears in, or that runs as a user of its; remove the folder."""
    uids, deadline = _uids_of(folder), time.monotonic() + STOP_GRACE_S  # others' processes cannot be killed
    while time.monotonic() < deadline and (
        pids := [pid for pid in _pids() if pid != os.getpid() and _is_of(pid, folder, uids)]
    ):
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)
    remove_outside(folder)
    shutil.rmtree(folder, ignore_errors=True)


def identity_of(pid: int) -> str:
    """Return a process's pid and start time, which no later process shares; without the second if there is none."""
    return f"{pid} {_stat(pid)[19] if _stat(pid) else ''}"


# --- the command -----------------------------------------------------------------------------------------------------


def _wait_for(child: subprocess.Popen[bytes]) -> int:
    """Wait for the command, pass on what is meant to stop it, and end it if it does not."""
    deadline: list[float] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        deadline.append(time.monotonic() + STOP_GRACE_S)
        child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    while True:
        try:
            return child.wait(timeout=POLL_S * 10)
        except subprocess.TimeoutExpired:
            _reap_orphans(child.pid)
            if deadline and time.monotonic() > deadline[0]:
                child.kill()


def _reap_orphans(command: int) -> None:
    """Forget the adopted processes that have ended, but not the command, whose status is still needed."""
    peek = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, peek)) is not None and ended.si_pid != command:
            os.waitpid(ended.si_pid, 0)


def _reap_descendants(grace_s: float) -> list[str]:
    """Wait a while for what is left to end, kill the rest, and return how the killed ones were called."""
    deadline = time.monotonic() + grace_s
    killed: dict[int, str] = {}
    while pids := _descendants():
        if time.monotonic() > deadline:
            for pid in pids:
                killed.setdefault(pid, f"{pid} {_command(pid)}")
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)
    return list(killed.values())


def _descendants() -> list[int]:
    """Return the live descendants of this process but for guards, which end by themselves; forget those that ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    parents = {pid: int(stat[1]) for pid in _pids() if (stat := _stat(pid)) and stat[0] != "Z"}
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(pid for pid in found - {os.getpid()} if GUARD not in _command(pid))


# --- what a folder names elsewhere -----------------------------------------------------------------------------------


def remove_outside(folder: Path) -> list[str]:
    """Remove what the files of a run's folder name on this host; return what should not have been there any more.

    That is container networks, with their rules, and the shared memory of PostgreSQL. Claims of user numbers are void
    without their folder, so nobody has to release them.
    """
    for uid in _uids_of(folder):
        (CLAIMED_UIDS / str(uid)).unlink(missing_ok=True)
    left = [*_remove_networks(folder), *_remove_shared_memory(folder)]
    _remove_unused_chains()
    return left


def _remove_networks(folder: Path) -> Iterator[str]:
    """Remove the networks of Podman services that did not do so themselves."""
    for file in _found(folder, "networks/*.json"):
        network = json.loads(file.read_text())
        link = network["network_interface"]
        is_left = subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False).returncode == 0
        addresses = [f" {one['subnet'].rpartition('.')[0]}." for one in network.get("subnets", [])]
        if remove_rules(link, *addresses) or is_left:
            yield f"network {network['name']} ({link})"


def remove_rules(*texts: str) -> bool:
    """Remove the rules of iptables that contain one of the texts, with Netavark's chains for them; tell if any did."""
    is_found = False
    for table in TABLES:
        rules = [line for line in _rules(table) if line.startswith("-A ")]
        found = [rule for rule in rules if any(text in rule for text in texts)]
        chains = {chain for rule in found if OWN_CHAIN.fullmatch(chain := rule.split()[1])}
        _delete(table, [rule for rule in rules if rule in found or _target(rule) in chains], chains)
        is_found = is_found or bool(found)
    return is_found


def _remove_unused_chains() -> None:
    """Remove Netavark's chains, and the jumps to them, if there are no networks, and no Podman that may make one."""
    is_used = any(line.startswith("-A NETAVARK_") for line in _rules("filter"))
    if not is_used and not any(_command(pid).partition(" ")[0].endswith("podman") for pid in _pids()):
        for table in TABLES:
            lines = [line for line in _rules(table) if "NETAVARK" in line]
            rules = [line for line in lines if line.startswith("-A ")]
            _delete(table, rules, [line.split()[1] for line in lines if line.startswith("-N ")])


def _rules(table: str) -> list[str]:
    """Return the rules and the chains of a table, as options that add them."""
    if os.geteuid() or shutil.which("iptables") is None:
        return []
    command = ["iptables", "--wait", f"--table={table}", "--list-rules"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def _target(rule: str) -> str:
    return rule.partition(" -j ")[2].partition(" ")[0]


def _delete(table: str, rules: Iterable[str], chains: Iterable[str] = ()) -> None:
    commands = [["--delete", *shlex.split(rule)[1:]] for rule in rules]
    commands += [[option, chain] for chain in chains for option in ("--flush", "--delete-chain")]
    for words in commands:
        subprocess.run(["iptables", "--wait", f"--table={table}", *words], capture_output=True, check=False)


def _remove_shared_memory(folder: Path) -> Iterator[str]:
    """Remove the memory by which PostgreSQL servers that were killed would have known each other."""
    for file in _found(folder, "pg/postmaster.pid"):
        with suppress(OSError, IndexError, ValueError):  # a server that is being started has not written all of it
            number = int(file.read_text().splitlines()[6].split()[1])
            if ctypes.CDLL(None).shmctl(number, IPC_RMID, None) == 0:
                yield f"shared memory {number} of {file.parent}"


def _shared_folders() -> list[Path]:
    """Return the folders of this host that several runs use at a time, and servers too; the inner ones first."""
    return [found for pattern in SHARED_FOLDERS for found in Path("/").glob(pattern)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders in which nothing is; those of confined programs only if there is no such program."""
    has_programs = any(CLAIMED_UIDS.glob("*"))
    for folder in folders:
        if not (has_programs and folder.is_relative_to(CLAIMED_UIDS.parent)):
            with suppress(OSError):
                folder.rmdir()


def _found(folder: Path, pattern: str) -> list[Path]:
    """Return the files in a run's folder, and in those of services that were started within it."""
    return [*folder.glob(pattern), *folder.glob(f"{PREFIX}*/{pattern}")]


# --- /proc -----------------------------------------------------------------------------------------------------------


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """Return the fields of a process from its state on, or none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _uids_of(folder: Path) -> set[int]:
    """Return the user numbers that were claimed for programs in a folder."""
    found = set()
    with suppress(OSError):
        for claim in CLAIMED_UIDS.iterdir():
            if claim.name.isdigit() and claim.readlink().is_relative_to(folder):
                found.add(int(claim.name))
    return found


def _is_of(pid: int, folder: Path, uids: set[int]) -> bool:
    """Tell whether a live process has a folder in its arguments, its environment or as its own, or has such a user."""
    if _stat(pid)[:1] in ([], ["Z"]):
        return False
    text = os.fsencode(folder)
    with suppress(OSError):
        if Path(f"/proc/{pid}").stat().st_uid in uids:
            return True
    for name in ("cmdline", "environ"):
        with suppress(OSError):
            if text in Path(f"/proc/{pid}/{name}").read_bytes():
                return True
    with suppress(OSError):
        return os.fsencode(Path(f"/proc/{pid}/cwd").readlink()).startswith(text)
    return False


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    return ""


if __name__ == "__main__":
    if sys.argv[1:2] == [GUARD]:
        _guard(Path(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
