"""The routes of plug-ins: which domains this server has, those that could not be loaded, and their documentation."""

from typing import Annotated

from litestar import Response, get
from litestar.params import PathParameter

from stateward.access import Right
from stateward.errors import UnknownName
from stateward.lifecycle.render import markdown
from stateward.plugin.domain import part_file
from stateward.schemas.deployment import PluginView
from stateward.server.presenter import sees_internal
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest

PluginName = Annotated[str, PathParameter(description="the name of a domain")]
MARKDOWN = "text/markdown"


@api_route(get, "/plugins", Right.READ, "deployment", "List the plug-ins")
async def list_plugins(request: ApiRequest) -> list[PluginView]:
    """Return the domains of this server. Administrators also see where they are, and which could not be loaded."""
    plugins, internal = request.service.plugins, sees_internal(request.grant)
    loaded = [
        PluginView(
            name=domain.name,
            about=domain.plugin.about,
            version=domain.version,
            requires=domain.plugin.requires,
            kinds=[lifecycle.kind for lifecycle in domain.plugin.all_lifecycles],
            place=domain.part.place if internal else None,
        )
        for domain in plugins.domains
    ]
    failed = [PluginView(fault.plugin, place=fault.place, error=fault.why) for fault in plugins.faults]
    return loaded + (failed if internal else [])


@api_route(
    get,
    "/plugins/{name:str}/docs",
    Right.READ,
    "deployment",
    "Read the documentation of a domain",
    404,
    media_type=MARKDOWN,
)
async def get_plugin_docs(request: ApiRequest, name: PluginName) -> Response[str]:
    """Return the documentation of a domain: what its plug-in says, and the tables of its lifecycles."""
    known = {plugin.name: plugin for plugin in request.service.plugins}
    if name not in known:
        raise UnknownName("domain", name, known)
    plugin = known[name]
    own = part_file("docs", plugin.docs).read_text("utf-8").strip() if plugin.docs else f"# {plugin.name}"
    tables = [
        f"## {lifecycle.kind}: {lifecycle.declaration.about}".rstrip(": ") + f"\n\n{markdown(lifecycle)}".rstrip()
        for lifecycle in plugin.all_lifecycles
    ]
    return Response("\n\n".join([own, *([] if plugin.docs else [plugin.about]), *tables]) + "\n", media_type=MARKDOWN)


ROUTES = (list_plugins, get_plugin_docs)
