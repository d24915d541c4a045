"""Two recent listings prove an absence, and no listing from before the last one that shows the machine."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from stateward.domains.mci.provider.evidence import Existence
from stateward.domains.mci.provider.presence_log import KEPT_S, PresenceLog
from stateward.domains.mci.provider.provider_client import ABSENT_AFTER_S, ProviderClient
from stateward.drivers import MachineListing, MachineState, Observation, ProviderRegion
from stateward.drivers.simulated import SimulatedCloud, SimulatedDriver

KEY = "uid"
RUNNING = Observation(KEY, "i-1", MachineState.RUNNING, "running")


@pytest.fixture
def client() -> Iterator[ProviderClient]:
    driver = SimulatedDriver(ProviderRegion("aws", "here"), SimulatedCloud(chance=Random(1)))
    with asyncio.Runner() as runner:

        async def opened() -> ProviderClient:
            return ProviderClient(driver, lambda: 10_000.0)

        yield runner.run(opened())


def read(client: ProviderClient, asked: float, *, shown: bool, lag_s: float = 0.0) -> Existence:
    """Return what a complete listing proves that was requested at a time."""
    listing = MachineListing([RUNNING] if shown else [], complete=True, requested_at=asked, lag_s=lag_s)
    return client.read_listing(listing, [KEY])[KEY].existence


def test_the_first_of_two_listings_must_be_recent(client: ProviderClient) -> None:
    assert read(client, 0.0, shown=False) is Existence.UNKNOWN
    assert read(client, 3600.0, shown=False) is Existence.UNKNOWN
    assert read(client, 3600.0 + ABSENT_AFTER_S, shown=False) is Existence.ABSENT


def test_a_slow_listing_from_before_a_sighting_does_not_count(client: ProviderClient) -> None:
    assert read(client, 105.0, shown=True) is Existence.PRESENT
    assert read(client, 100.0, shown=False) is Existence.UNKNOWN
    assert read(client, 106.0, shown=False) is Existence.UNKNOWN
    assert read(client, 108.0, shown=False) is Existence.ABSENT


def test_a_slow_listing_that_shows_a_machine_does_not_hide_a_newer_absence(client: ProviderClient) -> None:
    assert read(client, 100.0, shown=False) is Existence.UNKNOWN
    assert read(client, 99.0, shown=True) is Existence.PRESENT
    assert read(client, 102.0, shown=False) is Existence.ABSENT


def test_the_same_listing_does_not_count_twice(client: ProviderClient) -> None:
    assert {read(client, 100.0, shown=False) for _ in range(3)} == {Existence.UNKNOWN}


def test_an_absence_is_as_old_as_the_first_of_its_latest_two_listings(client: ProviderClient) -> None:
    for asked in (100.0, 130.0, 131.0, 160.0, 161.0):
        read(client, asked, shown=False)
    listing = MachineListing([], complete=True, requested_at=162.5, lag_s=3.0)
    evidence = client.read_listing(listing, [KEY])[KEY]
    assert (evidence.existence, evidence.requested_at, evidence.as_of) == (Existence.ABSENT, 160.0, 157.0)


def test_old_entries_are_forgotten() -> None:
    log = PresenceLog()
    for number in range(1000):
        log.note_missing(f"gone-{number}", 0.0, 2.0)
        log.note_shown(f"there-{number}", 0.0)
    log.prune(0.0)
    log.note_missing(KEY, KEPT_S, 2.0)
    log.prune(KEPT_S)
    assert (len(log._shown), list(log._missing)) == (0, [KEY])
