"""Times, numbers and names of hosts in the requests and answers of the API.

Times are UTC, to the minute in requests and to the microsecond in answers. Numbers are JSON integers, or text in plain
decimal digits.

Python's `int` and `float` also read `1_0`, `+2`, `02`, ` 10 `, digits of other scripts and `nan`. A client that sends
one of these made a mistake, and a number below zero books a host twice. So every number of the domain is read here,
with bounds.
"""

import re
from datetime import UTC, datetime

from stateward.domains.leases.errors import BlazarBadInput
from stateward.errors import BadInput
from stateward.naming import check_text

MAX_COUNT = 1_000_000
"""The largest number of hosts or instances that a reservation can ask for."""

MAX_SIZE = 1_000_000_000
"""The largest size of a host or an instance, in vCPUs, MiB or GiB."""

MAX_CLEANING_MINUTES = 366 * 24 * 60
"""The longest cleaning time of a host, in minutes: a year."""

MAX_HOST_NAME_LENGTH = 200
RESERVED_HOST_NAMES = (".", "..", "allocations", "properties")
"""HTTP clients resolve the first two, and the others are lists next to the hosts: no request could name the host."""

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


def check_host_name(field: str, name: str) -> None:
    """Raise BadInput unless a host of this name could be asked for."""
    check_text(field, name, 1, MAX_HOST_NAME_LENGTH, without="/")
    if name in RESERVED_HOST_NAMES:
        raise BadInput(field, name, f"another name than {', '.join(RESERVED_HOST_NAMES)}")


def parse_decimal(text: str) -> float | None:
    """Return the number in a text, or None if the text is not a number."""
    return float(text) if _DECIMAL.fullmatch(text) else None


NOW = "now"
MINUTE_FORMAT = "%Y-%m-%d %H:%M"
ANSWER_FORMAT = "%Y-%m-%dT%H:%M:%S.%f"
ACCEPTED_FORMATS = (MINUTE_FORMAT, ANSWER_FORMAT, "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S")
TIME_CHARACTERS = re.compile(r"[0-9T:. -]{1,32}")
"""The characters of a time; `strptime` also reads digits of other scripts and line breaks."""

LATEST_TIME = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""The latest accepted time: Python's dates end with the year 9999."""

DATE_ONLY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
TIME_EXAMPLE = "such as '2030-01-31 14:00', or 'now'"


def read_time(field: str, text: object, now: float) -> float:
    """Read a time; raises BlazarBadInput for anything else."""
    if text == NOW:
        return now
    moment = _parse_time(text) if isinstance(text, str) and TIME_CHARACTERS.fullmatch(text) else None
    if moment is None or not 0 < moment < LATEST_TIME:
        raise BlazarBadInput(
            f"{text} is an invalid date. Required format: {MINUTE_FORMAT}", field, text, _allowed(text, moment)
        )
    return moment


def _allowed(text: object, moment: float | None) -> str:
    """Return what a refused time must be."""
    if moment is not None:
        return f"a time after 1970 and before the year 9999, {TIME_EXAMPLE}"
    if isinstance(text, str) and DATE_ONLY.fullmatch(text):
        return f"a date with its time of day, such as '{text} 14:00', or 'now'"
    return f"a time that the calendar has, {TIME_EXAMPLE}"


def _parse_time(text: str) -> float | None:
    for form in ACCEPTED_FORMATS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None


def format_time(time: float | None) -> str | None:
    """Return a time as it is written in answers."""
    return None if time is None else datetime.fromtimestamp(time, UTC).strftime(ANSWER_FORMAT)


def format_minute(time: float) -> str:
    """Return a time to the minute."""
    return datetime.fromtimestamp(time, UTC).strftime(MINUTE_FORMAT)
