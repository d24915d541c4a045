"""A worker whose database file is replaced: another process may have its work, so it stops at once."""

from pathlib import Path

import pytest

from stateward.engine import Engine
from stateward.store.errors import DatabaseReplaced
from stateward.store.sqlite import SqliteStore
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import Plant
from tests.waiting import until


async def test_a_worker_stops_what_it_runs_and_accepts_nothing_when_the_file_is_removed(tmp_path: Path) -> None:
    plant = Plant()
    async with Engine(SqliteStore(tmp_path / "stateward.db"), [plant.pump()], lease_s=600.0) as engine:
        site = Site(engine, plant)
        await site.built("p1")
        plant.hold()
        await engine.act("ns", "p1", "pump")
        await until(lambda: plant.inside["p1"] == 1)
        (tmp_path / "stateward.db").unlink()
        await until(lambda: plant.inside["p1"] == 0)
        assert plant.done["pump"] == 0
        with pytest.raises(DatabaseReplaced):
            await engine.create("ns", "p2", "test.pump", "build")
