"""The engine of a server process, with telemetry: acceptance is timed and traced, handlers are traced and logged."""

from time import perf_counter
from typing import Any

from msgspec.structs import replace

from stateward.engine import Accepted, Denied, Engine, Job, Kind, Request
from stateward.engine.accept.groups import GroupVerdict
from stateward.engine.job import Run
from stateward.server.telemetry.logs import log_operation
from stateward.server.telemetry.prometheus_metrics import Metrics
from stateward.server.telemetry.traces import Traces
from stateward.store.filters import Selector
from stateward.store.port import Store


class ObservedEngine(Engine):
    """An engine whose acceptances are timed and traced."""

    def __init__(self, store: Store, kinds: list[Kind], traces: Traces, **how: Any) -> None:  # noqa: ANN401 - as Engine
        super().__init__(store, [with_telemetry(kind, traces) for kind in kinds], new_id=traces.new_id, **how)
        self._traces = traces
        self.metrics: Metrics | None = None

    async def submit(self, request: Request) -> Accepted:
        """Submit a request."""
        with AcceptanceTimer(self.metrics), self._traces.accepting(request):
            return await super().submit(request)

    async def group(
        self, whole: Request | None, members: Selector, each: Request, *, acts_alone: bool = False
    ) -> GroupVerdict:
        """Request an action on a composite and on its members."""
        with AcceptanceTimer(self.metrics):
            return await super().group(whole, members, each, acts_alone=acts_alone)


class AcceptanceTimer:
    """Measures the time from a request to its acceptance or refusal."""

    def __init__(self, metrics: Metrics | None) -> None:
        self._metrics, self._begun = metrics, perf_counter()

    def __enter__(self) -> None:
        """Start the measurement."""

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Record the time and the result."""
        if self._metrics is not None:
            refused = "denied" if error is not None and issubclass(error, Denied) else "failed"
            self._metrics.observe_acceptance(perf_counter() - self._begun, refused if error is not None else "accepted")


def with_telemetry(kind: Kind, traces: Traces) -> Kind:
    """Return a kind whose handlers are traced, and whose log lines carry the operation's id."""
    handlers = {
        action: replace(handler, run=_observed(handler.run, traces)) for action, handler in kind.handlers.items()
    }
    return kind.with_handlers(handlers)


def _observed(run: Run, traces: Traces) -> Run:
    async def observing(job: Job) -> Any:  # noqa: ANN401 - what the handler returns
        with log_operation(job.key.id), traces.handling(job):
            return await run(job)

    return observing
