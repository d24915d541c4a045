"""Routes that compare the records with what the providers show.

Several connections may lead to the same region, so an object is ours if a record of any connection names it. The
providers are listed first: a record is always older than its object at the provider.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from litestar import get, post

from stateward.domains.mci import model
from stateward.domains.mci.api.context import TumblebugRequest
from stateward.domains.mci.api.tumblebug_params import READ_ALL_WITH_MESSAGES, check_choice
from stateward.domains.mci.lifecycle import VM
from stateward.drivers import MachineAdopter, MachineState, ResourceKind
from stateward.engine.queries import list_all
from stateward.errors import BadInput, StatewardError
from stateward.plugin.route_options import reads
from stateward.store.filters import Selector

AN_INSPECTION = {"connectionName": "aws-ap-northeast-2", "resourceType": "vNet"}
TYPES = (*model.RESOURCE_LIFECYCLES, "vm")
ENDED = (MachineState.TERMINATED, MachineState.TERMINATING)

Shown = dict[str, str]
"""Objects at a provider: native id by key."""

Row = dict[str, str]
RowsByConnection = dict[str, list[Row]]


@post("/inspectResources", opt=READ_ALL_WITH_MESSAGES | reads(AN_INSPECTION), status_code=200)
async def inspect_resources(request: TumblebugRequest) -> dict[str, Any]:
    """Compare the records of one type at a connection with what its provider shows."""
    body = await request.fields()
    given = body.text("resourceType", "type").strip()
    word = check_choice("resourceType", "vm" if given == "node" else given, *TYPES)
    if not word:
        raise BadInput("resourceType", None, f"one of {', '.join(TYPES)}")
    place = await request.require_connection("connectionName", body.text("connectionName").strip())
    shown, problem = await _list_or_explain(request, place, word)
    return _compare(place, word, shown, problem, await _records(request, word))


@get("/inspectResourcesOverview", opt=READ_ALL_WITH_MESSAGES)
async def inspect_overview(request: TumblebugRequest) -> dict[str, Any]:
    """Compare the records of all connections with what the providers show."""
    places = await request.catalogue.connections()
    listed = await asyncio.gather(*(_list_all_types(request, place) for place in places))
    records = {word: await _records(request, word) for word in TYPES}
    results = [_overview(place, each, records) for place, each in zip(places, listed, strict=True)]
    here, only = ({word: sum(result[side][word] for result in results) for word in TYPES} for side in (KEPT, ONLY))
    return {
        "registeredConnection": len(places),
        "availableConnection": sum(not result["systemMessage"] for result in results),
        "elapsedTime": 0,
        KEPT: here,
        ONLY: only,
        "inspectResult": results,
    }


KEPT, ONLY = "tumblebugOverview", "cspOnlyOverview"


async def _list_all_types(request: TumblebugRequest, place: model.CloudConnection) -> dict[str, tuple[Shown, str]]:
    return {word: await _list_or_explain(request, place, word) for word in TYPES}


def _overview(
    place: model.CloudConnection, listed: dict[str, tuple[Shown, str]], records: dict[str, RowsByConnection]
) -> dict[str, Any]:
    each = {word: _compare(place, word, *listed[word], records[word]) for word in TYPES}
    return {
        "connectionName": place.name,
        "systemMessage": next(
            (overview["systemMessage"] for overview in each.values() if overview["systemMessage"]), ""
        ),
        "elapsedTime": 0,
        KEPT: {word: overview["resourceOverview"]["onTumblebug"] for word, overview in each.items()},
        ONLY: {word: overview["resourceOverview"]["onCspOnly"] for word, overview in each.items()},
    }


async def _list_or_explain(request: TumblebugRequest, place: model.CloudConnection, word: str) -> tuple[Shown, str]:
    try:
        return await _at_provider(request, place, word)
    except StatewardError as error:
        return {}, str(error)


def _compare(
    place: model.CloudConnection, word: str, shown: Shown, problem: str, records: RowsByConnection
) -> dict[str, Any]:
    kept = records.get(place.name, [])
    known = {row["cspResourceName"] for rows in records.values() for row in rows}
    total = [{"refNameOrId": key, "cspResourceId": native} for key, native in sorted(shown.items())]
    alone = [row for row in total if row["refNameOrId"] not in known]
    listed = [{"idBySp": row["cspResourceName"], "cspResourceId": row["cspResourceId"]} for row in kept]
    return {
        "connectionName": place.name,
        "resourceType": word,
        "systemMessage": problem,
        "resourceOverview": {
            "onTumblebug": len(kept),
            "onSpider": len(kept),
            "onSpiderNotTumblebug": 0,
            "onCspTotal": len(total),
            "onCspOnly": len(alone),
        },
        "resources": {
            "onTumblebug": _counted(kept),
            "onSpider": _counted(listed),
            "onSpiderNotTumblebug": _counted([]),
            "onCspTotal": _counted(total),
            "onCspOnly": _counted(alone),
        },
    }


def _counted(info: Iterable[dict[str, str]]) -> dict[str, Any]:
    rows = list(info)
    return {"count": len(rows), "info": rows}


async def _at_provider(request: TumblebugRequest, place: model.CloudConnection, word: str) -> tuple[Shown, str]:
    """Return what a provider shows, and the problem if the listing is not complete."""
    client = await request.context.domain.clients.for_connection(place)
    if word == "vm":
        machines = await client.list_shared()
        shown = {machine.key: machine.native_id for machine in machines.machines if machine.state not in ENDED}
        listings = [machines]
        if isinstance(client.driver, MachineAdopter):
            listings.append(await client.list_unmarked())
            shown |= {machine.native_id: machine.native_id for machine in listings[-1].machines}
        cut = [
            machine_listing.problem or "the listing was not complete"
            for machine_listing in listings
            if not machine_listing.complete
        ]
        return shown, "; ".join(cut)
    listing = await client.driver.list_resources()
    kind = ResourceKind(word)
    shown = {resource.key: resource.native_id for resource in listing.resources if resource.kind is kind}
    return shown, "" if listing.complete else listing.problem or "the listing was not complete"


async def _records(request: TumblebugRequest, word: str) -> RowsByConnection:
    """Return the records of one type by connection, of all namespaces."""
    reader, rows = request.service.engine.store.reader, defaultdict[str, list[Row]](list)
    kind = VM.kind if word == "vm" else model.RESOURCE_LIFECYCLES[word].kind
    for ns in await reader.namespaces():
        async for record in list_all(reader, Selector(ns, kind)):
            if word == "vm":
                spec, seen = model.vm_of(record), model.vm_seen(record)
                row = _row(ns, spec.name, f"/ns/{ns}/mci/{spec.mci}/vm/{spec.name}", seen.native_id, spec.uid)
                rows[spec.connection].append({**row, "mciId": spec.mci})
            else:
                resource = model.resource_identity(record)
                path = f"/ns/{ns}/resources/{word}/{resource.name}"
                row = _row(ns, resource.name, path, model.resource_seen(record).native_id, resource.uid)
                rows[resource.connection].append(row)
    return rows


def _row(ns: str, name: str, path: str, native: str, uid: str) -> Row:
    return {"idByTb": name, "nsId": ns, "objectKey": path, "cspResourceId": native, "cspResourceName": uid}


ROUTES = (inspect_resources, inspect_overview)
