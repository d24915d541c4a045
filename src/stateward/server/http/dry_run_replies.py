"""The reply to a dry run: the objects as they would be stored, and the effects, for whatever route was asked.

A refused dry run gets the problem that the call itself would get.
"""

from typing import Any

from litestar import Request, Response
from msgspec import Struct

from stateward.engine.dry_run import DryRunEnded
from stateward.plugin.route_options import disclosure_of
from stateward.schemas.operations import AcceptedView
from stateward.schemas.preview import PreviewView
from stateward.server.presenter import Presenter
from stateward.server.service import service_of


class DryRunView(Struct, frozen=True):
    """What a call would submit: each request with the object after it, and its effects. Nothing was written."""

    dry_run: list[AcceptedView]
    preview: PreviewView


def respond_with_plan(request: Request[Any, Any, Any], ended: DryRunEnded) -> Response[DryRunView]:
    """Return what a call would have submitted."""
    presenter = Presenter(disclosure_of(request), service_of(request).state_classes)
    planned = [presenter.accepted(accepted) for accepted in ended.accepted]
    return Response(DryRunView(planned, ended.preview), status_code=200)
