"""Every metric changes with what it counts."""

from prometheus_client import CollectorRegistry

from stateward.engine import Kind
from stateward.lifecycle import HEALER, USER, WORKER
from stateward.plugin.registry import installed
from stateward.server.telemetry.prometheus_metrics import Metrics, ProviderCalls
from stateward.server.telemetry.snapshot import DeploymentSnapshot, LaneSnapshot
from stateward.store.records import JournalEntry

SURVEY = DeploymentSnapshot({("mci.vm", "Running"): 4}, [LaneSnapshot("aws/eu", 2, 7, True, 3, 12.5)], 5, 2, 1, 33.0)
KINDS = [Kind(one) for one in installed().lifecycles]


async def survey() -> DeploymentSnapshot:
    return SURVEY


def line(event: str, actor: str, source: str | None, target: str | None, seq: int) -> JournalEntry:
    return JournalEntry("ns", "o", "mci.vm", "op", 0.0, actor, "", event, source, target, None, seq=seq)


def at(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"stateward_{name}", labels)


def test_what_the_journal_tells_is_counted() -> None:
    metrics = Metrics(KINDS, survey)
    metrics.count_entries(
        [
            line("suspend", USER, "Running", "Suspending", 7),
            line("put back", HEALER, None, None, 8),
            line("rejected: succeeded", WORKER, None, None, 9),
            line("succeeded", WORKER, "Suspending", "Suspended", 10),
        ]
    )
    for result in ("accepted", "succeeded"):
        assert at(metrics.registry, "transitions_total", kind="mci.vm", action="suspend", result=result) == 1
    assert at(metrics.registry, "lease_handovers_total", kind="mci.vm") == 1
    assert at(metrics.registry, "rejected_reports_total", kind="mci.vm") == 1
    assert at(metrics.registry, "journal_seq") == 10


def test_calls_to_providers_and_calls_that_were_spared_are_counted() -> None:
    metrics, calls = Metrics([], survey), ProviderCalls()
    calls.count_call("aws", "describe")  # nobody counts yet
    calls.bind_metrics(metrics)
    calls.count_call("aws", "describe")
    calls.count_call("aws", "describe")
    calls.count_saved("aws", 9)
    assert at(metrics.registry, "provider_calls_total", provider="aws", call="describe") == 2
    assert at(metrics.registry, "provider_calls_saved_total", provider="aws") == 9


def test_how_long_acceptance_takes_is_told_by_its_verdict() -> None:
    metrics = Metrics([], survey)
    metrics.observe_acceptance(0.003, "accepted")
    metrics.observe_acceptance(0.2, "denied")
    assert at(metrics.registry, "acceptance_seconds_count", verdict="accepted") == 1
    assert at(metrics.registry, "acceptance_seconds_bucket", verdict="accepted", le="0.005") == 1
    assert at(metrics.registry, "acceptance_seconds_bucket", verdict="denied", le="0.1") == 0


async def test_what_there_is_now_is_shown_as_it_was_surveyed() -> None:
    metrics = Metrics([], survey)
    await metrics.text()
    assert at(metrics.registry, "objects", kind="mci.vm", state="Running") == 4
    assert at(metrics.registry, "stuck_objects") == 5
    assert at(metrics.registry, "oldest_timer_seconds") == 33
    lane = {"lane": "aws/eu"}
    assert at(metrics.registry, "operations_in_flight", status="running", **lane) == 2
    assert at(metrics.registry, "queue_depth", **lane) == 3
    assert at(metrics.registry, "operation_oldest_seconds", **lane) == 12.5
    assert (at(metrics.registry, "lane_capacity", **lane), at(metrics.registry, "lane_backed_off", **lane)) == (7, 1)
    assert (at(metrics.registry, "workers", alive="yes"), at(metrics.registry, "workers", alive="no")) == (2, 1)
