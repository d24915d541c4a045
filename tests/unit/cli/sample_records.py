"""Records of the API with plain values, for tests that need only a few of their fields."""

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from stateward.schemas.journal import LineView
from stateward.schemas.objects import ObjectView
from stateward.schemas.operations import OperationView
from stateward.store.records import Status

START = datetime(2026, 11, 15, tzinfo=UTC)

_OPERATION = OperationView(
    ns="ns",
    id="op1",
    object="o1",
    kind="k",
    action="a",
    status=Status.RUNNING,
    actor="user",
    who="",
    facts=[],
    args=None,
    origin="",
    via="",
    desired="",
    failing="",
    hidden=False,
    within=0.0,
    generation=0,
    parent=None,
    tree=None,
    attempts=0,
    steps=None,
    result=None,
    error=None,
    created=START,
    started=None,
    ended=None,
)
_OBJECT = ObjectView(
    ns="ns",
    id="o1",
    kind="k",
    state="s",
    state_class=None,
    since=START,
    version=1,
    generation=0,
    op=None,
    queue="o1",
    parent=None,
    spec=None,
    seen=None,
    labels={},
    error=None,
    created=START,
)
_ENTRY = LineView(
    seq=1,
    ns="ns",
    object="o1",
    kind="k",
    op=None,
    at=START,
    actor="worker",
    who="",
    event="x",
    source=None,
    target=None,
    reason=None,
    spec=None,
)


def sample_object(**changes: Any) -> ObjectView:
    """Return an object with some fields of its own."""
    return replace(_OBJECT, **changes)


def sample_operation(**changes: Any) -> OperationView:
    """Return an operation with some fields of its own."""
    return replace(_OPERATION, **changes)


def sample_entry(**changes: Any) -> LineView:
    """Return a journal entry with some fields of its own."""
    return replace(_ENTRY, **changes)
