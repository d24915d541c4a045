"""An upgrade under load: the database is migrated, and workers of the former version are replaced one by one."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tests.chaos.aftermath import query
from tests.chaos.crane_yard import until, witnessed
from tests.chaos.ledger import What
from tests.chaos.processes import ROOT, Site
from tests.chaos.storm import WORKERS, Storm, Weather
from tests.seeds import chance

NEXT = "tests.chaos.next_version"
CALM = ("--callers", "4", "--cranes", "24")
ENOUGH = 20
"""So many effects take place before the next thing happens."""


class UpgradedSite(Site):
    """A site whose new processes are of the next version once that is installed."""

    def __init__(self, store: str, folder: Path, lease: float) -> None:
        super().__init__(store, folder, lease)
        self.upgraded = False
        self.manners = CALM

    def program(self, sort: str) -> list[str]:
        """Return what a sort of process runs, in the version that is installed."""
        return [NEXT, *super().program(sort)] if self.upgraded else super().program(sort)


class Steps(Weather, frozen=True):
    """What happens in an upgrade, in its order."""

    def blows(self, chance: Random) -> Iterator[str]:
        """Deal the pack once, as it lies."""
        yield from (step for step, count in self.pack.items() for _ in range(count))


STEPS = Steps({"migrate": 1, "replace": WORKERS, "latecomer": 1}, (0.0, 0.0))


class Upgrade(Storm):
    """A storm in which nobody is killed: everybody leaves as asked, or is refused."""

    site: UpgradedSite

    def __init__(self, site: UpgradedSite, installed: Callable[[], None]) -> None:
        super().__init__(site, STEPS, chance("storm"))
        self._installed = installed  # makes this process the next version, too
        self.under_way = 0  # how many operations were under way when the database was migrated
        self.refusal = ""  # what a worker of the version before says that comes too late

    async def _strike(self, blow: str) -> None:
        self.blows[blow] += 1
        match blow:
            case "migrate":
                await self._migrate()
            case "replace":
                await self._replace(self.blows[blow] - 1)
            case "latecomer":
                await self._come_late()

    async def _migrate(self) -> None:
        await until(lambda: len(witnessed(self.site, What.APPLY)) >= ENOUGH)
        await until(self._is_busy)
        done = await asyncio.to_thread(migrated, self.site.store)
        while "deadlock detected" in done.stdout:  # it has changed nothing, and is simply asked for again
            done = await asyncio.to_thread(migrated, self.site.store)
        assert done.returncode == 0, done.stdout + done.stderr
        self.site.upgraded = True
        self._installed()

    async def _is_busy(self) -> bool:
        ((self.under_way,),) = await query(self.site.store, "SELECT count(*) FROM work WHERE owner IS NOT NULL")
        return self.under_way > 0

    async def _replace(self, number: int) -> None:
        """Start a new worker, see it at work, and let one of the version before leave."""
        former = self._workers[number]
        self._workers[number] = await self._new_worker(number)
        name = self._workers[number].name
        await self._workers[number].ready()
        await until(lambda: len(witnessed(self.site, What.BEGIN, name)) > 0)
        code = await former.finish()
        if code:
            self.deaths.append(
                f"{former.name} was asked to leave and ended with {code}: {self.site.log_of(former.name)}"
            )

    async def _come_late(self) -> None:
        self.site.upgraded = False
        late = await self.site.start("worker", "late", str(self.site.ledger_path))
        self.site.upgraded = True
        if await asyncio.wait_for(late.process.wait(), 60) == 0:
            self.deaths.append("a worker of the version before was not refused")
        self.refusal = self.site.log_of("late")


def migrated(store: str, *options: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the next version's `stateward migrate`."""
    command = [sys.executable, "-m", NEXT, "stateward", "migrate", "--database", store, "--json", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT, env=environ)
