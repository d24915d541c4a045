"""Orphans: machines on nodes, and files among the disks, that no object owns.

The domain records a machine or a file before it creates it, and keeps the record until it is gone. So a machine or file
that two scans show, and that no record in between names, is an orphan: another program or a failure left it there.
Orphans are reported to administrators and left alone, because the domain cannot know what they are good for.
"""

import asyncio
import time
from collections.abc import Collection

from msgspec.structs import replace

from stateward.domains.ovc import model
from stateward.domains.ovc.lifecycle import CLOUDSPACE, DISK, IMAGE, VM, DiskState, ImageState
from stateward.domains.ovc.nodes import DiskStore, Hypervisor
from stateward.domains.ovc.object_updates import update_seen
from stateward.engine.queries import list_all
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import PROVIDER
from stateward.store.filters import Selector
from stateward.store.port import Reader, Tx
from stateward.store.records import Key

MAX_ORPHANS = 200
"""The most orphans that are recorded for a node."""

FILE_OWNERS = (
    (DISK.kind, tuple(state for state in DiskState if state is not DiskState.DESTROYED)),
    (IMAGE.kind, tuple(state for state in ImageState if state is not ImageState.DESTROYED)),
)
"""The kinds that own files, and the states in which they do."""


class OrphanScanner:
    """Scans for orphans; the files are scanned once for all namespaces, at most every `every / 2` seconds."""

    def __init__(self, reader: Reader, disk_store: DiskStore, apart: float, every: float) -> None:
        self._reader, self._disk_store, self._apart, self._every = reader, disk_store, apart, every
        self._turn = asyncio.Lock()
        self._files: set[model.OrphanId] = set()
        self._looked = float("-inf")

    # --- machines ----------------------------------------------------------------------------------------------------

    async def find_machines(
        self, node: Key, hypervisor: Hypervisor, known_keys: Collection[str]
    ) -> tuple[set[model.OrphanId], bool]:
        """Return the orphan machines of a node, and whether its listings were complete."""
        first = await hypervisor.list_machines()
        nobodys = {key for key in first.keys if key not in known_keys and not await self._is_owned(node, key)}
        if not nobodys:
            return set(), first.complete
        await asyncio.sleep(hypervisor.lag + self._apart)
        again = await hypervisor.list_machines()
        return {model.OrphanId("machine", key) for key in nobodys & again.keys}, first.complete and again.complete

    async def _is_owned(self, node: Key, machine: str) -> bool:
        record = await self._reader.object(Key(node.ns, model.machine_owner(machine)))
        if record is None or record.removed or record.kind not in (VM.kind, CLOUDSPACE.kind):
            return False
        seen = model.vm_seen(record) if record.kind == VM.kind else model.cloudspace_seen(record)
        here = model.PlacedMachine(node.id, machine)
        is_moving = record.op is not None or bool(seen.to)  # the record is final only when the operation has ended
        return is_moving or here == model.PlacedMachine(seen.node, seen.machine) or here in seen.stale_machines

    # --- files -------------------------------------------------------------------------------------------------------

    async def find_files(self) -> set[model.OrphanId]:
        """Return the files that no disk or image of any namespace owns."""
        async with self._turn:
            if time.monotonic() - self._looked >= self._every / 2:
                self._files = {model.OrphanId("file", name) for name in await self._scan_files()}
                self._looked = time.monotonic()
            return self._files

    async def _scan_files(self) -> set[str]:
        first = await self._disk_store.list_files()
        if not first:
            return set()
        owners = {
            model.file_name(record)
            for ns in await self._reader.namespaces()
            for kind, states in FILE_OWNERS
            async for record in list_all(self._reader, Selector(ns, kind, states=states))
        }
        nobodys = {name for name in first if not _possible_owners(name) & owners}
        if not nobodys:
            return set()
        await asyncio.sleep(self._apart)
        return nobodys & await self._disk_store.list_files()


def _possible_owners(file: str) -> set[str]:
    """Return the possible owners of a file: `NAME.qcow2`, or a base that two disks share, `NAME.base-NAME`.

    A base after a failed attempt has a number, as in `NAME.base-NAME.1`.
    """
    first, _, rest = file.partition(".")
    return {first, rest.removeprefix("base-").partition(".")[0]} if rest.startswith("base-") else {first}


async def record_orphans(tx: Tx, node: Key, ids: Collection[model.OrphanId], *, complete: bool) -> None:
    """Record the orphans of a node; after an incomplete scan the known ones stay."""
    uow = UnitOfWork(tx)
    await uow.load([node])
    host = uow.objects[node]
    before = {orphan.id: orphan for orphan in model.node_seen(host).orphans}
    now = sorted({*ids} if complete else {*ids, *before})[:MAX_ORPHANS]
    if set(now) == before.keys():
        return
    for id_ in (who for who in now if who not in before):
        journal(uow, host, None, PROVIDER, node.id, "stranger", reason=f"{id_.what} {id_.name} belongs to nobody")
    orphans = tuple(before.get(id_) or model.OvcOrphan(id_, uow.now) for id_ in now)
    update_seen(uow, host, replace(model.node_seen(host), orphans=orphans))
    await uow.apply()
