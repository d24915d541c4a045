"""One bad system: an error with it is its own, and the others are followed all the same."""

from typing import Any

import pytest

from stateward.domains.systems.backends.port import ServiceRef, SystemRef
from stateward.domains.systems.controllers import InstanceController, SystemRollUp
from stateward.domains.systems.definition import read
from tests.integration.domains.systems.conftest import NS, SHOP, Stand, ref


@pytest.mark.parametrize(("loop", "name"), [(SystemRollUp, "refresh"), (InstanceController, "_reconcile")])
async def test_an_error_with_one_system_keeps_no_other_from_being_followed(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, loop: Any, name: str
) -> None:
    await stand.ended(await stand.actions.create("bad", "simulated"))
    follow, failed = getattr(loop, name), list[SystemRef]()

    async def follow_or_fail(self: Any, subject: Any) -> None:
        system = subject if isinstance(subject, SystemRef) else subject.system
        if system.system == "bad":
            failed.append(system)
            raise ValueError("broken")
        await follow(self, subject)

    monkeypatch.setattr(loop, name, follow_or_fail)
    await stand.ended(await stand.actions.deploy("bad", "/", read(SHOP)))
    await stand.deployed("/", SHOP)
    await stand.becomes("shop", "stable")
    stand.backend.crash(ServiceRef(SystemRef(NS, "bad"), "/web"))
    stand.backend.crash(ref("/web"))
    await stand.becomes("shop", "degraded")
    assert failed
