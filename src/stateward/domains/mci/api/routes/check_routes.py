"""Routes that check before something is created: specs with their connections, subgroups, pairs of spec and image."""

from typing import Any

from litestar import get, post

from stateward.domains.mci.api.connection_views import CREDENTIAL_HOLDER, image_view, region_view, spec_view
from stateward.domains.mci.api.context import TumblebugRequest, adds_object_state, mci_in_path
from stateward.domains.mci.api.mci_bodies import A_DYNAMIC_GROUP, parse_recipient, parse_subgroup
from stateward.domains.mci.api.routes.catalogue_routes import records
from stateward.domains.mci.api.routes.mci_routes import views
from stateward.domains.mci.api.routes.review_routes import ERROR, VmReview, money, review_group
from stateward.domains.mci.api.routes.system_routes import Ready
from stateward.domains.mci.api.routes.vm_routes import free_group_name
from stateward.domains.mci.api.schemas import matches_filter
from stateward.domains.mci.api.tumblebug_params import (
    OPEN,
    READ,
    FilterKey,
    FilterVal,
    IdsOnly,
    Mci,
    Name,
    Ns,
    check_choice,
    check_reference,
)
from stateward.domains.mci.model import RESOURCE_LIFECYCLES, SubGroup, mci_of, resource_identity
from stateward.domains.mci.provider.catalogue import find_known_spec, known_images
from stateward.errors import BadInput, UnknownName
from stateward.naming import DEFAULT_NAMESPACE
from stateward.plugin.route_options import grant_of, reads

A_PAIR = {"specId": "aws+ap-northeast-2+t3.micro", "imageId": "ubuntu22.04"}
MAX_SPECS = 1000


@get("/livez", opt=OPEN)
async def livez() -> Ready:
    """Answer, as long as the process can."""
    return Ready("The server is alive", True, True)


@post("/mciDynamicCheckRequest", opt=READ | reads({"specId": [A_PAIR["specId"]]}), status_code=200)
async def check_specs(request: TumblebugRequest) -> dict[str, Any]:
    """Return each spec with its region, its images and the connections that offer it."""
    names = (await request.fields()).texts("specId", "specIds", "commonSpecs", "commonSpec")
    if not names or len(names) > MAX_SPECS:
        raise BadInput("specId", len(names), f"a list of 1 to {MAX_SPECS} specs")
    return {"reqCheck": [await _checked(request, name) for name in names]}


async def _checked(request: TumblebugRequest, name: str) -> dict[str, Any]:
    spec = find_known_spec(name)
    places = {connection.name: connection for connection in await request.visible_connections()}
    home = None if spec is None else places.get(spec.connection)
    if spec is None or home is None:
        problem = f"{name} is no spec of a connection that the caller may use"
        return {"connectionConfigCandidates": [], "spec": None, "image": [], "region": None, "systemMessage": problem}
    return {
        "connectionConfigCandidates": [place.name for place in places.values() if place.lane == home.lane],
        "spec": spec_view(spec, home),
        "image": [image_view(image, home) for image in known_images(home)],
        "region": region_view(home),
        "systemMessage": "",
    }


@post("/ns/{ns:str}/mci/{mci:str}/subGroupDynamicReview", opt=READ | reads(A_DYNAMIC_GROUP), status_code=200)
@adds_object_state(mci_in_path)
async def review_subgroup(request: TumblebugRequest, ns: Ns, mci: Mci) -> VmReview:
    """Tell whether a subgroup can be added to an MCI, and its cost; writes nothing."""
    taken = {subgroup.name for subgroup in mci_of(await request.service.mci(ns, mci)).groups}
    body = await request.fields()
    parse_recipient(body)
    group = parse_subgroup(body, free_group_name(taken), dynamic=True)
    if group.name in taken:
        raise BadInput("name", group.name, f"another name than that of a subgroup of {mci}")
    return await review_group(request, ns, group)


@post("/specImagePairReview", opt=READ | reads(A_PAIR), status_code=200)
async def review_pair(request: TumblebugRequest) -> dict[str, Any]:
    """Tell whether a spec and an image can be used together, and what a VM would cost."""
    body = await request.fields()
    spec, image = (check_reference(field, body.text(field).strip(), needed=True) for field in ("specId", "imageId"))
    ns = min(grant_of(request).namespace_filter or {DEFAULT_NAMESPACE})
    review = await review_group(request, ns, SubGroup("pair", 1, spec, image))
    known = find_known_spec(spec)
    return {
        "specId": spec,
        "imageId": image,
        "isValid": review.can_create,
        "status": "OK" if review.status == "Ready" else review.status,
        "message": review.message,
        "connectionName": review.connection_name,
        "providerName": review.provider_name,
        "regionName": review.region_name,
        "estimatedCost": money(0.0 if known is None else known.cost),
        "specValidation": review.spec_validation,
        "imageValidation": review.image_validation,
        "requestedZone": body.text("zone"),
        "requestedRootDiskType": body.text("rootDiskType"),
        "info": review.info,
        "warnings": review.warnings,
        "errors": review.errors if review.status == ERROR else [],
    }


@get("/ns/{ns:str}/checkResource/{resource_type:str}/{name:str}", opt=READ)
async def check_resource(request: TumblebugRequest, ns: Ns, resource_type: Name, name: Name) -> dict[str, bool]:
    """Tell whether a resource exists in a namespace."""
    word = check_choice("resourceType", resource_type, *RESOURCE_LIFECYCLES, "spec", "image")
    await request.service.namespace(ns)
    if word in ("spec", "image"):
        return {"exists": any(record.id == name for record in await records(request, ns, word))}
    return {
        "exists": any(
            resource_identity(resource).name == name for resource in await request.service.resources(ns, word)
        )
    }


@get("/ns/{ns:str}/resources/vm", opt=READ)
async def list_vms_of_namespace(
    request: TumblebugRequest,
    ns: Ns,
    option: IdsOnly = None,
    filter_key: FilterKey = None,
    filter_val: FilterVal = None,
) -> dict[str, Any]:
    """Return all VMs of a namespace, each with its MCI, or their ids."""
    await request.service.namespace(ns)
    view, vms = views(request), []
    for mci in await request.service.mcis(ns):
        shown = await view.vm_infos(mci, await view.vms(mci))
        vms += [(mci.id, vm) for vm in shown if not filter_key or matches_filter(vm, filter_key, filter_val or "")]
    if check_choice("option", option, "id") == "id":
        return {"output": [vm.id for _, vm in vms]}
    return {"vm": [{"mciId": mci, "vm": vm} for mci, vm in vms]}


@get("/credentialHolder", opt=READ)
async def list_holders(request: TumblebugRequest) -> dict[str, Any]:
    """Return the holders of credentials: there is one, with all connections."""
    return {"credentialHolderList": [await _holder(request)]}


@get("/credentialHolder/{name:str}", opt=READ)
async def get_holder(request: TumblebugRequest, name: Name) -> dict[str, Any]:
    """Return a holder of credentials."""
    if name != CREDENTIAL_HOLDER:
        raise UnknownName("credential holder", name, [CREDENTIAL_HOLDER])
    return await _holder(request)


async def _holder(request: TumblebugRequest) -> dict[str, Any]:
    connections = await request.visible_connections()
    return {
        "credentialHolder": CREDENTIAL_HOLDER,
        "isDefault": True,
        "connectionCount": len(connections),
        "verifiedConnectionCount": len(connections),
        "providers": sorted({connection.provider for connection in connections}),
    }


@get("/cloudInfo", opt=READ)
async def cloud_info(request: TumblebugRequest) -> dict[str, Any]:
    """Return the providers with their regions and the drivers behind them."""
    csps: dict[str, dict[str, Any]] = {}
    for connection in await request.visible_connections():
        about = csps.setdefault(
            connection.provider, {"description": connection.provider, "driver": connection.driver, "regions": {}}
        )
        about["regions"][connection.region] = region_view(connection)
    return {"csps": csps}


ROUTES = (
    livez, check_specs, review_subgroup, review_pair, check_resource, list_vms_of_namespace,
    list_holders, get_holder, cloud_info,
)  # fmt: skip
