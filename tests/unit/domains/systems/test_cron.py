"""Cron schedules: what they say, the times that they name, and where clocks change."""

from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.systems.cron import EPOCH, parse_cron, time_zone
from stateward.errors import BadInput

BERLIN = "Europe/Berlin"


def stamp(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def times(schedule: str, after: str, count: int, zone: str = "UTC") -> list[str]:
    """Return the next times of a schedule, in UTC."""
    at: float | None = stamp(after)
    found = []
    for _ in range(count):
        assert at is not None
        at = parse_cron(schedule).next_after(at, time_zone(zone))
        assert at is not None
        found.append(datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("* * * * *", ["11-17 19:01", "11-17 19:02"]),
        ("*/20 * * * *", ["11-17 19:20", "11-17 19:40"]),
        ("5-15/5 20 * * *", ["11-17 20:05", "11-17 20:10"]),
        ("0 3 * * *", ["11-18 03:00", "11-19 03:00"]),
        ("0 0,12 1 * *", ["12-01 00:00", "12-01 12:00"]),
        ("30 4 * * mon-fri", ["11-18 04:30", "11-19 04:30"]),
        ("0 0 * * 7", ["11-22 00:00", "11-29 00:00"]),  # 7 and 0 are both Sunday
        ("0 0 * * SUN", ["11-22 00:00", "11-29 00:00"]),
        ("0 0 * * 5-7", ["11-20 00:00", "11-21 00:00"]),
        ("0 0 1 JAN *", ["01-01 00:00", "01-01 00:00"]),
        ("0 0 13 * fri", ["11-20 00:00", "11-27 00:00"]),  # either is enough: the 13th, or a Friday
        ("0 0 */2 * fri", ["11-27 00:00", "12-11 00:00"]),  # `*` restricts nothing by itself: an odd Friday
        ("0 0 29 2 *", ["02-29 00:00", "02-29 00:00"]),
        ("0 0 31 * *", ["12-31 00:00", "01-31 00:00"]),
        ("0 0 L * *", ["11-30 00:00", "12-31 00:00"]),
        ("0 0 * * fri#2", ["12-11 00:00", "01-08 00:00"]),
        ("0 0 * * 5L", ["11-27 00:00", "12-25 00:00"]),
    ],
)
def test_a_schedule_names_its_times(schedule: str, expected: list[str]) -> None:
    assert times(schedule, "2026-11-17T19:00:30", 2) == expected


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("", "five fields (minute hour day month weekday), not 0"),
        ("@daily", "not 1"),
        ("* * * * * *", "not 6"),
        ("60 * * * *", "whose minute has *, numbers from 0 to 59, ranges"),
        ("* 24 * * *", "whose hour"),
        ("* * 0 * *", "whose day"),
        ("* * * 13 *", "numbers from 1 to 12 or jan/feb"),
        ("* * * * 8", "whose weekday"),
        ("* * * * monday", "not 'monday'"),
        ("10-5 * * * *", "not '10-5'"),
        ("*/0 * * * *", "not '*/0'"),
        ("1,,2 * * * *", "not '1,,2'"),
        ("-1 * * * *", "not '-1'"),
        ("1.5 * * * *", "not '1.5'"),
        ("٣ * * * *", "whose minute"),
        ("? * * * *", "not '?'"),
        ("0 0 30 2 *", "no such day ever comes"),
        ("0 0 31 4,6,9,11 *", "no such day ever comes"),
        ("0 0 */31 * sun#5", "no such day ever comes"),
    ],
)
def test_a_wrong_schedule_is_refused_with_the_field_and_what_is_allowed(schedule: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_cron(schedule)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "name", ["Europe/Berlim", "", "../etc/passwd", "Europe", "/etc/localtime", "CET\0", "leapseconds", "localtime"]
)
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="time zone"):
        time_zone(name)


def test_a_time_that_the_clocks_skip_comes_at_the_end_of_the_gap() -> None:
    # 2027-03-28: 02:00 becomes 03:00 in Berlin, at 01:00 UTC
    assert times("30 2 * * *", "2027-03-27T00:00", 3, BERLIN) == ["03-27 01:30", "03-28 01:00", "03-29 00:30"]
    assert times("0 2,3 * * *", "2027-03-28T00:00", 2, BERLIN) == ["03-28 01:00", "03-29 00:00"]
    assert times("30 * * * *", "2027-03-28T00:00", 3, BERLIN) == ["03-28 00:30", "03-28 01:30", "03-28 02:30"]
    assert times("*/20 2 * * *", "2027-03-28T00:00", 2, BERLIN) == ["03-28 01:00", "03-29 00:00"]
    assert times("0 */2 * * *", "2027-03-28T00:00", 2, BERLIN) == ["03-28 01:00", "03-28 02:00"]
    assert times("30 0-23 * * *", "2027-03-28T00:00", 2, BERLIN) == ["03-28 00:30", "03-28 01:30"]
    # São Paulo began its summer at midnight
    assert times("30 0 4 11 *", "2018-11-01T00:00", 1, "America/Sao_Paulo") == ["11-04 03:00"]


def test_a_time_that_comes_twice_runs_once_unless_every_hour_runs() -> None:
    # 2026-10-25: 03:00 becomes 02:00 in Berlin, at 01:00 UTC
    assert times("30 2 * * *", "2026-10-24T12:00", 2, BERLIN) == ["10-25 00:30", "10-26 01:30"]
    assert times("30 * * * *", "2026-10-25T00:00", 3, BERLIN) == ["10-25 00:30", "10-25 01:30", "10-25 02:30"]
    assert times("*/30 2 * * *", "2026-10-24T23:00", 3, BERLIN) == ["10-25 00:00", "10-25 00:30", "10-26 01:00"]


def test_the_last_time_until_now_is_found_however_long_ago_the_first_was() -> None:
    every_minute, yearly = parse_cron("* * * * *"), parse_cron("0 0 1 1 *")
    assert every_minute.last_until(stamp("2001-01-01T00:00"), stamp("2026-11-17T19:00:30")) == stamp("2026-11-17T19:00")
    assert yearly.last_until(stamp("2024-01-01T00:00"), stamp("2026-11-17T19:00")) == stamp("2026-01-01T00:00")
    assert yearly.last_until(stamp("2026-01-01T00:00"), stamp("2026-11-17T19:00")) == stamp("2026-01-01T00:00")


def field_words(least: int, most: int) -> st.SearchStrategy[str]:
    pairs = st.tuples(st.integers(least, most), st.integers(least, most)).map(sorted)
    items = st.one_of(
        st.just("*"),
        st.integers(least, most).map(str),
        pairs.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.tuples(pairs, st.integers(1, 30)).map(lambda one: f"{one[0][0]}-{one[0][1]}/{one[1]}"),
        st.integers(1, 30).map(lambda step: f"*/{step}"),
    )
    return st.lists(items, min_size=1, max_size=3).map(",".join)


SCHEDULES = st.tuples(*map(field_words, (0, 0, 1, 1, 0), (59, 23, 31, 12, 7))).map(" ".join)
ZONES = st.sampled_from(["UTC", BERLIN, "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo"])


def is_named(fields: CronSim, at: float, zone: tzinfo) -> bool:
    """Tell by the definition whether a schedule names a minute: also one at the end of a gap that held a named one."""
    local = datetime.fromtimestamp(at, zone)
    before = datetime.fromtimestamp(at - 60, zone)
    walls = [local]
    hourly = len(fields.hours) == 24
    if not hourly:
        skipped = local.replace(tzinfo=None) - before.replace(tzinfo=None) - timedelta(minutes=1)
        walls += [local - timedelta(minutes=1 + number) for number in range(max(0, skipped // timedelta(minutes=1)))]

    def fits(wall: datetime) -> bool:
        is_hour = wall.hour in fields.hours and wall.minute in fields.minutes
        return is_hour and wall.month in fields.months and fields.match_day(wall) and (hourly or not wall.fold)

    return any(map(fits, walls))


@given(SCHEDULES, ZONES, st.datetimes(datetime(1995, 1, 1), datetime(2035, 1, 1)), st.booleans())
def test_no_time_comes_between_two_times(text: str, name: str, around: datetime, at_change: bool) -> None:
    try:
        schedule = parse_cron(text)
    except BadInput as error:
        assert "no such day" in str(error)  # noqa: PT017
        return
    zone = time_zone(name)
    after = around.replace(tzinfo=UTC).timestamp()
    if at_change:  # most changes of clocks are on Sundays at the end of a month: begin shortly before one
        after = around.replace(month=(3, 10)[around.second % 2], day=25, hour=0, tzinfo=UTC).timestamp()
    found = schedule.next_after(after, zone)
    assert found is not None
    assert found > after
    fields = CronSim(text, EPOCH)
    assert is_named(fields, found, zone)
    checked = range(int(after // 60 * 60 + 60), int(min(found, after + 4 * 86_400)), 60)
    assert not any(is_named(fields, at, zone) for at in checked)


@given(st.text(max_size=30) | st.text("0123456789*/-, amonj", max_size=30))
def test_any_text_is_a_schedule_or_is_refused(text: str) -> None:
    try:
        schedule = parse_cron(text)
    except BadInput:
        return
    assert schedule.next_after(0.0) is not None
