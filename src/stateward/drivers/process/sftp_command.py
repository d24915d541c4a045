"""The command that serves SFTP inside a machine: our SFTP server, in whatever Python the machine can run.

It runs as a job of the machine, so it reads and writes exactly what the machine can.
"""

import sys
from functools import cache
from importlib import resources
from pathlib import Path
from shlex import quote

INTERPRETERS = ("/usr/bin/python3", "/usr/local/bin/python3")
"""Used where the machine's user cannot reach our own interpreter."""


@cache
def sftp_command() -> str:
    """Return the command, a script for `sh`."""
    program = quote(resources.files(__package__).joinpath("sftp_program.py").read_text(encoding="utf-8"))
    own = str(Path(sys.executable).resolve())
    choices = " ".join(quote(interpreter) for interpreter in (own, *INTERPRETERS))
    start = f'for one in {choices}; do if [ -x "$one" ]; then exec "$one" -I -S -c {program}; fi; done'
    return f"{start}\necho 'SFTP needs Python 3 on this host' >&2\nexit 127\n"
