"""A machine of the process driver: one small shell, waiting.

It leads a session of its own and starts what is asked of it as its own children, so that whatever runs on the machine
is suspended, resumed and ended with it. It is asked through a named pipe, which it holds open at both ends so that it
never ends. The program is given as text and not as a file, because a shell goes on reading a file that is changed
under it when we are upgraded.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from stateward.drivers.confinement import Confinement, Sandbox
from stateward.drivers.process.machine_dir import MachineRecord

SIZE_PATTERN = re.compile(r"([1-9][0-9]{0,2})c([1-9][0-9]{0,6})([mg])")


class MachineSize(Struct, frozen=True):
    """How large a machine is."""

    processors: int
    mib: int


NAMED_SIZES = {
    "tiny":   MachineSize(1, 8),
    "small":  MachineSize(1, 64),
    "medium": MachineSize(2, 256),
    "large":  MachineSize(4, 1024),
}  # fmt: skip


def size_of(spec: str) -> MachineSize | None:
    """Return the size that a spec means, if it means one."""
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


class ShellMachine:
    """What a process machine is made of."""

    def __init__(self, confinement: Confinement) -> None:
        self._confinement = confinement

    def mark(self, record: MachineRecord) -> str:
        """Return the argument by which its process is known: another one at each boot."""
        return f"{record.native_id}/{record.boot}"

    def command(self, record: MachineRecord, box: Sandbox) -> Sequence[str]:
        """Return what is to be started."""
        return [SHELL, "-c", PROGRAM, self.mark(record), str(box.home), str(record.boot)]

    def environment(self, record: MachineRecord, box: Sandbox) -> Mapping[str, str]:
        """Return the environment of what is started: the machine's own, and no secret of ours."""
        return {**box.environment(), "STATEWARD_KEY": record.key, "STATEWARD_NAME": record.name}

    def prepare(self, folder: Path) -> Sandbox:
        """Lay out its working folder and the pipe through which it is asked, and confine it to them."""
        (folder / "jobs").mkdir(mode=0o700, exist_ok=True)
        if not (folder / "asked").exists():
            os.mkfifo(folder / "asked", 0o600)
        return self._confinement.create_sandbox(folder, ("work", "tmp", "jobs", "asked"))

    def start(self, box: Sandbox, start: Callable[[], int]) -> int:
        """Start it, confined."""
        return self._confinement.run(box, start)

    def end(self, record: MachineRecord, folder: Path) -> None:
        """Kill what it has started, wherever that has gone to; its user is free for others."""
        if record.uid is not None:
            self._confinement.end(folder, record.uid)
