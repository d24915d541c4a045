"""The watchdog of a node: it kills all instances when the agent's lease has ended. A process of its own.

    python -m stateward.domains.systems.nodes.lease_watchdog FOLDER

It outlives the agent, so instances end in time even if the agent was killed or stopped. It kills whatever carries the
mark of the folder in its environment, the process groups that the records name, the users of confined instances, and
the control groups of containers. It ends when there is no agent, no lease and no instance, and when the container
engine, if the node has one, has removed the containers.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from stateward.agents.self_upgrade import LockHolder
from stateward.domains.systems.backends.local.instance_dir import BackendDir, write_record
from stateward.domains.systems.backends.local.launch import kill_all_below
from stateward.domains.systems.nodes.container_fence import EngineCleaner, kill_containers
from stateward.domains.systems.nodes.node_lease import WATCHDOG_FILE, LeaseFile, boot_clock
from stateward.procfs import PROC, process_of, signal_group
from stateward.workloads.confinement import Confinement
from stateward.workloads.lock_files import try_lock_file

LONGEST_SLEEP_S = 0.2
"""The lease may have been written anew meanwhile, or its file removed."""

KILL_INTERVAL_S = 0.05
"""The time between two rounds while the lease is over: an agent that wakes up late may still start a process."""

IDLE_INTERVAL_S = 0.5
INSTANCES = "systems"


def kill_instances(folder: Path) -> bool:
    """Kill all processes of all instances; returns whether none was left."""
    files = BackendDir(folder / INSTANCES)
    confinement = Confinement()
    for system_ref in files.systems():
        for ref in files.services(system_ref):
            for directory in files.instance_dirs(ref):
                state = directory.state()
                if state is None:
                    continue
                if state.process is not None:
                    with suppress(PermissionError):
                        signal_group(state.process, signal.SIGKILL)
                if state.uid is not None:
                    with suppress(OSError):
                        confinement.kill(directory.folder, state.uid)
    had_containers = not kill_containers(folder)
    return kill_all_below(files.root) and not had_containers


def has_agent(folder: Path) -> bool:
    """Tell whether an agent may live: a number that another process has now only makes the watchdog stay."""
    try:
        holder = msgspec.json.decode((folder / "agent.json").read_bytes(), type=LockHolder)
    except (OSError, msgspec.DecodeError):
        return False
    return (PROC / str(holder.pid)).exists()


def watch(folder: Path) -> None:
    """Watch the lease until there is nothing more to watch."""
    lease, cleaner, idle_rounds = LeaseFile(folder), EngineCleaner(folder), 0
    while True:
        left = lease.end() - boot_clock()
        if left > 0:
            idle_rounds = 0
            cleaner.reset()
            time.sleep(min(left, LONGEST_SLEEP_S))
            continue
        has_killed = not kill_instances(folder)
        if has_killed:
            cleaner.reset()
        cleaner.work()
        is_needed = has_killed or not cleaner.is_clean or has_agent(folder)
        idle_rounds = 0 if is_needed else idle_rounds + 1
        if idle_rounds > 1:
            return
        time.sleep(KILL_INTERVAL_S if has_killed or idle_rounds == 0 else IDLE_INTERVAL_S)


def main(folder: Path) -> None:
    """Take the lock, and watch; of two watchdogs, the second one ends."""
    os.umask(0o077)
    if try_lock_file(folder / "watchdog.lock") is None:
        return
    write_record(folder / WATCHDOG_FILE, process_of(os.getpid()))
    watch(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
