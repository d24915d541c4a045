"""The plug-in of the systems domain: its kinds and routes, and the controllers of instances and services."""

from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from litestar.types import ControllerRouterHandler

from stateward.aio.supervise import Loop, background, supervise
from stateward.containers import EngineClient, EngineTls
from stateward.domains.systems.address_choice import AllowedPorts
from stateward.domains.systems.api import routes
from stateward.domains.systems.backends.container import ContainerBackend
from stateward.domains.systems.backends.container.container_backend import reach_of
from stateward.domains.systems.backends.local import LocalBackend
from stateward.domains.systems.backends.names import CONTAINER, LOCAL, NODES, SIMULATED
from stateward.domains.systems.backends.nodes_backend import NodesBackend
from stateward.domains.systems.backends.port import Backend, ReadSecrets, SystemRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.change_planner import leaving_parts
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.controllers import InstanceController, SystemRollUp, log
from stateward.domains.systems.demo import SystemsDemo
from stateward.domains.systems.deploy_handlers import DeployHandlers
from stateward.domains.systems.job_api import JOB_ROUTES
from stateward.domains.systems.job_handlers import JobHandlers
from stateward.domains.systems.lifecycle import ADDRESS, DEPLOY, JOB, NODEPOOL, SERVICE, SYSTEM, TEARDOWN, USAGE
from stateward.domains.systems.model import ChangeSpec, DesiredService, spec_of
from stateward.domains.systems.nodes.node_actions import node_kinds
from stateward.domains.systems.nodes.node_controller import NodeController
from stateward.domains.systems.object_ids import system_of
from stateward.domains.systems.retention import ChangeRetention
from stateward.domains.systems.secrets.key_rotation import KeyRotation
from stateward.domains.systems.secrets.keyring import KeyRing, take_environment_keys
from stateward.domains.systems.secrets.secret_actions import SecretReader
from stateward.domains.systems.secrets.secret_model import secret_kind
from stateward.domains.systems.service_handlers import ServiceHandlers
from stateward.domains.systems.settings import SystemsSettings
from stateward.domains.systems.system_handlers import SystemHandlers
from stateward.engine import Engine, Kind, Request
from stateward.lifecycle import CONTROLLER, GONE
from stateward.plugin.runtime import DomainRuntime, ExpectedChange, PartAction, ProcessContext
from stateward.store.errors import StoreError
from stateward.store.filters import Selector
from stateward.store.records import Object

SIMULATED_DELAY = 1.0


class SystemsRuntime(DomainRuntime):
    """The systems domain in a process."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        settings: SystemsSettings | None = None,
        secrets: SecretReader | None = None,
        random: Random | None = None,
        server_url: str = "",
        server_port: int = 0,
    ) -> None:
        settings, secrets = settings or SystemsSettings(), secrets or SecretReader(KeyRing())
        random = random or Random()  # noqa: S311 - for jitter and ports
        ports = AllowedPorts(settings.address_ports, random, server_port)
        self.context = SystemContext(backends, settings, secrets, ports)
        self.roll_ups = SystemRollUp(self.context)
        self.records = ChangeRetention(self.context)
        self.jobs = JobHandlers(self.context)
        kinds = [
            SystemHandlers(self.context, self.records).kind(),
            *ServiceHandlers(self.context).kinds(),
            *DeployHandlers(self.context, self.roll_ups).kinds(),
            secret_kind(secrets.keys),
            KeyRotation(secrets).kind(),
            *self.jobs.kinds(),
            *node_kinds(),
            Kind(ADDRESS, general=False),
            Kind(USAGE, general=False),
        ]
        self.nodes = NodeController(self.context, random, server_url)
        super().__init__(kinds)

    @cached_property
    def routes(self) -> Sequence[ControllerRouterHandler]:
        """Its HTTP routes, made when a server asks for them."""
        return routes(self.context, lambda: self.nodes.hub, JOB_ROUTES)

    def bind_engine(self, engine: Engine) -> None:
        """Give the engine to the domain's context."""
        self.context.engine = self.context.secrets.engine = engine
        self.nodes.bind_engine(engine)

    @asynccontextmanager
    async def running(self, engine: Engine, *, works: bool) -> AsyncIterator[None]:  # noqa: ARG002 - bound before
        """Serve the agents of nodes; in a process that has a worker, run the backends and the controllers."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.nodes.running(works=works))
            if not works:
                yield
                return
            for name, backend in self.context.backends.items():
                await stack.enter_async_context(backend.live())
                watch = InstanceController(self.context, name, backend)
                await stack.enter_async_context(background(_supervised(f"watch of the {name} backend", watch.run)))
            loops = (
                ("roll-up of systems", self.roll_ups.run),
                ("retention of system records", self.records.run),
                ("retention of job runs", self.jobs.prune_loop),
            )
            await stack.enter_async_context(background(*(_supervised(*loop) for loop in loops)))
            yield

    async def find_part_actions(self, request: Request, record: Object) -> Sequence[PartAction]:
        """Return the services, jobs and node pools that a delete, a teardown or a deploy removes."""
        if (record.kind, request.action) == (DEPLOY.kind, "deploy"):
            leaving = await self._leaving_parts(record)
            return [PartAction(Selector(record.ns, ids=leaving), "delete", actor=CONTROLLER)] if leaving else ()
        system = {(SYSTEM.kind, "delete"): record.id, (TEARDOWN.kind, "teardown"): record.parent}
        if (record.kind, request.action) not in system:
            return ()
        return [
            PartAction(
                Selector(record.ns, lifecycle.kind, system[record.kind, request.action]), "delete", actor=CONTROLLER
            )
            for lifecycle in (SERVICE, JOB, NODEPOOL)
        ]

    async def _leaving_parts(self, deploy: Object) -> tuple[str, ...]:
        change, system_ref = spec_of(deploy, ChangeSpec), SystemRef(deploy.ns, system_of(deploy.id))
        if change is None:
            return ()
        parts = [*await self.context.services(system_ref), *await self.context.pools(system_ref)]
        parts += await self.context.jobs(system_ref)
        return tuple(part.id for part in leaving_parts(system_ref.system, change, parts))

    async def describe_effects(self, request: Request, changes: Sequence[ExpectedChange]) -> Sequence[str]:  # noqa: ARG002
        """Return how many instances stop with the services that are removed."""
        gone = [change.object for change in changes if change.object.kind == SERVICE.kind and change.desired == GONE]
        wanted = [spec_of(service, DesiredService) for service in gone]
        count = sum(desired.service.instances for desired in wanted if desired is not None)
        return (f"{count:,} {'instance is' if count == 1 else 'instances are'} stopped",) if count else ()

    async def demo(self, engine: Engine) -> None:
        """Keep a system of simulated services in motion."""
        backend = self.context.backends.get(SIMULATED)
        if isinstance(backend, SimulatedBackend):
            await _supervised("demo of systems", SystemsDemo(engine, backend).run)


def _supervised(name: str, loop: Loop) -> Coroutine[Any, Any, None]:
    return supervise(name, loop, log, transient=StoreError)


def create_runtime(context: ProcessContext) -> SystemsRuntime:
    """Create the plug-in."""
    settings: SystemsSettings = context.settings.get("systems") or SystemsSettings()
    given = take_environment_keys(settings.secrets_key_file)
    keys = KeyRing(context.data_dir, settings.secrets_key_file, given, is_embedded=context.is_embedded)
    secrets = SecretReader(keys)
    local = LocalBackend(context.data_dir / "systems", context.confinement, secrets.values)
    nodes = NodesBackend(context.data_dir / "addresses", context.random)
    backends: dict[str, Backend] = {LOCAL: local, SIMULATED: SimulatedBackend(SIMULATED_DELAY), NODES: nodes}
    if settings.container_engine:
        backends[CONTAINER] = open_engine(context.data_dir / "containers", settings, secrets.values)
    return SystemsRuntime(backends, settings, secrets, context.random, context.server_url, context.server_port)


def open_engine(folder: Path, settings: SystemsSettings, read_secrets: ReadSecrets) -> ContainerBackend:
    """Return the backend for the engine that the settings name."""
    files = (settings.container_ca_file, settings.container_cert_file, settings.container_key_file)
    tls = EngineTls(*files) if settings.container_ca_file else None
    engine = EngineClient(settings.container_engine, tls)
    reach, is_open = reach_of(settings.container_engine), settings.container_open_networks
    return ContainerBackend(folder, engine, reach, read_secrets, open_networks=is_open)
