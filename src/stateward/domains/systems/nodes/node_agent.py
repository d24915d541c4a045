"""The agent of a node: the agent of `stateward.agents`, with a site of instances, a lease and a capacity."""

import os
from ipaddress import ip_address
from pathlib import Path
from random import Random

from msgspec import Struct

from stateward import __version__
from stateward.agents.agent import Agent
from stateward.agents.dialer import WebSocketDialer
from stateward.agents.messages import SiteBackend
from stateward.agents.secret_requests import SecretRequests
from stateward.agents.self_upgrade import SelfUpgrade, read_installation
from stateward.agents.site import SiteCapacity
from stateward.config import load
from stateward.containers import EngineClient
from stateward.domains.systems.backends.local.launch import HostPlace
from stateward.domains.systems.nodes.container_fence import save_engine, sees_container
from stateward.domains.systems.nodes.node_lease import LeaseFile, NodeLease, Watchdog
from stateward.domains.systems.nodes.node_site import NodeSite
from stateward.errors import BadInput
from stateward.procfs import host_cores, host_memory
from stateward.workloads.confinement import Confinement, confinement_of, seal_process

AGENTS_PATH = "/api/v1/systems/-/nodes"


class NodeAgentOptions(Struct, frozen=True):
    """The options of a node's agent; without `cpus` or `memory`, all that its host has."""

    node: str
    controllers: tuple[str, ...]
    namespace: str
    address: str
    folder: Path
    token_file: Path
    cpus: float | None = None
    memory: int | None = None
    slots: int = 100
    container_engine: str = ""


def host_capacity(options: NodeAgentOptions) -> SiteCapacity:
    """Return the room for instances: what the host has, or the given limits."""
    memory = (options.memory or 0) * 2**20 or host_memory()
    return SiteCapacity(options.cpus or float(host_cores()), memory, options.slots, options.address)


def host_confinement(options: NodeAgentOptions) -> Confinement:
    """Return the confinement of instances: they cannot read the agent's token, folder and environment."""
    seal_process()
    return confinement_of(load({}, os.environ, None).config, [options.token_file.resolve(), options.folder])


def open_container_engine(options: NodeAgentOptions) -> EngineClient | None:
    """Return the client of the host's container engine, if the node is to have one.

    Only an engine on this host will do: at the end of the lease, its containers are killed without its help.
    """
    if not options.container_engine:
        return None
    if not options.container_engine.startswith("unix://"):
        raise BadInput("--container-engine", options.container_engine, "the engine of this host, as unix:///PATH")
    try:
        ip_address(options.address)
    except ValueError:
        raise BadInput(
            "--address", options.address, "an IP address, where the ports of containers are published"
        ) from None
    return EngineClient(options.container_engine)


async def run_node_agent(options: NodeAgentOptions, token: str) -> None:
    """Run an agent until a signal stops it; its instances go on until the end of the lease."""
    folder, engine = options.folder, open_container_engine(options)
    upgrades = SelfUpgrade(folder, folder / "releases", __version__, [])  # it holds the lock of the folder
    where = options.controllers, AGENTS_PATH, options.namespace, options.node
    dialer = WebSocketDialer(*where, token, Random())  # noqa: S311 - for jitter
    secrets = SecretRequests(lambda: dialer.is_private)
    place = HostPlace(options.address, LeaseFile(folder).is_valid, sees_container)
    site = NodeSite(folder, options.node, place, host_confinement(options), secrets.values, engine)
    if engine is None and (count := site.count_containers()):
        raise BadInput("--container-engine", None, f"given: {count} containers of this node need it; drain it first")
    save_engine(folder, options.container_engine)
    offered = (SiteBackend.PROCESS,) if engine is None else (SiteBackend.PROCESS, SiteBackend.CONTAINER)
    made = Agent(
        site,
        dialer,
        __version__,
        upgrades,
        installation=read_installation(folder),
        capacity=host_capacity(options),
        lease=NodeLease(folder, Watchdog(folder), site.stop_all),
        statuses=site.statuses,
        backends=dict.fromkeys(offered, site),
        secrets=secrets,
        engine=site,
    )
    await site.start()
    try:
        await made.run_until_stopped()
    finally:
        if engine is not None:
            await engine.close()
