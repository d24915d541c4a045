"""Traces: a request, the operation that it starts, and the handler's work form one trace across processes.

Tracing needs `stateward[otel]` and an endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT`); without either it costs nothing. A
handler may run hours later in another process. So the operation's id carries the trace: 32 digits of the trace id, then
16 of the span id of the acceptance. Nothing else has to be stored, and a trace can be found by the operation's id.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Protocol

from stateward import __version__
from stateward.engine import Job, Request
from stateward.naming import new_id

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("stateward.traces")

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
TRACED_ID = re.compile(r"[0-9a-f]{48}")

NOTHING = nullcontext()

NEXT_SPAN_ID: ContextVar[int | None] = ContextVar("planned span", default=None)
"""The id of the next span, if it is fixed."""


class Traces(Protocol):
    """A tracer of requests, acceptance, handlers and provider calls."""

    def new_id(self) -> str:
        """Return the id of a new operation."""

    def call(self, scope: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """Trace an HTTP request."""

    def accepting(self, request: Request) -> AbstractContextManager[Any]:
        """Trace the acceptance of a request."""

    def handling(self, job: Job) -> AbstractContextManager[Any]:
        """Trace the work of a handler."""

    def provider_call(self, provider: str, call: str) -> None:
        """Record a call to a provider."""

    def stop(self) -> None:
        """Send all pending spans."""


class NoTraces:
    """A tracer that does nothing."""

    def new_id(self) -> str:
        """Return the id of a new operation."""
        return new_id()

    def call(self, _scope: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """Trace nothing."""
        return NOTHING

    def accepting(self, _request: Request) -> AbstractContextManager[Any]:
        """Trace nothing."""
        return NOTHING

    def handling(self, _job: Job) -> AbstractContextManager[Any]:
        """Trace nothing."""
        return NOTHING

    def provider_call(self, _provider: str, _call: str) -> None:
        """Trace nothing."""

    def stop(self) -> None:
        """Do nothing."""


def start_traces(environ: Mapping[str, str]) -> Traces:
    """Return a tracer; one that does nothing unless an endpoint is set and the packages are installed."""
    if not any(environ.get(name) for name in ENDPOINT_VARIABLES):
        return NoTraces()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        log.warning("tracing is off, because OpenTelemetry is not installed; install stateward[otel]")
        return NoTraces()
    return OpenTelemetry(OTLPSpanExporter())


class OpenTelemetry:
    """Traces with OpenTelemetry."""

    def __init__(self, exporter: "SpanExporter", *, at_once: bool = False) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create({"service.name": "stateward", "service.version": __version__})
        self._provider = TracerProvider(resource=resource, id_generator=_ids(), shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(exporter) if at_once else BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("stateward", __version__)
        self._headers = TraceContextTextMapPropagator()

    def new_id(self) -> str:
        """Return an id that carries the current trace, if that is sampled."""
        from opentelemetry.trace import get_current_span

        here = get_current_span().get_span_context()
        kept = here.is_valid and here.trace_flags.sampled
        return f"{here.trace_id:032x}{token_hex(8)}" if kept else new_id()

    @contextmanager
    def call(self, scope: Mapping[str, Any]) -> Iterator[None]:
        """Trace a request, in its caller's trace if it has one; the span is named when the route is known."""
        from opentelemetry.trace import SpanKind

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with self._tracer.start_as_current_span(
            scope["method"], self._headers.extract(headers), SpanKind.SERVER
        ) as span:
            try:
                yield
            finally:
                route = scope.get("path_template") or "(none)"
                span.update_name(f"{scope['method']} {route}")
                span.set_attributes({"http.request.method": scope["method"], "http.route": route})

    @contextmanager
    def accepting(self, request: Request) -> Iterator[None]:
        """Trace an acceptance, with the span that the operation's id names."""
        planned = NEXT_SPAN_ID.set(int(request.op[32:], 16) if TRACED_ID.fullmatch(request.op) else None)
        try:
            with self._tracer.start_as_current_span(f"accept {request.action}", attributes=_attributes(request)):
                yield
        finally:
            NEXT_SPAN_ID.reset(planned)

    @contextmanager
    def handling(self, job: Job) -> Iterator[None]:
        """Trace the work of a handler, as a child of the acceptance: the operation's own, or its parent's."""
        from opentelemetry.trace import SpanKind

        operation = job.claim.operation
        facts: dict[str, str | int] = {
            "stateward.ns": job.ns,
            "stateward.object": job.object,
            "stateward.kind": operation.kind,
            "stateward.operation": operation.id,
            "stateward.lane": job.claim.work.lane,
            "stateward.attempt": job.attempt,
        }
        carried = _context_of_operation(operation.id) or _context_of_operation(operation.parent or "")
        with self._tracer.start_as_current_span(f"{job.action} {operation.kind}", carried, SpanKind.CONSUMER, facts):
            yield

    def provider_call(self, provider: str, call: str) -> None:
        """Record a provider call in the current trace; a batched call belongs to the trace of its first caller."""
        from opentelemetry.trace import SpanKind, get_current_span

        if get_current_span().get_span_context().is_valid:
            facts = {"stateward.provider": provider, "stateward.call": call}
            self._tracer.start_span(f"{call} at {provider}", kind=SpanKind.CLIENT, attributes=facts).end()

    def stop(self) -> None:
        """Send all pending spans."""
        self._provider.shutdown()


def _attributes(request: Request) -> dict[str, str]:
    return {
        "stateward.ns": request.ns,
        "stateward.object": request.object,
        "stateward.action": request.action,
        "stateward.operation": request.op,
    }


def _context_of_operation(op: str) -> "Context | None":
    """Return the trace context that an operation's id carries."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if not TRACED_ID.fullmatch(op):
        return None
    sampled = TraceFlags(TraceFlags.SAMPLED)
    context = SpanContext(int(op[:32], 16), int(op[32:], 16), is_remote=True, trace_flags=sampled)
    return set_span_in_context(NonRecordingSpan(context))


def _ids() -> Any:  # noqa: ANN401 - the class exists only where the package does
    """Return a generator of span ids that uses the fixed id once, and random ids otherwise."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class PlannedIds(RandomIdGenerator):
        """Uses `NEXT_SPAN_ID` once."""

        def generate_span_id(self) -> int:
            planned = NEXT_SPAN_ID.get()
            NEXT_SPAN_ID.set(None)
            return planned or super().generate_span_id()

    return PlannedIds()


class RequestTracer:
    """An ASGI application that traces the requests of another one."""

    def __init__(self, app: Any, traces: Traces) -> None:  # noqa: ANN401 - an ASGI application
        self._app, self._traces = app, traces

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
        """Pass a request on, and trace it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._traces.call(scope):
            await self._app(scope, receive, send)
