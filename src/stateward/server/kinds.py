"""The kinds of objects there are, with their lifecycles as data and as drawings."""

from collections.abc import Iterator
from typing import Annotated, Literal

from litestar import Response, get
from litestar.params import QueryParameter

from stateward.access import Right
from stateward.access.lifecycle import TOKEN
from stateward.access.quotas import QUOTA
from stateward.engine import Engine, Kind
from stateward.errors import UnknownName
from stateward.lifecycle.describe import LifecycleInfo, describe
from stateward.server.answers import problems
from stateward.server.auth import needs
from stateward.server.description import CONTENTS
from stateward.server.drawings import FORMS, STYLE_HASH
from stateward.server.names import KindName
from stateward.server.service import Call

OURS = frozenset({TOKEN.kind, QUOTA.kind})
"""The kinds that the deployment keeps for itself: nobody makes objects of them by this door."""

Form = Annotated[Literal["svg", "mermaid", "markdown"], QueryParameter(name="format", description="how it is drawn")]


def public_kinds(engine: Engine) -> Iterator[Kind]:
    """Walk over the kinds that people make objects of."""
    return (kind for kind in engine.kinds if kind.name not in OURS)


def public_kind(engine: Engine, name: str) -> Kind:
    """Return a kind that people make objects of, or raise with the names there are."""
    found = {kind.name: kind for kind in public_kinds(engine)}
    if name not in found:
        raise UnknownName("kind", name, found)
    return found[name]


@get("/kinds", guards=[needs(Right.READ)], tags=["kinds"], summary="List the kinds", responses=problems())
async def list_kinds(request: Call) -> list[LifecycleInfo]:
    """Return every kind with its lifecycle: states, rows, actors, actions."""
    return [describe(kind.lifecycle) for kind in public_kinds(request.service.engine)]


@get("/kinds/{kind:str}", guards=[needs(Right.READ)], tags=["kinds"], summary="Get a kind", responses=problems(404))
async def get_kind(request: Call, kind: KindName) -> LifecycleInfo:
    """Return one kind with its lifecycle."""
    return describe(public_kind(request.service.engine, kind).lifecycle)


@get(
    "/kinds/{kind:str}/diagram",
    guards=[needs(Right.READ)],
    tags=["kinds"],
    summary="Draw a lifecycle",
    media_type="image/svg+xml",
    opt={CONTENTS: [media_type for media_type, _ in FORMS.values()]},
    responses=problems(404),
)
async def draw_kind(request: Call, kind: KindName, form: Form = "svg") -> Response[str]:
    """Return a lifecycle as a picture (SVG), as Mermaid or as Markdown tables."""
    lifecycle = public_kind(request.service.engine, kind).lifecycle
    media_type, text = await request.service.drawings.draw(lifecycle, form)
    policy = f"default-src 'none'; style-src {STYLE_HASH}; frame-ancestors 'none'"
    return Response(text, media_type=media_type, headers={"Content-Security-Policy": policy})


ROUTES = (list_kinds, get_kind, draw_kind)
