"""Starting the process of an instance, finding it again, and killing all its descendants.

An instance leads a session and outlives the server. Its pid and start time identify it, and so does a mark in its
environment, which its descendants inherit, even those that leave its session.
"""

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.systems.backends.local.instance_dir import PROXY, InstanceDir, InstanceOrder, prepare_log
from stateward.domains.systems.definition import Resources, file_name
from stateward.procfs import ProcessId, find_by_environment, kill_processes, process_of, signal_group, stat_of
from stateward.workloads.confinement import Confinement, Sandbox
from stateward.workloads.confinement.syscalls import open_handle
from stateward.workloads.host_ports import LOOPBACK
from stateward.workloads.limits import GATE, WAIT_FOR_LIMITS, ProgramGroups, ProgramLimits
from stateward.workloads.log_files import read_part
from stateward.workloads.spawn import spawn

NO_SECRETS: Mapping[str, str] = {}
MARK_VARIABLE = "STATEWARD_INSTANCE"
PROXY_PROGRAM = str(Path(__file__).with_name("tcp_proxy.py"))
INTO_FOLDER = """
cd "$1" 2>/dev/null || { echo "$1 must exist, and be readable by everybody or named in machine_paths"; exit 126; }
shift
exec "$@"
"""
"""Changes into the folder, and replaces itself by the command."""

RUN_ONCE = """
cd "$1" 2>/dev/null || { echo "$1 must exist, and be readable by everybody or named in machine_paths"; exit 126; }
shift
exec 3<&0 </dev/null
trap : TERM
echo started >&3
(exec "$@" 3>&-)
echo "$?" >&3
"""
"""Changes into the folder, and runs the command to its end; its standard input is the file for the exit status.

The supervisor may be killed meanwhile, and only a parent learns an exit status. The trap keeps the shell alive while
the command ends after SIGTERM; the command itself has no trap.
"""

STARTED = "started"


class HostPlace(Struct, frozen=True):
    """The address of this host that instances listen on, and whether they may be started now.

    `sees_container` tells by a process id and the id of a container whether its processes can be found and killed here.
    Without it, nobody needs to.
    """

    host: str = LOOPBACK
    may_launch: Callable[[], bool] = lambda: True
    sees_container: Callable[[int, str], bool] | None = None


THIS_HOST = HostPlace()


def mark_of(directory: InstanceDir, boot: int) -> str:
    """Return the mark in the environment of all processes of one boot; it does not reveal the server's folders."""
    return f"{root_mark(directory.root)}/{directory.folder.relative_to(directory.root)}#{boot}"


def root_mark(root: Path) -> str:
    """Return the beginning of the marks of all instances below the folder of a backend."""
    return blake2b(str(root).encode(), digest_size=12).hexdigest()


def _former_mark(directory: InstanceDir, boot: int) -> str:
    """Return the mark that earlier versions gave to processes, which may still run."""
    return f"{directory.folder}#{boot}"


def secret_files(order: InstanceOrder, secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the secret files of an instance, by their names."""
    used = order.service.secrets.items()
    return {
        file_name(variable, secret): secrets[secret.secret] for variable, secret in used if secret.delivery == "file"
    }


def environment_of(
    directory: InstanceDir,
    order: InstanceOrder,
    boot: int,
    port: int,
    sandbox: Sandbox,
    secrets: Mapping[str, str] = NO_SECRETS,
    host: str = LOOPBACK,
) -> Mapping[str, str]:
    """Return the environment of an instance, with its own secrets and without any of ours."""
    own = {
        "PORT": str(port),
        "HOST": host,
        "STATEWARD_SYSTEM": directory.ref.system.system,
        "STATEWARD_SERVICE": directory.ref.path,
        "STATEWARD_NAME": order.name,
        "STATEWARD_REVISION": order.revision,
        "STATEWARD_WORK": str(sandbox.home / sandbox.work_dir),
        MARK_VARIABLE: mark_of(directory, boot),
    }
    node = {} if order.node is None else {"STATEWARD_NODE": order.node}
    given = {
        variable: secrets[secret.secret]
        if secret.delivery == "env"
        else str(sandbox.secrets_dir / file_name(variable, secret))
        for variable, secret in order.service.secrets.items()
    }
    return {**sandbox.environment(), **order.service.env, **given, **own, **node}


def launch(
    directory: InstanceDir,
    order: InstanceOrder,
    boot: int,
    port: int,
    sandbox: Sandbox,
    confinement: Confinement,
    groups: ProgramGroups,
    secrets: Mapping[str, str] = NO_SECRETS,
    host: str = LOOPBACK,
) -> tuple[int, tuple[str, ...]]:
    """Start the process of an instance; returns its pid, and the limits that are not enforced.

    A TCP proxy is our code, and is not confined.
    """
    prepare_log(directory.log)
    words = _proxy_command(order) if order.name == PROXY else order.service.command
    limits = limits_of(order.service.resources)
    script = (WAIT_FOR_LIMITS if limits.present() else "") + (RUN_ONCE if order.run_once else INTO_FOLDER)
    command = ["/bin/sh", "-c", script, "instance", start_dir(order, sandbox), *words]
    environment = environment_of(directory, order, boot, port, sandbox, secrets, host)
    confinement.write_secret_files(sandbox)
    with _standard_input(directory, order) as handle:
        if order.name == PROXY:
            return spawn(command, environment, handle, directory.log), ()
        start = partial(spawn, command, environment, handle, directory.log, partial(confinement.run, sandbox))
        if not limits.present():
            return start(), ()
        return _start_limited(start, directory, limits, groups, has_own_user=sandbox.uid is not None)


def _start_limited(
    start: Callable[[tuple[int, int]], int],
    directory: InstanceDir,
    limits: ProgramLimits,
    groups: ProgramGroups,
    *,
    has_own_user: bool,
) -> tuple[int, tuple[str, ...]]:
    """Start a process that waits at its gate, limit it, and let it go on."""
    reader, writer = os.pipe()
    try:
        try:
            pid = start((reader, GATE))
        finally:
            os.close(reader)
        applied = groups.limit(directory.folder, pid, limits, has_own_user=has_own_user)
        os.write(writer, f"{applied.commands}\n".encode())
    finally:
        os.close(writer)
    return pid, applied.missing


def limits_of(resources: Resources) -> ProgramLimits:
    """Return the limits of an instance."""
    return ProgramLimits(resources.cpu, resources.memory, resources.pids)


def _standard_input(directory: InstanceDir, order: InstanceOrder) -> AbstractContextManager[int]:
    """Open the standard input of an instance: nothing, or the file for the exit status of one that runs once."""
    if not order.run_once:
        return open_handle(Path(os.devnull), os.O_RDONLY)
    return open_handle(directory.exit_file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)


def read_exit(directory: InstanceDir) -> tuple[bool, int | None]:
    """Tell whether the command of an instance that runs once was started, and its exit status, if it is known."""
    try:
        words = directory.exit_file.read_text("ascii", "replace").split()
    except OSError:
        return False, None
    return STARTED in words, next((int(word) for word in words if word.isdecimal()), None)


def _proxy_command(order: InstanceOrder) -> tuple[str, ...]:
    """Return the command of a TCP proxy; the order may name the file that the program had in an earlier version."""
    interpreter, *flags, _, ready_file, port = order.service.command
    return (interpreter, *flags, PROXY_PROGRAM, ready_file, port)


def sandbox_of(
    directory: InstanceDir, order: InstanceOrder, confinement: Confinement, secrets: Mapping[str, str] = NO_SECRETS
) -> Sandbox:
    """Create the folder of an instance, and return its sandbox."""
    if order.name == PROXY:
        (directory.folder / "work").mkdir(mode=0o700, exist_ok=True)
        return Sandbox(directory.folder)
    return replace(confinement.create_sandbox(directory.folder), files=secret_files(order, secrets))


def start_dir(order: InstanceOrder, sandbox: Sandbox) -> str:
    """Return the folder in which an instance starts."""
    return order.service.folder or str(sandbox.home / sandbox.work_dir)


def find_unrecorded(directory: InstanceDir, boot: int) -> ProcessId | None:
    """Return the process of a boot that was started and never recorded, or None."""
    for pid in _marked(directory, boot):
        stat = stat_of(pid)
        if stat is not None and stat.session == pid:
            return process_of(pid)
    return None


def kill_all(directory: InstanceDir, boot: int, process: ProcessId | None) -> bool:
    """Kill all processes of a boot; returns whether none is left."""
    if process is not None:
        signal_group(process, signal.SIGKILL)
    left = _marked(directory, boot)
    kill_processes(left)
    return not left


def exit_text(pid: int) -> str:
    """Describe how a process ended; the exit status is known only of our own children."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return "its process has ended"
    if not ended:
        return "its process has ended"
    code = os.waitstatus_to_exitcode(status)
    return f"ended with {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def last_log_line(log: Path, most: int = 2_000) -> str:
    """Return the last line of an instance's log."""
    try:
        lines = read_part(log, log, None, most)[0].decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip()[:200] if lines else ""


def kill_all_below(root: Path) -> bool:
    """Kill all processes of all instances below a folder; returns whether there was none."""
    prefixes = tuple(f"{MARK_VARIABLE}={mark}/".encode() for mark in (root_mark(root), root))
    pids = find_by_environment(lambda variables: any(variable.startswith(prefixes) for variable in variables))
    kill_processes(pids)
    return not pids


def _marked(directory: InstanceDir, boot: int) -> set[int]:
    """Return the living processes of a boot, by the mark in their environment."""
    marks = (mark_of(directory, boot), _former_mark(directory, boot))
    wanted = {f"{MARK_VARIABLE}={mark}".encode() for mark in marks}
    return find_by_environment(lambda variables: not wanted.isdisjoint(variables))
