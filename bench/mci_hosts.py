"""Machines on this host, through the whole house: created, suspended, resumed, rebooted and terminated, for real."""

from collections.abc import Awaitable
from time import perf_counter

from bench.figures import Line, plain
from bench.loops import run
from bench.mci_fleet import ANN, NS, Fleet, new_fleet
from stateward.domains.mci.model import CloudConnection, ImageRecord, MciSpec, SpecRecord, SubGroup
from stateward.drivers import ProviderRegion
from stateward.drivers.qemu.hardware import Hardware

PROCESSES, GUESTS = 500, 50
ACTIONS = ("suspend", "resume", "reboot", "terminate")
STEADY = {"suspend": "Suspended", "resume": "Running", "reboot": "Running", "terminate": "Terminated"}


def report() -> list[Line]:
    """Measure and return lines to print."""
    return ["machines on this host", *run(processes()), *run(guests())]


async def processes() -> list[Line]:
    """Measure machines of the process driver."""
    return await _life("process", SubGroup("p", PROCESSES, "local+here+tiny", "sh"))


async def guests() -> list[Line]:
    """Measure machines of the qemu driver, where there is one."""
    hardware = Hardware(ProviderRegion("local", "here"))
    if hardware.program is None:
        return [f"  qemu: left out, because {hardware.board.program} is not installed"]
    connection = CloudConnection("bench-qemu", "qemu", "bench", driver="qemu")
    return await _life("qemu", SubGroup("q", GUESTS, "guest", "tick"), connection)


async def _life(driver: str, group: SubGroup, connection: CloudConnection | None = None) -> list[Line]:
    async with new_fleet(tick=0.05) as fleet:
        if connection is not None:
            await fleet.plugin.service.add_connection(connection, ANN)
        await fleet.plugin.service.grant("local" if connection is None else connection.name, [NS], ANN)
        if connection is not None:
            await fleet.plugin.service.register(NS, SpecRecord("guest", connection.name, "tiny"), ANN)
            await fleet.plugin.service.register(NS, ImageRecord("tick", connection.name, "tick"), ANN)
        seconds = {"create": await _timed(fleet.made(MciSpec(driver, f"uid-{driver}", (group,))))}
        try:
            await _check(fleet, driver, "Running", group.size)
            for action in ACTIONS:
                seconds[action] = await _timed(fleet.done(driver, action))
                await _check(fleet, driver, STEADY[action], group.size)
        finally:
            await _end(fleet, driver)
    words = ", ".join(f"{action} {taken:.2f} s" for action, taken in seconds.items())
    each = sum(seconds.values()) / len(seconds) / group.size
    return [
        f"  {driver}: {group.size} machines: {words}",
        plain(f"an action on a machine of driver {driver}, {group.size} at once", each * 1e3, "ms each"),
    ]


async def _timed(work: Awaitable[None]) -> float:
    began = perf_counter()
    await work
    return perf_counter() - began


async def _check(fleet: Fleet, mci: str, state: str, size: int) -> None:
    states = await fleet.states(mci)
    assert states == {state: size}, states


async def _end(fleet: Fleet, mci: str) -> None:
    if set(await fleet.states(mci)) - {"Terminated"}:
        verdict = await fleet.plugin.service.control(NS, mci, "terminate", ANN, force=True)
        assert verdict.whole is not None
        await fleet.engine.wait_record(NS, verdict.whole.op.id)
