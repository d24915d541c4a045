"""Routes of subnets, under `/ns/{ns}/resources/vNet/{name}/subnet`."""

from litestar import delete, get, post

from stateward.domains.mci.api.context import (
    AnyResponse,
    TumblebugRequest,
    adds_object_state,
    list_response,
    resource_in_path,
)
from stateward.domains.mci.api.lenient_json import parse_flag
from stateward.domains.mci.api.operation_replies import OperationReply
from stateward.domains.mci.api.resource_bodies import parse_subnet
from stateward.domains.mci.api.resource_views import SubnetView, subnet_views
from stateward.domains.mci.api.routes.resource_routes import wait_done
from stateward.domains.mci.api.tumblebug_params import ACT, READ, Force, IdsOnly, Name, Ns, RemoveAction, check_choice
from stateward.engine import NotFound
from stateward.plugin.route_options import reads

PATH = "/ns/{ns:str}/resources/vNet/{name:str}/subnet"
A_SUBNET = {"name": "back", "ipv4_CIDR": "10.0.2.0/24", "zone": "a"}
"""An example of a request body, for the API description."""


@get(PATH, opt=READ)
@adds_object_state(resource_in_path("vNet"))
async def list_subnets(request: TumblebugRequest, ns: Ns, name: Name, option: IdsOnly = None) -> AnyResponse:
    """Return the subnets of a network."""
    return list_response("subnet", subnet_views(await request.service.resource(ns, "vNet", name)), option)


@get(f"{PATH}/{{subnet:str}}", opt=READ)
async def get_subnet(request: TumblebugRequest, ns: Ns, name: Name, subnet: Name) -> SubnetView:
    """Return a subnet of a network."""
    return await _subnet(request, ns, name, subnet)


@post(PATH, opt=ACT | reads(A_SUBNET), status_code=201)
@adds_object_state(resource_in_path("vNet"))
async def make_subnet(request: TumblebugRequest, ns: Ns, name: Name) -> SubnetView:
    """Add a subnet to a network."""
    wanted = parse_subnet(await request.fields())
    accepted = await request.service.add_subnet(ns, name, wanted, request.caller)
    await wait_done(request, accepted.op, f"subnet {wanted.name!r} of vNet {name!r}")
    return await _subnet(request, ns, name, wanted.name)


@delete(f"{PATH}/{{subnet:str}}", opt=ACT, status_code=200)
@adds_object_state(resource_in_path("vNet"))
async def delete_subnet(
    request: TumblebugRequest, ns: Ns, name: Name, subnet: Name, force: Force = None, action: RemoveAction = None
) -> OperationReply:
    """Remove a subnet from a network."""
    anyway = parse_flag("force", force) or check_choice("action", action, "refine", "force") == "force"
    accepted = await request.service.remove_subnet(ns, name, subnet, request.caller, force=anyway)
    over = await wait_done(request, accepted.op, f"delete of subnet {subnet!r} of vNet {name!r}")
    return OperationReply(f"The subnet {subnet} {'has been' if over else 'is being'} deleted")


async def _subnet(request: TumblebugRequest, ns: str, name: str, subnet: str) -> SubnetView:
    for view in subnet_views(await request.service.resource(ns, "vNet", name)):
        if view.id == subnet:
            return view
    raise NotFound(ns, f"{name}/{subnet}")


ROUTES = (list_subnets, get_subnet, make_subnet, delete_subnet)
