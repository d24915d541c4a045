"""Request bodies of the ovc API, and the parameters that its routes share."""

from typing import Annotated, Any

from litestar import Request
from litestar.params import PathParameter, QueryParameter
from msgspec import Meta, Struct

from stateward.domains.ovc import model
from stateward.domains.ovc.service import OvcCaller
from stateward.lifecycle import NO_FACTS
from stateward.naming import NAME
from stateward.plugin.route_options import actor_of, grant_of
from stateward.validation_texts import describe_pattern

Id = Annotated[str, Meta(pattern=NAME)]
Call = Request[Any, Any, Any]

ItemId = Annotated[str, PathParameter(pattern=NAME, description="the object's id")]
ACTION = describe_pattern(r"^[a-z]{1,20}$(?!\n)", "1 to 20 small letters")
STATUS = describe_pattern(r"^[A-Z_]{1,40}$(?!\n)", "1 to 40 capital letters and _")
ActionName = Annotated[str, PathParameter(pattern=ACTION, description="what is to be done")]
Permanently = Annotated[bool, QueryParameter(description="destroy it for good, rather than move it to the recycle bin")]
ExpectedStatus = Annotated[
    str | None,
    QueryParameter(name="status", pattern=STATUS, description="refuse it if it is in another state"),
]


class NewAccount(Struct, frozen=True, forbid_unknown_fields=True):
    """An account; its deleted objects stay in the recycle bin for `retention` seconds."""

    name: model.Name
    retention: Annotated[float, Meta(ge=0.0, le=315_360_000.0)] = model.RETENTION_S


class NewCloudspace(Struct, frozen=True, forbid_unknown_fields=True):
    """A cloudspace."""

    name: model.Name
    account: Id


class NewMachine(Struct, frozen=True, forbid_unknown_fields=True):
    """A VM; it is deployed at once unless `deploy` is false."""

    name: model.Name
    cloudspace: Id
    image: Id
    size: Annotated[str, Meta(max_length=40)] = "tiny"
    gib: model.Gib = 1
    deploy: bool = True


class NewClone(Struct, frozen=True, forbid_unknown_fields=True):
    """A clone of a VM, in the same cloudspace."""

    name: model.Name


class NewDisk(Struct, frozen=True, forbid_unknown_fields=True):
    """A disk that belongs to no VM."""

    name: model.Name
    account: Id
    gib: model.Gib = 1


class AddedDisk(Struct, frozen=True, forbid_unknown_fields=True):
    """A new disk of a VM."""

    name: model.Name
    gib: model.Gib = 1


class NamedDisk(Struct, frozen=True, forbid_unknown_fields=True):
    """An existing disk."""

    disk: Id


class NewImage(Struct, frozen=True, forbid_unknown_fields=True):
    """An image, from the built-in guest or a file of the library."""

    name: model.Name
    account: Id
    source: Annotated[str, Meta(max_length=200, pattern=model.IMAGE_SOURCE)] = model.BUILT_IN_IMAGE


class NewNode(Struct, frozen=True, forbid_unknown_fields=True):
    """A node, and the driver that runs its VMs."""

    name: model.Name
    driver: model.DriverName = "simulated"
    options: dict[str, str] = {}


class MigrationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The node that a VM moves to; any other node without one."""

    node: Id | None = None


class MaintenanceRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What maintenance does with the VMs of the node: move or stop them."""

    vmaction: model.VmAction = "move"


def caller_of(request: Call) -> OvcCaller:
    """Return the caller of a request."""
    grant = grant_of(request)
    facts = frozenset({model.HOST_GRANT}) if grant.governs_all else NO_FACTS
    return OvcCaller(actor_of(request), grant.name, facts, token=grant.token)
