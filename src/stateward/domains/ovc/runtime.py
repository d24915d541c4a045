"""The plug-in of the ovc domain: its kinds with their handlers and guards, its API, and drift detection."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stateward.aio.supervise import background
from stateward.domains.ovc.container_handlers import ContainerHandlers
from stateward.domains.ovc.demo import OvcDemo
from stateward.domains.ovc.drift_detector import DriftDetector
from stateward.domains.ovc.end_hooks import on_end
from stateward.domains.ovc.guards.common_guard import NAME_LABELS, account_lock_set
from stateward.domains.ovc.guards.container_guard import guard_account, guard_cloudspace
from stateward.domains.ovc.guards.node_guard import guard_node
from stateward.domains.ovc.guards.storage_guard import disk_lock_set, guard_disk, guard_image
from stateward.domains.ovc.guards.vm_guard import guard_vm, vm_lock_set
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, NODE, VM
from stateward.domains.ovc.machine_handlers import OvcVmHandlers
from stateward.domains.ovc.node_handlers import NodeHandlers
from stateward.domains.ovc.node_privacy import PRIVACY, hide_nodes_in_errors
from stateward.domains.ovc.nodes import DiskStore, FileDiskStore, NodeRegistry, NoDiskStore
from stateward.domains.ovc.service import Service
from stateward.domains.ovc.settings import Settings, read_settings, with_timeouts
from stateward.domains.ovc.storage_handlers import DiskHandlers, ImageHandlers
from stateward.drivers.simulated import SimulatedCloud
from stateward.engine import Engine
from stateward.engine.privacy import PUBLIC
from stateward.plugin.runtime import DomainRuntime, ProcessContext

if TYPE_CHECKING:
    from litestar.types import ControllerRouterHandler

FOLDER = "ovc"


class OvcRuntime(DomainRuntime):
    """The ovc domain in a process."""

    service: Service
    drift_detector: DriftDetector

    def __init__(
        self, context: ProcessContext, settings: Settings | None = None, *, cloud: SimulatedCloud | None = None
    ) -> None:
        settings = settings or read_settings(context.data_dir)
        self.nodes = NodeRegistry(
            context.data_dir / FOLDER, cloud=cloud, called=context.on_provider_call, confinement=context.confinement
        )
        self.disk_store: DiskStore = (
            FileDiskStore(context.data_dir / FOLDER / "vault") if settings.files else NoDiskStore()
        )
        self._chance, self._every = context.random, settings.look_every
        containers = ContainerHandlers(self.nodes)
        by = with_timeouts(settings.timeouts)
        kinds = [
            OvcVmHandlers(self.nodes, self.disk_store).kind(by[VM.kind], guard_vm, vm_lock_set, on_end),
            containers.cloudspaces(by[CLOUDSPACE.kind], guard_cloudspace, account_lock_set, on_end),
            containers.accounts(by[ACCOUNT.kind], guard_account, account_lock_set, on_end),
            DiskHandlers(self.nodes, self.disk_store).kind(by[DISK.kind], guard_disk, disk_lock_set, on_end),
            ImageHandlers(self.disk_store).kind(
                by[IMAGE.kind], partial(guard_image, self.disk_store), account_lock_set, on_end
            ),
            NodeHandlers(self.nodes).kind(by[NODE.kind], guard_node, on_end),
        ]
        for kind in kinds:
            kind.rules, kind.privacy = replace(kind.rules, reserved_labels=NAME_LABELS), PRIVACY.get(kind.name, PUBLIC)
        super().__init__([hide_nodes_in_errors(kind, self.nodes) for kind in kinds])

    @cached_property
    def routes(self) -> "Sequence[ControllerRouterHandler]":
        """Its HTTP routes, made when a server asks for them."""
        from stateward.domains.ovc.api.routes import ovc_routes  # a worker alone must not wait for the web framework

        return ovc_routes()

    def bind_engine(self, engine: Engine) -> None:
        """Create the parts of the domain that need the engine."""
        self.nodes.reader = engine.store.reader
        self.service = Service(engine)
        self.drift_detector = DriftDetector(engine, self.nodes, self._chance, self._every, disk_store=self.disk_store)

    @asynccontextmanager
    async def running(self, engine: Engine, *, works: bool) -> AsyncIterator[None]:  # noqa: ARG002 - bound before
        """Detect drift on the nodes where there is a worker; close the nodes at the end."""
        loops = [self.drift_detector.run()] if works and self._every else []
        try:
            async with background(*loops):
                yield
        finally:
            await self.nodes.close()

    async def demo(self, engine: Engine) -> None:  # noqa: ARG002 - bound before
        """Keep a small cloud in motion, for the demo, until cancelled."""
        await OvcDemo(self.service, self._chance).run()


def create_runtime(context: ProcessContext) -> DomainRuntime:
    """Create the plug-in."""
    return OvcRuntime(context)
