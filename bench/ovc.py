"""OpenvCloud objects: what the rules of a domain cost on top of the engine, and a live migration under QEMU.

An action here is the whole way: accepted under the domain's rules, done by a node that takes no time, ended with all
that follows from it. Attaching a disk changes two objects in one step, and then two again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from shutil import rmtree, which
from statistics import median
from time import perf_counter

from bench.engine.databases import new_database, new_file, new_folder, store_at
from bench.figures import Better, Line, plain, ratio
from bench.loops import run
from stateward.domains.ovc.drift_detector import DriftDetector
from stateward.domains.ovc.lifecycle import ACCOUNT, VM
from stateward.domains.ovc.model import (
    HOST_GRANT,
    AccountSpec,
    CloudspaceSpec,
    DiskSpec,
    ImageSpec,
    NodeSpec,
    OvcVmSpec,
)
from stateward.domains.ovc.runtime import OvcRuntime
from stateward.domains.ovc.service import OvcCaller
from stateward.domains.ovc.settings import Settings
from stateward.drivers import ProviderRegion
from stateward.drivers.qemu.hardware import Hardware
from stateward.drivers.simulated import CALM, SimulatedCloud
from stateward.engine import Accepted, Engine
from stateward.plugin.runtime import ProcessContext

NS = "bench"
ME = OvcCaller("admin", "bench", frozenset({HOST_GRANT}))
VMS, ALONE, MOVES = 300, 50, 8


class Tenant:
    """A small cloud, with ways to have something done."""

    account = box = image = ""

    def __init__(self, engine: Engine, plugin: OvcRuntime) -> None:
        self.engine, self.plugin = engine, plugin

    async def made(self, making: Awaitable[Accepted]) -> str:
        accepted = await making
        await self.engine.wait_record(NS, accepted.op.id)
        return accepted.object.id

    async def furnish(self, driver: str) -> None:
        make = self.plugin.service
        for number in range(2):
            spec = NodeSpec(f"n{number}", driver)  # type: ignore[arg-type]
            await self.made(make.create(NS, spec, ME))
        self.account = await self.made(make.create(NS, AccountSpec("a"), ME))
        self.box = await self.made(make.create(NS, CloudspaceSpec("c", self.account), ME))
        self.image = await self.made(make.create(NS, ImageSpec("i", self.account), ME))

    async def vm(self, name: str) -> str:
        spec = OvcVmSpec(name, self.account, self.box, self.image)
        return await self.made(self.plugin.service.create(NS, spec, ME))

    async def end(self) -> None:
        """Leave no machine behind, the firewall included."""
        accepted = await self.plugin.service.act(NS, ACCOUNT.kind, self.account, "destroy", ME)
        await self.engine.wait_record(NS, accepted.op.id)

    async def disk(self, name: str) -> str:
        return await self.made(self.plugin.service.create(NS, DiskSpec(name, self.account), ME))

    async def do(self, vm: str, action: str, **args: str) -> None:
        accepted = await self.plugin.service.act(NS, VM.kind, vm, action, ME, args=args)
        ended = await self.engine.wait_record(NS, accepted.op.id)
        assert ended.status == "succeeded", ended


@asynccontextmanager
async def _cloud(url: str, driver: str, storage: str) -> AsyncIterator[Tenant]:
    folder = new_folder()
    settings = Settings(storage, look_every=0.0)  # type: ignore[arg-type]
    plugin = OvcRuntime(ProcessContext(folder), settings, cloud=SimulatedCloud(profile=CALM))
    engine = Engine(store_at(url), plugin.kinds)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        tenant = Tenant(engine, plugin)
        await tenant.furnish(driver)
        yield tenant
    rmtree(folder, ignore_errors=True)


def report() -> list[Line]:
    """Measure and return lines to print."""
    lines: list[Line] = ["OpenvCloud objects, on nodes that take no time"]
    for name, url in (("embedded", new_file()), ("PostgreSQL", new_database())):
        lines += run(_actions(url, name))
    return [*lines, *run(_moves())]


async def _actions(url: str, name: str) -> list[Line]:
    async with _cloud(url, "simulated", "none") as tenant:
        made, vms = await _with_timeouts(lambda: _gathered([tenant.vm(f"vm {number}") for number in range(VMS)]))
        disks = await asyncio.gather(*(tenant.disk(f"disk {number}") for number in range(VMS)))
        paused, _ = await _with_timeouts(lambda: _gathered([tenant.do(vm, "pause") for vm in vms]))
        pairs = list(zip(vms, disks, strict=True))
        both, _ = await _with_timeouts(
            lambda: _gathered([tenant.do(vm, "attach disk", disk=disk) for vm, disk in pairs])
        )
        alone = [(await _with_timeouts(partial(tenant.do, vm, "resume")))[0] for vm in vms[:ALONE]]
        looked, _ = await _with_timeouts(
            DriftDetector(tenant.engine, tenant.plugin.nodes, Random(1), every=0.0).check_all
        )
    return [
        ratio(f"an action on a VM and its disk, {name}", both / paused, "the time of one on the VM alone"),
        plain(f"VMs made and deployed, {VMS} at once, {name}", VMS / made, "a second", None, Better.HIGHER),
        plain(f"actions, {VMS} at once, {name}", VMS / paused, "a second", None, Better.HIGHER),
        plain(f"one action alone, from request to end, {name}", median(alone) * 1e3, "ms"),
        plain(f"a look at {VMS} VMs, whether they are what they should be, {name}", looked * 1e3, "ms"),
    ]


async def _moves() -> list[Line]:
    if which("qemu-img") is None or Hardware(ProviderRegion("local", "here")).program is None:
        return ["  (no live migration: QEMU is not installed)"]
    async with _cloud(new_file(), "qemu", "files") as tenant:
        vm = await tenant.vm("vm")
        moves = [(await _with_timeouts(lambda: tenant.do(vm, "migrate")))[0] for _ in range(MOVES)]
        await tenant.end()
    return [
        plain("a live migration between two QEMU processes, the second's start included", median(moves) * 1e3, "ms")
    ]


async def _gathered(work: list[Awaitable[object]]) -> list[str]:
    return [str(one) for one in await asyncio.gather(*work)]


async def _with_timeouts(work: Callable[[], Awaitable[list[str] | None]]) -> tuple[float, list[str]]:
    began = perf_counter()
    found = await work()
    return perf_counter() - began, found or []
