"""All drivers under one contract; `driver_case.py` says how to add a driver."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from stateward.testing.virtual_loop import VirtualLoop

SUITE = (
    "driver_case",
    "create_contract",
    "action_contract",
    "listing_contract",
    "resource_contract",
    "bulk_contract",
    "takeover_contract",
    "fault_contract",
    "conformance",
)

pytest.register_assert_rewrite(*(f"tests.contract.drivers.{name}" for name in SUITE))


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let a file's tests run in virtual time if it says `VIRTUAL_TIME = True`; the others really wait."""
    assert isinstance(item, pytest.Function)
    virtual = getattr(item.module, "VIRTUAL_TIME", False)
    return {"virtual": VirtualLoop} if virtual else {"real": asyncio.new_event_loop}
