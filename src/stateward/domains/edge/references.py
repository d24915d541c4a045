"""Referential integrity: a flavor, policy, app or cloudlet that another object names must exist.

A dangling name would be found late, by an operation that fails. So a request with one is refused, and a record in use
cannot be deleted. A request locks the rows of the records that it names in the transaction that accepts it. A delete
locks the same row before it looks for users. So of a racing create and delete exactly one succeeds.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from stateward.domains.edge.errors import ReferenceBeingDeleted, StillReferenced
from stateward.domains.edge.flavor_sizes import check_size
from stateward.domains.edge.lifecycle import (
    APP,
    APPINST,
    AUTOPROV,
    AUTOSCALE,
    CLOUDLET,
    CLUSTERINST,
    FLAVOR,
    CloudletState,
)
from stateward.domains.edge.lookups import NOT_PRESENT, find_object, get_object
from stateward.domains.edge.model import (
    MAX_CLOUDLETS,
    MAX_TARGET,
    MIN_TARGET,
    AppSpec,
    AutoprovSpec,
    AutoscaleSpec,
    FlavorSpec,
    app_program,
    instance_status,
    merge_spec,
    record_id,
)
from stateward.domains.edge.policy.app_members import app_status
from stateward.domains.edge.sites.app_manifest import check_manifest
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import Lifecycle
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, to_json

REFERENCE_FIELDS: Mapping[str, Mapping[str, Lifecycle]] = {
    CLUSTERINST.kind: {"flavor": FLAVOR, "autoscale": AUTOSCALE},
    APP.kind: {"flavor": FLAVOR, "autoprov": AUTOPROV},
}
"""By kind: the fields of its spec that name a record, with the kind of the record."""

SPEC_TYPES: Mapping[str, type[Struct]] = {
    FLAVOR.kind: FlavorSpec,
    APP.kind: AppSpec,
    AUTOSCALE.kind: AutoscaleSpec,
    AUTOPROV.kind: AutoprovSpec,
}


def referenced_records(request: Request, record: Object | None) -> Iterator[Key]:
    """Yield the records that a request names, for the transaction to lock; the guard refuses bad input later."""
    kind = request.creates.kind if request.creates is not None else record.kind if record is not None else ""
    try:
        asked = msgspec.json.decode(request.args).get("change") if request.spec is None else _decode_spec(request.spec)
    except (msgspec.DecodeError, AttributeError):
        return
    if not isinstance(asked, dict):
        return
    for field, target in REFERENCE_FIELDS.get(kind, {}).items():
        if isinstance(name := asked.get(field), str) and name:
            yield Key(request.ns, record_id(target.kind, name))
    named = asked.get("cloudlets") if kind == AUTOPROV.kind else None
    for name in named[:MAX_CLOUDLETS] if isinstance(named, list) else ():
        if isinstance(name, str):
            yield Key(request.ns, name)


async def check_references(uow: UnitOfWork, record: Object, wanted: Struct, before: Mapping[str, Any]) -> None:
    """Refuse a spec that names a record which does not exist; unchanged names are not checked again."""
    for field, target in REFERENCE_FIELDS.get(record.kind, {}).items():
        name = getattr(wanted, field)
        if name and name != before.get(field):
            await get_object(uow, record.ns, record_id(target.kind, name), target.kind)


async def check_cloudlets(uow: UnitOfWork, ns: str, field: str, names: Iterable[str]) -> None:
    """Refuse names of cloudlets that do not exist, or are being deleted."""
    keys = sorted(Key(ns, name) for name in names)
    for key, cloudlet in zip(keys, await uow.peek(keys), strict=True):
        if cloudlet is None or cloudlet.removed or cloudlet.kind != CLOUDLET.kind:
            raise BadInput(
                field, key.id, f"names of cloudlets that exist; there is no cloudlet {key.id!r} in namespace {ns!r}"
            )
        if cloudlet.state == CloudletState.DELETE_PREPARE:
            raise ReferenceBeingDeleted(f"cloudlet {key.id}")


async def refuse_named_by_policy(uow: UnitOfWork, cloudlet: Object) -> None:
    """Refuse to delete a cloudlet that a policy names; a request with such a policy has to lock the cloudlet first."""
    policies = await uow.peek_selected(Selector(cloudlet.ns, AUTOPROV.kind))
    users = [
        policy.id.partition(".")[2]
        for policy in policies
        if cloudlet.id in _decode_spec(policy.spec).get("cloudlets", ())
    ]
    if users:
        raise StillReferenced(f"cloudlet {cloudlet.id}", [f"autoprov policy {name}" for name in sorted(users)])


async def guard_record(uow: UnitOfWork, request: Request, record: Object) -> Request | None:
    """Check a new or changed flavor, app or policy; refuse to delete one in use."""
    if request.action == "delete":
        await _refuse_use(uow, record)
        return None
    wanted = merge_spec(request, record, SPEC_TYPES[record.kind])
    if isinstance(wanted, AutoscaleSpec | AutoprovSpec) and wanted.min > wanted.max:
        raise BadInput("max", wanted.max, f"at least {wanted.min}, the minimum")
    if isinstance(wanted, AutoscaleSpec):
        _check_targets(wanted)
    if isinstance(wanted, FlavorSpec):
        check_size(wanted)
    if isinstance(wanted, AppSpec):
        check_manifest(app_program(wanted))
    before = {} if request.creates is not None else _decode_spec(record.spec)
    await check_references(uow, record, wanted, before)
    if isinstance(wanted, AutoprovSpec):
        if not wanted.cloudlets or len({*wanted.cloudlets}) < len(wanted.cloudlets):
            raise BadInput("cloudlets", list(wanted.cloudlets), "at least one cloudlet, and each only once")
        await check_cloudlets(
            uow, record.ns, "cloudlets", set(wanted.cloudlets).difference(before.get("cloudlets", ()))
        )
    return msgspec.structs.replace(request, spec=to_json(wanted))


def _check_targets(policy: AutoscaleSpec) -> None:
    """Refuse target loads out of range: a tiny one would make every load too large."""
    for field in ("cpu", "mem", "connections"):
        target = getattr(policy, field)
        if target and not MIN_TARGET <= target <= MAX_TARGET:
            raise BadInput(field, target, f"0, or a number from {MIN_TARGET:g} to {MAX_TARGET:.0f}")


async def _refuse_use(uow: UnitOfWork, record: Object) -> None:
    kind, _, name = record.id.partition(".")
    await uow.load([Key(record.ns, member) for member in app_status(record).members])
    users = [await find_object(uow, record.ns, member, APPINST.kind) for member in app_status(record).members]
    names = [f"AppInst {user.id}" for user in users if user is not None and user.state != NOT_PRESENT]
    for user_kind, fields in REFERENCE_FIELDS.items():
        named_by = [field for field, target in fields.items() if target.kind == record.kind]
        if not named_by:
            continue
        names += [
            _describe(user)
            for user in await uow.select(Selector(record.ns, user_kind))
            if any(spec.get(field) == name for spec in _specs(user) for field in named_by)
        ]
    if names:
        raise StillReferenced(f"{kind} {name}", names)


def _specs(user: Object) -> Iterator[Mapping[str, Any]]:
    """Yield the specs whose names count: the current one, and the one that a failed update restores."""
    if user.kind not in (CLUSTERINST.kind, APPINST.kind):
        yield _decode_spec(user.spec)
    elif user.state != NOT_PRESENT:
        yield _decode_spec(user.spec)
        yield _decode_spec(instance_status(user).spec or "{}")


def _describe(user: Object) -> str:
    return f"ClusterInst {user.id}" if user.kind == CLUSTERINST.kind else f"app {user.id.partition('.')[2]}"


def _decode_spec(spec: str) -> Mapping[str, Any]:
    decoded: Mapping[str, Any] = msgspec.json.decode(spec)
    return decoded
