"""Isolation: an error with one system does not affect the others."""

from typing import Any

import pytest

from stateward.domains.systems.backends.port import ServiceRef, SystemRef
from stateward.domains.systems.controllers import InstanceController, SystemRollUp
from stateward.domains.systems.definition import read
from tests.integration.domains.systems.conftest import NS, SHOP, SystemsHarness, ref


@pytest.mark.parametrize(("loop", "name"), [(SystemRollUp, "refresh"), (InstanceController, "_reconcile")])
async def test_an_error_with_one_system_keeps_no_other_from_being_followed(
    harness: SystemsHarness, monkeypatch: pytest.MonkeyPatch, loop: Any, name: str
) -> None:
    await harness.ended(await harness.actions.create("bad", "simulated"))
    follow, failed = getattr(loop, name), list[SystemRef]()

    async def follow_or_fail(self: Any, subject: Any) -> None:
        system = subject if isinstance(subject, SystemRef) else subject.system
        if system.system == "bad":
            failed.append(system)
            raise ValueError("broken")
        await follow(self, subject)

    monkeypatch.setattr(loop, name, follow_or_fail)
    await harness.ended(await harness.actions.deploy("bad", "/", read(SHOP)))
    await harness.deployed("/", SHOP)
    await harness.becomes("shop", "stable")
    harness.backend.crash(ServiceRef(SystemRef(NS, "bad"), "/web"))
    harness.backend.crash(ref("/web"))
    await harness.becomes("shop", "degraded")
    assert failed
