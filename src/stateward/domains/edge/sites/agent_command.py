"""`stateward agent`: an agent that runs the clusters and apps of a cloudlet on this machine."""

import os
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from stateward import __version__
from stateward.agents.messages import SiteBackend
from stateward.client.output import out
from stateward.client.target import read_token_file
from stateward.errors import BadInput
from stateward.naming import ADDRESS_PORTS, PORT_RANGES
from stateward.validation_texts import PATTERN_MEANINGS

if TYPE_CHECKING:
    from stateward.agents.site import AgentSite, SiteCapacity

AGENTS_PATH = "/api/v1/edge/agents"
"""The route of the edge API that agents connect to."""


class Drivers(StrEnum):
    """The drivers that an agent can use."""

    PROCESS = "process"
    SIMULATED = "simulated"


Controllers = Annotated[
    list[str],
    typer.Option(
        "--controller", metavar="URL", help="wss://HOST:PORT of a controller. Repeatable: any of them will do."
    ),
]
CloudletName = Annotated[str, typer.Option("--cloudlet", metavar="NAME", help="The cloudlet to work for.")]
TokenFile = Annotated[Path, typer.Option("--token-file", metavar="FILE", help="A file with an agent's token.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="The cloudlet's namespace.")]
Driver = Annotated[Drivers, typer.Option("--driver", help="The driver that runs clusters and apps.")]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The folder in which the agent stores its state.")
]
Releases = Annotated[
    Path | None,
    typer.Option(
        "--releases", metavar="DIR", help="A folder with other versions, for upgrades: DIR/VERSION/stateward."
    ),
]
Backends = Annotated[
    list[SiteBackend] | None,
    typer.Option(
        "--backend", help="A back end to offer; the cloudlet says which one is used. Repeatable. Default: process."
    ),
]
EngineAddress = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="ADDRESS",
        help="For containers: the address of Docker or Podman, unix:///PATH. Whoever reaches it is root on this host.",
    ),
]
PublishAt = Annotated[
    str, typer.Option("--publish-at", metavar="IP", help="For containers: the address at which ports are published.")
]
AddressPorts = Annotated[
    str,
    typer.Option(
        "--address-ports", metavar="PORTS", help="For containers: ports of this host that apps can name as host_port."
    ),
]
Images = Annotated[
    Path | None,
    typer.Option("--images", metavar="DIR", help="For containers: a folder of image archives that apps may name."),
]
Logins = Annotated[
    Path | None,
    typer.Option(
        "--registry-logins", metavar="FILE", help="For containers: a JSON file with the logins of registries."
    ),
]
Look = Annotated[
    float, typer.Option("--look-every", metavar="SECONDS", min=0.05, help="Seconds between two observations.")
]
Cores = Annotated[
    float | None,
    typer.Option("--cores", min=0, metavar="NUMBER", help="Cores for clusters; 0: no limit. Default: this machine's."),
]
Memory = Annotated[
    int | None,
    typer.Option("--memory", min=0, metavar="MIB", help="Memory for clusters; 0: no limit. Default: this machine's."),
]
Heir = Annotated[int, typer.Option("--heir", hidden=True)]


def agent(
    controller: Controllers,
    cloudlet: CloudletName,
    token_file: TokenFile,
    namespace: Namespace = "default",
    driver: Driver = Drivers.PROCESS,
    data: Data = None,
    releases: Releases = None,
    backend: Backends = None,
    engine: EngineAddress = "unix:///run/podman/podman.sock",
    publish_at: PublishAt = "127.0.0.1",
    address_ports: AddressPorts = ADDRESS_PORTS,
    images: Images = None,
    registry_logins: Logins = None,
    look_every: Look = 5.0,
    cores: Cores = None,
    memory: Memory = None,
    heir: Heir = 0,
) -> None:
    """Run the agent of a cloudlet on this machine.

    It creates clusters and apps here, and reports their state to a controller.
    """
    import asyncio
    import logging
    from random import Random

    from stateward.agents.agent import Agent
    from stateward.agents.dialer import WebSocketDialer
    from stateward.agents.self_upgrade import SelfUpgrade, read_installation
    from stateward.workloads.confinement import seal_process

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    for chatty in ("websockets", "httpx"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    folder = (data or Path(f"stateward-agent-{cloudlet}")).absolute()
    caller = WebSocketDialer(controller, AGENTS_PATH, namespace, cloudlet, read_token_file(token_file).text, Random())  # noqa: S311 - for jitter
    succession = SelfUpgrade(folder, releases or folder / "releases", __version__, _arguments(sys.argv), heir)
    identity = read_installation(folder)
    seal_process()
    offered = list(dict.fromkeys(backend or [SiteBackend.PROCESS]))
    if not re.match(PORT_RANGES, address_ports):
        raise BadInput("--address-ports", address_ports, PATTERN_MEANINGS[PORT_RANGES])
    containers = _ContainerChoices(engine, publish_at, address_ports, images, registry_logins)
    sites: dict[str, AgentSite] = {
        site_backend: _site(site_backend, driver, folder, token_file, identity, containers) for site_backend in offered
    }
    made = Agent(
        sites[offered[0]],
        caller,
        __version__,
        succession,
        observe_interval_s=look_every,
        installation=identity,
        capacity=_capacity(cores, memory),
        backends=sites,
    )
    out().print(f"agent of {namespace}/{cloudlet}, version {__version__}, starts in {folder}", markup=False)
    out().print(f"installation {identity}", markup=False)
    asyncio.run(made.run_until_stopped())


class _ContainerChoices(NamedTuple):
    """The options of the container back end."""

    engine: str
    publish_at: str
    address_ports: str
    images: Path | None
    logins: Path | None


def _site(
    backend: SiteBackend, driver: Drivers, folder: Path, token_file: Path, installation: str, choices: _ContainerChoices
) -> "AgentSite":
    """Return the site of a back end; apps cannot read the agent's token, folder and environment (`confinement`)."""
    if driver is Drivers.PROCESS and backend is SiteBackend.CONTAINER:
        from stateward.containers import EngineClient
        from stateward.domains.edge.sites.container_images import read_logins
        from stateward.domains.edge.sites.container_site import ContainerOptions, ContainerSite

        logins = {} if choices.logins is None else read_logins(choices.logins)
        options = ContainerOptions(choices.publish_at, choices.images, logins, address_ports=choices.address_ports)
        return ContainerSite(folder, EngineClient(choices.engine), installation, options)
    if driver is Drivers.PROCESS:
        from stateward.config import load
        from stateward.domains.edge.sites.process_site import ProcessSite
        from stateward.workloads.confinement import confinement_of

        hidden = [token_file, *([] if choices.logins is None else [choices.logins])]
        return ProcessSite(folder, confinement_of(load({}, os.environ, None).config, hidden))
    from stateward.agents.simulation import SimulatedSite

    return SimulatedSite(pace=0.2, steps=3)


def _capacity(cores: float | None, memory: int | None) -> "SiteCapacity":
    """Return what clusters may use: the limits that are given, or what this machine has."""
    from stateward.agents.site import SiteCapacity
    from stateward.procfs import host_cores, host_memory

    return SiteCapacity(
        float(host_cores()) if cores is None else cores, host_memory() if memory is None else memory * 2**20
    )


def _arguments(argv: list[str]) -> list[str]:
    """Return the arguments of a successor: those of this process, without `--heir`."""
    given = argv[argv.index("agent") + 1 :] if "agent" in argv else []
    return given[: given.index("--heir")] if "--heir" in given else given
