"""Cron schedules: five fields, and the times that they name in a time zone (pure).

    minute hour day month weekday       30 3 * * mon-fri        */5 * * * *

A field is `*`, a number, a range or a list of them; `/` takes every n-th value of a range. If both the day and the
weekday are restricted, either is enough, as in every cron. Where clocks change, a schedule that names hours runs once:
at the end of the gap for a time that the clocks skip, and at the first of two equal times. A schedule of every hour
follows the hours as they pass.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from errno import EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR
from math import inf
from zoneinfo import ZoneInfo, available_timezones

from msgspec import Struct

from stateward.domains.systems.errors import TimeZoneUnreadable
from stateward.errors import BadInput

MINUTE = timedelta(minutes=1)
SEARCH_YEARS = 9
"""How far ahead a time is looked for: two leap days can be eight years apart."""

SEARCH_WINDOWS_S = (3_600.0, 86_400.0, 32 * 86_400.0, inf)
"""In which the last time before an instant is looked for, the shortest first."""

NO_SUCH_ZONE = frozenset({EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR})
"""The errors of a name that is no file of the tz database."""

ITEM = re.compile(r"(?:\*|(?P<low>[0-9a-z]+)(?:-(?P<high>[0-9a-z]+))?)(?:/(?P<step>[0-9]{1,2}))?")
MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTHS = {name: number for number, name in enumerate(MONTH_NAMES, 1)}
WEEKDAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}


class CronField(Struct, frozen=True):
    """A field of a schedule: its name, its least and its greatest value, and the names of values."""

    name: str
    least: int
    most: int
    names: Mapping[str, int] = {}


# fmt: off
FIELDS = (
    CronField("minute",  0, 59),
    CronField("hour",    0, 23),
    CronField("day",     1, 31),
    CronField("month",   1, 12, MONTHS),
    CronField("weekday", 0, 7,  WEEKDAYS),
)
# fmt: on


class CronSchedule(Struct, frozen=True):
    """The values of each field; `any_day` and `any_weekday`: the field begins with `*`, and restricts nothing alone."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def next_after(self, after: float, zone: tzinfo = UTC) -> float | None:
        """Return the first time after an instant; None if there is none for years."""
        at = datetime.fromtimestamp(after // 60 * 60, UTC) + MINUTE
        last_year = at.year + SEARCH_YEARS
        while at.year <= last_year:
            local = at.astimezone(zone)
            if self._names_skipped_time(at, local, zone):
                return at.timestamp()
            if local.month not in self.months:
                first = local.replace(day=1, hour=0, minute=0, fold=0) + timedelta(days=32)
                at = max(at + MINUTE, first.replace(day=1).astimezone(UTC))
            elif not self._is_day(local):
                midnight = local.replace(hour=0, minute=0, fold=0) + timedelta(days=1)
                at = max(at + MINUTE, midnight.astimezone(UTC))
            elif local.hour not in self.hours or (local.fold and not self._is_hourly):
                at += (60 - local.minute) * MINUTE
            elif local.minute not in self.minutes:
                at += MINUTE
            else:
                return at.timestamp()
        return None

    def last_until(self, first: float, now: float, zone: tzinfo = UTC) -> float:
        """Return the last time up to now; `first` is one of them."""
        for window in SEARCH_WINDOWS_S:
            found, later = first, self.next_after(max(first, now - window), zone)
            while later is not None and later <= now:
                found, later = later, self.next_after(later, zone)
            if found != first:
                return found
        return first

    @property
    def _is_hourly(self) -> bool:
        return len(self.hours) == 24

    def _is_day(self, local: datetime) -> bool:
        is_day, is_weekday = local.day in self.days, local.isoweekday() % 7 in self.weekdays
        return is_day and is_weekday if self.any_day or self.any_weekday else is_day or is_weekday

    def _names_skipped_time(self, at: datetime, local: datetime, zone: tzinfo) -> bool:
        """Tell whether the clocks have just skipped a time of the schedule."""
        before = (at - MINUTE).astimezone(zone)
        gap = (local.utcoffset() or timedelta()) - (before.utcoffset() or timedelta())
        if self._is_hourly or gap <= timedelta():
            return False
        times = (local - gap + number * MINUTE for number in range(gap // MINUTE))
        return any(self._is_match(one) for one in times)

    def _is_match(self, local: datetime) -> bool:
        is_time = local.minute in self.minutes and local.hour in self.hours
        return is_time and local.month in self.months and self._is_day(local)


def parse_cron(text: str) -> CronSchedule:
    """Read a schedule of five fields, or raise."""
    words = text.lower().split()
    if len(words) != len(FIELDS):
        raise BadInput("schedule", text, f"five fields ({' '.join(one.name for one in FIELDS)}), not {len(words)}")
    minutes, hours, days, months, weekdays = (
        frozenset(_values(text, field, word)) for field, word in zip(FIELDS, words, strict=True)
    )
    any_day, any_weekday = words[2].startswith("*"), words[4].startswith("*")
    weekdays = frozenset(one % 7 for one in weekdays)
    schedule = CronSchedule(minutes, hours, days, months, weekdays, any_day, any_weekday)
    if schedule.next_after(0.0) is None:
        raise BadInput("schedule", text, "a schedule with a time: no such day ever comes")
    return schedule


def _values(text: str, field: CronField, word: str) -> Iterator[int]:
    for item in word.split(","):
        found = ITEM.fullmatch(item)
        if found is None:
            raise _wrong(text, field, item)
        low = field.least if found["low"] is None else _value(text, field, found["low"])
        high = _value(text, field, found["high"]) if found["high"] else field.most if found["low"] is None else low
        step = int(found["step"] or 1)
        is_range = found["low"] is None or found["high"] is not None
        if low > high or step < 1 or (found["step"] and not is_range):
            raise _wrong(text, field, item)
        yield from range(low, high + 1, step)


def _value(text: str, field: CronField, word: str) -> int:
    value = field.names[word] if word in field.names else int(word) if word.isdecimal() and len(word) < 3 else -1
    if not field.least <= value <= field.most:
        raise _wrong(text, field, word)
    return value


def _wrong(text: str, field: CronField, item: str) -> BadInput:
    names = f" or {'/'.join(field.names)}" if field.names else ""
    values = f"numbers from {field.least} to {field.most}{names}"
    allowed = (
        f"a schedule whose {field.name} has *, {values}, ranges, lists with commas, or steps like */5, not {item!r}"
    )
    return BadInput("schedule", text, allowed)


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
