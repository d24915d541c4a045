"""Limits of the processor time, the memory and the processes of a program and of all that it starts.

Control groups enforce them: the unified hierarchy (version 2), or the controllers of version 1, whichever has the
controller and lets us create groups. Otherwise limits of processes (`ulimit`) do what they can: the address space of
each process, and the number of processes if the program has a user of its own. What cannot be enforced is told.

A program waits for a line on a pipe before it does anything (`WAIT_FOR_LIMITS`), so it never runs without limits. If
the server ends before it writes the line, the program ends. The line has the commands by which the program limits its
own processes: to limit those of another user needs a capability that servers in containers do not have.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

GATE = 7
"""The file descriptor of the pipe in the program; a shell has names for nine of them."""

WAIT_FOR_LIMITS = f"""
read -r limits <&{GATE} || exit 126
exec {GATE}<&-
eval "$limits" || {{ echo "the limits of its processes cannot be set: $limits"; exit 126; }}
"""
"""Shell commands that wait until the process is in its control groups, and set the limits of processes."""

PERIOD_US = 100_000
MIB = 1024 * 1024


class ProgramLimits(Struct, frozen=True):
    """The most that a program may use; None: no limit."""

    cpu: float | None = None  # cores
    memory_mib: int | None = None
    pids: int | None = None  # processes and threads

    def present(self) -> Mapping[str, float]:
        """Return the limits that are set, by the name of their controller."""
        limits = {"cpu": self.cpu, "memory": self.memory_mib, "pids": self.pids}
        return {name: value for name, value in limits.items() if value is not None}


class AppliedLimits(Struct, frozen=True):
    """What is not enforced, and the shell commands by which the process limits itself."""

    missing: tuple[str, ...]
    commands: str


class Controller(Struct, frozen=True):
    """A controller of control groups: the folder in which we create groups, and the version of its interface."""

    folder: Path
    is_unified: bool


class ProgramGroups:
    """The control groups of programs, by the folders of the programs."""

    def __init__(self, controllers: Mapping[str, Controller] | None = None) -> None:
        self._given = controllers

    @property
    def _controllers(self) -> Mapping[str, Controller]:
        return usable_controllers() if self._given is None else self._given

    def limit(self, folder: Path, pid: int, limits: ProgramLimits, *, has_own_user: bool) -> AppliedLimits:
        """Limit a process that waits, and all that it will start."""
        missing, commands = [], [":"]
        for name, value in limits.present().items():
            try:
                self._join(folder, pid, name, value)
            except (OSError, KeyError):
                command, left = _process_limit(name, int(value), has_own_user=has_own_user)
                commands += [command] if command else []
                missing += [left] if left else []
        return AppliedLimits(tuple(missing), " && ".join(commands))

    def _join(self, folder: Path, pid: int, name: str, value: float) -> None:
        controller = self._controllers[name]
        group = controller.folder / group_name(folder)
        group.mkdir(exist_ok=True)
        file, text = _setting(name, value, is_unified=controller.is_unified)
        (group / file).write_text(text)
        (group / "cgroup.procs").write_text(str(pid))

    def was_out_of_memory(self, folder: Path) -> bool:
        """Tell whether the kernel has killed a process of a program because the program used too much memory."""
        controller = self._controllers.get("memory")
        if controller is None:
            return False
        file = "memory.events" if controller.is_unified else "memory.oom_control"
        with suppress(OSError):
            lines = (controller.folder / group_name(folder) / file).read_text().splitlines()
            return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in lines)
        return False

    def remove(self, folder: Path) -> None:
        """Remove the groups of a program whose processes have ended."""
        for parent in {controller.folder for controller in self._controllers.values()}:
            with suppress(OSError):
                (parent / group_name(folder)).rmdir()


def group_name(folder: Path) -> str:
    """Return the name of the control group of a program."""
    return f"stateward-{blake2b(os.fsencode(folder), digest_size=12).hexdigest()}"


def _setting(name: str, value: float, *, is_unified: bool) -> tuple[str, str]:
    """Return the file of a limit, and what it has to contain."""
    quota = str(int(value * PERIOD_US))
    # fmt: off
    of = {
        #          version 1                                           version 2
        "cpu":    (("cpu.cfs_quota_us", quota),                        ("cpu.max", f"{quota} {PERIOD_US}")),
        "memory": (("memory.limit_in_bytes", str(int(value) * MIB)),   ("memory.max", str(int(value) * MIB))),
        "pids":   (("pids.max", str(int(value))),                      ("pids.max", str(int(value)))),
    }
    # fmt: on
    return of[name][is_unified]


def _process_limit(name: str, value: int, *, has_own_user: bool) -> tuple[str, str]:
    """Return the command of a shell that stands in for a control group, and what it does not enforce."""
    if name == "memory":
        return f"ulimit -v {value * 1024}", "memory of all its processes together"
    if name == "pids" and has_own_user:  # the kernel counts the processes of the user
        return f"{{ ulimit -u {value} 2>/dev/null || ulimit -p {value}; }}", ""  # shells have two names for it
    return "", name


@cache
def usable_controllers() -> Mapping[str, Controller]:
    """Return the controllers in which this process can create groups; tried once."""
    usable = {}
    for name in ("cpu", "memory", "pids"):
        for controller in _candidates(name):
            if _can_create(controller, name):
                usable[name] = controller
                break
    return usable


def _candidates(name: str) -> Iterator[Controller]:
    """Return the folders for groups of a controller: our own group, or the one above it.

    In version 2, a group with processes has no controllers to give to others. So a server that is to limit programs
    runs in a group below the one that it may change (`DelegateSubgroup=` of systemd).
    """
    for mount, kind, options in _mounts():
        is_unified = kind == "cgroup2"
        if is_unified or (kind == "cgroup" and name in options):
            own = mount / _own_group("" if is_unified else name).lstrip("/")
            yield Controller(own, is_unified)
            if is_unified and own != mount:
                yield Controller(own.parent, is_unified)


def _can_create(controller: Controller, name: str) -> bool:
    trial = controller.folder / f"stateward-trial-{os.getpid()}"
    try:
        if controller.is_unified:
            if name not in (controller.folder / "cgroup.controllers").read_text().split():
                return False
            (controller.folder / "cgroup.subtree_control").write_text(f"+{name}")
        trial.mkdir()
    except OSError:
        return False
    try:
        return os.access(trial / _setting(name, 1, is_unified=controller.is_unified)[0], os.W_OK)
    finally:
        with suppress(OSError):
            trial.rmdir()


def _mounts() -> Iterator[tuple[Path, str, list[str]]]:
    """Return where control groups are mounted, with the type and the options of each mount."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, options = line.split()[:4]
        if kind in ("cgroup", "cgroup2"):
            yield Path(mount), kind, options.split(",")


def _own_group(controller: str) -> str:
    """Return the path of our own group: of a controller, or in the unified hierarchy."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    return "/"
