"""Losses: networks, security groups and keys that a provider does not show any more, and those that it shows again.

A part of which anything is missing is an Error, and says what: nothing can be made on it. Whoever needs it repairs it.
"""

from collections import defaultdict
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from stateward.domains.mci.catalogue import objects
from stateward.domains.mci.clouds import Cloud
from stateward.domains.mci.evidence import Sight
from stateward.domains.mci.lifecycle import PartState
from stateward.domains.mci.model import network_of, part_seen, subnet_key
from stateward.domains.mci.parts import KINDS, WORDS, where_of
from stateward.drivers import ResourceListing
from stateward.store.filters import Selector
from stateward.store.port import Reader
from stateward.store.records import Object

NONE, AGAIN = "shows none", "shows again"


async def parts_by_connection(reader: Reader) -> dict[str, list[Object]]:
    """Return all parts that were there when somebody last looked, by connection."""
    found: dict[str, list[Object]] = defaultdict(list)
    for ns in await reader.namespaces():
        for lifecycle in KINDS.values():
            async for one in objects(reader, Selector(ns, lifecycle.kind)):
                if one.op is None and (one.state == PartState.AVAILABLE or part_seen(one).missing):
                    found[where_of(one).connection].append(one)
    return found


def losses(
    cloud: Cloud, parts: Iterable[Object], listing: ResourceListing
) -> list[tuple[Object, str, tuple[str, ...]]]:
    """Return what parts are to be told that a listing shows, or does not; with what of each is missing."""
    named = [(one, _keys(one)) for one in parts]
    sights = cloud.part_sights(listing, [key for _, keys in named for key in keys])
    told: list[tuple[Object, str, tuple[str, ...]]] = []
    for one, keys in named:
        missing = tuple(name for key, name in keys.items() if sights[key] is Sight.ABSENT)
        if missing and one.state == PartState.AVAILABLE:
            told.append((one, NONE, missing))
        elif one.state == PartState.ERROR and all(sights[key] is Sight.PRESENT for key in keys):
            told.append((one, AGAIN, ()))
    return told


def _keys(found: Object) -> dict[str, str]:
    """Return the keys of all that a part consists of, with what each is called."""
    where, word = where_of(found), WORDS[found.kind]
    keys = {where.uid: f"{word} {where.name}"}
    if word == "vNet":
        subnets = network_of(found).subnets
        keys |= {subnet_key(where.uid, one.name): f"subnet {one.name}" for one in subnets}
    return keys


def noted(found: Object, missing: tuple[str, ...]) -> dict[str, object]:
    """Return what is seen of a part, with what is missing of it."""
    seen: dict[str, object] = msgspec.to_builtins(replace(part_seen(found), missing=missing))
    return seen
