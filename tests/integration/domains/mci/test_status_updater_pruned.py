"""MCIs get the roll-up of their VMs although journal entries were pruned."""

import asyncio
from random import Random

from stateward.domains.mci.control.status_updater import MciStatusUpdater
from stateward.engine.maintenance.horizon import EntriesPruned
from tests.integration.domains.mci.conftest import MciHarness
from tests.integration.domains.mci.test_status_updater import Unwell, no_time
from tests.waiting import until


async def test_who_comes_back_after_a_pruning_goes_on_behind_the_horizon(harness: MciHarness) -> None:
    engine = Unwell(harness, watch=[EntriesPruned(0, 7)])
    task = asyncio.create_task(MciStatusUpdater(engine, Random(1)).run(no_time))  # type: ignore[arg-type]
    try:
        await until(lambda: len(engine.after) >= 2)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert engine.after[1] == 7
