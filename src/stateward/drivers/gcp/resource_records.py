"""The record of a resource of ours: its key and name, where Compute Engine has room for a text.

Networks, subnetworks and firewall rules have no labels, so the record is their description. Networks, firewall rules
and SSH keys belong to a whole project; the record says for which region they were made.
"""

import msgspec

from stateward.drivers.gcp.gce_machines import PREFIX
from stateward.drivers.port import CloudResource

OWN_NAMES = f'name eq "{PREFIX}-[0-9a-f]{{32}}"'
"""The filter for resources whose names come from keys."""


class ResourceRecord(msgspec.Struct, frozen=True, tag=PREFIX, tag_field="made_by"):
    """What a resource says of itself."""

    key: str
    name: str
    region: str
    public_key: str = ""  # of an SSH key


_DECODER = msgspec.json.Decoder(ResourceRecord)  # threads use it: see the one of `MachineRecord`


def write_record(resource: CloudResource, region: str, public_key: str = "") -> str:
    """Return the text of a resource's record."""
    return msgspec.json.encode(ResourceRecord(resource.key, resource.name, region, public_key)).decode()


def read_record(text: str) -> ResourceRecord | None:
    """Return the record in a text; None if the resource is not ours."""
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:
        return None
