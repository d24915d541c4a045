"""Where drivers of this host take orders: many at once, one at a time for each machine, and each to its end.

What was begun is finished even if nobody waits for it any more; otherwise the machine's lock would be free while a
thread still starts its process.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    MachineRef,
    MachineSpec,
    Meter,
    Outcome,
    ProviderRegion,
    RefusalReason,
    TransientFailure,
)
from stateward.drivers.process.machine_dir import BadRecord, Busy, Folder, Phase, Record, Standing, first_record
from stateward.drivers.process.supervisor import Kind, Lodging, Milestone, StillThere
from stateward.errors import BadInput

THREADS = 8
KEEP = 3600.0
"""How long a machine that has ended is still listed, in seconds."""
BETWEEN_SWEEPS = 60.0

P = ParamSpec("P")
T = TypeVar("T")
Check = Callable[[str, str, str], CallRefused | None]


class Reception:
    """Takes orders for the machines of one place."""

    def __init__(self, place: ProviderRegion, kind: Kind, meter: Meter, milestone: Milestone) -> None:
        self.meter = meter
        self.lodging = Lodging(_folder(place), kind, milestone)
        self._keep = float(place.options.get("keep", KEEP))
        self._swept = time.monotonic()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="machines")
        self._work: set[asyncio.Task[Outcome]] = set()

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what waits for the disk or the kernel beside the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kwargs))

    async def create(self, wants: Sequence[MachineSpec], check: Check) -> Sequence[Outcome]:
        """Make machines, each once."""
        if time.monotonic() > self._swept + min(self._keep, BETWEEN_SWEEPS):
            await self.sweep()
        return await asyncio.gather(*(self._finish(self._create(want, check)) for want in wants))

    async def act(
        self, refs: Sequence[MachineRef], deed: Callable[[MachineRef, Record], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Do something to machines that are known."""
        return await asyncio.gather(*(self._finish(self._act(ref, deed)) for ref in refs))

    def _finish(self, work: Coroutine[None, None, Outcome]) -> asyncio.Future[Outcome]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return asyncio.shield(task)

    async def _create(self, want: MachineSpec, check: Check) -> Outcome:
        if refusal := check(want.key, want.spec, want.image):
            return refusal
        try:
            async with self.lodging.folder.hold(want.key):
                return await self.in_thread(self._begin, want)
        except (OSError, Busy, BadRecord) as error:
            return TransientFailure(want.key, str(error))

    def _begin(self, want: MachineSpec) -> Outcome:
        record = self.lodging.folder.read(want.key)
        if record is not None and (record.phase is not Phase.STARTING or record.boot > 1):
            return AlreadyDone(record.key, record.native_id)
        self.meter("spawn")
        if record is None:
            record = first_record(want, self.lodging.folder.root)
            return self._begin_anew(record)
        try:
            self.lodging.go_on(record)
        except StillThere as error:
            return CallUnanswered(record.key, str(error))
        return CallAccepted(record.key, record.native_id)

    def _begin_anew(self, record: Record) -> Outcome:
        try:
            self.lodging.begin(record)
        except OSError as error:
            if self.lodging.sight(record).process is not None:  # only the note of it failed: the next try takes it over
                return TransientFailure(record.key, str(error))
            self.lodging.folder.remove(record.key)
            unable = isinstance(error, (FileNotFoundError, PermissionError))
            return (
                CallRefused(record.key, RefusalReason.UNABLE, str(error))
                if unable
                else TransientFailure(record.key, str(error))
            )
        return CallAccepted(record.key, record.native_id)

    async def _act(self, ref: MachineRef, deed: Callable[[MachineRef, Record], Awaitable[Outcome]]) -> Outcome:
        try:
            if await self.in_thread(self.lodging.folder.read, ref.key) is None:
                return CallRefused(ref.key, RefusalReason.NOT_FOUND, "there is no such machine here")
            async with self.lodging.folder.hold(ref.key):
                return await self._act_on(ref, deed)
        except StillThere as error:
            return CallUnanswered(ref.key, str(error))
        except (OSError, Busy, BadRecord) as error:
            return TransientFailure(ref.key, str(error))

    async def _act_on(self, ref: MachineRef, deed: Callable[[MachineRef, Record], Awaitable[Outcome]]) -> Outcome:
        record = await self.in_thread(self.lodging.folder.read, ref.key)
        if record is None:
            return CallRefused(ref.key, RefusalReason.NOT_FOUND, "there is no such machine here any more")
        return await deed(ref, record)

    async def sweep(self) -> None:
        """Forget the machines that ended long ago."""
        self._swept = time.monotonic()
        look = await self.in_thread(self.lodging.look)
        for sight in look.sights:
            if sight.standing is Standing.GONE:
                await self._finish(
                    self._act(
                        MachineRef(sight.record.key), lambda _, record: self.in_thread(self._forget_if_old, record)
                    )
                )

    def _forget_if_old(self, record: Record) -> Outcome:
        """Forget a machine; one that was found dead is first noted as ended, and forgotten when that is long ago."""
        sight = self.lodging.sight(record)
        if sight.standing is Standing.GONE and record.phase is not Phase.ENDING:
            self.lodging.end(record)
        elif sight.standing is Standing.GONE and self.lodging.folder.age(record.key) > self._keep:
            self.lodging.folder.remove(record.key)
        return AlreadyDone(record.key, record.native_id)

    async def close(self) -> None:
        """Finish what was begun."""
        await asyncio.gather(*self._work, return_exceptions=True)
        self._pool.shutdown(wait=False)


def _folder(place: ProviderRegion) -> Folder:
    path = place.options.get("folder", "")
    if not path:
        raise BadInput("folder", path, "a folder for the machines of this place")
    try:
        return Folder(Path(path).absolute())
    except OSError as error:
        raise BadInput("folder", path, f"a folder that can be used ({error.strerror})") from error
