"""All drivers under one contract; `driver_case.py` says how to add a driver."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

from stateward.testing.virtual_loop import VirtualLoop

SUITE = (
    "driver_case",
    "create_contract",
    "action_contract",
    "adoption_contract",
    "listing_contract",
    "login_contract",
    "resource_contract",
    "bulk_contract",
    "takeover_contract",
    "fault_contract",
    "real_accounts",
    "conformance",
)

pytest.register_assert_rewrite(*(f"tests.contract.drivers.{name}" for name in SUITE))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Leave to `make prove` what the `short_form` of a class does not name, if it has one: its provider is slow."""
    for item in items:
        short_form = getattr(getattr(item, "cls", None), "short_form", None)
        if short_form is not None and getattr(item, "originalname", "") not in short_form:
            item.add_marker(pytest.mark.long)


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let a file's tests run in virtual time if it says `VIRTUAL_TIME = True`; the others really wait."""
    assert isinstance(item, pytest.Function)
    virtual = getattr(item.module, "VIRTUAL_TIME", False)
    return {"virtual": VirtualLoop} if virtual else {"real": asyncio.new_event_loop}
