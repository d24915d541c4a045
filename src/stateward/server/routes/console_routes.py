"""The console: the files of its page, served as they are in the package, and two routes that only the page calls.

The server reads each file of the page once and keeps it, with a compressed copy and an ETag. A browser asks whether a
file is still the same, and gets 304 as long as it is.
"""

import gzip
from collections.abc import AsyncIterator
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated

import msgspec
from litestar import Litestar, Response, get
from litestar.datastructures import ResponseHeader
from litestar.exceptions import NotFoundException
from litestar.openapi import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import PathParameter
from litestar.response import Stream
from litestar.routes import HTTPRoute
from msgspec import Struct

from stateward import __version__
from stateward.access import Right, Role
from stateward.access.roles import RIGHTS
from stateward.lifecycle.render.svg_markup import STYLE
from stateward.plugin.domain import part_file
from stateward.plugin.registry import Plugins
from stateward.plugin.request_params import Ns
from stateward.server.auth.guards import open_to_all
from stateward.server.http.security_headers import PAGE_CONTENT_POLICY
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest, Service
from stateward.store.filters import Page, Selector
from stateward.store.records import Object

FIRST_PAGE = "index.html"
DOMAINS_MARK = b"<!-- domains -->"
"""The place in the page where the files of the domains are named."""

MODULES_MARK = b"<!-- modules -->"
"""The place in the page where its own modules are named: a browser that found them import by import would ask seven
times in a row."""

PRELOADED = ("main.js", "core/", "fleet/", "ui/", "views/overview.js")
DOMAIN_LINKS = {
    "css": '<link rel="stylesheet" href="/console/{}">',
    "js": '<link rel="modulepreload" data-domain href="/console/{}">',
}
"""The files that a domain may bring: their endings, and their links in the page."""

MEDIA_TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}
REVALIDATE = "no-cache"
"""A browser may keep a file, and asks each time whether it is still the same."""

EVERYBODY = open_to_all("it is the same page for everybody; whatever it shows needs a token")
NDJSON = "application/x-ndjson"
FilePath = Annotated[str, PathParameter(description="the path of a file of the page")]
CHUNK_OBJECTS = 1_000
"""How many objects of a map are read, and sent, at once."""

# --- the page --------------------------------------------------------------------------------------------------------


class PageFile(Struct, frozen=True):
    """A file of the page."""

    body: bytes
    packed: bytes
    tag: str
    media_type: str


@cache  # bounded by: the plugins of the process
def page_files(plugins: Plugins) -> dict[str, PageFile]:
    """Return all files of the page by their paths: the console's own, those of the domains, and two made here.

    The page itself names the domains' files; the style of lifecycle diagrams is a Python constant.
    """
    pages = dict(_walk(files("stateward") / "console", ""))
    places = {f"domains/{plugin.name}.css": plugin.style for plugin in plugins if plugin.style}
    places |= {f"domains/{plugin.name}.js": plugin.console for plugin in plugins if plugin.console}
    of_domains = {path: _file(path, part_file(path, place).read_bytes()) for path, place in places.items()}
    links = "\n".join(DOMAIN_LINKS[_ending(path)].format(path) for path in of_domains)
    page = pages[FIRST_PAGE].body.replace(DOMAINS_MARK, links.encode()).replace(MODULES_MARK, _module_links(pages))
    made = {FIRST_PAGE: page, "lifecycle.css": STYLE.encode()}
    return {**pages, **of_domains, **{path: _file(path, body) for path, body in made.items()}}


def _module_links(pages: dict[str, PageFile]) -> bytes:
    """Return links to the modules that the first view needs, and to those that all views share."""
    paths = sorted(path for path in pages if path.startswith(PRELOADED) and _ending(path) == "js")
    return "\n".join(f'<link rel="modulepreload" href="/console/{path}">' for path in paths).encode()


def _walk(folder: Traversable, path: str) -> list[tuple[str, PageFile]]:
    pages: list[tuple[str, PageFile]] = []
    for entry in folder.iterdir():
        name = f"{path}{entry.name}"
        if entry.is_dir():
            pages += _walk(entry, f"{name}/")
        elif _ending(name) in MEDIA_TYPES:
            pages.append((name, _file(name, entry.read_bytes())))
    return pages


def _file(path: str, body: bytes) -> PageFile:
    tag = blake2b(body, digest_size=12).hexdigest()
    return PageFile(body, gzip.compress(body, mtime=0), f'"{tag}"', MEDIA_TYPES[_ending(path)])


def _ending(path: str) -> str:
    return path.rpartition(".")[2]


@get("/", guards=[EVERYBODY], include_in_schema=False)
async def first_page(request: ApiRequest) -> Response[bytes]:
    """Return the page."""
    return _sent(request, FIRST_PAGE)


@get("/console/{name:path}", guards=[EVERYBODY], include_in_schema=False)
async def page_file(request: ApiRequest, name: FilePath) -> Response[bytes]:
    """Return a file of the page."""
    return _sent(request, name.removeprefix("/"))


def _sent(request: ApiRequest, name: str) -> Response[bytes]:
    file = page_files(request.service.plugins).get(name)
    if file is None:
        raise NotFoundException
    headers = {
        "ETag": file.tag,
        "Cache-Control": REVALIDATE,
        "Content-Security-Policy": PAGE_CONTENT_POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Vary": "Accept-Encoding",
    }
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(b"", status_code=304, headers=headers, media_type=file.media_type)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media_type)
    return Response(file.body, headers=headers, media_type=file.media_type)


# --- who am I --------------------------------------------------------------------------------------------------------


class MeView(Struct, frozen=True):
    """The caller's token with its role, rights and namespaces, so that a page offers nothing that would be refused.

    `domains` are those whose own routes are served, and those that have none.
    """

    name: str
    role: Role
    rights: list[Right]
    namespaces: list[str]
    demo: bool
    version: str
    domains: list[str]


@api_route(get, "/me", Right.READ, "access", "Who am I?", 404)
async def get_me(request: ApiRequest) -> MeView:
    """Return the name, role, rights and namespaces of the caller's token."""
    grant, demo = request.grant, request.service.config.demo
    rights, opened = sorted(RIGHTS[grant.role]), sorted(grant.namespaces)
    domains = domains_of(request.app, request.service.plugins)
    return MeView(grant.name, grant.role, rights, opened, demo, __version__, domains)


def domains_of(app: Litestar, plugins: Plugins) -> list[str]:
    """Return the domains whose own API an application serves; one without routes of its own calls the general API."""
    routes = (route for route in app.routes if isinstance(route, HTTPRoute))
    modules = {handler.fn.__module__ for route in routes for handler in route.route_handlers}
    packages = {domain.name: domain.part.value.partition(":")[0].removesuffix(".plugin") for domain in plugins.domains}
    return [
        plugin.name
        for plugin in plugins
        if not (plugin.create or plugin.routes)
        or any(module == packages[plugin.name] or module.startswith(f"{packages[plugin.name]}.") for module in modules)
    ]


# --- the map ---------------------------------------------------------------------------------------------------------


class ObjectPlace(Struct, frozen=True):
    """The provider and region of an object, if its spec has them."""

    provider: str = ""
    region: str = ""


class MapChunk(Struct, frozen=True):
    """A part of a map: for each object its id, then the numbers of four words: kind, state, place, parent."""

    words: list[str]
    cells: list[str | int]


MAP = ResponseSpec(
    str,
    generate_examples=False,
    description="One JSON object for each chunk: `words`, and in `cells` for each object its id and four numbers.",
    media_type=NDJSON,
    examples=[Example(summary="chunk", value='{"words":["ovc.vm","RUNNING","",""],"cells":["web-1",0,1,2,2]}\n')],
)


@api_route(
    get,
    "/ns/{ns:str}/map",
    Right.READ,
    "objects",
    "Map all objects",
    404,
    media_type=NDJSON,
    response_headers=[ResponseHeader(name="Cache-Control", value="no-store")],
    responses={200: MAP},
)
async def get_map(request: ApiRequest, ns: Ns) -> Stream:
    """Return every object of a namespace in a compact form: its kind, state, place and parent."""
    return Stream(_chunks(request.service, ns), media_type=NDJSON)


async def _chunks(service: Service, ns: str) -> AsyncIterator[bytes]:
    after: str | None = None
    while records := await service.reader.list_objects(Selector(ns), Page(after, CHUNK_OBJECTS)):
        yield msgspec.json.encode(chunk_of(records)) + b"\n"
        after = records[-1].id
        if len(records) < CHUNK_OBJECTS:
            return


def chunk_of(records: list[Object]) -> MapChunk:
    """Return some objects in the compact form."""
    words: dict[str, int] = {}
    cells: list[str | int] = []
    for record in records:
        cells.append(record.id)
        cells += [
            words.setdefault(word, len(words))
            for word in (record.kind, record.state, place_of(record), record.parent or "")
        ]
    return MapChunk(list(words), cells)


def place_of(record: Object) -> str:
    """Return the place of an object, as `provider/region`; empty if it is not known."""
    if record.spec == "{}":
        return ""
    try:
        place = msgspec.json.decode(record.spec, type=ObjectPlace)
    except msgspec.MsgspecError:
        return ""
    return f"{place.provider}/{place.region}".strip("/")


ROUTES = (first_page, page_file)
API_ROUTES = (get_me, get_map)
