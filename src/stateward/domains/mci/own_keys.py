"""Key pairs that are made for one MCI: who asks for VMs and names no key gets one, and can log in.

A key that all MCIs of a connection shared would have a private half that only the first caller has seen. So a request
makes a key pair of its own. Its public half is in the record of the subgroups, and is made known to each connection.
Its private half is in the answer to the request, and is kept nowhere.

The keys of an MCI go with it: the rounds of the upkeep remove those whose MCI is gone.
"""

from contextlib import suppress
from hashlib import blake2b

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.mci.catalogue import objects
from stateward.domains.mci.keypair import KeyPair, new_pair
from stateward.domains.mci.lifecycle import MCI, SSH_KEY, VM
from stateward.domains.mci.model import MciSpec, SubGroup, mci_of, vm_of
from stateward.engine import Denied, Engine
from stateward.lifecycle import CONTROLLER
from stateward.store.filters import Selector
from stateward.store.records import Object

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
