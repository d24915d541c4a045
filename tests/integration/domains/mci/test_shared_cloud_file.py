"""Another process holds the file of the simulated clouds for a while: its machines do not count as gone."""

import asyncio
from pathlib import Path
from random import Random

from stateward.domains.mci.runtime import MciRuntime
from stateward.drivers.simulated import SimulatedCloud
from stateward.engine import Engine
from stateward.plugin.runtime import ProcessContext
from stateward.store import open_store
from stateward.store.records import Key, Status
from tests.integration.domains.mci.conftest import ANN, NS, PATIENT, QUICK, MciHarness, group, mci, open_harness


async def test_while_another_process_has_the_file_vms_wait_and_none_is_called_gone(tmp_path: Path) -> None:
    file, database = tmp_path / "simulated-clouds.db", str(tmp_path / "s.db")
    async with open_harness(open_store(database), tmp_path, cloud=SimulatedCloud(file, profile=QUICK)) as harness:
        await harness.created(mci("m1", group("a", 3)))
    other = SimulatedCloud(file)
    plugin = MciRuntime(ProcessContext(tmp_path, random=Random(1)), tick=0.01, every=3600.0)
    engine = Engine(open_store(database), plugin.kinds)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        harness = MciHarness(engine, plugin)
        verdict = await harness.service.control(NS, "m1", "suspend", ANN)
        await tried(engine, [one.object.id for one in verdict.begun])
        await plugin.reconciler.reconcile_all()
        assert {one.state for one in await harness.service.vms(NS, "m1")} == {"Suspending"}
        other.close()
        assert (await harness.ended(verdict.whole)).status is Status.SUCCEEDED
        assert {one.state for one in await harness.service.vms(NS, "m1")} == {"Suspended"}


async def tried(engine: Engine, vms: list[str]) -> None:
    """Wait until the work on some VMs was tried, and put off."""
    reader = engine.store.reader
    async with asyncio.timeout(PATIENT):
        while True:
            found = [work for vm in vms for work in await reader.queue_of(Key(NS, vm))]
            if len(found) == len(vms) and all(one.attempts and one.owner is None for one in found):
                return
            await asyncio.sleep(0.01)
