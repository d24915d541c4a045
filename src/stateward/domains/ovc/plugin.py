"""The plug-in of the ovc domain: its kinds with their handlers and guards, its API, and drift detection."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from stateward.aio.supervise import background
from stateward.domains.ovc.api.routes import ovc_routes
from stateward.domains.ovc.container_handlers import Containers
from stateward.domains.ovc.demo import OvcDemo
from stateward.domains.ovc.drift_detector import Rounds
from stateward.domains.ovc.end_hooks import after
from stateward.domains.ovc.firewalls import Firewalls
from stateward.domains.ovc.guards.common_guard import FOUND_BY
from stateward.domains.ovc.guards.container_guard import company_of_container, guard_account, guard_cloudspace
from stateward.domains.ovc.guards.node_guard import guard_node
from stateward.domains.ovc.guards.storage_guard import company_of_disk, company_of_image, guard_disk, guard_image
from stateward.domains.ovc.guards.vm_guard import company_of_vm, guard_vm
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, NODE, VM
from stateward.domains.ovc.node_handlers import Hosts
from stateward.domains.ovc.node_privacy import PRIVACY, without_nodes_in_errors
from stateward.domains.ovc.nodes import FileVault, Nodes, NoVault, Vault
from stateward.domains.ovc.service import Service
from stateward.domains.ovc.settings import Settings, read_settings, timed
from stateward.domains.ovc.storage_handlers import Disks, Images
from stateward.domains.ovc.vm_handlers import Vms
from stateward.domains.plugin import DomainPlugin, ProcessContext
from stateward.drivers.simulated import SimulatedCloud
from stateward.engine import Engine
from stateward.engine.privacy import PUBLIC

FOLDER = "ovc"


class OvcPlugin(DomainPlugin):
    """The ovc domain in a process."""

    service: Service
    rounds: Rounds

    def __init__(
        self, context: ProcessContext, settings: Settings | None = None, *, cloud: SimulatedCloud | None = None
    ) -> None:
        settings = settings or read_settings(context.data_dir)
        self.nodes = Nodes(
            context.data_dir / FOLDER, cloud=cloud, called=context.on_provider_call, confinement=context.confinement
        )
        self.vault: Vault = FileVault(context.data_dir / FOLDER / "vault") if settings.files else NoVault()
        self._containers, self._chance = Containers(Firewalls(self.nodes)), context.random
        self._every = settings.look_every
        by = timed(settings.timeouts)
        kinds = [
            Vms(self.nodes, self.vault).kind(by[VM.kind], guard_vm, company_of_vm, after),
            self._containers.cloudspaces(by[CLOUDSPACE.kind], guard_cloudspace, company_of_container, after),
            self._containers.accounts(by[ACCOUNT.kind], guard_account, company_of_container, after),
            Disks(self.nodes, self.vault).kind(by[DISK.kind], guard_disk, company_of_disk, after),
            Images(self.vault).kind(by[IMAGE.kind], partial(guard_image, self.vault), company_of_image, after),
            Hosts(self.nodes).kind(by[NODE.kind], guard_node, after),
        ]
        for kind in kinds:
            kind.reserved_labels, kind.privacy = FOUND_BY, PRIVACY.get(kind.name, PUBLIC)
        super().__init__([without_nodes_in_errors(kind, self.nodes) for kind in kinds], ovc_routes())

    def bind_engine(self, engine: Engine) -> None:
        """Create the parts of the domain that need the engine."""
        self.nodes.reader = self._containers.reader = engine.store.reader
        self.service = Service(engine)
        self.rounds = Rounds(engine, self.nodes, self._chance, self._every, vault=self.vault)

    @asynccontextmanager
    async def running(self, engine: Engine, *, works: bool) -> AsyncIterator[None]:  # noqa: ARG002 - bound before
        """Detect drift on the nodes where there is a worker; close the nodes at the end."""
        loops = [self.rounds.keep_looking()] if works and self._every else []
        try:
            async with background(*loops):
                yield
        finally:
            await self.nodes.close()

    async def demo(self, engine: Engine) -> None:  # noqa: ARG002 - bound before
        """Keep a small cloud in motion, for the demo, until cancelled."""
        await OvcDemo(self.service, self._chance).run()


def create_plugin(context: ProcessContext) -> DomainPlugin:
    """Create the plug-in."""
    return OvcPlugin(context)
