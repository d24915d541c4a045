"""The demo of the leases domain: a small pool of hosts, and a user who reserves one again and again."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

from stateward.domains.leases.host_service import HostService
from stateward.domains.leases.resources import PhysicalHosts
from stateward.domains.leases.service import LeaseCaller, LeaseService
from stateward.domains.leases.wire_values import MINUTE_FORMAT
from stateward.engine import Denied
from stateward.store.errors import StoreError

USER = LeaseCaller(who="the demo's user", ns="demo")
HOSTS = 4
LEASE_LENGTH_S = 120
PAUSE_S = 20.0


async def run_demo(leases: LeaseService, hosts: HostService) -> None:
    """Reserve a host for two minutes, again and again, until cancelled."""
    for number in range(HOSTS):
        with suppress(Denied):
            await hosts.register(USER, {"name": f"rack-{number}", "vcpus": 16, "memory_mb": 65536})
    while True:
        with suppress(Denied, StoreError, TimeoutError):
            for lease in await leases.list(USER.ns):
                if lease.object.state in ("TERMINATED", "ERROR"):
                    await leases.delete(USER, lease.object.id)
            now = await leases.engine.store.reader.time()
            end = datetime.fromtimestamp(now + LEASE_LENGTH_S, UTC).strftime(MINUTE_FORMAT)
            reservation = {"resource_type": PhysicalHosts.name, "min": 1, "max": 1}
            await leases.create(USER, {"name": f"until {end}", "end_date": end, "reservations": [reservation]})
        await asyncio.sleep(PAUSE_S)
