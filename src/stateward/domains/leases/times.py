"""Times as the clients of leases write and read them: UTC, to the minute in requests, to the microsecond in answers."""

from datetime import UTC, datetime

from stateward.errors import BadInput

NOW = "now"
ASKED = "%Y-%m-%d %H:%M"
TOLD = "%Y-%m-%dT%H:%M:%S.%f"
READ = (ASKED, TOLD, "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S")
LATEST = datetime(2089, 1, 1, tzinfo=UTC).timestamp()


def read_time(field: str, text: object, now: float) -> float:
    """Read a time."""
    if not isinstance(text, str):
        raise BadInput(field, text, "a time such as '2030-01-31 14:00', or 'now'")
    if text == NOW:
        return now
    for form in READ:
        try:
            found = datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
        if 0 < found < LATEST:
            return found
    raise BadInput(field, text, "a time such as '2030-01-31 14:00', or 'now'")


def told_time(time: float | None) -> str | None:
    """Write a time."""
    return None if time is None else datetime.fromtimestamp(time, UTC).strftime(TOLD)


def short_time(time: float) -> str:
    """Write a time to the minute."""
    return datetime.fromtimestamp(time, UTC).strftime(ASKED)
