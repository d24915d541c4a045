"""What the tests of the EC2 driver share: a new world, drivers on it, and a boto3 of the tests' own to look at it."""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]

from stateward.drivers import ProviderRegion
from stateward.drivers.aws import AwsDriver
from tests.integration.drivers.aws.moto_cloud import REGION, MotoCloud, shared_cloud

MakeDriver: TypeAlias = Callable[..., AwsDriver]
SECRET = "very/secret+key"
SESSION = "very-secret-session"


@pytest.fixture
def cloud() -> MotoCloud:
    """Give a test a world of its own."""
    cloud = shared_cloud()
    cloud.reset()
    return cloud


@pytest.fixture
async def make(cloud: MotoCloud, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeDriver]:
    """Give a test drivers, by default with credentials from the environment, and close them in the end."""
    monkeypatch.setenv("FARM_ACCESS_KEY_ID", "AKIDFARM")
    monkeypatch.setenv("FARM_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("FARM_SESSION_TOKEN", SESSION)
    made: list[AwsDriver] = []

    def make_driver(credential: str = "env:FARM", meter: Any = lambda _: None, **options: str) -> AwsDriver:
        place = ProviderRegion("aws", REGION, credential=credential, options={"endpoint_url": cloud.url, **options})
        made.append(AwsDriver(place, meter))
        return made[-1]

    yield make_driver
    for driver in made:
        await driver.close()


@pytest.fixture
def driver(make: MakeDriver) -> AwsDriver:
    """Give a test the one driver that it needs."""
    return make()


@cache
def session() -> Any:
    """Return the tests' own way into boto3; it reads what EC2 is once."""
    return boto3.Session(aws_access_key_id="AKIDTEST", aws_secret_access_key="test")


@pytest.fixture
def ec2(cloud: MotoCloud) -> Iterator[Any]:
    """Give a test a client that is not ours."""
    once = Config(retries={"total_max_attempts": 1})
    client = session().client("ec2", region_name=REGION, endpoint_url=cloud.url, config=once)
    yield client
    client.close()
