"""Parameters of routes, and the rules for names in paths, queries and bodies.

A name is a letter, then letters, digits, `-` and `+`. The ids of subgroups and VMs are lower-case, with `-` for spaces
and underscores. Specs and images keep their providers' names. Tumblebug clients read errors in a field `message`.
"""

import re
from collections.abc import Callable
from typing import Annotated

from litestar.params import PathParameter, QueryParameter

from stateward import naming
from stateward.access import Right
from stateward.domains.mci.guards.spec_validation import MCI_NAME, MCI_NAME_RULE
from stateward.errors import BadInput
from stateward.plugin.route_options import needs, open_to_all, strict_query
from stateward.validation_texts import describe_pattern

TEXT = describe_pattern(
    rf"^[^\x00-\x1f\x7f]{{0,500}}{naming.END}", "at most 500 characters long, without control characters"
)
LIST_FILTERS = ("filterKey", "filterVal", "labelSelector", "match")
"""The query parameters by which the original's lists are filtered: a route that does not serve one refuses it."""

ID_SEPARATORS = str.maketrans("_ ", "--")

Ns = Annotated[str, PathParameter(pattern=naming.PATH_PART, description="the namespace")]
Mci = Annotated[str, PathParameter(pattern=naming.PATH_PART, description="the MCI")]
Group = Annotated[str, PathParameter(pattern=naming.PATH_PART, description="the subgroup")]
Vm = Annotated[str, PathParameter(pattern=naming.PATH_PART, description="the VM")]
Name = Annotated[
    str, PathParameter(pattern=naming.PATH_PART, description="the name of a resource, a connection or a provider")
]

IdsOnly = Annotated[str | None, QueryParameter(name="option", pattern=TEXT, description="`id`: return only the ids")]
McisOption = Annotated[
    str | None,
    QueryParameter(name="option", pattern=TEXT, description="what to return: `id`, `status`, or all (`simple`)"),
]
MciOption = Annotated[
    str | None,
    QueryParameter(
        name="option", pattern=TEXT, description="what to return: `id`, `status`, `accessinfo`, or all (`simple`)"
    ),
]
VmOption = Annotated[
    str | None,
    QueryParameter(name="option", pattern=TEXT, description="what to return: `status`, `idsInDetail`, `accessinfo`"),
]
CreateOption = Annotated[
    str | None,
    QueryParameter(name="option", pattern=TEXT, description="`hold`: prepare it, and wait for `continue`"),
]
DeleteOption = Annotated[
    str | None,
    QueryParameter(
        name="option", pattern=TEXT, description="`terminate`: end its VMs first; `force`: remove records only"
    ),
]
ControlAction = Annotated[
    str | None,
    QueryParameter(name="action", pattern=TEXT, description="what to do: suspend, resume, reboot, terminate, ..."),
]
RegisterAction = Annotated[
    str | None,
    QueryParameter(name="action", pattern=TEXT, description="Tumblebug's way of registering; all do the same here"),
]
RemoveAction = Annotated[
    str | None,
    QueryParameter(
        name="action", pattern=TEXT, description="`withsubnets` changes nothing; `force` is the same as `force=true`"
    ),
]
Force = Annotated[
    str | None,
    QueryParameter(name="force", pattern=TEXT, description="`true`: also where the state or the provider forbids it"),
]
Match = Annotated[
    str | None, QueryParameter(name="match", pattern=TEXT, description="only those whose ids contain this text")
]
PreviewOnly = Annotated[
    str | None, QueryParameter(name="dryRun", pattern=TEXT, description="`true`: only tell what would be deleted")
]
Fresh = Annotated[
    str | None, QueryParameter(name="fresh", pattern=TEXT, description="`true`: ask the providers, not the records")
]
StatusVms = Annotated[
    str | None, QueryParameter(name="vm", pattern=TEXT, description="`none`: the status without that of each VM")
]
FilterKey = Annotated[
    str | None, QueryParameter(name="filterKey", pattern=TEXT, description="the field that has to fit, such as id")
]
FilterVal = Annotated[
    str | None, QueryParameter(name="filterVal", pattern=TEXT, description="a part of the value of `filterKey`")
]
Holder = Annotated[
    str | None,
    QueryParameter(name="filterCredentialHolder", pattern=TEXT, description="only connections of this holder"),
]
OnlyConnection = Annotated[
    str | None, QueryParameter(name="connection", pattern=TEXT, description="only at this connection")
]
AtConnection = Annotated[str, QueryParameter(name="connection", pattern=TEXT, description="the connection")]
MciFlag = Annotated[
    str | None,
    QueryParameter(name="mciFlag", pattern=TEXT, description="`n`: an MCI for each machine; else one for all"),
]
RegisteredTypes = Annotated[
    str | None, QueryParameter(name="option", pattern=TEXT, description="what to register: `vm`, and nothing else")
]
RequestStatus = Annotated[
    str | None, QueryParameter(name="status", pattern=TEXT, description="only `Handling`, `Error` or `Success`")
]
RequestMethod = Annotated[
    str | None, QueryParameter(name="method", pattern=TEXT, description="only requests with this method")
]
RequestUrl = Annotated[str | None, QueryParameter(name="url", pattern=TEXT, description="a part of the address")]
RequestMinutes = Annotated[
    str | None, QueryParameter(name="time", pattern=TEXT, description="only requests of the last minutes")
]
Wait = Annotated[float | None, QueryParameter(ge=0, le=300, description="seconds to wait for the end")]


def check_name(field: str, text: str) -> str:
    """Return a valid name, or raise."""
    if MCI_NAME.match(text) is None:
        raise BadInput(field, text, MCI_NAME_RULE)
    return text


def check_id(field: str, text: str) -> str:
    """Return the id of a subgroup or a VM from its name, or raise."""
    return check_name(field, normalize_id(text))


def normalize_id(text: str) -> str:
    """Return a name in the form of an id."""
    return text.strip().lower().translate(ID_SEPARATORS)


def check_record_name(field: str, text: str) -> str:
    """Return a valid name of a spec or an image, or raise."""
    if re.match(naming.NAME, text) is None:
        raise BadInput(field, text, naming.NAME_MEANS)
    return text


def check_reference(field: str, text: str, *, needed: bool = False) -> str:
    """Return the name of a referenced object; empty is allowed unless the name is needed."""
    if needed and not text:
        raise BadInput(field, None, "given: it is a name")
    return naming.check_text(field, text, 0, 500)


def check_choice(field: str, text: str | None, *allowed: str) -> str:
    """Return one of the allowed words, case-insensitive; a missing word is empty."""
    word = next((choice for choice in ("", *allowed) if choice.lower() == (text or "").lower()), None)
    if word is None:
        raise BadInput(field, text, f"one of {', '.join(filter(None, allowed))}")
    return word


def match_ids(part: str | None) -> Callable[[str], bool]:
    """Return whether an id contains the text of `match`; an empty one is refused, because it would fit everything."""
    if part is not None and not part.strip():
        raise BadInput("match", part, "a part of an id; leave it out to delete all")
    return lambda id_: part is None or part.strip() in id_


READ = needs(Right.READ, messages=True) | strict_query(*LIST_FILTERS)
ACT = needs(Right.ACT, messages=True) | strict_query()
READ_ALL_WITH_MESSAGES = needs(Right.READ, everywhere=True, messages=True)
READ_ALL = needs(Right.READ, everywhere=True)
GOVERN_ALL = needs(Right.GOVERN, everywhere=True)
GOVERN_ALL_WITH_MESSAGES = needs(Right.GOVERN, everywhere=True, messages=True) | strict_query()
OPEN = open_to_all("the program that starts the server must see that it is ready", messages=True)
