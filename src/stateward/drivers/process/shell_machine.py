"""The machine of the process driver: one small shell that waits for jobs; and the sizes of machines.

The shell leads a session and starts jobs as its children, so that every job is suspended, resumed and ended with the
machine. It reads the jobs from a named pipe, which it holds open at both ends, so it never sees an end of file. The
program is passed as text and not as a file, because a shell would go on reading a file that an upgrade replaces.

A size is a name, or `{processors}c{memory}m` or `...g`.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from stateward.drivers.process.machine_dir import MachineRecord
from stateward.workloads.confinement import Confinement, Sandbox

SIZE_PATTERN = re.compile(r"([1-9][0-9]{0,2})c([1-9][0-9]{0,6})([mg])")


class MachineSize(Struct, frozen=True):
    """The size of a machine."""

    processors: int
    mib: int


NAMED_SIZES = {
    "tiny":   MachineSize(1, 8),
    "small":  MachineSize(1, 64),
    "medium": MachineSize(2, 256),
    "large":  MachineSize(4, 1024),
}  # fmt: skip


def size_of(spec: str) -> MachineSize | None:
    """Return the size that a spec means, or None."""
    if spec in NAMED_SIZES:
        return NAMED_SIZES[spec]
    if not (match := SIZE_PATTERN.fullmatch(spec)):
        return None
    return MachineSize(int(match[1]), int(match[2]) * (1024 if match[3] == "g" else 1))


SHELL = "/bin/sh"
PROGRAM = """
cd "$1/work" || exit 1
exec 3<>"$1/asked"
echo "up $2"
while read -r job <&3; do
    if [ -f "$job" ]; then sh "$job" </dev/null 3<&- & fi
done
"""


def mark_of(record: MachineRecord) -> str:
    """Return the argument that identifies the process of a machine; each boot has another."""
    return f"{record.native_id}/{record.boot}"


class ShellMachine:
    """The command, environment and files of a process machine."""

    def __init__(self, confinement: Confinement) -> None:
        self._confinement = confinement

    def mark(self, record: MachineRecord) -> str:
        """Return the argument that identifies its process."""
        return mark_of(record)

    def command(self, record: MachineRecord, box: Sandbox) -> Sequence[str]:
        """Return the command to start."""
        return [SHELL, "-c", PROGRAM, self.mark(record), str(box.home), str(record.boot)]

    def environment(self, record: MachineRecord, box: Sandbox) -> Mapping[str, str]:
        """Return the environment of the command: the machine's own, without any secret of ours."""
        return {**box.environment(), "STATEWARD_KEY": record.key, "STATEWARD_NAME": record.name}

    def prepare(self, folder: Path) -> Sandbox:
        """Create its working folder and the pipe for jobs, and return the sandbox of both."""
        (folder / "jobs").mkdir(mode=0o700, exist_ok=True)
        if not (folder / "asked").exists():
            os.mkfifo(folder / "asked", 0o600)
        return self._confinement.create_sandbox(folder, ("work", "tmp", "jobs", "asked"))

    def start(self, box: Sandbox, start: Callable[[], int]) -> int:
        """Start it, confined."""
        return self._confinement.run(box, start)

    def end(self, record: MachineRecord, folder: Path) -> None:
        """Kill every process of its user, and release the user."""
        if record.uid is not None:
            self._confinement.end(folder, record.uid)
