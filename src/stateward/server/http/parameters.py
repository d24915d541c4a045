"""Parameters of routes: path, query and header parameters with their patterns.

Names of new objects are restricted (`NAME`); a lookup takes any name that fits into one segment of a path.
"""

from datetime import UTC, datetime
from typing import Annotated

from litestar.openapi.spec import OpenAPIType, Schema
from litestar.params import HeaderParameter, PathParameter, QueryParameter
from msgspec import Meta

from stateward.naming import END, PATH_PART, text_pattern
from stateward.schemas.params import LABEL, TEXT
from stateward.validation_texts import describe_pattern

ENTITY_TAGS = describe_pattern(rf"^[\x20-\x7e]{{1,1000}}{END}", "one or several ETags, or *")

_TAG = r'(W/)?"[!#-~]*"'
REQUIRED_TAGS = describe_pattern(
    rf"^ *(\*|{_TAG}( *, *{_TAG})*) *{END}", 'one or several ETags in quotes, such as "2", or *'
)

CURSOR = describe_pattern(rf"^[^\x00-\x1f\x7f]{{1,2000}}{END}", "the next of the page before")

STATES = describe_pattern(
    rf"^[^\x00-\x1f\x7f]{{1,4000}}{END}", "1 to 4,000 characters long, without control characters"
)

HALF_MICROSECOND_S = 0.000_000_5
"""Half of the resolution of times in responses."""

MAX_NUMBER = 10**15
"""The largest sequence number and limit that a caller may give."""

# --- in paths --------------------------------------------------------------------------------------------------------

Id = Annotated[str, PathParameter(pattern=PATH_PART, description="the object's id")]
Op = Annotated[str, PathParameter(pattern=PATH_PART, description="the operation's id")]
Action = Annotated[str, PathParameter(pattern=PATH_PART, description="an action or event of the object's lifecycle")]
SignalName = Annotated[
    str, PathParameter(pattern=text_pattern(1, 100, without="/"), description="the signal that the operation waits for")
]
KindName = Annotated[str, PathParameter(pattern=PATH_PART, description="the kind's name")]
Tree = Annotated[str, PathParameter(pattern=PATH_PART, description="the tree that the locks are on")]
TokenId = Annotated[str, PathParameter(pattern=PATH_PART, description="the token's id, as it is listed")]
Grp = Annotated[str, PathParameter(pattern=PATH_PART, description="the group of lanes")]
LanePath = Annotated[str, PathParameter(pattern=TEXT, description="the lane, such as aws/eu-west-1")]

# --- in queries ------------------------------------------------------------------------------------------------------

NOT_NEGATIVE = {"minimum": 0}
"""The framework omits a minimum of 0 from its schema."""

Limit = Annotated[
    int, QueryParameter(ge=1, le=MAX_NUMBER, description="most rows wanted; never more than the page limit")
]
AfterText = Annotated[str | None, QueryParameter(pattern=TEXT, description="`next` of the page before")]
AfterCursor = Annotated[str | None, QueryParameter(pattern=CURSOR, description="`next` of the page before")]
Sort = Annotated[
    str | None,
    QueryParameter(
        pattern=TEXT,
        description="id, kind, state, ns, parent, since, created, label.NAME or, with a `kind` that declares its spec,"
        " spec.FIELD; with `-` before it, in descending order",
    ),
]
AfterNumber = Annotated[
    int, QueryParameter(ge=0, le=MAX_NUMBER, description="`next` of the page before", schema_extra=NOT_NEGATIVE)
]
KindFilter = Annotated[str | None, QueryParameter(name="kind", pattern=TEXT, description="only this kind")]
NsFilter = Annotated[str | None, QueryParameter(name="ns", pattern=TEXT, description="only this namespace")]
ParentFilter = Annotated[
    str | None, QueryParameter(name="parent", pattern=TEXT, description="only the children of this object")
]
IdFilter = Annotated[
    str | None, QueryParameter(name="q", pattern=TEXT, description="a part of the id, case-insensitive")
]
OpFilter = Annotated[str | None, QueryParameter(name="op", pattern=TEXT, description="only lines of this operation")]
ActorFilter = Annotated[
    str | None,
    QueryParameter(name="actor", pattern=TEXT, description="only what this actor did, such as worker"),
]
StateFilter = Annotated[
    str | None,
    QueryParameter(name="state", pattern=STATES, description="one state, or several with commas between them"),
]
LabelFilter = Annotated[
    list[Annotated[str, Meta(pattern=LABEL)]] | None,
    QueryParameter(
        name="label",
        max_items=100,
        description="name=value; given several times, all must fit",
        schema_extra={"items": Schema(type=OpenAPIType.STRING, pattern=LABEL)},
    ),
]
GroupFields = Annotated[
    str,
    QueryParameter(
        name="by", pattern=TEXT, description="fields with commas between them: kind, state, parent, label.NAME"
    ),
]
Wait = Annotated[
    float | None, QueryParameter(ge=0, le=300, description="seconds to wait for the end", schema_extra=NOT_NEGATIVE)
]
Time = Annotated[datetime, QueryParameter(description="a time, such as 2026-11-15T02:57:12Z")]
TimeOrNone = Annotated[datetime | None, QueryParameter(description="a time, such as 2026-11-15T02:57:12Z")]

# --- in headers ------------------------------------------------------------------------------------------------------

IfMatch = Annotated[
    str | None,
    HeaderParameter(name="If-Match", pattern=REQUIRED_TAGS, description="the ETag that the object must still have"),
]
IfNoneMatch = Annotated[
    str | None,
    HeaderParameter(name="If-None-Match", pattern=ENTITY_TAGS, description="the ETag that the caller has seen"),
]


def with_timezone(time: datetime) -> datetime:
    """Return a time with its zone; a time without one is UTC."""
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def first_moment(time: datetime | None) -> float | None:
    """Return the first moment that is shown as this time, in seconds; times are shown in microseconds."""
    return None if time is None else with_timezone(time).timestamp() - HALF_MICROSECOND_S


def last_moment(time: datetime) -> float:
    """Return the last moment that is shown as this time, in seconds."""
    return with_timezone(time).timestamp() + HALF_MICROSECOND_S
