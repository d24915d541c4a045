"""How a process tells the one that started it that it is there."""

import sys
import time

READY = "ready"


def announce() -> None:
    """Say that this process is there, and since when."""
    sys.stdout.write(f"{READY} {time.time()}\n")
    sys.stdout.flush()
