"""Guard of new MCIs, VMs and resources: checks what they refer to, and sets what only the domain may set.

The general API accepts any spec. A caller who chose a uid or a native id would reach the machines of another namespace;
a caller who chose a provider would use the lane of another connection.

A new VM or resource gets its uid, region and native ids here, in the transaction that accepts it. All objects that it
names must exist in its namespace. Requests of operations were resolved by their operation and stay as they are.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.domains.mci import model
from stateward.domains.mci.guards.object_guards import with_own_uid
from stateward.domains.mci.guards.spec_validation import decode_spec
from stateward.domains.mci.lifecycle import MCI, SECURITY_GROUP, VM, VNET, ResourceState
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.provider.key_pairs import OWNED_BY
from stateward.domains.mci.remote.host_key_pins import BASTION_LABEL, HOST_KEY_LABEL
from stateward.domains.mci.vm_placement import check_placement, check_resources, place_subgroup, record_keys
from stateward.engine import Request
from stateward.engine.kinds import Guard
from stateward.engine.requests import EMPTY, Creation
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.store.records import Key, Object, to_json

FIELDS = {
    "connectionName": "connection", "specId": "spec", "imageId": "image", "vNetId": "network", "subnetId": "subnet",
    "securityGroupIds": "groups", "sshKeyId": "key",
}  # fmt: skip
"""The fields of a VM's or a subgroup's spec, by the field names of the Tumblebug API."""


class NewObjectGuard:
    """Completes the spec of a new VM or resource, or refuses it; refuses subgroups that name missing objects."""

    def __init__(self, catalogue: Catalogue, access_key_of: Callable[[str], str]) -> None:
        self._catalogue, self._access_key_of = catalogue, access_key_of

    def wrap(self, guard: Guard) -> Guard:
        """Return a guard that completes the new objects which the wrapped guard accepts."""

        async def both(uow: UnitOfWork, request: Request, record: Object) -> Request | None:
            completed = await guard(uow, request, record)
            if request.parent is not None:
                return completed
            if record.kind == MCI.kind and request.action != "adopt":  # its subgroups name no spec
                await self._check_new_groups(uow, completed or request, record)
            if request.creates is None or record.kind == MCI.kind:
                return completed
            want = decode_spec(record.kind, request.spec or EMPTY)
            complete = self._complete_vm if record.kind == VM.kind else self._complete_part
            made = await complete(uow, request.ns, record.kind, want)
            creates = _with_own_labels(request.creates, made)
            return with_own_uid(replace(request, creates=creates), made)

        return both

    async def _check_new_groups(self, uow: UnitOfWork, request: Request, mci: Object) -> None:
        """Refuse new subgroups that name missing or unsuitable objects."""
        if request.spec is None:
            return
        wanted: model.MciSpec = decode_spec(mci.kind, request.spec)
        is_new = request.creates is not None
        first = 0 if is_new else len(model.mci_of(mci).groups)
        groups, field = (
            wanted.groups[first:],
            "spec.groups[{}]." if is_new else f"spec.groups[{first}].",
        )
        try:
            await check_placement(self._catalogue.within(uow), request.ns, groups, field)
        except BadInput as error:
            place, _, name = error.field.rpartition(".")
            state = None if is_new else mci.state
            raise BadInput(f"{place}.{FIELDS.get(name, name)}", error.value, error.allowed, state=state) from error

    async def _complete_vm(self, uow: UnitOfWork, ns: str, _kind: str, vm: model.VmSpec) -> model.VmSpec:
        """Return a VM whose region, size, image and native ids follow from the objects that it names."""
        names = model.SubGroup(
            vm.group, 1, vm.spec, vm.image, vm.connection, vm.network, vm.subnet, vm.groups, vm.key, zone=vm.zone
        )
        await uow.peek(record_keys(ns, [names]))
        named = model.named_resources(names)
        keys = {
            (resource_type, name): Key(ns, model.record_id(resource_type, name))
            for resource_type in model.RESOURCE_LIFECYCLES
            for name in named[resource_type]
            if name
        }
        known = self._catalogue.within(uow)
        try:
            planned = await place_subgroup(known, ns, names)
            await check_resources(known, ns, planned)
        except BadInput as error:
            raise BadInput(f"spec.{FIELDS.get(error.field, error.field)}", error.value, error.allowed) from error
        parts = dict(zip(keys, await uow.peek(list(keys.values())), strict=True))
        for (resource_type, name), part in parts.items():
            if part is None or part.state != ResourceState.AVAILABLE:
                field = {"vNet": "network", "securityGroup": "groups", "sshKey": "key"}[resource_type]
                raise BadInput(f"spec.{field}", name, f"a {resource_type} that is {ResourceState.AVAILABLE}")
        groups = [part for name in vm.groups if (part := parts["securityGroup", name]) is not None]
        place = planned.connection
        return replace(
            vm,
            connection=place.name,
            provider=place.provider,
            region=place.region,
            csp_spec=planned.spec.csp_name,
            csp_image=planned.image.csp_name,
            cost=planned.spec.cost,
            access_key=self._access_key_of(ns),
            adopted="",
            parts=model.native_ids(vm.subnet, parts.get(("vNet", vm.network)), groups, parts.get(("sshKey", vm.key))),
        )

    async def _complete_part(self, uow: UnitOfWork, ns: str, kind: str, part: Any) -> Any:  # noqa: ANN401 - the record
        """Return a resource in its connection's region; a security group needs a network of its namespace."""
        network = Key(ns, model.record_id("vNet", part.network if kind == SECURITY_GROUP.kind else ""))
        record, of_group = await uow.peek(
            [Key(model.DEPLOYMENT_NS, model.record_id("connection", part.connection)), network]
        )
        place = self._catalogue.read_connection(part.connection, record)
        if place is None:
            raise BadInput("spec.connection", part.connection, "a known connection")
        if kind == SECURITY_GROUP.kind:
            if of_group is None or of_group.removed or of_group.kind != VNET.kind:
                raise BadInput("spec.network", part.network, f"the name of a vNet of namespace {ns!r}")
            if of_group.state == ResourceState.DELETING:
                raise BadInput("spec.network", part.network, f"a vNet that is not {ResourceState.DELETING}")
            there = model.resource_identity(of_group)
            if (there.provider, there.region) != (place.provider, place.region):
                allowed = f"a vNet of connection {place.name}: it is one of {there.connection}"
                raise BadInput("spec.network", part.network, allowed)
        return replace(part, provider=place.provider, region=place.region)


def _with_own_labels(creates: Creation, made: Any) -> Creation:  # noqa: ANN401 - the record
    """Return a creation with the labels by which the domain finds its objects; refuse others than the spec says."""
    given: dict[str, str] = msgspec.json.decode(creates.labels)
    if isinstance(made, model.VmSpec):
        own = {"mci": made.mci, "subgroup": made.group, "connection": made.connection}
        own |= {"provider": made.provider, "region": made.region}
        reserved: Collection[str] = (*own, HOST_KEY_LABEL, BASTION_LABEL)
    else:
        own, reserved = {}, (model.MADE_FOR, model.SHARED, OWNED_BY)
    for name in reserved:
        if name in given and given[name] != own.get(name):
            allowed = f"{own[name]!r}, as its spec says, or left out" if name in own else "left out: only mci sets it"
            raise BadInput(f"labels.{name}", given[name], allowed)
    return replace(creates, labels=to_json(given | own))
