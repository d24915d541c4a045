"""The unmodified `blazar` command, called many times: its imports take a second, and are paid once.

python -m tests.acceptance.blazar_process

Each line of its input is a call: its words, as JSON. Each runs in a process of its own, forked after the imports. The
line of output is what became of it: the exit status, and what was written to the standard output and the error output.
"""

import json
import os
import sys
from tempfile import TemporaryFile

from blazarclient.shell import main


def call(words: list[str]) -> tuple[int, str, str]:
    """Call the command."""
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        pid = os.fork()
        if not pid:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            sys.argv = ["blazar", *words]
            code = 1
            try:
                code = main(words) or 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        output.seek(0)
        errors.seek(0)
        return os.waitstatus_to_exitcode(status), output.read(), errors.read()


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(call(json.loads(line)))}\n")
        sys.stdout.flush()
