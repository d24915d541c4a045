"""A machine of the process driver: one small shell, waiting.

It leads a session of its own and starts what is asked of it as its own children, so that whatever runs on the machine
is suspended, resumed and ended with it. It is asked through a named pipe, which it holds open at both ends so that it
never ends. The program is given as text and not as a file, because a shell goes on reading a file that is changed
under it when we are upgraded.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from stateward.drivers.process.record import Record

SHELL = "/bin/sh"
PROGRAM = """
cd "$1/work" || exit 1
exec 3<>"$1/asked"
echo "up $2"
while read -r job <&3; do
    if [ -f "$job" ]; then sh "$job" </dev/null 3<&- & fi
done
"""


class Shell:
    """What a process machine is made of."""

    def mark(self, record: Record) -> str:
        """Return the argument by which its process is known: another one at each boot."""
        return f"{record.native_id}/{record.boot}"

    def command(self, record: Record, folder: Path) -> Sequence[str]:
        """Return what is to be started."""
        return [SHELL, "-c", PROGRAM, self.mark(record), str(folder), str(record.boot)]

    def environment(self, record: Record, folder: Path) -> Mapping[str, str]:
        """Return the environment of what is started: the machine's own, and no secret of ours."""
        passed = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
        own = {"HOME": str(folder / "work"), "STATEWARD_KEY": record.key, "STATEWARD_NAME": record.name}
        return {"PATH": "/usr/local/bin:/usr/bin:/bin"} | passed | own

    def prepare(self, folder: Path) -> None:
        """Lay out its working folder and the pipe through which it is asked."""
        (folder / "work").mkdir(exist_ok=True)
        (folder / "jobs").mkdir(exist_ok=True)
        if not (folder / "asked").exists():
            os.mkfifo(folder / "asked", 0o600)
