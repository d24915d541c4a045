"""Routes of namespaces."""

from litestar import delete, get, post, put
from litestar.exceptions import PermissionDeniedException
from msgspec import Struct

from stateward.domains.mci.api.context import AnyResponse, TumblebugRequest, list_response
from stateward.domains.mci.api.operation_replies import OperationReply
from stateward.domains.mci.api.tumblebug_params import ACT, READ, IdsOnly, Ns, check_name
from stateward.domains.mci.model import spec_reader
from stateward.plugin.route_options import grant_of, reads
from stateward.store.records import Object

EXAMPLE = {"name": "shop", "description": "all that sells"}


class NamespaceSpec(Struct, frozen=True):
    """The stored spec of a namespace."""

    name: str
    description: str = ""


class MciNamespaceView(Struct, frozen=True, rename="camel"):
    """A namespace."""

    id: str
    name: str
    description: str
    resource_type: str = "ns"


namespace_of = spec_reader(NamespaceSpec)


def namespace_view(namespace: Object) -> MciNamespaceView:
    """Return the view of a namespace."""
    spec = namespace_of(namespace)
    return MciNamespaceView(spec.name, spec.name, spec.description)


@post("/ns", opt=ACT | reads(EXAMPLE), status_code=200)
async def create_ns(request: TumblebugRequest) -> MciNamespaceView:
    """Create a namespace that the caller's token covers."""
    body = await request.fields()
    name = check_name("name", body.text("name").strip())
    if not grant_of(request).opens(name):
        raise PermissionDeniedException(f"the token does not give the right to act in namespace {name!r}")
    return namespace_view(await request.service.add_namespace(name, body.text("description"), request.caller))


@get("/ns", opt=READ)
async def list_ns(request: TumblebugRequest, option: IdsOnly = None) -> AnyResponse:
    """Return the namespaces that the caller's token covers."""
    grant = grant_of(request)
    views = [
        view
        for namespace in await request.service.namespaces()
        if grant.opens((view := namespace_view(namespace)).name)
    ]
    return list_response("ns", views, option)


@get("/ns/{ns:str}", opt=READ)
async def get_ns(request: TumblebugRequest, ns: Ns) -> MciNamespaceView:
    """Return a namespace."""
    return namespace_view(await request.service.namespace(ns))


@put("/ns/{ns:str}", opt=ACT | reads(EXAMPLE))
async def change_ns(request: TumblebugRequest, ns: Ns) -> MciNamespaceView:
    """Change the description of a namespace."""
    body = await request.fields()
    return namespace_view(await request.service.describe_namespace(ns, body.text("description"), request.caller))


@delete("/ns/{ns:str}", opt=ACT, status_code=200)
async def delete_ns(request: TumblebugRequest, ns: Ns) -> OperationReply:
    """Remove an empty namespace."""
    await request.service.remove_namespace(ns, request.caller)
    return OperationReply(f"The ns {ns} has been deleted")


ROUTES = (create_ns, list_ns, get_ns, change_ns, delete_ns)
