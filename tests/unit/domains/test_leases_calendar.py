from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stateward.domains.leases import host_pool, property_expressions
from stateward.domains.leases.bookings import Demand, booking_fits, earlier_bookings, occupied_spans
from stateward.domains.leases.calendar import HOUR_COUNT, HOUR_S, Calendar, merge_spans
from stateward.domains.leases.host_pool import HostPool
from stateward.domains.leases.lifecycle import HOST
from stateward.domains.leases.model import Booking, HostSeen, HostSpec, LeaseHost, Share
from stateward.store.records import Object

FIRSTS = st.sampled_from(
    [1_000_000_000.0, (HOUR_COUNT - 30.0) * HOUR_S, 200e9]
)  # now, at the end of the tree, and far beyond
TIMES = st.builds(lambda first, after: first + after, FIRSTS, st.integers(0, 60 * HOUR_S))
SPANS = st.tuples(TIMES, TIMES).map(lambda two: (min(two), max(two) + 60))
BOOKS = st.lists(st.lists(SPANS, max_size=4), min_size=1, max_size=6)


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


@given(BOOKS, SPANS)
def test_who_is_certainly_busy_is_busy_and_who_is_neither_certainly_nor_perhaps_is_free(
    books: list[list[tuple[float, float]]], wanted: tuple[float, float]
) -> None:
    calendar = Calendar()
    for host, spans_ in enumerate(books):
        calendar.write(host, spans_)
    certain, perhaps = calendar.busy(*wanted)
    for host, spans_ in enumerate(books):
        busy = any(overlap(span, wanted) for span in spans_)
        assert not certain >> host & 1 or busy
        assert not busy or (certain | perhaps) >> host & 1
    assert certain & perhaps == 0


@given(BOOKS, BOOKS, SPANS)
def test_what_is_written_anew_replaces_what_was_written_before(
    before: list[list[tuple[float, float]]], after: list[list[tuple[float, float]]], wanted: tuple[float, float]
) -> None:
    rewritten, fresh = Calendar(), Calendar()
    for host, spans_ in enumerate(before):
        rewritten.write(host, spans_)
    for host in range(max(len(before), len(after))):
        spans_ = after[host] if host < len(after) else []
        rewritten.write(host, spans_)
        fresh.write(host, spans_)
    assert rewritten.busy(*wanted) == fresh.busy(*wanted)


@given(st.lists(SPANS, max_size=8))
def test_merged_hours_have_nothing_in_common(found: list[tuple[float, float]]) -> None:
    hours = merge_spans(found)
    assert all(one[1] < other[0] for one, other in pairwise(hours))
    for start, end in found:
        touched = min(int(start) // HOUR_S, HOUR_COUNT - 1), min(-int(-end // HOUR_S), HOUR_COUNT)
        assert any(first <= touched[0] and touched[1] <= last for first, last in hours)


# --- bookings --------------------------------------------------------------------------------------------------------

SHARES = st.none() | st.builds(Share, st.integers(1, 4), st.integers(0, 4), st.just(0))
BOOKINGS = st.builds(
    lambda number, span, share: Booking(f"l{number}", f"r{number}", span[0], span[1], share),
    st.integers(0, 50),
    SPANS,
    SHARES,
)


def load(spec: HostSpec, bookings: list[Booking], at: float) -> tuple[int, int]:
    """Return how many whole bookings, and how many CPUs of shares, a moment has, cleaning included."""
    there = [one for one in bookings if one.start <= at < one.until + spec.cleaning]
    return sum(one.share is None for one in there), sum(one.share.vcpus for one in there if one.share is not None)


@given(st.lists(BOOKINGS, max_size=12), st.sampled_from([0.0, 600.0]))
def test_a_host_that_takes_only_what_fits_is_never_promised_twice(wanted: list[Booking], cleaning: float) -> None:
    spec = HostSpec("h", Share(8, 8, 8), cleaning=cleaning)
    kept: list[Booking] = []
    for one in wanted:
        if booking_fits(spec, kept, one):
            kept = [other for other in kept if other.reservation != one.reservation] + [one]
    for moment in {one.start for one in kept}:
        whole, vcpus = load(spec, kept, moment)
        assert (whole, vcpus) == (1, 0) or (whole == 0 and vcpus <= 8)


@given(st.lists(BOOKINGS, max_size=12), BOOKINGS)
def test_nothing_outside_of_all_spans_is_ever_refused(bookings: list[Booking], wanted: Booking) -> None:
    spec = HostSpec("h", Share(8, 8, 8), cleaning=300.0)
    free = not any(
        overlap((one.start, one.end), (wanted.start, wanted.until)) for one in occupied_spans(spec, bookings)
    )
    assert not free or booking_fits(spec, bookings, wanted)


# --- the pool --------------------------------------------------------------------------------------------------------


def host(
    name: str,
    bookings: list[Booking],
    version: int = 1,
    cleaning: float = 0.0,
    properties: dict[str, str] | None = None,
    *,
    removed: bool = False,
) -> LeaseHost:
    found = Object("ns", f"host-{name}", HOST.kind, "up", 0.0, version, 1, None, name, None, "{}", "{}", None, 0.0)
    spec = HostSpec(name, Share(8, 8, 8), properties=properties or {}, cleaning=cleaning)
    return LeaseHost(replace(found, removed=removed), spec, HostSeen(bookings=tuple(bookings)))


def kept_of(wanted: list[Booking]) -> list[Booking]:
    kept: list[Booking] = []
    for one in wanted:
        if booking_fits(HostSpec("h", Share(8, 8, 8)), kept, one):
            kept = [other for other in kept if other.reservation != one.reservation] + [one]
    return kept


@given(st.lists(st.lists(BOOKINGS, max_size=5), min_size=1, max_size=6), SPANS, st.integers(1, 4), SHARES)
def test_a_search_finds_exactly_what_asking_every_host_would_find(
    books: list[list[Booking]], wanted: tuple[float, float], most: int, share: Share | None
) -> None:
    pool, hosts = HostPool(), [host(f"h{number}", kept_of(bookings)) for number, bookings in enumerate(books)]
    for one in hosts:
        pool.put(one)
    demand = Demand(1, most, share, anti_affinity=True)
    booking = Booking("new", "new", *wanted, share)
    found = pool.search(demand, booking)
    able = {one.spec.name for one in hosts if booking_fits(one.spec, one.seen.bookings, booking)}
    assert set(found or {}) <= able
    assert len(found or {}) == min(most, len(able))


@pytest.mark.parametrize(
    ("after", "until", "is_found"), [(-2, -0.25, False), (-2, -0.5, True), (1.25, 3, False), (1.5, 3, True)]
)
def test_a_search_keeps_the_cleaning_time_before_and_after_each_booking(
    after: float, until: float, is_found: bool
) -> None:
    start, pool = 300_000.0 * HOUR_S, HostPool()
    pool.put(host("h1", [Booking("l", "r", start, start + HOUR_S)], cleaning=HOUR_S / 2))
    wanted = Booking("new", "new", start + after * HOUR_S, start + until * HOUR_S)
    assert (pool.search(Demand(1, 1), wanted) is not None) is is_found


def test_a_lease_does_not_wait_for_another_reservation_of_its_own() -> None:
    before, other = Booking("l", "r1", 0.0, HOUR_S), Booking("other", "r2", 0.0, HOUR_S)
    seen = HostSeen(bookings=(before, other))
    assert earlier_bookings(seen, Booking("l", "r3", HOUR_S, 2 * HOUR_S)) == [other]


def test_what_is_pencilled_in_is_not_found_again_until_it_is_erased() -> None:
    pool = HostPool()
    pool.put(host("h1", []))
    demand, booking = Demand(1, 1), Booking("l", "r", 1e9, 1e9 + HOUR_S)
    found = pool.search(demand, booking)
    assert found == {"h1": 1}
    pool.add_tentative(found, lambda _: booking)
    assert pool.search(demand, Booking("other", "other", 1e9, 1e9 + HOUR_S)) is None
    pool.remove_tentative(found, "r")
    assert pool.search(demand, booking) == {"h1": 1}


def test_erasing_one_reservation_leaves_what_others_have_pencilled_in_at_the_same_host() -> None:
    pool = HostPool()
    pool.put(host("h1", []))
    first, second = Booking("l", "r", 1e9, 1e9 + HOUR_S), Booking("m", "s", 1e9 + 2 * HOUR_S, 1e9 + 3 * HOUR_S)
    for one in (first, second):
        pool.add_tentative({"h1": 1}, lambda _, one=one: one)  # type: ignore[misc]
    pool.remove_tentative({"h1": 1}, "r")
    assert pool.search(Demand(1, 1), Booking("other", "other", second.start, second.until)) is None
    assert pool.search(Demand(1, 1), first) == {"h1": 1}


def test_an_older_word_about_a_host_does_not_count() -> None:
    pool = HostPool()
    taken = Booking("l", "r", 1e9, 1e9 + HOUR_S)
    pool.put(host("h1", [taken], version=5))
    pool.put(host("h1", [], version=4))
    assert pool.search(Demand(1, 1), Booking("x", "x", 1e9, 1e9 + 60)) is None
    assert pool.hosts_of("l") == {"h1"}


WANTED = Booking("x", "x", 1e9, 1e9 + HOUR_S)


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the expressions that are evaluated, once for each host."""
    parse, found = property_expressions.parse_expression, []

    def counted(field: str, text: str) -> property_expressions.HostTest:
        test = parse(field, text)

        def evaluate(properties: Mapping[str, str]) -> bool:
            found.append(text)
            return test(properties)

        return evaluate

    monkeypatch.setattr(property_expressions, "parse_expression", counted)
    return found


def demand_of(text: str) -> Demand:
    return Demand(1, 9, properties=(text,))


def test_a_host_is_tested_for_the_last_used_expressions_only(
    tested: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_pool, "MAX_EXPRESSIONS", 3)
    pool, texts = HostPool(), [f'["==", "$cpu", "c{number}"]' for number in range(10)]
    pool.put(host("h1", [], properties={"cpu": "c0"}))
    for text in texts:
        pool.search(demand_of(text), WANTED)
        pool.search(demand_of(texts[0]), WANTED)
    tested.clear()
    pool.put(host("h2", [], properties={"cpu": "c0"}))
    assert tested == [texts[8], texts[9], texts[0]]
    assert pool.search(demand_of(texts[0]), WANTED) == {"h1": 1, "h2": 1}
    assert pool.search(demand_of(texts[1]), WANTED) is None


def test_a_host_is_tested_again_only_if_its_properties_change(tested: list[str]) -> None:
    pool, text = HostPool(), '["==", "$cpu", "new"]'
    pool.put(host("h1", [], 1, properties={"cpu": "old"}))
    assert pool.search(demand_of(text), WANTED) is None
    tested.clear()
    pool.put(host("h1", [Booking("l", "r", 0.0, HOUR_S)], 2, properties={"cpu": "old"}))
    pool.add_tentative({"h1": 1}, lambda _: Booking("m", "s", 0.0, HOUR_S))
    pool.remove_tentative({"h1": 1}, "s")
    assert tested == []
    pool.put(host("h1", [], 3, properties={"cpu": "new"}))
    assert pool.search(demand_of(text), WANTED) == {"h1": 1}
    assert tested == [text]


def test_a_new_host_takes_the_number_of_a_removed_one_and_nothing_else_of_it() -> None:
    pool, text = HostPool(), '["==", "$cpu", "c"]'
    pool.put(host("h1", [replace(WANTED, lease="l", reservation="r")], properties={"cpu": "c"}))
    assert pool.search(demand_of(text), WANTED) is None
    for number in range(2, 10):
        pool.put(host(f"h{number - 1}", [], 2, removed=True))
        assert pool.search(Demand(1, 1), WANTED) is None
        assert pool.get(f"h{number - 1}") is None
        assert not pool.hosts_of("l")
        pool.put(host(f"h{number}", []))
        assert pool.search(Demand(1, 1), WANTED) == {f"h{number}": 1}
        assert pool.search(demand_of(text), WANTED) is None
    assert list(pool._numbers.values()) == [0]
