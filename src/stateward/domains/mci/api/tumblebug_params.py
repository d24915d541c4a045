"""Parameters of routes, and the rules for names in paths, queries and bodies.

A name is a letter, then letters, digits, `-` and `+`. The ids of subgroups and VMs are lower-case, with `-` for spaces
and underscores. Specs and images keep their providers' names. Tumblebug clients read errors in a field `message`.
"""

import re
from typing import Annotated

from litestar.params import PathParameter, QueryParameter

from stateward import naming
from stateward.access import Right
from stateward.domains.mci.guards.spec_validation import MCI_NAME, MCI_NAME_RULE
from stateward.errors import BadInput
from stateward.plugin.route_options import needs, open_to_all
from stateward.validation_texts import describe_pattern

TEXT = describe_pattern(
    rf"^[^\x00-\x1f\x7f]{{0,500}}{naming.END}", "at most 500 characters long, without control characters"
)
ID_SEPARATORS = str.maketrans("_ ", "--")

Ns = Annotated[str, PathParameter(pattern=naming.PATH_PART, description="the namespace")]
Mci = Annotated[str, PathParameter(pattern=naming.PATH_PART, description="the MCI")]
Group = Annotated[str, PathParameter(pattern=naming.PATH_PART, description="the subgroup")]
Vm = Annotated[str, PathParameter(pattern=naming.PATH_PART, description="the VM")]
Name = Annotated[
    str, PathParameter(pattern=naming.PATH_PART, description="the name of a resource, a connection or a provider")
]

Text = Annotated[str | None, QueryParameter(pattern=TEXT)]
FilterKey = Annotated[str | None, QueryParameter(name="filterKey", pattern=TEXT)]
FilterVal = Annotated[str | None, QueryParameter(name="filterVal", pattern=TEXT)]
Holder = Annotated[str | None, QueryParameter(name="filterCredentialHolder", pattern=TEXT)]
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
    word = next((one for one in ("", *allowed) if one.lower() == (text or "").lower()), None)
    if word is None:
        raise BadInput(field, text, f"one of {', '.join(allowed)}")
    return word


READ = needs(Right.READ, messages=True)
ACT = needs(Right.ACT, messages=True)
READ_ALL = needs(Right.READ, everywhere=True)
GOVERN_ALL = needs(Right.GOVERN, everywhere=True)
OPEN = open_to_all("the program that starts the server must see that it is ready")
