"""The domain's own route: a zone as a zone file, as the server serves it now."""

from typing import Annotated, Any

from litestar import MediaType, Request, Router, get
from litestar.params import PathParameter
from litestar.types import ControllerRouterHandler

from stateward.engine import NotFound, WorkError
from stateward.plugin import Denied, Ns, Right, engine_of, needs
from stateward_dns.lifecycle import ZONE
from stateward_dns.model import ZONE_NAME
from stateward_dns.server_port import DnsServer

Call = Request[Any, Any, Any]
Zone = Annotated[str, PathParameter(pattern=ZONE_NAME, description="the zone")]


class NoZoneFile(Denied, code="no_zone_file", retry=True):
    """The server does not show the zone."""

    zone: str
    why: str
    text = "zone {zone} cannot be read: {why}"


def routes_on(server: DnsServer) -> list[ControllerRouterHandler]:
    """Return the routes, for one server."""

    @get("/{ns:str}/zones/{zone:str}/file", opt=needs(Right.READ), media_type=MediaType.TEXT, summary="Export a zone")
    async def export_zone(request: Call, ns: Ns, zone: Zone) -> str:
        """Return a zone file with the records that the DNS server serves now."""
        if (await engine_of(request).get(ns, zone)).kind != ZONE.kind:
            raise NotFound(ns, zone)
        return await zone_file(server, zone)

    return [Router("/api/v1/dns", route_handlers=[export_zone], tags=["dns"])]


async def zone_file(server: DnsServer, zone: str) -> str:
    """Return the records of a zone as a zone file."""
    try:
        served = await server.read_zone(zone)
    except WorkError as error:
        raise NoZoneFile(zone, str(error)) from error
    if served is None:
        raise NoZoneFile(zone, "the server does not serve it")
    rows = sorted((key.name, found.ttl, key.type, value) for key, found in served.items() for value in found.values)
    lines = (f"{name}\t{ttl}\tIN\t{type_}\t{value}" for name, ttl, type_, value in rows)
    return "\n".join([f"$ORIGIN {zone}.", *lines, ""])
