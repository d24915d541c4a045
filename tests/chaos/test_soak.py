"""A short soak on each store: all five domains under load, processes killed, and nothing leaks or is left behind.

`python -m tests.soak --minutes 30` is the long one.
"""

from pathlib import Path

import pytest

from tests.servers import PostgresServer
from tests.soak.soak_deployment import Sample
from tests.soak.soak_run import soak
from tests.soak.verdict import leaks, left, open_files

SECONDS = 20.0


@pytest.mark.long
async def test_nothing_leaks_and_nothing_is_left_behind_embedded(tmp_path: Path) -> None:
    verdict = await soak(tmp_path, "", SECONDS, seed=1)
    assert not verdict.faults, str(verdict)
    assert verdict.figures["kills"] >= 1


@pytest.mark.long
async def test_nothing_leaks_and_nothing_is_left_behind_on_postgresql(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    verdict = await soak(tmp_path, postgres_server.new_database(), SECONDS, seed=2)
    assert not verdict.faults, str(verdict)
    assert verdict.figures["kills"] >= 1


def test_a_soak_sees_a_process_that_grows() -> None:
    steady = [Sample(float(at), "server", 1, 100 * 2**20, 20) for at in range(100)]
    growing = [Sample(float(at), "worker", 2, (100 + at) * 2**20, 20) for at in range(100)]
    assert [one.split()[1] for one in leaks([*steady, *growing], since=0.0)] == ["worker"]


def test_a_soak_sees_files_that_stay_open_and_rows_that_nobody_owns() -> None:
    assert len(list(open_files({"server": 20, "worker": 20}, {"server": 25, "worker": 200}))) == 1
    assert list(left({"locks": 2, "work": 0})) == ["2 locks are left"]
