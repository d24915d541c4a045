"""Routes of networks, security groups and keys, under `/ns/{ns}/resources`."""

from collections.abc import Callable, Sequence
from typing import Any

from litestar import delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from msgspec.structs import replace

from stateward.domains.mci import model
from stateward.domains.mci.api.context import (
    AnyResponse,
    TumblebugRequest,
    adds_object_state,
    list_response,
    resource_in_path,
)
from stateward.domains.mci.api.lenient_json import Fields, parse_flag
from stateward.domains.mci.api.mci_bodies import parse_recipient
from stateward.domains.mci.api.operation_replies import (
    OperationReply,
    ResourceDeletion,
    ResourceDeletions,
    resource_deletions,
    wait_for_end,
)
from stateward.domains.mci.api.resource_bodies import parse_key, parse_network, parse_security_group
from stateward.domains.mci.api.resource_views import ResourceView, resource_view
from stateward.domains.mci.api.routes.mci_routes import pair_view
from stateward.domains.mci.api.schemas import matches_filter
from stateward.domains.mci.api.tumblebug_params import (
    ACT,
    READ,
    FilterKey,
    FilterVal,
    Force,
    IdsOnly,
    Match,
    Name,
    Ns,
    PreviewOnly,
    RemoveAction,
    check_choice,
    match_ids,
)
from stateward.domains.mci.errors import InUse, NotDone
from stateward.domains.mci.lifecycle import ResourceState
from stateward.domains.mci.resource_usage import usage_of, users_of
from stateward.engine import Denied, NotFound
from stateward.errors import BadInput
from stateward.naming import new_id
from stateward.plugin.route_options import reads
from stateward.store.filters import Page, Selector
from stateward.store.records import Object, Operation, Status

PARSERS: dict[str, Callable[[Fields, model.CloudConnection, str], model.ResourceSpec]] = {
    "vNet": parse_network,
    "securityGroup": parse_security_group,
    "sshKey": parse_key,
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "vNet": {
        "name": "net",
        "connectionName": "aws-ap-northeast-2",
        "cidrBlock": "10.0.0.0/16",
        "subnetInfoList": [{"name": "front", "ipv4_CIDR": "10.0.1.0/24"}],
    },
    "securityGroup": {
        "name": "web",
        "connectionName": "aws-ap-northeast-2",
        "vNetId": "net",
        "firewallRules": [{"Protocol": "tcp", "Ports": "22,443", "Direction": "inbound", "CIDR": "0.0.0.0/0"}],
    },
    "sshKey": {"name": "key", "connectionName": "aws-ap-northeast-2"},
}
RESOURCE_WAIT_S = 60.0
"""How long requests wait for the creation or deletion of a resource."""


def _routes(resource_type: str, made: int) -> list[HTTPRouteHandler]:
    """Return the routes of one type of resources."""
    path = f"/ns/{{ns:str}}/resources/{resource_type}"

    @post(path, opt=ACT | reads(EXAMPLES[resource_type]), status_code=made, name=f"make {resource_type}")
    async def make(request: TumblebugRequest, ns: Ns) -> ResourceView:
        """Create a resource and wait for it."""
        return await _make(request, ns, resource_type)

    @get(path, opt=READ, name=f"list {resource_type}")
    async def list_all(
        request: TumblebugRequest,
        ns: Ns,
        option: IdsOnly = None,
        filter_key: FilterKey = None,
        filter_val: FilterVal = None,
    ) -> AnyResponse:
        """Return the resources of a namespace, or their ids."""
        await request.service.namespace(ns)
        usage = await usage_of(request.service.engine.store.reader, ns)
        resources = await request.service.resources(ns, resource_type)
        shown = [
            resource_view(
                resource_type, resource, usage.get((resource_type, model.resource_identity(resource).name), ())
            )
            for resource in resources
        ]
        chosen = [view for view in shown if not filter_key or matches_filter(view, filter_key, filter_val or "")]
        return list_response(resource_type, chosen, option)

    @get(f"{path}/{{name:str}}", opt=READ, name=f"get {resource_type}")
    async def get_one(request: TumblebugRequest, ns: Ns, name: Name) -> ResourceView:
        """Return a resource with its users."""
        resource = await request.service.resource(ns, resource_type, name)
        return resource_view(resource_type, resource, await users_of(request.service.engine.store.reader, resource))

    @delete(f"{path}/{{name:str}}", opt=ACT, status_code=200, name=f"delete {resource_type}")
    @adds_object_state(resource_in_path(resource_type))
    async def delete_one(
        request: TumblebugRequest, ns: Ns, name: Name, force: Force = None, action: RemoveAction = None
    ) -> OperationReply:
        """Delete an unused resource and wait for it."""
        return OperationReply(await remove(request, ns, resource_type, name, force=_is_forced(force, action)))

    @delete(path, opt=ACT, status_code=200, name=f"delete every {resource_type}")
    async def delete_all(
        request: TumblebugRequest, ns: Ns, match: Match = None, force: Force = None, action: RemoveAction = None
    ) -> ResourceDeletions:
        """Delete all unused resources, or those whose ids contain `match`."""
        fits, forced = match_ids(match), _is_forced(force, action)
        await request.service.namespace(ns)
        resources = [
            resource
            for resource in await request.service.resources(ns, resource_type)
            if fits(model.resource_identity(resource).name)
        ]
        # the reply names those that could not be deleted, and an error is raised if none could be
        results: list[ResourceDeletion] = []
        refused: list[Denied] = []
        for resource in resources:
            try:
                results.append(await _deletion(request, resource_type, resource, force=forced))
            except Denied as error:
                refused.append(error)
                results.append(_refusal(resource_type, resource, error))
        if refused and len(refused) == len(resources):
            raise refused[0]
        return resource_deletions(results)

    return [make, list_all, get_one, delete_one, delete_all]


def _is_forced(force: str | None, action: str | None) -> bool:
    return parse_flag("force", force) or check_choice("action", action, "withsubnets", "force") == "force"


async def _make(request: TumblebugRequest, ns: str, resource_type: str) -> ResourceView:
    body = await request.fields()
    place = await request.require_connection("connectionName", body.text("connectionName").strip(), ns)
    recipient = parse_recipient(body)
    want = PARSERS[resource_type](body, place, new_id())
    if isinstance(want, model.SecurityGroupSpec):
        try:
            network = model.resource_identity(await request.service.resource(ns, "vNet", want.network))
        except NotFound as error:
            raise BadInput("vNetId", want.network, f"a vNet of the namespace {ns!r}") from error
        if network.connection != want.connection:
            raise BadInput(
                "vNetId", want.network, f"a vNet of {want.connection!r}: it is one of {network.connection!r}"
            )
    resource, pair = await request.service.create_resource(ns, resource_type, want, request.caller, RESOURCE_WAIT_S)
    if resource.state == ResourceState.ERROR:
        raise NotDone(f"{resource_type} {want.name!r}", f"{resource.error}; it is kept as Error until it is deleted")
    return resource_view(resource_type, resource, pair=pair_view(pair, recipient))


async def remove(request: TumblebugRequest, ns: str, resource_type: str, name: str, *, force: bool = False) -> str:
    """Delete a resource and wait for it; returns the message."""
    native = model.resource_seen(await request.service.resource(ns, resource_type, name)).native_id
    accepted = await request.service.delete_resource(ns, resource_type, name, request.caller, force=force)
    what = f"delete of {resource_type} {name!r}"
    if accepted.operation is not None and not await wait_done(request, accepted.operation, what):
        return f"The {resource_type} {name} is being deleted"
    remains = f"; at its provider there may still be {native}" if force and native else ""
    return f"The {resource_type} {name} has been deleted{remains}"


async def wait_done(request: TumblebugRequest, op: Operation, what: str) -> bool:
    """Wait a while for an operation on a resource; tells whether it has ended, and raises if it failed."""
    request.link_operation(op.ns, op.id)
    over = await wait_for_end(request.service.engine, op.ns, op.id, RESOURCE_WAIT_S)
    if over is not None and over.status is not Status.SUCCEEDED:
        raise NotDone(what, over.error or "no reason is known")
    return over is not None


async def _deletion(
    request: TumblebugRequest, resource_type: str, resource: Object, *, force: bool = False
) -> ResourceDeletion:
    name = model.resource_identity(resource).name
    message = await remove(request, resource.ns, resource_type, name, force=force)
    return ResourceDeletion(resource_type, name, True, message)


def _refusal(resource_type: str, resource: Object, error: Denied) -> ResourceDeletion:
    name = model.resource_identity(resource).name
    return ResourceDeletion(resource_type, name, False, f"The {resource_type} {name} has not been deleted: {error}")


@delete("/ns/{ns:str}/sharedResources", opt=ACT, status_code=200)
async def delete_shared(request: TumblebugRequest, ns: Ns, preview: PreviewOnly = None) -> ResourceDeletions:
    """Delete unused resources that were created for MCIs; with `dryRun=true`, only name them."""
    await request.service.namespace(ns)
    reader, results = request.service.engine.store.reader, list[ResourceDeletion]()
    shared = [
        (resource_type, resource)
        for resource_type in ("sshKey", "securityGroup", "vNet")
        for resource in await reader.list_objects(
            Selector(ns, model.RESOURCE_LIFECYCLES[resource_type].kind, labels=((model.SHARED, "yes"),)),
            Page(limit=1000),
        )
    ]
    if parse_flag("dryRun", preview):
        return await _preview(request, ns, shared)
    for resource_type, resource in shared:
        try:
            results.append(await _deletion(request, resource_type, resource))
        except InUse:
            continue
        except Denied as error:  # one provider that fails must not stop the others
            results.append(_refusal(resource_type, resource, error))
    return resource_deletions(results)


async def _preview(request: TumblebugRequest, ns: str, shared: Sequence[tuple[str, Object]]) -> ResourceDeletions:
    """Name the unused ones; a network is unused if the security groups in it would be deleted before it."""
    usage, unused, results = await usage_of(request.service.engine.store.reader, ns), set[str](), []
    for resource_type, resource in shared:
        name = model.resource_identity(resource).name
        if all(user.id in unused for user in usage.get((resource_type, name), ())):
            unused.add(resource.id)
            message = f"The {resource_type} {name} would be deleted"
            results.append(ResourceDeletion(resource_type, name, True, message))
    return resource_deletions(results)


@put("/ns/{ns:str}/resources/sshKey/{name:str}", opt=ACT | reads({"description": "of the web servers"}))
@adds_object_state(resource_in_path("sshKey"))
async def change_key(request: TumblebugRequest, ns: Ns, name: Name) -> ResourceView:
    """Change the description of a key; its public key stays, and a private key is never stored."""
    body, was = await request.fields(), model.key_of(await request.service.resource(ns, "sshKey", name))
    public = body.text("publicKey").strip()
    if public and public != was.public_key:
        raise BadInput("publicKey", None, "left out: VMs have the key; create another sshKey for another public key")
    want = replace(was, description=body.text("description", default=was.description))
    await request.service.describe_resource(ns, "sshKey", want, request.caller)
    resource = await request.service.resource(ns, "sshKey", name)
    return resource_view("sshKey", resource, await users_of(request.service.engine.store.reader, resource))


ROUTES = (
    *_routes("vNet", 201), *_routes("securityGroup", 200), *_routes("sshKey", 200),
    delete_shared, change_key,
)  # fmt: skip
