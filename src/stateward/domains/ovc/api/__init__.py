"""The ovc domain over HTTP, under `/api/v1/ovc/NAMESPACE`, in the words of the design.

views       what is shown
bodies      what is asked for
collections what all kinds of objects have: listing, showing, deleting, and the actions of their tables
making      how each kind comes to be, and what only one kind has
"""

from litestar import Router
from litestar.types import ControllerRouterHandler

from stateward.domains.ovc.api import making
from stateward.domains.ovc.api.collections import COLLECTIONS, routes_of

BASE = "/api/v1/ovc/{ns:str}"


def routes() -> list[ControllerRouterHandler]:
    """Return the routes of the domain."""
    found = [route for one in COLLECTIONS for route in routes_of(one)]
    return [Router(BASE, route_handlers=[*found, *making.ROUTES], tags=["ovc"])]


__all__ = ["routes"]
