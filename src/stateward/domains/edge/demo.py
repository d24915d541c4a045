"""The demo: a few cloudlets with simulated agents in this process, and random actions on them."""

import asyncio
from contextlib import suppress
from random import Random

from stateward.agents.agent import Agent
from stateward.agents.inprocess import InProcessDialer
from stateward.agents.self_upgrade import NoUpgrade
from stateward.agents.simulation import SimulatedSite
from stateward.aio.supervise import background
from stateward.domains.edge.agents.cloudlet_hub import CloudletHub
from stateward.domains.edge.lifecycle import APP, APPINST, CLUSTERINST, FLAVOR
from stateward.domains.edge.model import AppSpec, CloudletSpec, ClusterInst, FlavorSpec, app_id, cluster_id
from stateward.domains.edge.service import Service
from stateward.engine import Denied
from stateward.schemas.caller import Caller
from stateward.store.errors import StoreError

NS = "demo"
TOWNS = ("oslo", "turku", "tallinn")
BY = Caller(who="demo")
PAUSE_S = 4.0
MAX_STEP_S = 0.9
APPS = {"vision": "sleep 1000", "games": "sleep 1000"}


async def run_demo(service: Service, hub: CloudletHub, chance: Random) -> None:
    """Run agents and random actions until cancelled."""
    agents = [_agent(hub, town, chance) for town in TOWNS]
    async with background(*(agent.run() for agent in agents)):
        await _set_up(service)
        while True:
            with suppress(Denied, StoreError):
                await _do_something(service, chance)
            await asyncio.sleep(chance.uniform(0.5, 1.5) * PAUSE_S)


def _agent(hub: CloudletHub, town: str, chance: Random) -> Agent:
    site = SimulatedSite(pace=chance.uniform(MAX_STEP_S / 3, MAX_STEP_S), steps=4)
    return Agent(site, InProcessDialer(hub, NS, town, retry_delay_s=1.0), "1.0", NoUpgrade())


async def _set_up(service: Service) -> None:
    await service.put_record(NS, FLAVOR.kind, "small", FlavorSpec("small"), BY)
    for name, command in APPS.items():
        await service.put_record(NS, APP.kind, name, AppSpec(command), BY)
    for town in TOWNS:
        with suppress(Denied):
            await service.create_cloudlet(NS, town, CloudletSpec(), BY)


async def _do_something(service: Service, chance: Random) -> None:
    """Create, change or delete a random cluster or app."""
    town, cluster, app = chance.choice(TOWNS), "k8s", chance.choice(list(APPS))
    match chance.choice(("cluster", "app", "app", "scale", "refresh", "remove")):
        case "cluster":
            await service.create_cluster(NS, town, cluster, ClusterInst(flavor="small", nodes=2), BY)
        case "app":
            await service.create_app(NS, town, cluster, app, BY)
        case "scale":
            change = {"nodes": chance.randint(1, 5)}
            await service.update(NS, cluster_id(town, cluster), CLUSTERINST.kind, change, BY)
        case "refresh":
            await service.refresh(NS, app_id(town, cluster, app), BY)
        case _:
            await service.delete(NS, app_id(town, cluster, app), APPINST.kind, BY)
