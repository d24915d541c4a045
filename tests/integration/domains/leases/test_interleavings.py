"""Any requests to a lease, in any order and with any behaviour of its resources: no invariant is ever broken.

The worlds of `tests/simulation` kill and cut off processes besides; here an example that fails is made small.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.domains.leases.runtime import LeasesRuntime
from stateward.domains.leases.settings import Settings
from stateward.engine import Denied, Engine, NotFound, Permanent, Temporary
from stateward.errors import BadInput
from stateward.plugin.runtime import ProcessContext
from stateward.store import open_store
from stateward.store.changes import Changes
from stateward.store.port import Tx, TxFunction
from tests.integration.domains.leases.checked_store import CheckedStore, Forbidden, check
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, hosts, thing
from tests.integration.domains.leases.scripted_resource import ScriptedResource
from tests.waiting import until

STEPS = ("start", "end", "rename", "grow", "fail host", "mend host", "recover", "delete", "pause", "restart")
OUTCOMES = st.lists(st.sampled_from(("well", "later", "never")), max_size=4)


class Witness(CheckedStore):
    """Remembers what is forbidden and was about to be written."""

    def __init__(self, path: Path, seen: list[str]) -> None:
        super().__init__(open_store(str(path)))
        self._seen = seen

    async def transact(self, program: TxFunction[object]) -> object:  # type: ignore[override]
        async def watched(tx: Tx) -> object:
            return await program(_WitnessedTx(tx, self._seen))  # type: ignore[arg-type]

        return await self._store.transact(watched)


class _WitnessedTx:
    def __init__(self, tx: Tx, seen: list[str]) -> None:
        self._tx, self._seen = tx, seen

    def __getattr__(self, name: str) -> object:
        return getattr(self._tx, name)

    async def apply(self, changes: Changes) -> None:
        for found in changes.objects:
            try:
                check(found)
            except Forbidden as error:
                self._seen.append(str(error))
        await self._tx.apply(changes)


class Life:
    """One lease, from when it is made to when nothing of it is left."""

    def __init__(self, folder: Path, things: ScriptedResource) -> None:
        self._folder, self._things = folder, things
        self.forbidden: list[str] = []
        self._site: LeaseHarness
        self._engine: Engine
        self._asked: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Open the site."""
        plugin = LeasesRuntime(ProcessContext(self._folder), Settings(before_end=0.0), [self._things])
        self._engine = Engine(Witness(self._folder / "store.db", self.forbidden), plugin.kinds)  # type: ignore[arg-type]
        plugin.bind_engine(self._engine)
        await self._engine.__aenter__()
        self._site = LeaseHarness(self._engine, plugin, self._things)

    async def close(self) -> None:
        """Close the site; who has asked for something is told, or is not."""
        await asyncio.gather(*self._asked, return_exceptions=True)
        self._asked.clear()
        await self._engine.__aexit__()

    async def live(self, steps: list[str]) -> None:
        """Do one thing after the other, without waiting for any, and delete the lease in the end."""
        await self.open()
        await self._site.hosts("h1", "h2")
        self.lease = await self._site.lease("x", hosts(1, 2), thing("lamp"), start=3600, end=7200)
        for step in steps:
            if step == "restart":
                await self.close()
                await self.open()
            else:
                self._asked.append(asyncio.create_task(self._tried(self._deed(step))))
                await asyncio.sleep(0.0)
        await asyncio.gather(*self._asked)
        self._things.fail.clear()
        await until(self._gone)
        left = [(await self._site.host(name)).seen for name in ("h1", "h2")]
        assert [(one.bookings, one.held) for one in left] == [((), ())] * 2
        await self.close()

    async def _gone(self) -> bool:
        with suppress(Denied):
            await self._site.plugin.hosts.recover(ME, "h1")
        try:
            await self._site.plugin.leases.delete(ME, self.lease.object.id)
        except NotFound:
            return True
        return False

    async def _tried(self, deed: Callable[[], Awaitable[object]]) -> None:
        with suppress(Denied, BadInput):
            await deed()

    def _deed(self, step: str) -> Callable[[], Awaitable[object]]:
        leases, hosts_, id_ = self._site.plugin.leases, self._site.plugin.hosts, self.lease.object.id
        mine = next(iter(self.lease.seen.reservations))
        deeds: dict[str, Callable[[], Awaitable[object]]] = {
            "start": lambda: leases.update(ME, id_, {"start_date": "now"}),
            "end": lambda: leases.update(ME, id_, {"end_date": "now"}),
            "rename": lambda: leases.update(ME, id_, {"name": "y"}),
            "grow": lambda: leases.update(ME, id_, {"reservations": [{"id": mine, "min": 2, "max": 2}]}),
            "fail host": lambda: hosts_.fail(ME, "h1"),
            "mend host": lambda: hosts_.recover(ME, "h1"),
            "recover": lambda: leases.recover(ME, id_),
            "delete": lambda: leases.delete(ME, id_),
            "pause": lambda: self._engine.record(NS, id_),
        }
        return deeds[step]


def behaving(outcomes: list[str]) -> list[Exception]:
    """Return how the next attempts at something end, as `Things` are told; the first that is well ends the list."""
    errors: list[Exception] = []
    for one in outcomes:
        if one == "well":
            break
        errors.append(Temporary("not now", after=0.001) if one == "later" else Permanent("broken"))
    return errors


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=8), OUTCOMES, OUTCOMES)
def test_no_order_of_deeds_and_failures_writes_what_is_forbidden(
    steps: list[str], starts: list[str], ends: list[str]
) -> None:
    async def lived() -> list[str]:
        things = ScriptedResource()
        things.fail = {"lamp": behaving(starts), "end of lamp": behaving(ends)}
        with TemporaryDirectory() as folder:
            life = Life(Path(folder), things)
            await life.live(steps)
        return life.forbidden

    assert asyncio.run(lived()) == []
