"""A migration that another controller carries out at the same time; the hosts are simulated."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from stateward.drivers.port import (
    MachineAction,
    MachineHandle,
    MachineListing,
    MachineSpec,
    MachineState,
    Observation,
)
from stateward.drivers.qemu.errors import CommandRejected, MigrationFailed, MonitorNotReached
from stateward.drivers.qemu.host import QemuHost
from stateward.drivers.qemu.migration import LiveMigration, MemoryProgress

HERE, THERE = "vm-here", "vm-there"


class FakeMonitor:
    """The monitor of a machine that listens, and rejects to be sent."""

    def __init__(self, host: "FakeHost") -> None:
        self._host = host

    async def execute(self, command: str, _arguments: object = None) -> Any:
        if command == "migrate":
            await self._host.on_migrate()
            raise CommandRejected(HERE, "there's a migration process in progress")
        return {"status": self._host.sending, "socket-address": [{"port": "1"}]}


class FakeHost:
    """A host with at most one machine; without a state it has none."""

    bandwidth = 0

    def __init__(self, key: str, state: str | None) -> None:
        self.key, self.state, self.sending = key, state, "none"
        self.ended: list[str] = []
        self.on_migrate: Callable[[], Awaitable[None]]

    async def observe(self, keys: Sequence[str]) -> MachineListing:
        found = [Observation(self.key, "1", MachineState.RUNNING, native_state=self.state)] if self.state else []
        return MachineListing([one for one in found if one.key in keys], complete=True)

    async def use_monitor(self, key: str, commands: Callable[[Any], Awaitable[Any]]) -> Any:
        if self.state is None:
            raise MonitorNotReached(key, "no process listens")
        return await commands(FakeMonitor(self))

    async def act(self, _action: MachineAction, handles: Sequence[MachineHandle]) -> None:
        self.ended += [one.key for one in handles]


def rejected_migration(source: FakeHost, target: FakeHost) -> LiveMigration:
    spec = MachineSpec(THERE, "there", "tiny", "guest")
    return LiveMigration(cast("QemuHost", source), HERE, cast("QemuHost", target), spec, [])


async def ignore(_: MemoryProgress) -> None:
    """Receive the progress of a migration."""


@pytest.mark.parametrize(
    ("here", "sending", "there"),
    [
        pytest.param("running", "active", "inmigrate", id="it sends"),
        pytest.param("postmigrate", "completed", "running", id="it has sent"),
        pytest.param(None, "none", "running", id="it has moved"),
    ],
)
async def test_the_target_of_a_migration_that_another_controller_has_begun_is_not_ended(
    here: str | None, sending: str, there: str
) -> None:
    source, target = FakeHost(HERE, "running"), FakeHost(THERE, "inmigrate")

    async def begin_elsewhere() -> None:
        source.state, source.sending, target.state = here, sending, there

    source.on_migrate = begin_elsewhere
    with pytest.raises(CommandRejected):
        await rejected_migration(source, target).run(ignore)
    assert (source.ended, target.ended) == ([], [])


async def test_the_target_of_a_migration_that_was_rejected_is_ended() -> None:
    source, target = FakeHost(HERE, "running"), FakeHost(THERE, "inmigrate")

    async def begin_nothing() -> None:
        """Leave everything as it is."""

    source.on_migrate = begin_nothing
    with pytest.raises(MigrationFailed):
        await rejected_migration(source, target).run(ignore)
    assert (source.ended, target.ended) == ([], [THERE])
