"""Random specs and arguments of a kind with types: each is accepted, or refused with its field."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateward.engine.typed_values import value_type
from tests.integration.engine.record_kinds import Change, RecordSpec, RecordWork
from tests.integration.server.server_harness import NS, Answer, ServerHarness, open_server
from tests.long_forms import examples
from tests.unit.engine.test_typed_values_fuzz import fitting, values


@asynccontextmanager
async def furnished() -> AsyncIterator[ServerHarness]:
    async with open_server(also=[RecordWork().kind()]) as harness:
        body = {"id": "www", "kind": "dns.record", "spec": {"address": "192.0.2.1"}}
        await harness.ended(await harness.post(f"/ns/{NS}/objects", body))
        yield harness


def near(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Return values that fit a type, values that almost do, and any others."""
    fits = fitting(value_type(struct).schema)
    return fits | st.builds(lambda one, more: {**one, **more}, fits, st.dictionaries(st.text(), values)) | values


def test_any_spec_is_accepted_or_refused_with_its_field() -> None:
    numbers = count()
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(furnished()) as harness:

        async def create(spec: Any) -> Answer:
            return await harness.post(
                f"/ns/{NS}/objects", {"id": f"n{next(numbers)}", "kind": "dns.record", "spec": spec}
            )

        async def change(args: Any) -> Answer:
            return await harness.post(
                f"/ns/{NS}/plan", {"requests": [{"object": "www", "action": "change", "args": args}]}
            )

        @settings(max_examples=examples(100), deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(spec=near(RecordSpec), args=near(Change))
        def check(spec: Any, args: Any) -> None:
            for answer, allowed in ((portal.call(create, spec), 202), (portal.call(change, args), 200)):
                assert answer.status_code in (allowed, 400, 422), answer.text
                if answer.status_code >= 400:
                    assert answer.json()["field"]
            if isinstance(spec, dict):  # its type is that of the body
                assert portal.call(create, spec).status_code in (202, 422)

        check()
