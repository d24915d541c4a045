"""Lanes, their groups and the locks of a tree in responses."""

from msgspec import Struct

from stateward.schemas.params import Moment


class LaneView(Struct, frozen=True):
    """A lane: its capacity, its running operations, whether others wait, and until when it is backed off."""

    lane: str
    grp: str
    capacity: int
    running: int
    waiting: bool
    back_off: Moment | None
    throttled: int


class LaneGroupView(Struct, frozen=True):
    """A group of lanes, with the number of lanes that may be active at once."""

    grp: str
    lanes: int


class LanesView(Struct, frozen=True):
    """All lanes and groups that have a limit or work."""

    groups: list[LaneGroupView]
    lanes: list[LaneView]


class LockView(Struct, frozen=True):
    """An intention lock on a path of a tree, held or waited for by an operation."""

    tree: str
    path: str
    mode: str
    op: str
    waiting: bool
