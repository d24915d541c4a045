"""Names that nobody else has."""

from os import urandom
from time import time_ns


def new_id() -> str:
    """Return a new id: 32 hexadecimal digits, the first of which tell the time.

    Later ids sort behind earlier ones. New rows then come to stand at the end of an index, on pages that are in memory
    and are written together, however many rows there are already.
    """
    return f"{time_ns() // 1_000_000:012x}{urandom(10).hex()}"
