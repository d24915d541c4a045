"""The guard of cloudlets: the checks of a request on a cloudlet, made in the transaction that accepts it."""

import re

import msgspec
from msgspec.structs import replace

from stateward.domains.edge.errors import AgentConnectionChanged, OrphansLeft, StillReferenced, names_text
from stateward.domains.edge.guards import check_caller, refuse_transitions
from stateward.domains.edge.lifecycle import CLUSTERINST, IGNORE_AGENT, MAINTAINED, SERVED, CloudletState
from stateward.domains.edge.lookups import NOT_PRESENT, list_instances
from stateward.domains.edge.model import (
    MAX_LISTED_ORPHANS,
    VERSION,
    AppInst,
    CloudletSpec,
    ClusterInst,
    cloudlet_status,
    local_name,
    merge_spec,
    parse_instance_id,
    read_spec,
)
from stateward.domains.edge.references import refuse_named_by_policy
from stateward.engine import Request
from stateward.engine.protection import require_parts_unprotected
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput, count_text
from stateward.store.records import Object, to_json

DEFAULT_UPGRADE_TIMEOUT_S, MAX_UPGRADE_TIMEOUT_S = 60.0, 600.0
END_FACTS = frozenset({SERVED, MAINTAINED})
"""The facts that decide where `fix` and `resume` lead."""


async def guard_cloudlet(uow: UnitOfWork, request: Request, cloudlet: Object) -> Request | None:
    """Check an action on a cloudlet, and fill in its spec and status."""
    if request.action == "create":
        parse_instance_id(CLUSTERINST.kind, f"{cloudlet.id}:x")
    if request.action in ("create", "change"):
        request = replace(request, spec=to_json(merge_spec(request, cloudlet, CloudletSpec)))
        if request.creates is None:
            await _check_backend_change(uow, request, cloudlet)
        return request
    if request.action == "upgrade":
        return await _upgrade(uow, request, cloudlet)
    if request.action == "handover":
        return _hand_over(uow, request, cloudlet)
    if request.action == "maintain":
        refuse_transitions(await list_instances(uow, cloudlet.ns, cloudlet.id), request)
    if request.action in ("fix", "resume") and request.facts & END_FACTS != end_facts(cloudlet, request.action):
        raise AgentConnectionChanged(cloudlet.id)
    if request.action == "delete":
        check_caller(request, cloudlet.id)
        await refuse_named_by_policy(uow, cloudlet)
        instances = await list_instances(uow, cloudlet.ns, cloudlet.id)
        refuse_transitions(instances, request)
        keep = [
            instance.id for instance in instances if instance.state != NOT_PRESENT and not _is_deleted_along(instance)
        ]
        if keep:
            raise StillReferenced(f"cloudlet {cloudlet.id}", keep)
        await require_parts_unprotected(uow, request, cloudlet, instances)
        return _leave_orphans(uow, request, cloudlet, instances)
    return None


async def _check_backend_change(uow: UnitOfWork, request: Request, cloudlet: Object) -> None:
    """Refuse another back end for a cloudlet that has instances or orphans: they would stay where they are."""
    wanted = msgspec.json.decode(request.spec or "{}", type=CloudletSpec).backend
    if wanted == read_spec(cloudlet, CloudletSpec).backend:
        return
    there = [
        instance.id for instance in await list_instances(uow, cloudlet.ns, cloudlet.id) if instance.state != NOT_PRESENT
    ]
    status = cloudlet_status(cloudlet)
    users = [*there, *(f"orphan {orphan}" for orphan in status.orphans)]
    if more := status.orphan_count - len(status.orphans):
        users.append(count_text(more, "orphan"))
    if users:
        raise StillReferenced(f"the back end of cloudlet {cloudlet.id}", users)


def _leave_orphans(uow: UnitOfWork, request: Request, cloudlet: Object, instances: list[Object]) -> Request | None:
    """Refuse to delete a cloudlet with orphans; an administrator may leave them, and their names are journaled."""
    status = cloudlet_status(cloudlet)
    if IGNORE_AGENT not in request.facts:
        if status.orphan_count:
            raise OrphansLeft(cloudlet.id, list(status.orphans), status.orphan_count)
        return None
    left = {*status.orphans, *(local_name(instance.id) for instance in instances if instance.state != NOT_PRESENT)}
    count = len(left) + status.orphan_count - len(status.orphans)
    if not count:
        return None
    after = status.with_orphans(left, count)
    why = names_text(after.orphans, count, MAX_LISTED_ORPHANS)
    journal(uow, cloudlet, request.op, request.actor, request.who, "orphans left", reason=why)
    return replace(request, seen=to_json(after))


def _is_deleted_along(instance: Object) -> bool:
    """Tell whether an instance is deleted with its cloudlet: auto-delete apps, and reservable clusters."""
    if instance.kind == CLUSTERINST.kind:
        return read_spec(instance, ClusterInst).reservable
    return read_spec(instance, AppInst).auto_delete


def _hand_over(uow: UnitOfWork, request: Request, cloudlet: Object) -> Request:
    """Make a held installation the owner; connections of the former owner no longer count."""
    status = cloudlet_status(cloudlet)
    held = [agent.installation for agent in status.held_at(uow.now)]
    wanted = msgspec.json.decode(request.args).get("installation")
    if wanted is None and len(held) == 1:
        wanted = held[0]
    if wanted not in held:
        there_are = f"held are {', '.join(map(repr, held))}" if held else "the cloudlet holds none"
        raise BadInput("installation", wanted, f"one that is held, and dials; {there_are}")
    why = f"from installation {status.installation or 'without identity'} to {wanted or 'one without identity'}"
    journal(uow, cloudlet, None, request.actor, request.who, "handed over", reason=why)
    others = tuple(agent for agent in status.held if agent.installation != wanted)
    after = replace(status, installation=wanted, held=others, serving=0, heir=0, controller="", heir_controller="")
    return replace(request, seen=to_json(after))


async def _upgrade(uow: UnitOfWork, request: Request, cloudlet: Object) -> Request:
    args = msgspec.json.decode(request.args)
    version, within = str(args.get("version", "")), args.get("within", DEFAULT_UPGRADE_TIMEOUT_S)
    status = cloudlet_status(cloudlet)
    if not isinstance(within, int | float) or not 0 < within <= MAX_UPGRADE_TIMEOUT_S:
        raise BadInput("within", within, f"a number of seconds, at most {MAX_UPGRADE_TIMEOUT_S:g}")
    if version == status.version or re.match(VERSION, version) is None:
        raise BadInput("version", version, f"another version than {status.version}")
    refuse_transitions(await list_instances(uow, cloudlet.ns, cloudlet.id), request)
    number = max(status.operation + 1, int(uow.now * 1000))
    is_retry = cloudlet.state == CloudletState.UPDATE_ERROR
    maintained = cloudlet.state == CloudletState.MAINTENANCE or (is_retry and status.maintained)
    after = replace(status, target=version, within=within, operation=number, heir=0, maintained=maintained)
    return replace(request, seen=to_json(after))


def end_facts(cloudlet: Object, action: str) -> frozenset[str]:
    """Return the facts that decide where `fix` and `resume` lead: back into maintenance, or by its connection."""
    status = cloudlet_status(cloudlet)
    if action == "fix" and status.maintained:
        return END_FACTS  # whether an agent is connected does not matter: the row of a maintenance needs both
    return frozenset({SERVED}) if status.serving > 0 else frozenset()
