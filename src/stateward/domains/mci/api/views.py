"""Views of MCIs and VMs, of the access to VMs, and of the resources of an MCI. Reading changes nothing but drift."""

# bounded by: one response
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any

from msgspec.structs import replace

from stateward.domains.mci import model
from stateward.domains.mci.api import schemas
from stateward.domains.mci.api.connection_views import connection_view, image_view, location_of, spec_view
from stateward.domains.mci.api.live_status import UNKNOWN, LiveStatus, WaitBudget
from stateward.domains.mci.api.phase_views import phase_results, phase_views, post_command_status
from stateward.domains.mci.api.target_status import NO_TARGET, TargetFinder, TargetStatus, waiting_problems
from stateward.domains.mci.control.status_rollup import MciStatus, roll_up_status
from stateward.domains.mci.lifecycle import VM, MciState, VmState
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.remote.host_key_pins import known_host_key
from stateward.domains.mci.remote.ssh_route import choose_bastion
from stateward.domains.mci.service import Service
from stateward.drivers import ResourceKind
from stateward.drivers.ssh.host_key import fingerprint
from stateward.errors import StatewardError
from stateward.store.filters import Selector
from stateward.store.records import Object

STATES = {state.word: state for state in MciState}


class Views:
    """Builds the views for one response; reads each connection, spec and image once."""

    def __init__(self, service: Service, catalogue: Catalogue, live_status: LiveStatus) -> None:
        self._service, self._catalogue, self._live_status = service, catalogue, live_status
        self._reader = service.engine.store.reader
        self._targets = TargetFinder(self._reader)
        self._wait_budget = WaitBudget()
        self._connections: dict[str, model.CloudConnection | None] = {}
        self._specs: dict[tuple[str, str], schemas.SpecView | None] = {}
        self._images: dict[tuple[str, str, str], schemas.ImageView | None] = {}

    # --- MCIs --------------------------------------------------------------------------------------------------------

    async def mci(self, mci: Object, *, new: Sequence[str] = (), op: str | None = None) -> schemas.MciInfo:
        """Return an MCI with all fields; `new` are the VMs of this request, `op` is its operation."""
        wanted, seen, vms = model.mci_of(mci), model.mci_seen(mci), await self.vms(mci)
        problems = await waiting_problems(self._reader, mci, vms)
        asked = wanted.post_command or model.PostCommand()
        return schemas.MciInfo(
            **await self._mci_summary(mci, _status(mci, vms), problems),
            description=wanted.description,
            vm=await self.vm_infos(mci, vms),
            new_vm_list=list(new),
            post_command=schemas.PostCommandView(asked.user, list(asked.commands), ceil(asked.minutes)),
            post_command_result=_results(mci.id, wanted, seen, vms),
            post_commands=phase_views(wanted),
            post_command_status=post_command_status(mci, wanted, seen),
            post_command_results=phase_results(mci.id, seen, vms),
            creation_errors=_errors(wanted, seen, vms),
            operation=op,
        )

    async def status(self, mci: Object, *, fresh: bool = False) -> schemas.MciStatusInfo:
        """Return the status of an MCI, with the live states of its VMs."""
        vms, live = await self._refresh(mci, await self.vms(mci), fresh=fresh)
        problems = await waiting_problems(self._reader, mci, vms)
        return await self._mci_status(mci, _status(mci, vms), await self._vm_statuses(mci, vms, live), problems)

    async def status_without_vms(self, mci: Object) -> schemas.MciStatusInfo:
        """Return the status of an MCI without its VMs, from counts: the cost does not depend on their number."""
        counts = await self._service.engine.store.reader.count_states(Selector(mci.ns, VM.kind, mci.id))
        states = [state for (_, state), number in counts.items() for _ in range(number)]
        return await self._mci_status(mci, roll_up_status(STATES[mci.state], states), [])

    async def _mci_status(
        self, mci: Object, status: MciStatus, vms: list[schemas.VmStatusInfo], problems: Sequence[str] = ()
    ) -> schemas.MciStatusInfo:
        master = next((vm for vm in vms if vm.status != VmState.TERMINATED), None)
        return schemas.MciStatusInfo(
            **await self._mci_summary(mci, status, problems),
            master_vm_id="" if master is None else master.id,
            master_ip="" if master is None else master.public_ip,
            master_ssh_port=0 if master is None else master.ssh_port,
            vm=vms,
        )

    async def _mci_summary(self, mci: Object, status: MciStatus, problems: Sequence[str]) -> dict[str, Any]:
        """Return the fields that both views of an MCI have; `problems` keep the MCI waiting."""
        wanted, target = model.mci_of(mci), await self._targets.of_mci(mci)
        return {
            "id": mci.id,
            "uid": wanted.uid,
            "name": wanted.name,
            "status": status.status,
            "status_count": status.status_count,
            "target_status": target.status,
            "target_action": target.action,
            "install_mon_agent": wanted.install_mon_agent,
            "label": wanted.label,
            "system_label": wanted.system_label,
            "system_message": [*_messages(mci, model.mci_seen(mci)), *problems],
        }

    # --- VMs ---------------------------------------------------------------------------------------------------------

    async def vms(self, mci: Object) -> list[Object]:
        """Return the VMs of an MCI, sorted by subgroup and number."""
        return sorted(await self._service.vms(mci.ns, mci.id), key=lambda vm: sort_key_of(vm.id))

    async def vm_infos(self, mci: Object, vms: Sequence[Object]) -> list[schemas.VmInfo]:
        """Return VMs with all fields."""
        targets = await self._targets.of_vms(mci.op, vms)
        return [await self._vm(vm, targets.get(vm.id, NO_TARGET)) for vm in vms]

    async def _vm(self, record: Object, target: TargetStatus) -> schemas.VmInfo:
        vm, seen = model.vm_of(record), last_seen(record)
        if (record.ns, vm.spec) not in self._specs:
            try:
                spec = await self._catalogue.spec(record.ns, vm.spec)
                self._specs[record.ns, vm.spec] = spec_view(spec, await self._connection(spec.connection))
            except StatewardError:
                self._specs[record.ns, vm.spec] = None
        return schemas.VmInfo(
            **_vm_summary(record, vm, seen, target),
            csp_resource_id=seen.native_id,
            label=vm.label,
            description=vm.description,
            region=schemas.RegionView(vm.region, vm.zone),
            public_ip=seen.public_ip,
            private_ip=seen.private_ip,
            root_disk_type=vm.disk_type,
            root_disk_size=vm.disk_gib or 0,
            connection_name=vm.connection,
            connection_config=await self.connection(vm.connection),
            spec_id=vm.spec,
            csp_spec_name=vm.csp_spec,
            spec=self._specs[record.ns, vm.spec],
            image_id=vm.image,
            csp_image_name=vm.csp_image,
            image=await self._image(record.ns, vm),
            v_net_id=vm.network,
            csp_v_net_id=vm.parts.get(ResourceKind.NETWORK, ""),
            subnet_id=vm.subnet,
            csp_subnet_id=vm.parts.get(ResourceKind.SUBNET, ""),
            security_group_ids=list(vm.groups),
            data_disk_ids=[],
            ssh_key_id=vm.key,
            csp_ssh_key_id=vm.parts.get(ResourceKind.SSH_KEY, ""),
            vm_user_name=vm.user,
            addtional_details=[schemas.KeyValue("costPerHour", f"{vm.cost:g}")],
        )

    async def vm_statuses(
        self, mci: Object, vms: Sequence[Object], *, fresh: bool = False
    ) -> list[schemas.VmStatusInfo]:
        """Return the live status of VMs."""
        return await self._vm_statuses(mci, *await self._refresh(mci, vms, fresh=fresh))

    async def _refresh(
        self, mci: Object, vms: Sequence[Object], *, fresh: bool
    ) -> tuple[Sequence[Object], dict[str, model.VmSeen]]:
        """Refresh VMs from their providers; returns the VMs, read again if changed, and their live states."""
        refreshed = await self._live_status.refresh(
            self._service.engine, vms, self._wait_budget.remaining_s(fresh=fresh), fresh=fresh
        )
        if refreshed.changed:
            newer = {vm.id: vm for vm in await self._service.vms(mci.ns, mci.id)}
            vms = [newer.get(vm.id, vm) for vm in vms]
        return vms, refreshed.shown

    async def _vm_statuses(
        self, mci: Object, vms: Sequence[Object], shown: dict[str, model.VmSeen]
    ) -> list[schemas.VmStatusInfo]:
        targets = await self._targets.of_vms(mci.op, vms)
        return [
            _vm_status(vm, model.vm_of(vm), shown.get(vm.id) or last_seen(vm), targets.get(vm.id, NO_TARGET))
            for vm in vms
        ]

    # --- connections, specs, images ----------------------------------------------------------------------------------

    async def connection(self, name: str) -> schemas.ConnectionView | None:
        """Return the view of a connection, or None if it is gone."""
        connection = await self._connection(name)
        return None if connection is None else connection_view(connection)

    async def _connection(self, name: str) -> model.CloudConnection | None:
        if name not in self._connections:
            try:
                self._connections[name] = await self._catalogue.connection(name)
            except StatewardError:
                self._connections[name] = None
        return self._connections[name]

    async def _image(self, ns: str, vm: model.VmSpec) -> schemas.ImageView | None:
        key = ns, vm.image, vm.connection
        if key not in self._images:
            connection = await self._connection(vm.connection)
            try:
                image = None if connection is None else await self._catalogue.image(ns, vm.image, connection)
            except StatewardError:
                image = None
            self._images[key] = None if image is None else image_view(image, connection)
        return self._images[key]


def sort_key_of(vm: str) -> tuple[str, int, str]:
    """Return the sort key of a VM within its MCI, by its name or id."""
    group, _, number = vm.rpartition("-")
    return group, int(number) if number.isdecimal() else 0, vm


def last_seen(vm: Object) -> model.VmSeen:
    """Return a VM as it was seen last; where nobody can say what it is now, its native state says so."""
    seen = model.vm_seen(vm)
    if vm.state not in (VmState.FAILED, VmState.UNDEFINED) or not seen.native_state:
        return seen
    return replace(seen, native_state=f"{UNKNOWN} (last {seen.native_state})")


def _status(mci: Object, vms: Sequence[Object]) -> MciStatus:
    return roll_up_status(STATES[mci.state], [vm.state for vm in vms])


def _vm_status(record: Object, vm: model.VmSpec, seen: model.VmSeen, target: TargetStatus) -> schemas.VmStatusInfo:
    summary = _vm_summary(record, vm, seen, target)
    return schemas.VmStatusInfo(**summary, public_ip=seen.public_ip, private_ip=seen.private_ip)


def _vm_summary(record: Object, vm: model.VmSpec, seen: model.VmSeen, target: TargetStatus) -> dict[str, Any]:
    """Return the fields that both views of a VM have."""
    return {
        "id": vm.name,
        "uid": vm.uid,
        "csp_resource_name": seen.name or vm.uid,
        "name": vm.name,
        "sub_group_id": vm.group,
        "status": record.state,
        "target_status": target.status,
        "target_action": target.action,
        "native_status": seen.native_state,
        "system_message": record.error or "",
        "created_time": datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "ssh_port": seen.ssh_port,
        "location": location_of(vm.provider, vm.region),
    }


def _messages(mci: Object, seen: model.MciSeen) -> list[str]:
    said = [mci.error] if mci.error else []
    failed = [seen.failed, *(phase.failed for phase in seen.phases)]
    commands = [f"{name}: the post-command {why}" for each in failed for name, why in sorted(each.items())]
    return [*said, *(message for message in (*seen.errors, *commands) if message not in said)]


def _results(mci: str, wanted: model.MciSpec, seen: model.MciSeen, vms: Sequence[Object]) -> schemas.CommandResults:
    commands = () if wanted.post_command is None else wanted.post_command.commands
    asked = {str(number): line for number, line in enumerate(commands)}
    addresses = {model.vm_of(vm).name: model.vm_seen(vm).public_ip for vm in vms} if seen.results else {}
    results = [
        _result(
            schemas.CommandResult(mci, name, addresses.get(name, ""), asked, {}, {}, {}, seen.failed.get(name, "")),
            runs,
        )
        for name, runs in sorted(seen.results.items(), key=lambda entry: sort_key_of(entry[0]))
    ]
    return schemas.CommandResults(results)


def _result(vm: schemas.CommandResult, runs: model.CommandRuns) -> schemas.CommandResult:
    """Return the result of a VM with one entry per command."""
    each = (model.CommandRun(runs),) if isinstance(runs, str) else runs
    written = {str(number): run.stdout_text for number, run in enumerate(each)}
    errors = {str(number): run.stderr_text for number, run in enumerate(each) if run.stderr}
    statuses = {str(number): run.status for number, run in enumerate(each) if run.status is not None}
    return replace(vm, stdout=written, stderr=errors, exit_status=statuses)


def _errors(wanted: model.MciSpec, seen: model.MciSeen, vms: Sequence[Object]) -> schemas.CreationErrors | None:
    """Return the failures of a creation: of subgroups before there were VMs, and of VMs."""
    if not seen.errors:
        return None
    asked = seen.asked or {group.name: group.size for group in wanted.groups}
    groups, total = set(asked), sum(asked.values())
    parts = [error.partition(": ") for error in seen.errors]
    errors = [schemas.VmCreationError(name if why else "", why or name, _phase(name, groups)) for name, _, why in parts]
    good = sum(vm.state not in (VmState.FAILED, VmState.UNDEFINED) for vm in vms)
    return schemas.CreationErrors(
        [error for error in errors if error.phase == "object_creation"],
        [error for error in errors if error.phase != "object_creation"],
        total,
        good,
        max(0, total - good),
        wanted.policy,
    )


def _phase(name: str, groups: set[str]) -> str:
    in_a_group = name.rpartition("-")[0] in groups
    return "vm_creation" if in_a_group else "object_creation"


async def vm_access(views: Views, record: Object, others: Sequence[Object]) -> schemas.VmAccess:
    """Return the access data of a VM; `others` are the VMs of its MCI, of which one may be its bastion."""
    vm, seen, host_key = model.vm_of(record), model.vm_seen(record), known_host_key(record)
    bastion = None if seen.public_ip else choose_bastion(record, others)
    return schemas.VmAccess(
        vm_id=vm.name,
        public_ip=seen.public_ip,
        private_ip=seen.private_ip,
        ssh_port=seen.ssh_port,
        vm_user_name=vm.user,
        ssh_key_id=vm.key if seen.ssh_port else "",  # without a login there is no use for a key
        host_key_fingerprint=fingerprint(host_key),
        bastion_vm_id="" if bastion is None else model.vm_of(bastion).name,
        connection_config=await views.connection(vm.connection),
        host_key=host_key,
    )


async def access_of(views: Views, mci: Object) -> schemas.MciAccess:
    """Return the access data of the VMs of an MCI, by subgroup."""
    groups: dict[str, list[schemas.VmAccess]] = {}
    vms = await views.vms(mci)
    for vm in vms:
        groups.setdefault(model.vm_of(vm).group, []).append(await vm_access(views, vm, vms))
    return schemas.MciAccess(
        mci.id,
        [
            schemas.GroupAccess(
                name, next((access.bastion_vm_id for access in accesses if access.bastion_vm_id), ""), accesses
            )
            for name, accesses in groups.items()
        ],
    )


async def associated_of(views: Views, mci: Object) -> schemas.Associated:
    """Return the names of all objects that an MCI is associated with."""
    vms = await views.vms(mci)
    specs, infos = [model.vm_of(vm) for vm in vms], await views.vm_infos(mci, vms)
    return schemas.Associated(
        connection_names=_each(spec.connection for spec in specs),
        provider_names=_each(spec.provider for spec in specs),
        sub_group_ids=_each(group.name for group in model.mci_of(mci).groups),
        vm_ids=_each(spec.name for spec in specs),
        csp_vm_names=_each(info.csp_resource_name for info in infos),
        csp_vm_ids=_each(info.csp_resource_id for info in infos),
        image_ids=_each(spec.image for spec in specs),
        spec_ids=_each(spec.spec for spec in specs),
        v_net_ids=_each(spec.network for spec in specs),
        csp_v_net_ids=_each(spec.parts.get(ResourceKind.NETWORK, "") for spec in specs),
        subnet_ids=_each(spec.subnet for spec in specs),
        csp_subnet_ids=_each(spec.parts.get(ResourceKind.SUBNET, "") for spec in specs),
        security_group_ids=_each(name for spec in specs for name in spec.groups),
        data_disk_ids=[],
        ssh_key_ids=_each(spec.key for spec in specs),
    )


def _each(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]
