"""Key pairs: made where they are asked for, so that the private half never leaves the process that answers.

The provider is given the public half only. A private half that a provider made would have to travel from the worker to
whoever asked, over a store that others read, and would be lost for good with a worker that dies in between.
"""

import re
from contextlib import suppress
from hashlib import blake2b

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_public_key,
)
from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.mci.lifecycle import MCI, SSH_KEY, VM
from stateward.domains.mci.model import MciSpec, SubGroup, mci_of, vm_of
from stateward.domains.mci.provider.catalogue import objects
from stateward.engine import Denied, Engine
from stateward.errors import BadInput
from stateward.lifecycle import CONTROLLER
from stateward.store.filters import Selector
from stateward.store.records import Object

PUBLIC_KEY = "an OpenSSH public key in one line, such as `ssh-ed25519 AAAA... name`"
ALGORITHM = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9-]+@openssh\.com) ")
ONE_LINE = re.compile(r"[^\x00-\x1f\x7f]{1,16384}\Z")

SMALLEST_RSA = 1024
"""How many bits an RSA key has at least: OpenSSH itself takes no smaller one."""


class KeyPair(Struct, frozen=True):
    """Both halves, as OpenSSH reads them."""

    public: str
    private: str

    def __repr__(self) -> str:
        """Show the public half only."""
        return f"KeyPair(public={self.public!r})"


def new_pair(comment: str = "") -> KeyPair:
    """Make a key pair."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(f"{public.decode()} {comment}".strip(), private.decode())


def check_public_key(field: str, text: str) -> str:
    """Return a public key that OpenSSH can read, or raise; a private key that was sent instead is not repeated."""
    if not ONE_LINE.match(text) or not ALGORITHM.match(text) or not _is_loadable(text):
        raise BadInput(field, f"a text of {len(text)} characters", PUBLIC_KEY)
    return text


def _is_loadable(text: str) -> bool:
    try:
        key = load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return False
    return not isinstance(key, RSAPublicKey) or key.key_size >= SMALLEST_RSA


OWNED_BY = "owned-by"
"""The label of a key that was made for one MCI: the MCI's uid."""


class _Owned(Struct, frozen=True, rename={"owner": OWNED_BY}):
    owner: str = ""


def needs_key(group: SubGroup) -> bool:
    """Tell whether a subgroup is to have a key, and names none."""
    return not group.network and not group.key and not group.public_key


def with_pair(mci: MciSpec) -> tuple[MciSpec, KeyPair | None]:
    """Return an MCI whose subgroups all have a key, and the pair that was made for those that name none."""
    groups, pair = with_pair_for(mci.groups, mci.name)
    return replace(mci, groups=groups), pair


def with_pair_for(groups: tuple[SubGroup, ...], name: str) -> tuple[tuple[SubGroup, ...], KeyPair | None]:
    """Return subgroups which all have a key, and the pair that was made for those that name none."""
    if not any(needs_key(one) for one in groups):
        return groups, None
    pair = new_pair(name)
    return tuple(replace(one, public_key=pair.public) if needs_key(one) else one for one in groups), pair


def own_key_name(mci: MciSpec, group: SubGroup, connection: str) -> str:
    """Return the name of the key that is made for a subgroup of an MCI at a connection."""
    digest = blake2b(f"{mci.uid} {group.public_key}".encode(), digest_size=4).hexdigest()
    return f"{mci.name}-{digest}-{connection}"


def owner_of(key: Object) -> str:
    """Return the uid of the MCI that a key was made for; it is empty where others may use the key."""
    return msgspec.json.decode(key.labels, type=_Owned).owner


async def remove_ownerless_keys(engine: Engine) -> None:
    """Remove keys whose MCI is gone, and with it all VMs that they were made for."""
    reader = engine.store.reader
    for ns in await reader.namespaces():
        # Keys are read before MCIs: an MCI is older than its keys, so the MCI of a key is found if it is there.
        keys = [one async for one in objects(reader, Selector(ns, SSH_KEY.kind)) if owner_of(one)]
        owners = {mci_of(one).uid async for one in objects(reader, Selector(ns, MCI.kind))} if keys else set[str]()
        ownerless = [one for one in keys if owner_of(one) not in owners]
        used = {vm_of(one).key async for one in objects(reader, Selector(ns, VM.kind))} if ownerless else set[str]()
        for one in ownerless:
            if one.id.partition(":")[2] not in used:
                with suppress(Denied):  # somebody has begun something with it
                    await engine.act(ns, one.id, "delete", actor=CONTROLLER, version=one.version)
