"""The routes of kinds: their lifecycles as data and as diagrams."""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Literal

from litestar import Response, get
from litestar.params import QueryParameter
from msgspec.structs import asdict

from stateward.access import Right
from stateward.access.lifecycle import TOKEN
from stateward.access.quotas import QUOTA
from stateward.access.sessions import SESSION
from stateward.engine import Engine, Kind
from stateward.engine.protection import PROTECTION
from stateward.errors import UnknownName
from stateward.lifecycle.describe import describe
from stateward.lifecycle.render.svg_markup import STYLE
from stateward.schemas.kind_info import KindInfo
from stateward.server.drawings import FORMS
from stateward.server.http.parameters import KindName
from stateward.server.openapi.description import CONTENTS
from stateward.server.routes.composite_actions import CompositeActions
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest

STYLE_HASH = f"'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'"
"""The hash by which a content policy allows the inline style of lifecycle diagrams."""


OURS = frozenset({TOKEN.kind, SESSION.kind, QUOTA.kind, PROTECTION.kind})
"""The internal kinds of the deployment, whose objects the generic API does not create."""

Form = Annotated[Literal["svg", "mermaid", "markdown"], QueryParameter(name="format", description="how it is drawn")]


def public_kinds(engine: Engine) -> Iterator[Kind]:
    """Walk over the kinds that people make objects of."""
    return (kind for kind in engine.kinds if kind.name not in OURS)


def public_kind(engine: Engine, name: str) -> Kind:
    """Return a kind that people make objects of, or raise with the names there are."""
    kinds = {kind.name: kind for kind in public_kinds(engine)}
    if name not in kinds:
        raise UnknownName("kind", name, kinds)
    return kinds[name]


@api_route(get, "/kinds", Right.READ, "kinds", "List the kinds")
async def list_kinds(request: ApiRequest) -> list[KindInfo]:
    """Return every kind with its lifecycle (states, rows, actors, actions) and the schemas of specs and arguments."""
    composites = request.service.composite_actions
    return [kind_info(kind, composites) for kind in public_kinds(request.service.engine)]


@api_route(get, "/kinds/{kind:str}", Right.READ, "kinds", "Get a kind", 404)
async def get_kind(request: ApiRequest, kind: KindName) -> KindInfo:
    """Return one kind with its lifecycle, and the schemas of its specs and arguments."""
    return kind_info(public_kind(request.service.engine, kind), request.service.composite_actions)


def kind_info(kind: Kind, composites: CompositeActions) -> KindInfo:
    """Return the description of a kind."""
    types = kind.types
    return KindInfo(
        **asdict(describe(kind.lifecycle)),
        spec=None if types is None or types.spec is None else types.spec.schema,
        spec_actions=sorted(kind.spec_actions),
        args={} if types is None else {action: value_type.schema for action, value_type in types.args.items()},
        columns=list(kind.columns),
        creatable=kind.general,
        composite_actions=[action for action in kind.lifecycle.actions if (kind.name, action) in composites],
    )


@api_route(
    get,
    "/kinds/{kind:str}/diagram",
    Right.READ,
    "kinds",
    "Draw a lifecycle",
    404,
    501,
    media_type="image/svg+xml",
    opt={CONTENTS: list(FORMS.values())},
)
async def draw_kind(request: ApiRequest, kind: KindName, form: Form = "svg") -> Response[str]:
    """Return a lifecycle as a picture (SVG), as Mermaid or as Markdown tables.

    Where Graphviz is not installed, only the pictures that plug-ins bring can be shown; others are answered with 501.
    """
    lifecycle = public_kind(request.service.engine, kind).lifecycle
    media_type, text = await request.service.drawings.draw(lifecycle, form)
    policy = f"default-src 'none'; style-src {STYLE_HASH}; frame-ancestors 'none'"
    return Response(text, media_type=media_type, headers={"Content-Security-Policy": policy})


ROUTES = (list_kinds, get_kind, draw_kind)
