"""Routes for passive records: flavors, apps, and the two kinds of policies."""

from typing import Any

from litestar import delete, get, put
from litestar.params import JSONBody
from msgspec import Struct

from stateward.domains.edge.api.context import ACT, NS_PATH, READ, Call, RecordName, ServiceDependency, caller_of
from stateward.domains.edge.api.schemas import View, view
from stateward.domains.edge.lifecycle import APP, AUTOPROV, AUTOSCALE, FLAVOR
from stateward.domains.edge.model import AppSpec, AutoprovSpec, AutoscaleSpec, FlavorSpec
from stateward.plugin.request_params import MAX_PAGE, After, Ns, PageLimit
from stateward.store.filters import Page

# Bodies forbid unknown fields; stored specs allow them, since another version may have written them.


class NewFlavor(FlavorSpec, frozen=True, forbid_unknown_fields=True):
    """A new flavor."""


class NewApp(AppSpec, frozen=True, forbid_unknown_fields=True):
    """A new app."""


class NewAutoscale(AutoscaleSpec, frozen=True, forbid_unknown_fields=True):
    """A new autoscale policy."""


class NewAutoprov(AutoprovSpec, frozen=True, forbid_unknown_fields=True):
    """A new auto-provisioning policy."""


def _record_routes(kind: str, path: str, what: str, body: type[Struct], description: str) -> list[Any]:
    """Return the routes of a kind of record: define, list, get and delete."""
    all_, by_name = f"{NS_PATH}/{path}", f"{NS_PATH}/{path}/{{name:str}}"
    ids, noun = path.capitalize(), kind.partition(".")[2].capitalize()

    @put(
        by_name,
        opt=ACT,
        summary=f"Define {what}",
        description=description,
        operation_id=f"ApiV1EdgeNs{ids}NamePut{noun}",
    )
    async def put_record(
        request: Call,
        service: ServiceDependency,
        ns: Ns,
        name: RecordName,
        data: JSONBody[body],  # type: ignore[valid-type]
    ) -> View:
        return view(await service.put_record(ns, kind, name, data, caller_of(request)))

    @get(all_, opt=READ, summary=f"List {path}", operation_id=f"ListEdge{ids}")
    async def list_records(
        service: ServiceDependency, ns: Ns, after: After = None, limit: PageLimit = MAX_PAGE
    ) -> list[View]:
        """Return a page of the records of the kind, in the order of their ids."""
        return [view(record) for record in await service.list_page(ns, kind, Page(after, limit))]

    @get(by_name, opt=READ, summary=f"Get {what}", operation_id=f"GetEdge{ids}")
    async def get_record(service: ServiceDependency, ns: Ns, name: RecordName) -> View:
        """Return a record."""
        return view(await service.get_record(ns, kind, name))

    @delete(by_name, opt=ACT, summary=f"Remove {what}", operation_id=f"RemoveEdge{ids}", status_code=200)
    async def delete_record(request: Call, service: ServiceDependency, ns: Ns, name: RecordName) -> View:
        """Delete a record, and return it as it was."""
        former = await service.get_record(ns, kind, name)
        await service.delete_record(ns, kind, name, caller_of(request))
        return view(former)

    return [put_record, list_records, get_record, delete_record]


RECORD_HANDLERS = (
    *_record_routes(FLAVOR.kind, "flavors", "a flavor", NewFlavor,
                    "Define a node size; existing clusters keep theirs."),
    *_record_routes(APP.kind, "apps", "an app", NewApp,
                    "Define an app; its instances change when they are refreshed."),
    *_record_routes(AUTOSCALE.kind, "autoscale", "a policy of nodes", NewAutoscale,
                    "Define an autoscale policy: the number of a cluster's nodes by its load."),
    *_record_routes(AUTOPROV.kind, "autoprov", "a policy of places", NewAutoprov,
                    "Define an auto-provisioning policy: the cloudlets to deploy an app on, by demand."),
)  # fmt: skip
