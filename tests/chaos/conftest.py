"""The fixture of a site for each test: an empty folder and a fresh store; all processes are killed at the end."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.chaos.crane_yard import open_yard
from tests.chaos.processes import Site

NewSite = Callable[[str, float], Site]


@pytest.fixture
async def new_site(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[NewSite]:
    """Return how to make a site on a sort of store, with a lease."""
    sites: list[Site] = []

    def made(store: str, lease: float) -> Site:
        server = request.getfixturevalue("postgres_server") if store == "postgres" else None
        url = server.new_database() if server else str(tmp_path / "chaos.db")
        sites.append(Site(url, tmp_path, lease))
        return sites[-1]

    yield made
    for site in sites:
        await site.clear()


@pytest.fixture(params=["sqlite", "postgres"])
async def site(request: pytest.FixtureRequest, new_site: NewSite) -> Site:
    """Give a test a site on each sort of store, with a short lease and an open yard."""
    found = new_site(request.param, 1.0)
    await open_yard(found.store)
    return found


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[object], None]:
    """Return how a test prints its figures so that they are seen although it passes."""

    def said(words: object) -> None:
        with capsys.disabled():
            print(f"\n  {words}")  # noqa: T201

    return said
