"""Records of reboots on a container engine, so that a reboot whose answer was lost is not repeated.

Engines keep no token of a restart, and labels of a container cannot change. So a reboot has a record beside its
container: an empty volume, whose labels are the token and the time of the container's last start. It is created before
the restart, and replaced by one that says `done` after it. If the confirmation is missing, another time of the last
start proves the restart.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct

from stateward.containers import KEY_LABEL, ContainerEngine, ContainerRecord, ContainerVolume, ContainerVolumeSpec

REBOOT_LABEL, TOKEN_LABEL, STARTED_LABEL = "stateward.reboot", "stateward.token", "stateward.started"
BEGUN, DONE = "begun", "done"


class RebootRecord(Struct, frozen=True):
    """A reboot: its machine's key, its token, the container's start before it, and whether it is confirmed."""

    volume: str
    key: str
    token: str
    started_before: str
    is_confirmed: bool

    def is_done(self, container: ContainerRecord) -> bool:
        """Tell whether the container was started again since."""
        return self.is_confirmed or start_mark(container) != self.started_before


def start_mark(container: ContainerRecord) -> str:
    """Return the text that identifies the last start of a container."""
    return repr(container.started_at)


class RebootRecords:
    """The records of one region of an engine."""

    def __init__(self, engine: ContainerEngine, region: Mapping[str, str]) -> None:
        self._engine, self._region = engine, region

    async def list_all(self, key: str | None = None) -> Sequence[RebootRecord]:
        """Return the records of all machines, or of one."""
        labels = [f"{name}={value}" for name, value in self._region.items()]
        wanted = (REBOOT_LABEL, *labels) if key is None else (REBOOT_LABEL, *labels, f"{KEY_LABEL}={key}")
        return [_record(volume) for volume in await self._engine.list_volumes(wanted)]

    async def begin(self, key: str, token: str, container: ContainerRecord) -> RebootRecord:
        """Record that a reboot begins."""
        return await self._write(key, token, start_mark(container), BEGUN)

    async def confirm(self, record: RebootRecord, others: Iterable[RebootRecord]) -> None:
        """Record that a reboot is done, and remove all earlier records of the machine."""
        if not record.is_confirmed:
            done = await self._write(record.key, record.token, record.started_before, DONE)
            await self.remove(other for other in (*others, record) if other.volume != done.volume)

    async def remove(self, records: Iterable[RebootRecord]) -> None:
        """Remove records."""
        for record in records:
            await self._engine.remove_volume(record.volume)

    async def _write(self, key: str, token: str, started: str, phase: str) -> RebootRecord:
        labels = {**self._region, REBOOT_LABEL: phase, TOKEN_LABEL: token, STARTED_LABEL: started}
        name = f"sw-reboot-{phase}-{sha256(f'{sorted(self._region.items())} {key} {token}'.encode()).hexdigest()[:32]}"
        await self._engine.create_volume(ContainerVolumeSpec(name, key, labels))
        return RebootRecord(name, key, token, started, phase == DONE)


def _record(volume: ContainerVolume) -> RebootRecord:
    labels = volume.labels
    return RebootRecord(
        volume.name,
        labels.get(KEY_LABEL, ""),
        labels.get(TOKEN_LABEL, ""),
        labels.get(STARTED_LABEL, ""),
        labels.get(REBOOT_LABEL) == DONE,
    )
