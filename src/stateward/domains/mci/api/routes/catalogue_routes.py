"""Routes of specs and images: registered ones, and built-in ones in the namespace `system`."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from litestar import delete, get, post, put
from litestar.handlers import HTTPRouteHandler

from stateward.domains.mci.api.connection_views import image_view, spec_view
from stateward.domains.mci.api.context import AnyResponse, TumblebugRequest, list_response
from stateward.domains.mci.api.lenient_json import Fields
from stateward.domains.mci.api.operation_replies import (
    OperationReply,
    ResourceDeletion,
    ResourceDeletions,
    resource_deletions,
)
from stateward.domains.mci.api.resource_bodies import change_image, change_spec, parse_image, parse_spec
from stateward.domains.mci.api.schemas import ImageView, SpecView, matches_filter
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
    RegisterAction,
    check_choice,
    match_ids,
)
from stateward.domains.mci.model import CloudConnection, ImageRecord, SpecRecord, record_id
from stateward.domains.mci.provider.catalogue import known_images, known_specs
from stateward.engine import Denied, NotFound
from stateward.plugin.route_options import reads, shares

EVERYBODY = "system"
"""The namespace in which Tumblebug clients look for built-in specs and images."""

PARSERS: dict[str, Callable[[Fields, CloudConnection], SpecRecord | ImageRecord]] = {
    "spec": parse_spec,
    "image": parse_image,
}
RECORDS: dict[str, type[SpecRecord | ImageRecord]] = {"spec": SpecRecord, "image": ImageRecord}
CHANGES: dict[str, Callable[[Fields, Any], SpecRecord | ImageRecord]] = {"spec": change_spec, "image": change_image}
EXAMPLES = {
    "spec": {"connectionName": "aws-ap-northeast-2", "cspSpecName": "t3.micro", "name": "small"},
    "image": {"connectionName": "aws-ap-northeast-2", "cspImageName": "ubuntu22.04", "name": "ubuntu"},
}
ACTIONS = ("registerWithCspResourceId", "registerWithId", "registerWithInfo")

Record = SpecView | ImageView


def _routes(resource_type: str) -> list[HTTPRouteHandler]:
    """Return the routes of specs or of images."""
    path = f"/ns/{{ns:str}}/resources/{resource_type}"

    @post(path, opt=ACT | reads(EXAMPLES[resource_type]), status_code=200, name=f"register {resource_type}")
    async def register(request: TumblebugRequest, ns: Ns, action: RegisterAction = None) -> Record:
        """Register a spec or an image of a provider."""
        check_choice("action", action, *ACTIONS)
        body = await request.fields()
        place = await request.require_connection("connectionName", body.text("connectionName").strip(), ns)
        what = PARSERS[resource_type](body, place)
        await request.service.register(ns, what, request.caller)
        return _view(what, {place.name: place})

    @get(path, opt=READ | shares(EVERYBODY), name=f"list {resource_type}")
    async def list_all(
        request: TumblebugRequest,
        ns: Ns,
        option: IdsOnly = None,
        filter_key: FilterKey = None,
        filter_val: FilterVal = None,
    ) -> AnyResponse:
        """Return the registered records, or their ids."""
        stored = await records(request, ns, resource_type)
        chosen = [record for record in stored if not filter_key or matches_filter(record, filter_key, filter_val or "")]
        return list_response(resource_type, chosen, option)

    @get(f"{path}/{{name:str}}", opt=READ | shares(EVERYBODY), name=f"get {resource_type}")
    async def get_one(request: TumblebugRequest, ns: Ns, name: Name) -> Record:
        """Return a registered or a built-in record."""
        for home in dict.fromkeys((ns, EVERYBODY)):
            for record in await records(request, home, resource_type):
                if record.id == name:
                    return record
        raise NotFound(ns, name)

    @put(f"{path}/{{name:str}}", opt=ACT | reads(EXAMPLES[resource_type]), name=f"change {resource_type}")
    async def change_one(request: TumblebugRequest, ns: Ns, name: Name) -> Record:
        """Change a registered record: the fields that the body has; its id and its connection stay."""
        kept = (await request.service.engine.record(ns, record_id(resource_type, name))).spec
        was: SpecRecord | ImageRecord = msgspec.json.decode(kept, type=RECORDS[resource_type])
        what = CHANGES[resource_type](await request.fields(), was)
        await request.service.change_record(ns, what, request.caller)
        return _view(what, {connection.name: connection for connection in await request.visible_connections()})

    @delete(f"{path}/{{name:str}}", opt=ACT, status_code=200, name=f"delete {resource_type}")
    async def delete_one(request: TumblebugRequest, ns: Ns, name: Name, force: Force = None) -> OperationReply:  # noqa: ARG001 - as others
        """Remove a registered record."""
        await request.service.unregister(ns, resource_type, name, request.caller)
        return OperationReply(f"The {resource_type} {name} has been deleted")

    @delete(path, opt=ACT, status_code=200, name=f"delete every {resource_type}")
    async def delete_all(
        request: TumblebugRequest,
        ns: Ns,
        match: Match = None,
        force: Force = None,  # noqa: ARG001 - as others
    ) -> ResourceDeletions:
        """Remove all registered records, or those whose ids contain `match`."""
        fits = match_ids(match)
        await request.service.namespace(ns)
        registered = [record.id for record in await _registered(request, ns, resource_type) if fits(record.id)]
        return resource_deletions([await _delete(request, ns, resource_type, name) for name in registered])

    return [register, list_all, get_one, change_one, delete_one, delete_all]


async def _delete(request: TumblebugRequest, ns: str, resource_type: str, name: str) -> ResourceDeletion:
    try:
        await request.service.unregister(ns, resource_type, name, request.caller)
    except Denied as error:
        why = f"The {resource_type} {name} has not been deleted: {error}"
        return ResourceDeletion(resource_type, name, False, why)
    return ResourceDeletion(resource_type, name, True, f"The {resource_type} {name} has been deleted")


async def records(request: TumblebugRequest, ns: str, resource_type: str) -> list[Record]:
    """Return the specs or the images of a namespace; the built-in ones are in a namespace of their own.

    Provider and region are shown for connections that the caller's namespaces may use.
    """
    places = {connection.name: connection for connection in await request.visible_connections()}
    if ns == EVERYBODY:
        known = known_specs if resource_type == "spec" else known_images
        return [_view(what, places) for place in places.values() for what in known(place)]
    await request.service.namespace(ns)
    return [_view(what, places) for what in await _registered(request, ns, resource_type)]


async def _registered(request: TumblebugRequest, ns: str, resource_type: str) -> Sequence[SpecRecord | ImageRecord]:
    return await (request.catalogue.specs(ns) if resource_type == "spec" else request.catalogue.images(ns))


def _view(what: SpecRecord | ImageRecord, places: dict[str, CloudConnection]) -> Record:
    place = places.get(what.connection)
    return spec_view(what, place) if isinstance(what, SpecRecord) else image_view(what, place)


ROUTES = (*_routes("spec"), *_routes("image"))
