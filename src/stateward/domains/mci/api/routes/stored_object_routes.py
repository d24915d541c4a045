"""Routes of Tumblebug's store: the keys of what is stored, and the JSON behind a key.

Tumblebug keeps its objects in a key-value store, and its clients may look into it. Here the same keys lead to the views
of the API, so nothing is shown that its own route would not show: secrets are not stored, and each caller sees the
namespaces of the token. Keys have the older names (`/ns/default/mci/m1/vm/g1-1`); a caller who asks with the present
ones (`/ns/default/infra/m1/node/g1-1`) gets those.

Nothing is deleted by its key: the machines of the object would be left behind, and so would its operations.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import msgspec
from litestar import delete, get
from litestar.params import QueryParameter
from msgspec import Struct

from stateward.domains.mci.api.connection_views import connection_view
from stateward.domains.mci.api.context import TumblebugRequest
from stateward.domains.mci.api.release_names import rename_fields
from stateward.domains.mci.api.resource_views import resource_view, subnet_views
from stateward.domains.mci.api.routes.catalogue_routes import records
from stateward.domains.mci.api.routes.config_routes import find_setting, setting_view
from stateward.domains.mci.api.routes.mci_routes import views
from stateward.domains.mci.api.routes.namespace_routes import namespace_of, namespace_view
from stateward.domains.mci.api.tumblebug_params import ACT, READ, TEXT, normalize_id
from stateward.domains.mci.errors import NoStoredObject, NotByKey
from stateward.domains.mci.lifecycle import IMAGE, MCI, SPEC, VM
from stateward.domains.mci.model import RESOURCE_LIFECYCLES, mci_of, network_of, vm_of
from stateward.domains.mci.resource_usage import users_of
from stateward.domains.mci.tumblebug_keys import older_key, present_key, tumblebug_key
from stateward.engine import NotFound
from stateward.engine.queries import list_all
from stateward.errors import BadInput, UnknownName
from stateward.plugin.route_options import grant_of
from stateward.store.filters import Selector

StoreKey = Annotated[
    str | None,
    QueryParameter(name="key", pattern=TEXT, description="a key such as /ns/default/mci/m1, or the beginning of keys"),
]


class SubGroupValue(Struct, frozen=True, rename="camel", kw_only=True):
    """A subgroup, as Tumblebug stores it."""

    resource_type: str = "subGroup"
    id: str
    name: str
    vm_id: list[str]
    sub_group_size: int


@get("/object", opt=READ)
async def get_stored_object(request: TumblebugRequest, key: StoreKey = None) -> dict[str, Any]:
    """Return the JSON behind a key."""
    given = _checked(key)
    value: dict[str, Any] = msgspec.to_builtins(await _value(request, older_key(given)))
    return value if older_key(given) == given else rename_fields(value)


@get("/objects", opt=READ)
async def list_stored_objects(request: TumblebugRequest, key: StoreKey = None) -> dict[str, list[str]]:
    """Return the keys that begin with a text."""
    given = _checked(key)
    wanted = older_key(given)
    keys = sorted([stored_key async for stored_key in _keys(request, wanted)])
    return {"object": keys if wanted == given else [present_key(stored_key) for stored_key in keys]}


@delete("/object", opt=ACT, status_code=200)
async def delete_stored_object(request: TumblebugRequest, key: StoreKey = None) -> None:
    """Refuse to delete an object by its key; the error says how it is deleted."""
    given = _checked(key)
    await _value(request, older_key(given))
    raise NotByKey(given)


@delete("/objects", opt=ACT, status_code=200)
async def delete_stored_objects(request: TumblebugRequest, key: StoreKey = None) -> None:
    """Refuse to delete objects by their keys; the error says how they are deleted."""
    given = _checked(key)
    async for _ in _keys(request, older_key(given)):
        raise NotByKey(given)
    raise NoStoredObject("", given)


def _checked(key: str | None) -> str:
    if not key or not key.startswith("/"):
        raise BadInput("key", key, "a key, or the beginning of keys, such as /ns/default/mci")
    return key


# --- keys ------------------------------------------------------------------------------------------------------------


async def _keys(request: TumblebugRequest, prefix: str) -> AsyncIterator[str]:
    """Yield the keys that begin with a prefix; reads only the kinds of objects that can have such keys."""
    grant = grant_of(request)
    if _overlap("/connection/", prefix):
        for place in await request.visible_connections():
            if (key := f"/connection/{place.name}").startswith(prefix):
                yield key
    if _overlap("/config/", prefix) and grant.governs_all:
        for setting in await request.service.settings():
            if (key := f"/config/{setting.name}").startswith(prefix):
                yield key
    for namespace in await request.service.namespaces() if _overlap("/ns/", prefix) else ():
        ns = namespace_of(namespace).name
        if grant.opens(ns) and _overlap(f"/ns/{ns}", prefix):
            for key in [f"/ns/{ns}", *[key async for key in _keys_of_namespace(request, ns, prefix)]]:
                if key.startswith(prefix):
                    yield key


async def _keys_of_namespace(request: TumblebugRequest, ns: str, prefix: str) -> AsyncIterator[str]:
    kinds = {MCI.kind: "mci/", VM.kind: "mci/", SPEC.kind: "resources/spec/", IMAGE.kind: "resources/image/"}
    kinds |= {lifecycle.kind: f"resources/{word}/" for word, lifecycle in RESOURCE_LIFECYCLES.items()}
    reader = request.service.engine.store.reader
    for kind, beginning in kinds.items():
        if not _overlap(f"/ns/{ns}/{beginning}", prefix):
            continue
        async for record in list_all(reader, Selector(ns, kind)):
            key = tumblebug_key(record)
            yield key
            if kind == MCI.kind:
                for group in mci_of(record).groups:
                    yield f"{key}/subGroup/{group.name}"
            elif kind == RESOURCE_LIFECYCLES["vNet"].kind:
                for subnet in network_of(record).subnets:
                    yield f"{key}/subnet/{subnet.name}"


def _overlap(beginning: str, prefix: str) -> bool:
    """Tell whether keys with a beginning can also begin with a prefix."""
    return beginning.startswith(prefix) or prefix.startswith(beginning)


# --- values ----------------------------------------------------------------------------------------------------------


async def _value(request: TumblebugRequest, key: str) -> Any:  # noqa: ANN401 - the view of the object
    """Return the view of the object with a key; an object of another namespace is as unknown as a missing one."""
    try:
        match key.removeprefix("/").split("/"):
            case ["connection", name]:
                return connection_view(await request.visible_connection(name), credential=False)
            case ["config", name] if grant_of(request).governs_all:
                return setting_view(await find_setting(request, name))
            case ["ns", ns, *path] if grant_of(request).opens(ns):
                namespace = await request.service.namespace(ns)
                return await _value_in(request, ns, path) if path else namespace_view(namespace)
    except (NotFound, UnknownName) as error:
        raise NoStoredObject("", key) from error
    raise NoStoredObject("", key)


async def _value_in(request: TumblebugRequest, ns: str, path: list[str]) -> Any:  # noqa: ANN401 - the view of the object
    service = request.service
    match path:
        case ["mci", mci]:
            return await views(request).mci(await service.mci(ns, mci))
        case ["mci", mci, "vm", vm]:
            record = await service.vm(ns, mci, normalize_id(vm))
            return (await views(request).vm_infos(await service.mci(ns, mci), [record]))[0]
        case ["mci", mci, "subGroup", group]:
            return await _subgroup(request, ns, mci, group)
        case ["resources", ("spec" | "image") as word, name]:
            return _with_id(await records(request, ns, word), ns, name)
        case ["resources", "vNet", name, "subnet", subnet]:
            return _with_id(subnet_views(await service.resource(ns, "vNet", name)), ns, subnet)
        case ["resources", word, name] if word in RESOURCE_LIFECYCLES:
            resource = await service.resource(ns, word, name)
            return resource_view(word, resource, await users_of(service.engine.store.reader, resource))
    raise NotFound(ns, "/".join(path))


async def _subgroup(request: TumblebugRequest, ns: str, mci: str, group: str) -> SubGroupValue:
    record = await request.service.mci(ns, mci)
    if all(subgroup.name != group for subgroup in mci_of(record).groups):
        raise NotFound(ns, group)
    names = [vm.name for member in await views(request).vms(record) if (vm := vm_of(member)).group == group]
    return SubGroupValue(id=group, name=group, vm_id=names, sub_group_size=len(names))


def _with_id(shown: Sequence[Any], ns: str, id_: str) -> Any:  # noqa: ANN401 - the view of the object
    for view in shown:
        if view.id == id_:
            return view
    raise NotFound(ns, id_)


ROUTES = (get_stored_object, list_stored_objects, delete_stored_object, delete_stored_objects)
