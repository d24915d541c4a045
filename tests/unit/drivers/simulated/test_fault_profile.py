"""Chances, spans and budgets."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stateward.drivers import ProviderRegion
from stateward.drivers.simulated import STORMY, CallFate, FaultProfile, SimulatedCloud, SimulatedDriver
from stateward.drivers.simulated.faults import draw_fate, draw_seconds, with_options
from stateward.errors import BadInput, UnknownName


@given(st.integers(), st.floats(0, 100), st.floats(0, 100))
def test_a_draw_is_within_its_span(seed: int, low: float, more: float) -> None:
    assert low <= draw_seconds((low, low + more), Random(seed)) <= low + more


def test_nothing_goes_wrong_by_default() -> None:
    chance = Random(1)
    assert {draw_fate(FaultProfile(), chance) for _ in range(1000)} == {CallFate.DONE}


def test_in_a_storm_everything_happens() -> None:
    chance = Random(1)
    assert {draw_fate(STORMY, chance) for _ in range(1000)} == set(CallFate)


def test_nothing_gets_through_to_a_dead_region() -> None:
    chance = Random(1)
    fates = {draw_fate(FaultProfile(dead=True), chance) for _ in range(100)}
    assert fates == {CallFate.REQUEST_LOST, CallFate.TRANSIENT}


def test_options_change_a_profile() -> None:
    changed = with_options(FaultProfile(), {"pending": "1..4", "fails": "0.5", "dead": "true", "calls_a_second": "3"})
    assert (changed.pending, changed.fails, changed.dead, changed.calls_a_second) == ((1.0, 4.0), 0.5, True, 3.0)


async def test_options_hold_until_they_are_taken_back() -> None:
    cloud, place = SimulatedCloud(), ProviderRegion("aws", "ap-northeast-2")
    nature = cloud.region(place).profile
    first = SimulatedDriver(ProviderRegion("aws", "ap-northeast-2", options={"dead": "true"}), cloud)
    second = SimulatedDriver(ProviderRegion("aws", "ap-northeast-2", options={"fails": "0.5"}), cloud)
    await first.close()
    assert cloud.region(place).profile == replace(nature, fails=0.5)
    await second.close()
    assert cloud.region(place).profile == nature


def test_an_unknown_option_is_named_with_its_nearest() -> None:
    with pytest.raises(UnknownName) as raised:
        with_options(FaultProfile(), {"fail": "0.5"})
    assert raised.value.nearest == "fails"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fails", "often"),
        ("fails", "2"),
        ("throttled", "-0.1"),
        ("throttled", "nan"),
        ("dead", "maybe"),
        ("pending", "1..2..3"),
        ("latency", "-1"),
        ("latency", "1..inf"),
        ("page", "0"),
        ("bulk", "-3"),
        ("calls_a_second", "0"),
        ("burst", "0"),
    ],
)
def test_an_option_of_the_wrong_sort_is_refused(name: str, text: str) -> None:
    with pytest.raises(BadInput) as raised:
        with_options(FaultProfile(), {name: text})
    assert raised.value.field == name
