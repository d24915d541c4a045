import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from random import Random

import httpx
import pytest

from stateward.access import Role, Tokens
from stateward.access.tokens import ANY
from stateward.config import Config
from stateward.domains.mci.lifecycle import VM
from stateward.engine import Handler, Job, Kind
from stateward.server.app import create_app
from stateward.server.telemetry.observed_engine import ObservedEngine, with_telemetry
from stateward.server.telemetry.prometheus_metrics import ProviderCalls
from stateward.server.telemetry.traces import NoTraces, OpenTelemetry, RequestTracer, start_traces
from stateward.store import open_store
from stateward.store.filters import Selector
from tests.integration.server.live_server import AT_ONCE, PATIENT
from tests.simulated_clouds import SimulatedClouds, all_kinds

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

OBJECTS = "/api/v1/ns/a/objects"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Traced:
    """An application whose traces are kept in memory."""

    def __init__(
        self, engine: ObservedEngine, client: httpx.AsyncClient, traces: OpenTelemetry, exporter: InMemorySpanExporter
    ) -> None:
        self.engine, self.client, self.traces, self._exporter = engine, client, traces, exporter

    def spans(self) -> dict[str, ReadableSpan]:
        """Return the spans that were sent, by name."""
        return {span.name: span for span in self._exporter.get_finished_spans()}

    async def created(self, name: str, headers: Mapping[str, str]) -> str:
        """Create a VM by a call, wait for it, and return its operation."""
        answer = await self.client.post(OBJECTS, json={"id": name, "kind": "mci.vm"}, headers=headers)
        op: str = answer.json()["operation"]["id"]
        await self.engine.wait_record("a", op, PATIENT)
        return op


@pytest.fixture
async def traced() -> AsyncIterator[Traced]:
    exporter = InMemorySpanExporter()
    traces = OpenTelemetry(exporter, at_once=True)
    clouds = SimulatedClouds(AT_ONCE, Random(1))
    engine = ObservedEngine(open_store(":memory:"), all_kinds(clouds), traces)
    async with engine:
        tokens = Tokens(engine)
        text, _ = await tokens.issue("admin", Role.ADMIN, [ANY])
        app = RequestTracer(create_app(engine, tokens, Config()), traces)
        headers = {"Authorization": f"Bearer {text}"}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            yield Traced(engine, client, traces, exporter)
    traces.stop()


def ids(span: ReadableSpan) -> tuple[str, str, str | None]:
    """Return the trace, the span and the parent of a span."""
    context, parent = span.context, span.parent
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", f"{parent.span_id:016x}" if parent else None


def name_of(spans: Mapping[str, ReadableSpan], beginning: str) -> ReadableSpan:
    return next(span for name, span in spans.items() if name.startswith(beginning))


async def test_a_call_its_operation_and_the_handler_are_one_trace(traced: Traced) -> None:
    op = await traced.created("vm", {"traceparent": f"00-{TRACE}-{SPAN}-01"})
    spans = traced.spans()
    call, accept, work = (name_of(spans, name) for name in ("POST /api", "accept create", "create mci.vm"))
    assert ids(call)[::2] == (TRACE, SPAN)
    assert ids(accept)[::2] == (TRACE, ids(call)[1])
    assert ids(work)[::2] == (TRACE, ids(accept)[1])
    assert op == ids(accept)[0] + ids(accept)[1]


async def test_a_call_to_a_provider_is_part_of_the_work_that_makes_it(traced: Traced) -> None:
    calls, works = ProviderCalls(traced.traces.provider_call), asyncio.Event()

    async def work(_: Job) -> None:
        calls.count_call("aws", "run_instances")
        works.set()

    handler = with_telemetry(Kind(VM, {"create": Handler(work)}), traced.traces).handlers["create"]
    traced.engine.kinds["mci.vm"].handlers["create"] = handler
    await traced.created("vm", {"traceparent": f"00-{TRACE}-{SPAN}-01"})
    assert works.is_set()
    spans = traced.spans()
    called, handled = spans["run_instances at aws"], spans["create mci.vm"]
    assert ids(called)[::2] == (TRACE, ids(handled)[1])
    calls.count_call("aws", "describe")  # for nobody's work: it is counted, and not traced
    assert "describe at aws" not in traced.spans()


async def test_a_call_is_named_by_its_route(traced: Traced) -> None:
    await traced.client.get(f"{OBJECTS}/nobody")
    span = name_of(traced.spans(), "GET")
    assert "nobody" not in span.name
    assert span.name == "GET " + str((span.attributes or {})["http.route"])


async def test_members_of_a_group_belong_to_the_trace_of_the_whole(traced: Traced) -> None:
    whole = await traced.engine.create("a", "m", "mci.mci")
    await traced.engine.wait_record("a", whole.op.id, PATIENT)
    accepted = await traced.engine.create("a", "vm", "mci.vm", parent="m")
    await traced.engine.wait_record("a", accepted.op.id, PATIENT)
    body = {"selector": {"parent": "m", "kind": "mci.vm"}, "whole": {"object": "m", "action": "suspend"}}
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    answer = await traced.client.post("/api/v1/ns/a/actions/suspend", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    await traced.engine.wait_record("a", answer.json()["whole"]["operation"]["id"], PATIENT)
    spans = traced.spans()
    assert {ids(spans[name])[0] for name in ("suspend mci.vm", "suspend mci.mci")} == {TRACE}


async def test_a_caller_that_does_not_trace_gets_ordinary_ids(traced: Traced) -> None:
    op = await traced.created("vm", {"traceparent": f"00-{TRACE}-{SPAN}-00"})
    assert len(op) == 32


async def test_work_that_nobody_called_for_begins_a_trace_of_its_own(traced: Traced) -> None:
    accepted = await traced.engine.create("a", "vm", "mci.vm")
    await traced.engine.wait_record("a", accepted.op.id, PATIENT)
    assert ids(traced.spans()["create mci.vm"])[2] is None


async def test_no_token_is_in_a_trace(traced: Traced) -> None:
    await traced.created("vm", {"traceparent": f"00-{TRACE}-{SPAN}-01"})
    told = "".join(span.to_json() for span in traced.spans().values())
    assert "Bearer" not in told
    assert "sw_" not in told


def test_without_an_address_nothing_is_traced() -> None:
    assert isinstance(start_traces({}), NoTraces)


def test_without_the_package_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert isinstance(start_traces({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}), NoTraces)


async def test_without_traces_everything_works_the_same(traced: Traced) -> None:
    clouds = SimulatedClouds(AT_ONCE, Random(1))
    async with ObservedEngine(open_store(":memory:"), all_kinds(clouds), NoTraces()) as engine:
        accepted = await engine.create("a", "vm", "mci.vm")
        assert (await engine.wait_record("a", accepted.op.id, PATIENT)).status == "succeeded"
        found: Sequence[object] = list(await engine.store.reader.count_states(Selector("a")))
        assert found == [("mci.vm", "Running")]
