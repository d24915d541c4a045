"""The preflight of subgroups: what they name is there and fits, before anything is accepted.

An MCI is prepared by a worker, after the caller has got an answer. A wrong name would be a 200 and then a Failed MCI.

Only records are read here. Whether the provider has the size and the image is for the preparation to ask: a provider
that does not answer must not hold up the request.
"""

from collections.abc import Sequence

from stateward.domains.mci.catalogue import Catalogue
from stateward.domains.mci.model import SubGroup, network_of, part_id
from stateward.domains.mci.parts import KINDS, where_of
from stateward.domains.mci.plans import Planned, find_plan
from stateward.errors import BadInput
from stateward.store.records import Key, Object

FIELDS = {"vNet": "vNetId", "securityGroup": "securityGroupIds", "sshKey": "sshKeyId"}
"""The fields of a request that name existing resources, by the type of the resource."""


async def check_plans(catalogue: Catalogue, ns: str, groups: Sequence[SubGroup], field: str) -> list[Planned]:
    """Return what subgroups name, or raise bad input with the field; `field` is formatted with a subgroup's number."""
    known = catalogue.snapshot()
    planned: list[Planned] = []
    for number, group in enumerate(groups):
        try:
            one = await find_plan(known, ns, group)
            await check_resources(known, ns, one)
        except BadInput as error:
            raise BadInput(f"{field.format(number)}{error.field}", error.value, error.allowed) from error
        planned.append(one)
    return planned


async def check_resources(known: Catalogue, ns: str, one: Planned) -> None:
    """Refuse a subgroup that names resources which are not there, or are at another place."""
    group = one.group
    if group.network:
        network = await _resource(known, ns, "vNet", group.network, one)
        subnets = [subnet.name for subnet in network_of(network).subnets]
        if group.subnet and group.subnet not in subnets:
            raise BadInput(
                "subnetId", group.subnet, f"a subnet of vNet {group.network!r}: {', '.join(subnets) or 'none'}"
            )
    for name in group.groups:
        await _resource(known, ns, "securityGroup", name, one)
    if group.key:
        await _resource(known, ns, "sshKey", group.key, one)


async def _resource(known: Catalogue, ns: str, word: str, name: str, one: Planned) -> Object:
    """Return a resource that a subgroup names, or raise: it is not there, or at another place."""
    found = await known.record(Key(ns, part_id(word, name)))
    if found is None or found.removed or found.kind != KINDS[word].kind:
        raise BadInput(FIELDS[word], name, f"the name of a {word} of namespace {ns!r}")
    place = where_of(found)
    if (place.provider, place.region) != (one.connection.provider, one.connection.region):
        allowed = f"a {word} of connection {one.connection.name}: it is one of {place.connection}"
        raise BadInput(FIELDS[word], name, allowed)
    return found
