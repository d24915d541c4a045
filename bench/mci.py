"""The mci domain: a suspend of 10,000 VMs against the ideal schedule, the cost of a status, machines on this host.

The ideal schedule knows no overhead at all. Suspending a VM takes two calls, the deed and the look, of 50 ms each, or
of 500 ms, as clouds have it; a region that has V VMs at once needs ceil(n / V) rounds of that for its n VMs, and a
provider that has R regions at once does R rounds at a time, its regions taking turns. The slowest provider tells how
long it takes.
"""

from collections.abc import Sequence
from math import ceil
from time import perf_counter, process_time

from msgspec import Struct
from msgspec.structs import replace

from bench import mci_commands, mci_hosts, mci_preparation, mci_status
from bench.figures import Line, plain, ratio
from bench.loops import run
from bench.mci_fleet import EACH, NS, PROVIDERS, everywhere, new_fleet
from stateward.domains.mci.deployment_records import limit_of
from stateward.drivers.simulated import CALM

VMS_EACH, CALLS_EACH = 250, 2
VMS = VMS_EACH * EACH * len(PROVIDERS)
FAST_CALL_S, SLOW_CALL_S = 0.05, 0.5
TARGETS = {FAST_CALL_S: 1.3, SLOW_CALL_S: 1.05}
"""How many times the ideal schedule a suspend may take, by the seconds of a call."""


def ideal(call_s: float, vms: int = VMS_EACH, regions: int = EACH) -> float:
    """Return how many seconds the ideal schedule takes."""
    return max(_rounds(provider, vms, regions) for provider in PROVIDERS) * call_s * CALLS_EACH


def _rounds(provider: str, vms: int, regions: int) -> int:
    limit = limit_of(provider)
    each = ceil(vms / limit.vms)
    return max(each, ceil(regions * each / limit.regions))


def report() -> list[Line]:
    """Measure and return lines to print."""
    lines = run(schedule())
    return [
        *lines,
        *mci_preparation.report(),
        *mci_status.report(),
        *mci_hosts.report(),
        *mci_commands.report(),
    ]


class Course(Struct, frozen=True):
    """How long it took until the action was accepted and until all was done, the processor's time, and the calls."""

    accepted: float
    seconds: float
    used: float
    calls: int


async def schedule() -> list[Line]:
    """Suspend all VMs of one MCI: over all regions, and over those of the slowest provider alone."""
    slowest = max(PROVIDERS, key=lambda provider: _rounds(provider, VMS_EACH, EACH))
    fast = await suspended(PROVIDERS, FAST_CALL_S)
    lines = told(fast, slowest, await suspended([slowest], FAST_CALL_S))
    slow, best = await suspended(PROVIDERS, SLOW_CALL_S), ideal(SLOW_CALL_S)
    what = f"suspend of {VMS:,} VMs, {SLOW_CALL_S * 1e3:g} ms a call"
    return [*lines, ratio(what, slow.seconds / best, "the ideal schedule", TARGETS[SLOW_CALL_S])]


async def suspended(providers: Sequence[str], call_s: float) -> Course:
    """Suspend an MCI that has VMs in every region of these providers."""
    async with new_fleet() as fleet:
        await fleet.made(everywhere("all", VMS_EACH, providers))
        fleet.set_profile(replace(CALM, latency=call_s))
        fleet.calls.clear()
        began, used = perf_counter(), process_time()
        op = await fleet.begun("all", "suspend")
        accepted = perf_counter() - began
        await fleet.engine.wait_record(NS, op)
        seconds, used = perf_counter() - began, process_time() - used
        assert await fleet.states("all") == {"Suspended": VMS_EACH * EACH * len(providers)}
    return Course(accepted, seconds, used, sum(fleet.calls.values()))


def told(course: Course, slowest: str, alone: Course) -> list[Line]:
    """Return what was measured, to be printed."""
    best, regions = ideal(FAST_CALL_S), EACH * len(PROVIDERS)
    what, less = f"suspend of {VMS:,} VMs over {regions} regions", f"suspend of the VMs of {slowest} alone"
    return [
        f"{what} of {len(PROVIDERS)} providers, {FAST_CALL_S * 1e3:g} ms a call; ideally {best:.1f} s",
        ratio(what, course.seconds / best, "the ideal schedule", TARGETS[FAST_CALL_S]),
        ratio(f"{what}, from acceptance on", (course.seconds - course.accepted) / best, "the ideal schedule"),
        ratio(f"{less}, from acceptance on", (alone.seconds - alone.accepted) / best, "the ideal schedule"),
        plain(what, course.used / course.seconds, "cores used", 1),
        plain(what, course.used / VMS * 1e6, "µs of a processor for a VM"),
        f"  {course.calls:7,} calls to providers; accepted in {course.accepted:.2f} s",
    ]
