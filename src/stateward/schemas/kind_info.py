"""Kinds in responses: the lifecycle, and the forms of specs and arguments."""

from typing import Annotated, Any

from msgspec import Meta, field

from stateward.lifecycle.describe import LifecycleInfo

JsonSchema = Annotated[dict[str, Any], Meta(description="a JSON schema without references")]


class KindInfo(LifecycleInfo, frozen=True, kw_only=True):
    """A kind: its lifecycle, the schemas of its specs and of the arguments of its actions, and its columns in lists.

    Only actions that create an object, and those in `spec_actions`, take a spec. An action that is not in `args` takes
    any arguments, or none at all if `args` has others.
    """

    spec: JsonSchema | None = None
    spec_actions: Annotated[list[str], Meta(description="those that replace the spec of an existing object")] = field(
        default_factory=list
    )
    args: dict[str, JsonSchema] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    composite_actions: Annotated[list[str], Meta(description="those on all parts of an object")] = field(
        default_factory=list
    )
    creatable: Annotated[bool, Meta(description="whether the general API may create its objects")] = False
