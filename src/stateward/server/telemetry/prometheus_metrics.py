"""Metrics for Prometheus.

Counters of transitions come from the journal feed: every process counts the whole deployment since the process started,
so rates of several processes must not be added up. Gauges (operations in flight, their age, queue depth) come from a
snapshot of the store, at most once a second. HTTP requests and their durations are counted by the process that serves
them.

A token for some namespaces gets the gauges of those namespaces. Counters, workers, timers and lane capacities concern
the whole deployment: they are for tokens for all namespaces.

Labels name lanes and actions. A lane can be the name of a node, and an action can be an internal operation. Readers who
are not administrators see the internal lanes of a kind as one lane, and nothing of internal operations.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
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
from stateward.plugin.readiness import NotReady
from stateward.server.presenter import sees_internal
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest
from stateward.server.telemetry.journal_classifier import ActionResult, JournalClassifier
from stateward.server.telemetry.snapshot import DeploymentSnapshot
from stateward.store.errors import StoreError
from stateward.store.records import JournalEntry

disable_created_metrics()  # type: ignore[no-untyped-call]  # the creation times of counters are not used

SNAPSHOT_MAX_AGE_S = 1.0
"""How many seconds a snapshot is served before a new one is taken."""

MAX_CACHED_TEXTS = 1_000
"""For how many sets of namespaces the latest text is cached."""

ACCEPTANCE_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
NO_ROUTE = "(none)"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The metrics of one process, in a registry of its own."""

    def __init__(self, kinds: Sequence[Kind], survey: Callable[..., Awaitable[DeploymentSnapshot]]) -> None:
        self.registry = CollectorRegistry()
        self._kinds = Kinds(kinds)
        self._classifier = JournalClassifier(kinds)
        # bounded by: the actions of the kinds, and their ends
        self._counters: dict[ActionResult, Counter] = {}  # a lookup by labels costs more than an increment
        self._verdicts: dict[str, Histogram] = {}  # bounded by: the verdicts
        # bounded by: the routes, methods and statuses
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._survey = survey
        self._surveyed = -SNAPSHOT_MAX_AGE_S
        self._texts: dict[tuple[frozenset[str], Disclosure], tuple[float, str]] = {}
        self._lock = asyncio.Lock()
        labels = ("kind", "action", "result")
        self.transitions = self._counter("transitions", "journal entries by kind, action and result", *labels)
        self.rejected = self._counter("rejected_reports", "reports of workers and agents that were rejected", "kind")
        self.handed_over = self._counter(
            "lease_handovers", "operations taken from a worker whose lease expired", "kind"
        )
        self.journal = self._gauge(
            "journal_seq", "sequence number of the newest journal entry that this process has read"
        )
        self._create_request_metrics()
        self._present = StateGauges(self.registry)
        self.capacity = self._gauge("lane_capacity", "operations that may run in a lane at the same time", "lane")
        self.backed_off = self._gauge("lane_backed_off", "whether a lane is backed off (throttled)", "lane")
        self.workers = self._gauge("workers", "workers by whether their lease is valid", "alive")
        self.timers = self._gauge("oldest_timer_seconds", "seconds since the oldest pending timer was due")
        self.readers = self._gauge("stream_readers", "open journal streams of this process")

    def _create_request_metrics(self) -> None:
        self.acceptance = Histogram(
            "stateward_acceptance_seconds",
            "seconds to accept or deny a request, including the commit",
            ("verdict",),
            registry=self.registry,
            buckets=ACCEPTANCE_BUCKETS_S,
        )
        self.answers = Histogram(
            "stateward_http_request_seconds",
            "seconds to serve an HTTP request",
            ("method", "route"),
            registry=self.registry,
            buckets=REQUEST_BUCKETS_S,
        )
        self.provider_calls = self._counter("provider_calls", "calls to providers", "provider", "call")
        self.provider_saved = self._counter(
            "provider_calls_saved", "calls to providers that were not necessary", "provider"
        )
        self.calls = self._counter("http_requests", "HTTP requests by route and status", "method", "route", "status")

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"stateward_{name}", about, labels, registry=self.registry)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"stateward_{name}", about, labels, registry=self.registry)

    # --- counting ----------------------------------------------------------------------------------------------------

    def count_entries(self, entries: Sequence[JournalEntry]) -> None:
        """Count new journal entries."""
        for entry in entries:
            labels = self._classifier.classify(entry)
            counter = self._counters.get(labels)
            if counter is None:
                counter = self._counters[labels] = self.transitions.labels(*labels)
            counter.inc()
            if labels.result == "rejected":
                self.rejected.labels(labels.kind).inc()
            elif labels.result == "handed_over":
                self.handed_over.labels(labels.kind).inc()
        if entries:
            self.journal.set(entries[-1].seq)

    def observe_acceptance(self, seconds: float, verdict: str) -> None:
        """Record the time to a verdict: accepted, denied or failed."""
        times = self._verdicts.get(verdict)
        if times is None:
            times = self._verdicts[verdict] = self.acceptance.labels(verdict)
        times.observe(seconds)

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record an HTTP request."""
        known = self._answers.get((method, route, status))
        if known is None:
            known = self.calls.labels(method, route, str(status)), self.answers.labels(method, route)
            self._answers[method, route, status] = known
        known[0].inc()
        known[1].observe(seconds)

    # --- showing -----------------------------------------------------------------------------------------------------

    async def text(self, namespaces: frozenset[str] | None = None, *, internal: bool = True) -> str:
        """Return the metrics as text: all of them, or the gauges of some namespaces.

        With `internal`, for administrators, internal lanes and operations are included.
        """
        disclosure = self._kinds.disclosure(internal=internal)
        async with self._lock:
            if namespaces is not None:
                return await self._text_of(namespaces, disclosure)
            if self._surveyed + SNAPSHOT_MAX_AGE_S <= monotonic():
                await self._look()
        return metrics_text(self.registry, disclosure)

    async def _text_of(self, namespaces: frozenset[str], disclosure: Disclosure) -> str:
        """Return the gauges of some namespaces, from a snapshot that is at most one second old."""
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
        """Take a snapshot; if the store does not answer, report it as down and show no stale gauges."""
        self._present.clear()
        for gauge in (self.capacity, self.backed_off):
            gauge.clear()
        try:
            survey = await self._survey()
            self._present.show(survey)
            for lane in survey.lanes:
                self.capacity.labels(lane.lane).set(lane.capacity)
                self.backed_off.labels(lane.lane).set(lane.backed_off)
            self.workers.labels("yes").set(survey.workers_alive)
            self.workers.labels("no").set(survey.workers_lost)
            self.timers.set(survey.timer_late)
        except StoreError:
            self._present.store.set(0)
            return
        self._surveyed = monotonic()


class StateGauges:
    """The gauges of objects and open operations, of the whole deployment or of some namespaces."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.build = self._gauge("build_info", "version of the program", "version")
        self.build.labels(__version__).set(1)
        self.store = self._gauge("store_up", "whether the store answers (1) or not (0)")
        self.objects = self._gauge("objects", "objects by kind and state", "kind", "state")
        self.in_flight = self._gauge(
            "operations_in_flight", "operations that have not ended, by lane and status", "lane", "status"
        )
        self.oldest = self._gauge(
            "operation_oldest_seconds", "age of the oldest operation that has not ended, by lane", "lane"
        )
        self.depth = self._gauge("queue_depth", "operations that wait for a worker, by lane", "lane")
        self.stuck = self._gauge("stuck_objects", "operations past their deadline or of a dead worker, as in /stuck")

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"stateward_{name}", about, labels, registry=self._registry)

    def clear(self) -> None:
        """Remove all labelled values, so that lanes and states that are gone are not shown."""
        for gauge in (self.objects, self.in_flight, self.oldest, self.depth):
            gauge.clear()

    def show(self, survey: DeploymentSnapshot) -> None:
        """Set the gauges from a snapshot."""
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
    """Counts calls to providers, and calls that were not necessary; `noted` is called for each call, too."""

    def __init__(self, noted: Callable[[str, str], None] = lambda _provider, _call: None) -> None:
        self._metrics: Metrics | None = None
        self._noted = noted

    def bind_metrics(self, metrics: Metrics) -> None:
        """Set the metrics to count into; before that, nothing is counted."""
        self._metrics = metrics

    def count_call(self, provider: str, call: str) -> None:
        """Count a call to a provider."""
        self._noted(provider, call)
        if self._metrics is not None:
            self._metrics.provider_calls.labels(provider, call).inc()

    def count_saved(self, provider: str, calls: int) -> None:
        """Count calls that were not necessary, because a listing or the cache had the answer."""
        if self._metrics is not None:
            self._metrics.provider_saved.labels(provider).inc(calls)


class RequestCounter:
    """An ASGI application that counts the requests of another one, by route: the path itself is never a label."""

    def __init__(self, app: Any, metrics: Metrics) -> None:  # noqa: ANN401 - an ASGI application
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
        """Pass a request on, and count it when its response starts."""
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


@api_route(
    get, "/metrics", Right.READ, "deployment", "Read the metrics", media_type="text/plain", responses={200: METRICS}
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
"""Metrics whose maximum counts where several lanes are shown as one; for all others it is the sum."""


class DisclosedRegistry(CollectorRegistry):
    """A registry without what is hidden from its readers."""

    def __init__(self, registry: CollectorRegistry, disclosure: Disclosure) -> None:
        super().__init__()
        self._whole, self._disclosure = registry, disclosure

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with the visible samples."""
        for metric in self._whole.collect():
            shown: dict[tuple[str, str], Sample] = {}
            for sample in metric.samples:
                labels = sample.labels
                if "action" in labels and self._disclosure.hides_action(labels["kind"], labels["action"]):
                    continue
                if "lane" in labels:
                    labels = {**labels, "lane": self._disclosure.lane(labels["lane"])}
                key = sample.name, str(sorted(labels.items()))
                before = shown[key].value if key in shown else 0.0
                value = max(before, sample.value) if sample.name in MAX_OF_LANES else before + sample.value
                shown[key] = sample._replace(labels=labels, value=value)
            metric.samples = list(shown.values())
            yield metric


def metrics_text(registry: CollectorRegistry, disclosure: Disclosure) -> str:
    """Return a registry in the text format of Prometheus."""
    return generate_latest(DisclosedRegistry(registry, disclosure)).decode()
