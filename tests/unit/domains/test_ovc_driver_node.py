"""A node on a machine driver: what it says about a machine that has ended, and what it keeps of all of them."""

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from stateward.domains.ovc.nodes import NodeMachine, Power
from stateward.domains.ovc.nodes.driver_node import DriverNode
from stateward.drivers import CallAccepted, Driver, MachineListing, MachineSpec, MachineState, Observation
from stateward.engine import Permanent


class FailingDriver:
    """A driver all of whose machines have failed."""

    caps = SimpleNamespace(listing_lag_s=-1.0)

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[CallAccepted]:
        return [CallAccepted(one.key) for one in machine_specs]

    async def observe(self, keys: Collection[str]) -> MachineListing:
        details = {key: {"complaint": f"{key} broke"} for key in keys}
        machines = [Observation(key, "", MachineState.FAILED, "failed", details=details[key]) for key in keys]
        return MachineListing(machines, complete=True)


async def test_a_start_that_fails_says_why_and_nothing_is_kept_of_machines_that_have_ended() -> None:
    node = DriverNode(cast("Driver", FailingDriver()), "any")
    for number in range(3):
        with pytest.raises(Permanent, match=f"machine m{number} is not there: m{number} broke"):
            await node.start(NodeMachine(f"m{number}", "vm", "tiny"))
        assert await node.get_power(f"m{number}") is Power.OFF
    assert not [kept for kept in vars(node).values() if isinstance(kept, dict) and kept]
