"""Numbers as the clients of leases write them: JSON integers, or text in plain decimal digits.

Python's `int` and `float` also read `1_0`, `+2`, `02`, ` 10 `, digits of other scripts and `nan`. A client that sends
one of these made a mistake, and a number below zero books a host twice. So every number of the domain is read here,
with bounds.
"""

import re

from stateward.errors import BadInput

MOST_COUNT = 1_000_000
"""The largest number of hosts or instances that a reservation can ask for."""

MOST_SIZE = 1_000_000_000
"""The largest size of a host or an instance, in vCPUs, MiB or GiB."""

MOST_MINUTES = 366 * 24 * 60
"""The longest cleaning time of a host, in minutes: a year."""

_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,300}(?:\.[0-9]{0,300})?|\.[0-9]{1,300})(?:[eE][+-]?[0-9]{1,3})?")


def read_whole_number(field: str, value: object, least: int, most: int) -> int:
    """Return a whole number between two bounds; raises BadInput for anything else."""
    match value:
        case bool():
            number = None
        case int():
            number = value
        case str():
            number = int(value) if _WHOLE.fullmatch(value) else None
        case _:
            number = None
    if number is None or not least <= number <= most:
        raise BadInput(field, value, f"a whole number from {least} to {most}, in plain decimal digits")
    return number


def parse_decimal(text: str) -> float | None:
    """Return the number that a text is, or None if it is none."""
    return float(text) if _DECIMAL.fullmatch(text) else None
