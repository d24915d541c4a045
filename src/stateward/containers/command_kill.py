"""The end of a command in a container that is given up.

Engines start commands and have no call to end them. So each command has a mark in its environment, which its
descendants inherit, and is killed by that mark:

- on this host, if the engine is here: by `/proc`, with the process id that the engine tells, and all descendants;
- in the container, by a shell of its image: this also serves engines elsewhere.

A mark is a random number. So nothing else is killed, whatever the process ids mean on the host of the engine.
"""

import os
import signal
import time
from secrets import token_hex

from stateward.procfs import descendants_of, find_by_environment, process_of, read_proc

MARK_VARIABLE = "STATEWARD_EXEC"
ROUNDS, PAUSE_S = 100, 0.02
"""How often processes are looked for: one that forks while it is killed, or a busy host, needs more rounds."""

KILL_SCRIPT = """
mark=$1
round=0
while [ $round -lt 200 ]; do
  round=$((round + 1))
  all=' '
  for file in /proc/[0-9]*/environ; do
    while read -r line || [ -n "$line" ]; do
      case "$line" in *"$mark"*) file=${file%/environ}; all="$all${file#/proc/} "; break;; esac
      line=
    done 2>/dev/null <"$file"
  done
  more=1
  while [ $more = 1 ]; do
    more=0
    for file in /proc/[0-9]*/stat; do
      read -r line 2>/dev/null <"$file" || continue
      set -- "${line%% *}" ${line##*) }
      case "$all" in *" $1 "*) continue;; esac
      case "$all" in *" $3 "*) [ "$2" = Z ] || { all="$all$1 "; more=1; };; esac
    done
  done
  [ "$all" = ' ' ] && exit 0
  for pid in $all; do kill -9 "$pid" 2>/dev/null; done
done
exit 1
"""
"""Kills the processes with the mark in their environment, and their descendants, by what every shell has of its own.

A shell's `read` leaves out the NULs between variables. The environment of a dead process is empty.
"""


def new_mark() -> str:
    """Return a mark for one command."""
    return token_hex(16)


def kill_argv(mark: str) -> tuple[str, ...]:
    """Return the command that kills another one in the same container, by its mark."""
    return ("sh", "-c", KILL_SCRIPT, "sh", f"{MARK_VARIABLE}={mark}")


def kill_on_host(mark: str, root: int, container: str) -> bool:
    """Kill a command with its descendants on this host; tells whether it was here and none of it is left.

    `root` is its process id as the engine tells it, or 0; it counts if it is in the container of this id.
    """
    was_here, variable = False, f"{MARK_VARIABLE}={mark}".encode()
    for _ in range(ROUNDS):
        roots = find_by_environment(lambda variables: variable in variables)
        if root and container and container.encode() in (read_proc(root, "cgroup") or b"") and process_of(root):
            roots.add(root)
        if not roots:
            return was_here
        was_here = True
        for pid in descendants_of(roots):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                return False
        time.sleep(PAUSE_S)
    return False
