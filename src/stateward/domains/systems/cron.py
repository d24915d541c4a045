"""Cron schedules: five fields, and the times that they name in a time zone (pure).

    minute hour day month weekday       30 3 * * mon-fri        */5 * * * *

They are read and evaluated by cronsim, which follows Debian's cron. Where clocks change, a schedule that names hours
runs once: at the end of the gap for a time that the clocks skip, and at the first of two equal times. A schedule of
every hour follows the hours as they pass. Cron, and cronsim with it, tells the two apart by a `*` at the beginning of a
field; here the hours themselves count, so that `*/20 2 * * *` has a time at each change of clocks, too.
"""

from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from errno import EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR
from math import inf
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from msgspec import Struct

from stateward.domains.systems.errors import TimeZoneUnreadable
from stateward.errors import BadInput

SEARCH_WINDOWS_S = (3_600.0, 86_400.0, 32 * 86_400.0, inf)
"""In which the last time before an instant is looked for, the shortest first."""

NO_SUCH_ZONE = frozenset({EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR})
"""The errors of a name that is no file of the tz database."""

EPOCH = datetime.fromtimestamp(0, UTC)

FIELDS = {
    "minute": "numbers from 0 to 59",
    "hour": "numbers from 0 to 23",
    "day": "numbers from 1 to 31, L for the last day",
    "month": "numbers from 1 to 12 or jan/feb/mar/apr/may/jun/jul/aug/sep/oct/nov/dec",
    "weekday": "numbers from 0 to 7 or sun/mon/tue/wed/thu/fri/sat, fri#2 for the second Friday, 5L for the last one",
}


class CronSchedule(Struct, frozen=True):
    """A schedule, written so that cronsim treats it as one of every hour exactly if it is one."""

    text: str

    def next_after(self, after: float, zone: tzinfo = UTC) -> float | None:
        """Return the first time after an instant; None if there is none for years."""
        times = CronSim(self.text, datetime.fromtimestamp(after, zone))
        # On the second pass through an hour that comes twice, times of the first pass are found once more.
        return next((at for at in (time.timestamp() for time in times) if at > after), None)

    def last_until(self, first: float, now: float, zone: tzinfo = UTC) -> float:
        """Return the last time up to now; `first` is one of them."""
        for window in SEARCH_WINDOWS_S:
            latest, later = first, self.next_after(max(first, now - window), zone)
            while later is not None and later <= now:
                latest, later = later, self.next_after(later, zone)
            if latest != first:
                return latest
        return first


def parse_cron(text: str) -> CronSchedule:
    """Read a schedule of five fields, or raise."""
    words = text.split()
    if len(words) != len(FIELDS):
        raise BadInput("schedule", text, f"five fields ({' '.join(FIELDS)}), not {len(words)}")
    for number, (field, values) in enumerate(FIELDS.items()):
        if not _is_valid(" ".join(["*"] * number + [words[number]] + ["*"] * (len(FIELDS) - number - 1))):
            allowed = f"a schedule whose {field} has *, {values}, ranges, lists with commas, or steps like */5"
            raise BadInput("schedule", text, f"{allowed}, not {words[number]!r}")
    if not _is_valid(" ".join(words)):
        raise BadInput("schedule", text, "a schedule with a time: no such day ever comes")
    minute, hour, *rest = words
    is_hourly = len(CronSim(" ".join(words), EPOCH).hours) == 24
    if is_hourly:
        return CronSchedule(" ".join([minute, "*", *rest]))
    return CronSchedule(" ".join([_without_star(minute, 59), _without_star(hour, 23), *rest]))


def _is_valid(schedule: str) -> bool:
    try:
        return next(CronSim(schedule, EPOCH), None) is not None
    except CronSimError:
        return False


def _without_star(word: str, most: int) -> str:
    return f"0-{most}{word[1:]}" if word.startswith("*") else word


def time_zone(name: str) -> tzinfo:
    """Return a time zone by its name in the tz database, or raise; a host may be unable to read it for a while."""
    if name == "UTC":
        return UTC
    try:
        if name != "localtime":  # that of the host: each server might have another one
            return ZoneInfo(name)
    except (LookupError, ValueError):
        pass
    except OSError as error:
        if error.errno not in NO_SUCH_ZONE:
            raise TimeZoneUnreadable(name, error.strerror or type(error).__name__) from error
    nearest = get_close_matches(name, available_timezones(), 1)
    meant = f" (did you mean {nearest[0]}?)" if nearest else ""
    raise BadInput("time_zone", name, f"a time zone of the tz database, such as UTC or Europe/Berlin{meant}")
