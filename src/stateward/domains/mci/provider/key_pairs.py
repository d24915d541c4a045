"""SSH key pairs: creation, checks, and keys that belong to one MCI.

A private key is created in the process that answers the request and is stored nowhere. If a provider created it, the
private key would travel from the worker to the caller through the store, and a worker that dies would lose it. The
provider gets the public key only.

A request for VMs that names no key gets a key pair of its own. If all MCIs of a connection shared a key, only the first
caller would have the private key. The public key is stored with the subgroups and is registered at each connection. The
reconciler deletes keys whose MCI is gone.
"""

import re
from contextlib import suppress
from functools import lru_cache
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
from stateward.engine import Denied, Engine
from stateward.engine.queries import list_all
from stateward.errors import BadInput
from stateward.lifecycle import CONTROLLER
from stateward.store.filters import Selector
from stateward.store.records import Object

PUBLIC_KEY = "an OpenSSH public key in one line, such as `ssh-ed25519 AAAA... name`"
ALGORITHM = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9-]+@openssh\.com) ")
ONE_LINE = re.compile(r"[^\x00-\x1f\x7f]{1,16384}\Z")

SMALLEST_RSA = 1024
"""Minimal size of an RSA key in bits; OpenSSH accepts no smaller one."""


class KeyPair(Struct, frozen=True):
    """A public and a private key in OpenSSH format."""

    public: str
    private: str

    def __repr__(self) -> str:
        """Show the public key only."""
        return f"KeyPair(public={self.public!r})"


def new_pair(comment: str = "") -> KeyPair:
    """Create a key pair."""
    return pair_of(Ed25519PrivateKey.generate(), comment)


def pair_of(key: Ed25519PrivateKey, comment: str) -> KeyPair:
    """Return a key pair in OpenSSH format."""
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(f"{public.decode()} {comment}".strip(), private.decode())


def check_public_key(field: str, text: str) -> str:
    """Return a public key that OpenSSH can read, or raise; the error hides the value, which may be a private key."""
    if not ONE_LINE.match(text) or not ALGORITHM.match(text) or not _is_loadable(text):
        raise BadInput(field, f"a text of {len(text)} characters", PUBLIC_KEY)
    return text


@lru_cache(maxsize=64)
def _is_loadable(text: str) -> bool:
    try:
        key = load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return False
    return not isinstance(key, RSAPublicKey) or key.key_size >= SMALLEST_RSA


OWNED_BY = "owned-by"
"""The label of a key that belongs to one MCI; its value is the MCI's uid."""


class _Owned(Struct, frozen=True, rename={"owner": OWNED_BY}):
    owner: str = ""


def needs_key(group: SubGroup) -> bool:
    """Tell whether a subgroup needs a key and names none."""
    return not group.network and not group.key and not group.public_key


def with_pair(mci: MciSpec) -> tuple[MciSpec, KeyPair | None]:
    """Return an MCI whose subgroups all have a key, and the new key pair if one was needed."""
    groups, pair = with_pair_for(mci.groups, mci.name)
    return replace(mci, groups=groups), pair


def with_pair_for(groups: tuple[SubGroup, ...], name: str) -> tuple[tuple[SubGroup, ...], KeyPair | None]:
    """Return subgroups that all have a key, and the new key pair if one was needed."""
    if not any(needs_key(group) for group in groups):
        return groups, None
    pair = new_pair(name)
    return tuple(replace(group, public_key=pair.public) if needs_key(group) else group for group in groups), pair


def own_key_name(mci: MciSpec, group: SubGroup, connection: str) -> str:
    """Return the name of the key of a subgroup at a connection, if the key belongs to the MCI."""
    digest = blake2b(f"{mci.uid} {group.public_key}".encode(), digest_size=4).hexdigest()
    return f"{mci.name}-{digest}-{connection}"


def owner_of(key: Object) -> str:
    """Return the uid of the MCI that a key belongs to; empty for a shared key."""
    return msgspec.json.decode(key.labels, type=_Owned).owner


async def remove_ownerless_keys(engine: Engine) -> None:
    """Delete keys whose MCI is gone and that no VM uses."""
    reader = engine.store.reader
    for ns in await reader.namespaces():
        # Keys are read before MCIs: an MCI is older than its keys, so an existing MCI is found.
        keys = [key async for key in list_all(reader, Selector(ns, SSH_KEY.kind)) if owner_of(key)]
        owners = {mci_of(mci).uid async for mci in list_all(reader, Selector(ns, MCI.kind))} if keys else set[str]()
        ownerless = [key for key in keys if owner_of(key) not in owners]
        used = {vm_of(vm).key async for vm in list_all(reader, Selector(ns, VM.kind))} if ownerless else set[str]()
        for key in ownerless:
            if key.id.partition(":")[2] not in used:
                with suppress(Denied):  # another operation holds the key
                    await engine.act(ns, key.id, "delete", actor=CONTROLLER, version=key.version)
