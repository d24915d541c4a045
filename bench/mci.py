"""The mci domain: a suspend of 10,000 VMs against the ideal schedule, the cost of a status, machines on this host.

The ideal schedule knows no overhead at all. Suspending a VM takes two calls, the deed and the look, of 50 ms each; a
region that has V VMs at once needs ceil(n / V) rounds of that for its n VMs, and a provider that has R regions at once
does R rounds at a time, its regions taking turns. The slowest provider tells how long it takes.
"""

from math import ceil
from time import perf_counter, process_time

from msgspec.structs import replace

from bench import mci_hosts, mci_status
from bench.figures import Line, plain, ratio
from bench.loops import run
from bench.mci_fleet import EACH, NS, PROVIDERS, everywhere, new_fleet
from stateward.domains.mci.limits import limit_of
from stateward.drivers.simulated import CALM

VMS_EACH, CALL, CALLS_EACH = 250, 0.05, 2
VMS = VMS_EACH * EACH * len(PROVIDERS)
TARGET = 1.15


def ideal(vms: int = VMS_EACH, regions: int = EACH) -> float:
    """Return how many seconds the ideal schedule takes."""
    return max(_rounds(provider, vms, regions) for provider in PROVIDERS) * CALL * CALLS_EACH


def _rounds(provider: str, vms: int, regions: int) -> int:
    limit = limit_of(provider)
    each = ceil(vms / limit.vms)
    return max(each, ceil(regions * each / limit.regions))


def report() -> list[Line]:
    """Measure and return lines to print."""
    lines = run(schedule())
    return [*lines, *mci_status.report(), *mci_hosts.report()]


async def schedule() -> list[Line]:
    """Suspend all VMs of one MCI over all regions."""
    async with new_fleet() as fleet:
        await fleet.made(everywhere("all", VMS_EACH))
        fleet.set_temper(replace(CALM, latency=CALL))
        fleet.calls.clear()
        began, used = perf_counter(), process_time()
        op = await fleet.begun("all", "suspend")
        accepted = perf_counter() - began
        await fleet.engine.wait(NS, op)
        seconds, used = perf_counter() - began, process_time() - used
        assert await fleet.states("all") == {"Suspended": VMS}
    return told(accepted, seconds, used, sum(fleet.calls.values()))


def told(accepted: float, seconds: float, used: float, calls: int) -> list[Line]:
    """Return what was measured, to be printed."""
    best, regions = ideal(), EACH * len(PROVIDERS)
    what = f"suspend of {VMS:,} VMs over {regions} regions"
    return [
        f"{what} of {len(PROVIDERS)} providers, {CALL * 1e3:g} ms a call; ideally {best:.1f} s",
        ratio(what, seconds / best, "the ideal schedule", TARGET),
        ratio(f"{what}, from acceptance on", (seconds - accepted) / best, "the ideal schedule"),
        plain(what, used / seconds, "cores used", 1),
        plain(what, used / VMS * 1e6, "µs of a processor for a VM"),
        f"  {calls:7,} calls to providers; accepted in {accepted:.2f} s",
    ]
