"""The configuration of the OpenAPI document, and the page that shows it.

The framework generates the document from the routes, and `complete_document` completes it. The framework's own pages
load scripts from other hosts and run them inline. Ours has three small files, which work offline and under a strict
content security policy. The guide is a page of the documentation that is part of the package.
"""

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.enums import MediaType, OpenAPIMediaType
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme, Tag

from stateward import __version__
from stateward.plugin.owned_router import OwnedRouter
from stateward.plugin.registry import Plugins
from stateward.server.auth.guards import open_to_all
from stateward.server.auth.session_cookie import COOKIE
from stateward.server.http.security_headers import PAGE_CONTENT_POLICY
from stateward.server.openapi.description import complete_document
from stateward.server.openapi.kind_schemas import add_kind_schemas
from stateward.server.routes.kind_routes import public_kinds

EVERYBODY = open_to_all("the description of the API holds no secrets")

SCHEMES = {
    "bearer": SecurityScheme(type="http", scheme="bearer", description="Authorization: Bearer TOKEN"),
    "basic": SecurityScheme(type="http", scheme="basic", description="HTTP Basic: any name, the token as the password"),
    "header": SecurityScheme(type="apiKey", name="X-Auth-Token", security_scheme_in="header"),
    "session": SecurityScheme(
        type="apiKey",
        name=COOKIE,
        security_scheme_in="cookie",
        description="The console's cookie (POST /api/v1/session). What changes something needs X-Stateward-Request: 1.",
    ),
}
TAGS = {
    "kinds": "Kinds of objects, with their lifecycles.",
    "objects": "Objects and their details.",
    "actions": "Actions on objects.",
    "operations": "Operations: accepted actions, until and after their end.",
    "journal": "The journal of all changes.",
    "deployment": "Limits, workers, timers, locks, healing.",
    "access": "Tokens, sessions and quotas.",
    "health": "Health checks of the process.",
}


class Index(OpenAPIRenderPlugin):
    """The page that shows the OpenAPI document."""

    def __init__(self) -> None:
        super().__init__(path="/")

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:  # noqa: ARG002
        """Return the page; its script fetches the document."""
        return _file("index.html")


class Description(OpenAPIRenderPlugin):
    """The OpenAPI document as JSON."""

    def __init__(self, plugins: Plugins) -> None:
        super().__init__(path="/openapi.json", media_type=OpenAPIMediaType.OPENAPI_JSON)
        self._plugins = plugins
        self._encoded: bytes | None = None

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """Return the completed document."""
        if self._encoded is None:
            document = complete_document(openapi_schema, request.app.routes, self._plugins)
            kinds = public_kinds(request.app.state["engine"])
            add_kind_schemas(document["components"]["schemas"], kinds, self._plugins.examples)
            self._encoded = msgspec.json.encode(document)
        return self._encoded


def _file(name: str) -> bytes:
    return files("stateward.server").joinpath("pages", name).read_bytes()


@cache
def _guide() -> bytes:
    """Return the guide as a page, with an anchor at each head."""
    from markdown_it import MarkdownIt  # only readers of the guide pay for it

    markdown = MarkdownIt("commonmark").enable("table")
    tokens = markdown.parse(_file("guide.md").decode())
    for head, text in pairwise(tokens):
        if head.type == "heading_open":
            head.attrSet("id", re.sub(r"\W+", "-", text.content.lower()))
    text = markdown.renderer.render(tokens, markdown.options, {})
    return _file("guide.html").replace(b"<!-- guide -->", text.encode())


@get("/guide", sync_to_thread=True)
def show_guide() -> Response[bytes]:
    """Return the guide."""
    return Response(_guide(), media_type=MediaType.HTML)


DESCRIPTION = "docs/openapi.json"


@get("/openapi.json", guards=[EVERYBODY], include_in_schema=False, sync_to_thread=False)
def find_description() -> Response[str]:
    """Lead to the document from where many tools look for it; relative, since a proxy may serve us below a path."""
    text = f"The document is at {DESCRIPTION}; follow the redirect, as curl -L does.\n"
    return Response(text, status_code=308, headers={"Location": DESCRIPTION}, media_type=MediaType.TEXT)


def _served(name: str, media_type: str) -> Callable[[], Response[bytes]]:
    content = _file(name)

    def serve() -> Response[bytes]:
        return Response(content, media_type=media_type)

    return serve


def openapi_config(plugins: Plugins) -> OpenAPIConfig:
    """Return the OpenAPI configuration of an application."""
    router = OwnedRouter(
        "/docs",
        route_handlers=[
            show_guide,
            get("/page.js", sync_to_thread=False)(_served("page.js", "text/javascript")),
            get("/page.css", sync_to_thread=False)(_served("page.css", MediaType.CSS)),
        ],
        guards=[EVERYBODY],
        include_in_schema=False,
        dto=None,
        response_headers={"Content-Security-Policy": PAGE_CONTENT_POLICY},
    )
    return OpenAPIConfig(
        title="Stateward",
        version=__version__,
        description="Cloud objects in known states: one action at a time, nothing stuck, nothing lost.",
        security=[{name: []} for name in SCHEMES],
        components=Components(security_schemes=dict(SCHEMES)),
        tags=[Tag(name, description) for name, description in TAGS.items()],
        use_handler_docstrings=True,
        render_plugins=[Index(), Description(plugins)],
        openapi_router=router,
    )


ROUTES = (find_description,)
