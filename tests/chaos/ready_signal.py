"""The signal of a started process to its parent: one line on its standard output."""

import sys
import time

READY = "ready"


def announce() -> None:
    """Say that this process is there, and since when."""
    sys.stdout.write(f"{READY} {time.time()}\n")
    sys.stdout.flush()
