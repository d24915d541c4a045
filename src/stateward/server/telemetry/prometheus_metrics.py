"""Metrics: what happens, in numbers, for Prometheus.

What happened is counted from the journal's stream, so every process counts what the whole deployment does since the
process started, whoever did it: rates of several processes are to be compared, not added up. What is now (operations in
flight, their age, what waits) is asked of the store when somebody looks, as sets and at most once a second. Calls and
how long they take are counted where they are answered.

A token for some namespaces gets what is now in those namespaces. Counters, workers, timers and the capacity of lanes
tell of the whole deployment: they are for tokens for all namespaces.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from time import monotonic, perf_counter
from typing import Any

from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.samples import Sample

from stateward import __version__
from stateward.access import Right
from stateward.engine import Kind
from stateward.engine.kinds import Kinds
from stateward.engine.privacy import Disclosure
from stateward.server.auth.guards import needs
from stateward.server.errors import NotReady
from stateward.server.openapi.problem_responses import problem_responses
from stateward.server.presenter import sees_internal
from stateward.server.service import ApiRequest
from stateward.server.telemetry.journal_classifier import ActionResult, JournalClassifier
from stateward.server.telemetry.snapshot import DeploymentSnapshot
from stateward.store.errors import StoreError
from stateward.store.records import JournalEntry

disable_created_metrics()  # type: ignore[no-untyped-call]  # when a counter began is of no use here

SNAPSHOT_MAX_AGE_S = 1.0
"""How many seconds a survey is good for."""

MAX_CACHED_TEXTS = 1_000
"""For how many sets of namespaces the latest answer is kept."""

ACCEPTANCE_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
NO_ROUTE = "(none)"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The numbers of one process, in a registry of its own."""

    def __init__(self, kinds: Sequence[Kind], survey: Callable[..., Awaitable[DeploymentSnapshot]]) -> None:
        self.registry = CollectorRegistry()
        self._kinds = Kinds(kinds)
        self._tally = JournalClassifier(kinds)
        self._counters: dict[ActionResult, Counter] = {}  # finding one by its labels costs more than counting
        self._verdicts: dict[str, Histogram] = {}
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._survey = survey
        self._surveyed = -SNAPSHOT_MAX_AGE_S
        self._texts: dict[tuple[frozenset[str], Disclosure], tuple[float, str]] = {}
        self._lock = asyncio.Lock()
        self._count_happenings()
        self._count_calls()
        self._show_the_present()

    def _count_happenings(self) -> None:
        labels = ("kind", "action", "result")
        self.transitions = self._counter(
            "transitions", "lines of the journal: what was done, and how it ended", *labels
        )
        self.rejected = self._counter("rejected_reports", "reports that did not count", "kind")
        self.handed_over = self._counter("lease_handovers", "operations taken from a worker that was lost", "kind")
        self.journal = self._gauge("journal_seq", "the number of the newest line of the journal that was seen")

    def _count_calls(self) -> None:
        self.acceptance = Histogram(
            "stateward_acceptance_seconds",
            "how long it takes to accept or to deny a request, durably",
            ("verdict",),
            registry=self.registry,
            buckets=ACCEPTANCE_BUCKETS_S,
        )
        self.answers = Histogram(
            "stateward_http_request_seconds",
            "how long it takes to answer a call",
            ("method", "route"),
            registry=self.registry,
            buckets=REQUEST_BUCKETS_S,
        )
        self.provider_calls = self._counter("provider_calls", "calls to providers", "provider", "call")
        self.provider_saved = self._counter("provider_calls_saved", "calls to providers that were spared", "provider")
        self.calls = self._counter("http_requests", "calls by route and status", "method", "route", "status")

    def _show_the_present(self) -> None:
        self._present = StateGauges(self.registry)
        self.capacity = self._gauge("lane_capacity", "operations that may run in a lane at once", "lane")
        self.backed_off = self._gauge("lane_backed_off", "whether a lane is backed off (throttled)", "lane")
        self.workers = self._gauge("workers", "workers, by whether they are alive", "alive")
        self.timers = self._gauge("oldest_timer_seconds", "how long the oldest timer has been due")
        self.readers = self._gauge("stream_readers", "open streams of this process")

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"stateward_{name}", about, labels, registry=self.registry)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"stateward_{name}", about, labels, registry=self.registry)

    # --- counting ----------------------------------------------------------------------------------------------------

    def count_entries(self, lines: Sequence[JournalEntry]) -> None:
        """Count what lines of the journal tell."""
        for line in lines:
            told = self._tally.classify(line)
            counter = self._counters.get(told)
            if counter is None:
                counter = self._counters[told] = self.transitions.labels(*told)
            counter.inc()
            if told.result == "rejected":
                self.rejected.labels(told.kind).inc()
            elif told.result == "handed_over":
                self.handed_over.labels(told.kind).inc()
        if lines:
            self.journal.set(lines[-1].seq)

    def observe_acceptance(self, seconds: float, verdict: str) -> None:
        """Count a request that was accepted or denied, and how long that took."""
        times = self._verdicts.get(verdict)
        if times is None:
            times = self._verdicts[verdict] = self.acceptance.labels(verdict)
        times.observe(seconds)

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a call."""
        known = self._answers.get((method, route, status))
        if known is None:
            known = self.calls.labels(method, route, str(status)), self.answers.labels(method, route)
            self._answers[method, route, status] = known
        known[0].inc()
        known[1].observe(seconds)

    # --- showing -----------------------------------------------------------------------------------------------------

    async def text(self, namespaces: frozenset[str] | None = None, *, internal: bool = True) -> str:
        """Return what Prometheus reads: everything, or what is now in some namespaces.

        Administrators see what is internal too.
        """
        disclosure = self._kinds.disclosure(internal=internal)
        async with self._lock:
            if namespaces is not None:
                return await self._text_of(namespaces, disclosure)
            if self._surveyed + SNAPSHOT_MAX_AGE_S <= monotonic():
                await self._look()
        return metrics_text(self.registry, disclosure)

    async def _text_of(self, namespaces: frozenset[str], disclosure: Disclosure) -> str:
        """Return what is now in some namespaces; asked at most once a second for the same ones."""
        known = self._texts.get((namespaces, disclosure))
        if known is not None and known[0] + SNAPSHOT_MAX_AGE_S > monotonic():
            return known[1]
        registry = CollectorRegistry()
        present = StateGauges(registry)
        try:
            present.show(await self._survey(namespaces))
        except StoreError:
            present.store.set(0)
        if len(self._texts) >= MAX_CACHED_TEXTS:
            self._texts.clear()
        text = metrics_text(registry, disclosure)
        self._texts[namespaces, disclosure] = monotonic(), text
        return text

    async def _look(self) -> None:
        """Show the present; a store that does not answer is shown as down, and nothing stale beside it."""
        self._present.clear()
        for gauge in (self.capacity, self.backed_off):
            gauge.clear()
        try:
            self._show(await self._survey())
        except StoreError:
            self._present.store.set(0)
            return
        self._surveyed = monotonic()

    def _show(self, survey: DeploymentSnapshot) -> None:
        self._present.show(survey)
        for lane in survey.lanes:
            self.capacity.labels(lane.lane).set(lane.capacity)
            self.backed_off.labels(lane.lane).set(lane.backed_off)
        self.workers.labels("yes").set(survey.workers_alive)
        self.workers.labels("no").set(survey.workers_lost)
        self.timers.set(survey.timer_late)


class StateGauges:
    """The gauges of what is now: objects, and what is under way. They can be of some namespaces alone."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.build = self._gauge("build_info", "the program's version", "version")
        self.build.labels(__version__).set(1)
        self.store = self._gauge("store_up", "whether the store answers")
        self.objects = self._gauge("objects", "objects by kind and state", "kind", "state")
        self.in_flight = self._gauge(
            "operations_in_flight", "operations that have not ended, by lane", "lane", "status"
        )
        self.oldest = self._gauge("operation_oldest_seconds", "the age of the oldest that has not ended", "lane")
        self.depth = self._gauge("queue_depth", "operations that wait to be claimed, by lane", "lane")
        self.stuck = self._gauge("stuck_objects", "operations past their deadline or of a dead worker, as in /stuck")

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"stateward_{name}", about, labels, registry=self._registry)

    def clear(self) -> None:
        """Forget what has labels: what is no longer there is not to be shown."""
        for gauge in (self.objects, self.in_flight, self.oldest, self.depth):
            gauge.clear()

    def show(self, survey: DeploymentSnapshot) -> None:
        """Show what was surveyed."""
        self.store.set(1)
        for (kind, state), count in survey.objects.items():
            self.objects.labels(kind, state).set(count)
        for lane in survey.lanes:
            self.in_flight.labels(lane.lane, "running").set(lane.running)
            self.in_flight.labels(lane.lane, "waiting").set(lane.waiting)
            self.depth.labels(lane.lane).set(lane.waiting)
            self.oldest.labels(lane.lane).set(lane.age)
        self.stuck.set(survey.stuck)


class ProviderCalls:
    """Counts the calls to providers, and those that were not needed; others may take note of them too."""

    def __init__(self, noted: Callable[[str, str], None] = lambda _provider, _call: None) -> None:
        self._metrics: Metrics | None = None
        self._noted = noted

    def bind_metrics(self, metrics: Metrics) -> None:
        """Begin to count."""
        self._metrics = metrics

    def count_call(self, provider: str, call: str) -> None:
        """Count a call to a provider."""
        self._noted(provider, call)
        if self._metrics is not None:
            self._metrics.provider_calls.labels(provider, call).inc()

    def count_saved(self, provider: str, calls: int) -> None:
        """Count calls that were not needed, because one listing or what was known already told."""
        if self._metrics is not None:
            self._metrics.provider_saved.labels(provider).inc(calls)


class RequestCounter:
    """An application around another one, which counts its calls by route: a name never becomes a label."""

    def __init__(self, app: Any, metrics: Metrics) -> None:  # noqa: ANN401 - an ASGI application
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
        """Pass a call on, and count it when it is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = perf_counter()
        method = scope["method"] if scope["method"] in METHODS else "other"

        async def counted(message: Any) -> None:  # noqa: ANN401
            if message["type"] == "http.response.start":
                route = scope.get("path_template") or NO_ROUTE
                self._metrics.observe_request(method, route, message["status"], perf_counter() - begun)
            await send(message)

        await self._app(scope, receive, counted)


METRICS = ResponseSpec(
    str,
    generate_examples=False,
    description="As Prometheus reads it.",
    media_type="text/plain",
    examples=[Example(summary="metrics", value="# TYPE stateward_store_up gauge\nstateward_store_up 1.0\n")],
)


@get(
    "/metrics",
    guards=[needs(Right.READ)],
    tags=["deployment"],
    summary="Metrics",
    media_type="text/plain",
    responses={**problem_responses(), 200: METRICS},
)
async def show_metrics(request: ApiRequest) -> Response[str]:
    """Return the metrics of this process and of the store; a token for some namespaces gets what is now in those."""
    metrics: Metrics | None = request.app.state.get("metrics")
    if metrics is None:
        raise NotReady("this process has no metrics: ask a server")
    internal = sees_internal(request.grant)
    return Response(
        await metrics.text(request.grant.namespace_filter, internal=internal), media_type=CONTENT_TYPE_LATEST
    )


ROUTES = (show_metrics,)


MAX_OF_LANES = frozenset({"stateward_operation_oldest_seconds", "stateward_lane_backed_off"})
"""Of several lanes that are shown as one, the largest of these counts; of all others the sum."""


class DisclosedRegistry(CollectorRegistry):
    """A registry as its readers see it."""

    def __init__(self, registry: CollectorRegistry, disclosure: Disclosure) -> None:
        super().__init__()
        self._whole, self._disclosure = registry, disclosure

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with those samples that are shown."""
        for metric in self._whole.collect():
            metric.samples = list(self._shown(metric.samples))
            yield metric

    def _shown(self, samples: Iterable[Sample]) -> Iterable[Sample]:
        shown: dict[tuple[str, str], Sample] = {}
        for one in samples:
            labels = one.labels
            if "action" in labels and self._disclosure.hides_action(labels["kind"], labels["action"]):
                continue
            if "lane" in labels:
                labels = {**labels, "lane": self._disclosure.lane(labels["lane"])}
            key = one.name, str(sorted(labels.items()))
            before = shown[key].value if key in shown else 0.0
            value = max(before, one.value) if one.name in MAX_OF_LANES else before + one.value
            shown[key] = one._replace(labels=labels, value=value)
        return shown.values()


def metrics_text(registry: CollectorRegistry, disclosure: Disclosure) -> str:
    """Return what Prometheus reads."""
    return generate_latest(DisclosedRegistry(registry, disclosure)).decode()
