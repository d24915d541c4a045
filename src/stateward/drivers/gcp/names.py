"""Names, filters and records of resources of Compute Engine: pure functions.

Whatever a key identifies has a name that is derived from it. Networks, subnetworks and firewall rules have no labels,
so their description is a record with the key. Networks, firewall rules and SSH keys belong to a whole project; the
record says for which region they were made.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from uuid import UUID, uuid5

import msgspec

from stateward.drivers.port import CloudResource

PREFIX = "stateward"
KEY_LABEL = f"{PREFIX}-key"
REQUEST_IDS = UUID("6c1f0a52-5d0e-4e0b-9a77-3f2b8f0d4c11")
"""The namespace of request ids."""

EXACT_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
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


# --- names ------------------------------------------------------------------------------------------------------------


def digest_of(key: str) -> str:
    """Return the digest of a key: 32 characters that every name may have."""
    return sha256(key.encode()).hexdigest()[:32]


def name_of(key: str) -> str:
    """Return the name, in Compute Engine, of everything that a key identifies."""
    return f"{PREFIX}-{digest_of(key)}"


def request_id(*words: str) -> str:
    """Return the request id of a call: a UUID, the same for the same words."""
    return str(uuid5(REQUEST_IDS, "\n".join(words)))


def key_label(key: str) -> str:
    """Return the value of the key's label: the key itself if it may be one, else its digest."""
    return key if EXACT_LABEL.fullmatch(key) else digest_of(key)


def own_filter() -> str:
    """Return the filter for all our machines."""
    return f"labels.{KEY_LABEL}:*"


def key_filter(keys: Sequence[str]) -> str:
    """Return the filter for the machines of some keys."""
    return " OR ".join(f'(labels.{KEY_LABEL} = "{key_label(key)}")' for key in keys)


def last_part(url: str) -> str:
    """Return the name at the end of a resource's address."""
    return url.rpartition("/")[2]
