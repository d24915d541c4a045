"""The plug-in of the mci domain: its kinds with their handlers, its API, and the reconciler."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import ClassVar

import msgspec
from litestar.types import ControllerRouterHandler

from stateward.aio.supervise import background
from stateward.domains.mci.action_effects import describe_access, describe_cost_change, removed_vms
from stateward.domains.mci.address_ranges import default_access
from stateward.domains.mci.api import routes
from stateward.domains.mci.api.request_log import LoggedRequest
from stateward.domains.mci.api.request_log_store import prune_requests_loop
from stateward.domains.mci.control.reconciler import RECONCILE_INTERVAL_S, Reconciler
from stateward.domains.mci.demo import MciDemo
from stateward.domains.mci.deployment_records import lanes_of
from stateward.domains.mci.guards.connection_grants import GrantGuard
from stateward.domains.mci.guards.deployment_guard import (
    guard_connection,
    guard_namespace,
    in_namespace,
    namespace_key,
)
from stateward.domains.mci.guards.new_object_guard import NewObjectGuard
from stateward.domains.mci.guards.object_guards import guard_mci, guard_vm
from stateward.domains.mci.guards.resource_users import only_unused
from stateward.domains.mci.guards.spec_validation import guard_spec
from stateward.domains.mci.handlers.adopted_vms import AdoptedVms
from stateward.domains.mci.handlers.adoption_handlers import AdoptionHandlers
from stateward.domains.mci.handlers.cloud_vm_handlers import CloudVmHandlers
from stateward.domains.mci.handlers.command_handlers import CommandHandlers
from stateward.domains.mci.handlers.mci_handlers import MciHandlers
from stateward.domains.mci.handlers.resource_handlers import ResourceHandlers
from stateward.domains.mci.lifecycle import CALL, CLAIM, CONNECTION, IMAGE, MCI, NAMESPACE, SETTING, SPEC, VM
from stateward.domains.mci.mci_template import MciTemplate
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.provider.provider_client import POLL_MIN_S
from stateward.domains.mci.provider.provider_pool import ProviderClients
from stateward.domains.mci.remote.access_keys import AccessKeys
from stateward.domains.mci.remote.command_retention import prune_commands_loop
from stateward.domains.mci.remote.vm_shells import VmShells
from stateward.domains.mci.service import GROUP_ACTIONS, Service, gives_up_creation
from stateward.domains.mci.settings import MciSettings
from stateward.drivers.simulated import SimulatedCloud
from stateward.engine import Engine, Kind, Request, Rules
from stateward.engine.kinds import Guard
from stateward.engine.privacy import PUBLIC, Privacy
from stateward.lifecycle import Lifecycle
from stateward.plugin.driver_factory import GROUP as DRIVERS
from stateward.plugin.driver_factory import DriverFactory
from stateward.plugin.runtime import CompositeParts, DomainRuntime, ExpectedChange, PartAction, ProcessContext
from stateward.store.records import Object

FIRST_NAMESPACES = ("default",)
RECORDS = (NAMESPACE, CONNECTION, SPEC, IMAGE, CLAIM, CALL, SETTING)
OF_NAMESPACES = (SPEC, IMAGE)
"""The record kinds of namespaces; the others belong to the deployment."""

COMMANDS = {
    NAMESPACE.kind: "`stateward mci namespace create NAME`",
    CONNECTION.kind: "`stateward mci connection add NAME`",
}
"""The commands that create records of the deployment."""

INTERNAL = {
    CONNECTION.kind: Privacy(fields=frozenset({"credential", "options"})),
    CALL.kind: Privacy(fields=frozenset(LoggedRequest.__struct_fields__)),  # the log decides who sees a request
}


class MciRuntime(DomainRuntime):
    """The mci domain in a process."""

    service: Service
    reconciler: Reconciler
    composite_parts: ClassVar[CompositeParts] = {(MCI.kind, action): VM.kind for action in GROUP_ACTIONS}

    def __init__(
        self,
        context: ProcessContext,
        *,
        cloud: SimulatedCloud | None = None,
        tick: float = POLL_MIN_S,
        every: float = RECONCILE_INTERVAL_S,
    ) -> None:
        self._context, self._every = context, every
        self._cloud = cloud
        folder, more = context.data_dir / "machines", context.parts.get(DRIVERS, ())
        self.drivers = DriverFactory(folder, lambda: self.cloud, context.confinement, more)
        self.catalogue = Catalogue(self.drivers.is_on_host, local=context.offers_local)
        context.templates["mci"] = MciTemplate(self.catalogue)
        settings: MciSettings = context.settings.get("mci") or MciSettings(access_from="")
        self.access_keys = AccessKeys(context.data_dir, settings.access_secret, is_embedded=context.is_embedded)
        access_key_of = self.access_keys.public_key
        grants, new_objects = GrantGuard(self.catalogue), NewObjectGuard(self.catalogue, access_key_of)
        self.clients = ProviderClients(self.drivers, self.catalogue, context.on_provider_call, tick=tick)
        self._adoptions = AdoptionHandlers(self.clients.for_lane, self.clients.for_lane_if_adopting)
        self._vms = CloudVmHandlers(self.clients.for_lane, self.clients.for_lane_if_granted, self._adoptions)
        granted, driver_for = self.clients.for_lane_if_granted, self.clients.driver_for
        self.shells = VmShells(self.access_keys, granted, self._is_on_host)
        adopted = AdoptedVms(self.catalogue, self.clients, self._adoptions)
        self._mcis = MciHandlers(self.shells, driver_for, self.catalogue, access_key_of, adopted)
        parts = ResourceHandlers(self.clients.for_lane, self.clients.for_lane_if_granted, self.catalogue)
        mci_guard = partial(guard_mci, default_access(settings.access_from))
        guards: dict[str, Guard] = {
            CONNECTION.kind: guard_connection,
            NAMESPACE.kind: guard_namespace,
            SETTING.kind: guard_spec,
        }
        guards |= dict.fromkeys(
            (lifecycle.kind for lifecycle in OF_NAMESPACES), in_namespace(grants.wrap(only_unused(guard_spec)))
        )
        records = [_record(lifecycle, guards.get(lifecycle.kind)) for lifecycle in RECORDS]
        super().__init__(
            [
                self._mcis.kind(in_namespace(new_objects.wrap(grants.wrap(mci_guard)))),
                self._vms.kind(in_namespace(grants.wrap(new_objects.wrap(guard_vm)))),
                CommandHandlers(self.shells).kind(in_namespace()),
                *parts.kinds(lambda guard: in_namespace(grants.wrap(new_objects.wrap(only_unused(guard))))),
                *records,
            ]
        )

    @cached_property
    def routes(self) -> Sequence[ControllerRouterHandler]:
        """Its HTTP routes, made when a server asks for them."""
        return routes(self, self._context.on_calls_saved)

    @property
    def cloud(self) -> SimulatedCloud:
        """The simulated clouds, which outlive the process as real clouds do.

        One process at a time can open their file, so it is opened at the first use. Another process cannot see their
        machines, and reports that.
        """
        if self._cloud is None:
            self._context.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._cloud = SimulatedCloud(self._context.data_dir / "simulated-clouds.db", chance=self._context.random)
        return self._cloud

    async def _is_on_host(self, connection: str) -> bool:
        return self.drivers.is_on_host((await self.catalogue.connection_of_machines(connection)).driver)

    def bind_engine(self, engine: Engine) -> None:
        """Create the parts of the domain that need the engine."""
        self._vms.engine, self.catalogue.reader = engine, engine.store.reader
        self._adoptions.engine = engine
        self.shells.engine = engine
        self.service = Service(engine, self.catalogue, self.clients)
        self.reconciler = Reconciler(
            engine, self.catalogue, self.clients, self._context.random, self._context.on_calls_saved, every=self._every
        )

    @asynccontextmanager
    async def running(self, engine: Engine, *, works: bool) -> AsyncIterator[None]:
        """Set up namespaces and lane limits; where there is a worker, reconcile with the providers."""
        await self.service.ensure_namespaces(FIRST_NAMESPACES)
        # only of new lanes: limits that an administrator has changed stay
        groups, loads = await engine.store.reader.lanes()
        known = {group.grp for group in groups} | {load.lane.lane for load in loads}
        new_groups, new_lanes = lanes_of(await self.catalogue.all_connections())
        await engine.set_limits(
            [group for group in new_groups if group.grp not in known],
            [lane for lane in new_lanes if lane.lane not in known],
        )
        loops = (
            [
                self.reconciler.status_updater.run(),
                self.reconciler.run(),
                prune_requests_loop(engine),
                prune_commands_loop(engine),
            ]
            if works
            else []
        )
        try:
            async with background(*loops):
                yield
        finally:
            await self.reconciler.status_updater.close()
            await self.clients.close()
            if self._cloud is not None:
                self._cloud.close()

    def acts_without_parts(self, request: Request, record: Object) -> bool:
        """Return whether an action ends the creation of an MCI that has no VMs yet."""
        return record.kind == MCI.kind and gives_up_creation(request, record)

    async def find_part_actions(self, request: Request, record: Object) -> Sequence[PartAction]:
        """Return what becomes of the VMs when an action removes some of them."""
        try:
            removed = await removed_vms(self.catalogue.reader, request, record) if record.kind == MCI.kind else []
        except msgspec.ValidationError:  # of its arguments: the verdict on the request says what is wrong with them
            return ()
        return removed or await super().find_part_actions(request, record)

    async def describe_effects(self, request: Request, changes: Sequence[ExpectedChange]) -> Sequence[str]:
        """Return the change of the cost per hour, where specs say what a VM costs, and who may connect to new VMs."""
        return [text for text in (describe_cost_change(changes), describe_access(request)) if text]

    async def demo(self, engine: Engine) -> None:  # noqa: ARG002 - bound before
        """Keep a few MCIs in motion."""
        await MciDemo(self.service, self._context.random).run()


def create_runtime(context: ProcessContext) -> DomainRuntime:
    """Create the plug-in."""
    return MciRuntime(context)


def _record(lifecycle: Lifecycle, guard: Guard | None) -> Kind:
    general, privacy = lifecycle in OF_NAMESPACES, INTERNAL.get(lifecycle.kind, PUBLIC)
    return Kind(
        lifecycle,
        guard=guard,
        spec_actions=("change", "remove") if lifecycle is CALL else ("change",),
        privacy=privacy,
        general=general,
        made_by=COMMANDS.get(lifecycle.kind, ""),
        rules=Rules(names_namespace=namespace_key if lifecycle is NAMESPACE else None),
    )
