"""Routes for passive records: flavors, apps, and the two kinds of policies."""

from typing import Any

from litestar import delete, get, put
from litestar.params import JSONBody

from stateward.domains.edge.api.context import ACT, NS_PATH, READ, TAGS, Call, RecordName, ServiceDependency, caller_of
from stateward.domains.edge.api.schemas import View, view
from stateward.domains.edge.lifecycle import APP, AUTOPROV, AUTOSCALE, FLAVOR
from stateward.domains.edge.model import AppSpec, AutoprovSpec, AutoscaleSpec, FlavorSpec
from stateward.domains.request_params import Ns

# Bodies forbid unknown fields; stored specs allow them, since another version may have written them.


class NewFlavor(FlavorSpec, frozen=True, forbid_unknown_fields=True):
    """A new flavor."""


class NewApp(AppSpec, frozen=True, forbid_unknown_fields=True):
    """A new app."""


class NewAutoscale(AutoscaleSpec, frozen=True, forbid_unknown_fields=True):
    """A new autoscale policy."""


class NewAutoprov(AutoprovSpec, frozen=True, forbid_unknown_fields=True):
    """A new auto-provisioning policy."""


@put(f"{NS_PATH}/flavors/{{name:str}}", opt=ACT, tags=TAGS, summary="Define a flavor")
async def put_flavor(
    request: Call, service: ServiceDependency, ns: Ns, name: RecordName, data: JSONBody[NewFlavor]
) -> View:
    """Define a node size; existing clusters keep theirs."""
    return view(await service.put_record(ns, FLAVOR.kind, name, data, caller_of(request)))


@put(f"{NS_PATH}/apps/{{name:str}}", opt=ACT, tags=TAGS, summary="Define an app")
async def put_app(request: Call, service: ServiceDependency, ns: Ns, name: RecordName, data: JSONBody[NewApp]) -> View:
    """Define an app; its instances change when they are refreshed."""
    return view(await service.put_record(ns, APP.kind, name, data, caller_of(request)))


@put(f"{NS_PATH}/autoscale/{{name:str}}", opt=ACT, tags=TAGS, summary="Define a policy of nodes")
async def put_autoscale(
    request: Call, service: ServiceDependency, ns: Ns, name: RecordName, data: JSONBody[NewAutoscale]
) -> View:
    """Define an autoscale policy: the number of a cluster's nodes by its load."""
    return view(await service.put_record(ns, AUTOSCALE.kind, name, data, caller_of(request)))


@put(f"{NS_PATH}/autoprov/{{name:str}}", opt=ACT, tags=TAGS, summary="Define a policy of places")
async def put_autoprov(
    request: Call, service: ServiceDependency, ns: Ns, name: RecordName, data: JSONBody[NewAutoprov]
) -> View:
    """Define an auto-provisioning policy: the cloudlets to deploy an app on, by demand."""
    return view(await service.put_record(ns, AUTOPROV.kind, name, data, caller_of(request)))


def read_and_delete_routes(kind: str, path: str, what: str) -> list[Any]:
    """Return the list, get and delete routes of a kind of record."""
    all_, one = f"{NS_PATH}/{path}", f"{NS_PATH}/{path}/{{name:str}}"

    @get(all_, opt=READ, tags=TAGS, summary=f"List {path}", operation_id=f"ListEdge{path.capitalize()}")
    async def list_records(service: ServiceDependency, ns: Ns) -> list[View]:
        """Return all records of the kind."""
        return [view(found) for found in await service.list_all(ns, kind)]

    @get(one, opt=READ, tags=TAGS, summary=f"Get {what}", operation_id=f"GetEdge{path.capitalize()}")
    async def get_record(service: ServiceDependency, ns: Ns, name: RecordName) -> View:
        """Return a record."""
        return view(await service.get_record(ns, kind, name))

    gone = f"RemoveEdge{path.capitalize()}"

    @delete(one, opt=ACT, tags=TAGS, summary=f"Remove {what}", operation_id=gone, status_code=200)
    async def delete_record(request: Call, service: ServiceDependency, ns: Ns, name: RecordName) -> View:
        """Delete a record, and return it as it was."""
        former = await service.get_record(ns, kind, name)
        await service.delete_record(ns, kind, name, caller_of(request))
        return view(former)

    return [list_records, get_record, delete_record]


RECORD_HANDLERS = (
    put_flavor, put_app, put_autoscale, put_autoprov,
    *read_and_delete_routes(FLAVOR.kind, "flavors", "a flavor"),
    *read_and_delete_routes(APP.kind, "apps", "an app"),
    *read_and_delete_routes(AUTOSCALE.kind, "autoscale", "a policy of nodes"),
    *read_and_delete_routes(AUTOPROV.kind, "autoprov", "a policy of places"),
)  # fmt: skip
