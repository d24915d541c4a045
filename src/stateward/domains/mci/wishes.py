"""What MCIs can be wished for, whoever asks in whatever form.

The domain's own API reads its bodies leniently, and the general API takes any spec. Neither may let through names by
which a VM could not be found again, nor more VMs than one transaction can hold: the work would be accepted, and would
take down one server after the other that tries to do it.
"""

import re
from collections.abc import Sequence

from stateward.domains.mci.keypair import check_public_key
from stateward.domains.mci.model import MciSpec, SubGroup
from stateward.errors import BadInput

MOST_VMS = 10_000
"""How many VMs one request may ask for."""

NAME = re.compile(r"[A-Za-z][A-Za-z0-9+-]{0,99}\Z")
NAMED = "a letter, then at most 99 letters, digits, - and +"


def check_wish(wanted: MciSpec) -> None:
    """Refuse an MCI that could not be made, or not be handled afterwards."""
    if NAME.match(wanted.name) is None:
        raise BadInput("spec.name", wanted.name, NAMED)
    check_groups(wanted.groups)


def check_groups(groups: Sequence[SubGroup], state: str | None = None) -> None:
    """Refuse new subgroups that could not be made; `state` is that of the MCI which they are to join."""
    for number, one in enumerate(groups):
        if NAME.match(one.name) is None or one.name != one.name.lower():
            raise BadInput(f"spec.groups[{number}].name", one.name, f"{NAMED}, in lower case", state=state)
        if one.public_key:
            check_public_key(f"spec.groups[{number}].public_key", one.public_key)
        if one.size < 1:
            raise BadInput(f"spec.groups[{number}].size", one.size, "a number of at least 1", state=state)
    names = [one.name for one in groups]
    if not names or len(set(names)) < len(names):
        raise BadInput("spec.groups", names, "a list of subgroups with different names", state=state)
    if sum(one.size for one in groups) > MOST_VMS:
        raise BadInput("spec.groups", names, f"subgroups with at most {MOST_VMS} VMs together", state=state)
