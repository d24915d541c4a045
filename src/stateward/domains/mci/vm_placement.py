"""Placement of subgroups: resolves spec, image, connection and resources, and numbers the VMs.

A worker prepares an MCI after the caller has got the reply, so a wrong name would be a 200 and then a Failed MCI.
Records are therefore checked before the request is accepted. The preparation asks the provider about size and image: a
provider that does not answer must not delay the request.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import cache
from hashlib import blake2b
from typing import cast

from msgspec import Struct

from stateward.domains.mci import model
from stateward.domains.mci.guards.connection_grants import check_grant, is_granted, unknown_connection
from stateward.domains.mci.lifecycle import ResourceState
from stateward.domains.mci.provider.catalogue import BUILT_IN_LANES, Catalogue, find_known_spec, login_user
from stateward.drivers import CallRefused, Driver, Inconclusive, SpecRegistrar
from stateward.engine import Temporary
from stateward.errors import BadInput, StatewardError, UnknownName
from stateward.store.records import Key, Object

DriverOf = Callable[[model.CloudConnection], Awaitable[Driver]]

CHECKS_PER_CONNECTION = 8
"""Concurrent questions about sizes and images per connection."""


class PlacedSubGroup(Struct, frozen=True):
    """A subgroup with its resolved connection, spec and image."""

    group: model.SubGroup
    connection: model.CloudConnection
    spec: model.SpecRecord
    image: model.ImageRecord


async def place_subgroup(catalogue: Catalogue, ns: str, group: model.SubGroup) -> PlacedSubGroup:
    """Resolve a subgroup from records alone; a missing or unsuitable record is bad input."""
    return await SubGroupPlacer(catalogue, ns).place(group)


def _fits(home: model.CloudConnection, connection: model.CloudConnection, *, is_built_in: bool) -> bool:
    """Tell whether a spec of one connection can be used at another one.

    Regions that are not built in have no specs of their own.
    """
    if home.lane == connection.lane:
        return True
    return home.provider == connection.provider and connection.lane not in BUILT_IN_LANES and is_built_in


async def connection_of(
    catalogue: Catalogue, ns: str, group: model.SubGroup, spec: model.SpecRecord
) -> model.CloudConnection:
    """Return the connection of a subgroup, or else of its spec, if it is granted to the namespace."""
    if not group.connection:
        connection = await _home_of(catalogue, spec)
    else:
        try:
            connection = await catalogue.connection_of_machines(group.connection)
        except UnknownName as error:
            granted = [known.name for known in await catalogue.connections() if is_granted(known, ns)]
            raise unknown_connection("connectionName", group.connection, granted) from error
    check_grant(connection, ns)
    return connection


async def _home_of(catalogue: Catalogue, spec: model.SpecRecord) -> model.CloudConnection:
    """Return the connection of a spec, granted or not."""
    try:
        return await catalogue.connection_of_machines(spec.connection)
    except UnknownName as error:
        raise BadInput("specId", spec.id, f"a spec of a known connection, not of {spec.connection!r}") from error


class SubGroupPlacer:
    """Places the subgroups of one request: 400 of them name the same few records, so each name is resolved once.

    `known` is the snapshot of the catalogue from which they are placed.
    """

    def __init__(self, catalogue: Catalogue, ns: str) -> None:
        self.known, self._ns = catalogue.snapshot(), ns
        # bounded by: one request
        self._specs: dict[str, tuple[model.SpecRecord, bool]] = {}  # with whether it is a built-in one
        self._sites: dict[tuple[str, str, bool], model.CloudConnection] = {}  # bounded by: one request
        self._images: dict[tuple[str, str], model.ImageRecord] = {}  # bounded by: one request

    async def load(self, groups: Sequence[model.SubGroup]) -> None:
        """Read all records that subgroups name at once."""
        await self.known.load(record_keys(self._ns, groups))

    async def place(self, group: model.SubGroup) -> PlacedSubGroup:
        """Resolve a subgroup, like `place_subgroup`."""
        if group.spec not in self._specs:
            stored = await self.known.spec(self._ns, group.spec)
            self._specs[group.spec] = stored, find_known_spec(stored.id) == stored
        spec, is_built_in = self._specs[group.spec]
        site = spec.connection, group.connection or spec.connection, is_built_in
        connection = self._sites.get(site)
        if connection is None:
            connection = self._sites[site] = await self._site(group, spec, is_built_in=is_built_in)
        image = self._images.get((group.image, connection.name))
        if image is None:
            image = await self.known.image(self._ns, group.image, connection)
            self._images[group.image, connection.name] = image
        return PlacedSubGroup(group, connection, spec, image)

    async def _site(self, group: model.SubGroup, spec: model.SpecRecord, *, is_built_in: bool) -> model.CloudConnection:
        connection = await connection_of(self.known, self._ns, group, spec)
        if spec.connection != connection.name:
            home = await _home_of(self.known, spec)
            if not _fits(home, connection, is_built_in=is_built_in):
                raise BadInput(
                    "specId", group.spec, f"a spec of connection {connection.name}: it is one of {home.name}"
                )
        return connection


async def place_subgroups(
    catalogue: Catalogue, driver_of: DriverOf, ns: str, groups: Sequence[model.SubGroup]
) -> tuple[list[PlacedSubGroup], list[str]]:
    """Resolve subgroups; returns the resolved ones, and the problems of the others.

    Each record is read once. New names are registered with drivers that accept any name.
    """
    placer = SubGroupPlacer(catalogue, ns)
    await placer.load(groups)
    drivers: dict[str, Driver] = {}
    planned: list[PlacedSubGroup] = []
    troubles: list[str] = []
    for group in groups:
        try:
            placed = await placer.place(group)
            if placed.connection.name not in drivers:
                drivers[placed.connection.name] = await driver_of(placed.connection)
        except Temporary:
            raise  # not a problem of the subgroup
        except StatewardError as error:
            troubles.append(f"{group.name}: {error}")
            continue
        planned.append(placed)
    registrars = {
        name: cast("SpecRegistrar", driver) for name, driver in drivers.items() if _is_registrar(type(driver))
    }
    for name, spec, image in dict.fromkeys(
        _question(subgroup) for subgroup in planned if subgroup.connection.name in registrars
    ):
        registrars[name].register(spec, image)
    return planned, troubles


@cache  # bounded by: the drivers
def _is_registrar(driver: type[Driver]) -> bool:
    """Tell whether a driver accepts any name; a check of a protocol takes 25 µs, and there are many connections."""
    return issubclass(driver, SpecRegistrar)


async def check_offers(
    driver_of: DriverOf, planned: Sequence[PlacedSubGroup]
) -> list[CallRefused | Inconclusive | None]:
    """Return each provider's answer about size and image; None means that the provider offers both.

    A question that several subgroups share is asked once. Each provider gets a few questions at a time, all providers
    concurrently: 400 questions in sequence would take a minute.
    """
    rooms: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(CHECKS_PER_CONNECTION))
    connections = {placed.connection.name: placed.connection for placed in planned}
    drivers = {name: await driver_of(connection) for name, connection in connections.items()}

    async def ask(connection: str, spec: str, image: str) -> CallRefused | Inconclusive | None:
        async with rooms[connection]:
            return await drivers[connection].check(spec, image)

    questions = [_question(placed) for placed in planned]
    different = dict.fromkeys(questions)
    answers = dict(zip(different, await asyncio.gather(*(ask(*question) for question in different)), strict=True))
    return [answers[question] for question in questions]


def _question(placed: PlacedSubGroup) -> tuple[str, str, str]:
    return placed.connection.name, placed.spec.csp_name, placed.image.csp_name


async def provider_refusals(driver_of: DriverOf, planned: Sequence[PlacedSubGroup]) -> list[str]:
    """Return why providers refuse subgroups; a provider that cannot answer now refuses nothing."""
    answers = zip(planned, await check_offers(driver_of, planned), strict=True)
    return [
        f"{placed.group.name}: {refusal(placed, said)}" for placed, said in answers if isinstance(said, CallRefused)
    ]


def refusal(placed: PlacedSubGroup, said: CallRefused) -> BadInput:
    """Return the error for a subgroup that its provider refuses."""
    return BadInput("specId", placed.group.spec, f"what {placed.connection.name} offers: {said.message}")


def free_numbers(taken: Collection[str], group: str, count: int) -> list[int]:
    """Return the numbers of further VMs of a subgroup, after the highest number that a record has."""
    tails = (name.removeprefix(f"{group}-") for name in taken if name.startswith(f"{group}-"))
    used = [int(tail) for tail in tails if tail.isdigit()]
    first = max(used, default=0) + 1
    return list(range(first, first + count))


def deterministic_uid(op: str, name: str) -> str:
    """Return the uid of an object that an operation creates: the same for each repetition of the operation."""
    return blake2b(f"{op}/{name}".encode(), digest_size=10).hexdigest()


def make_vm_spec(
    mci: model.MciSpec,
    placed: PlacedSubGroup,
    number: int,
    op: str,
    parts: dict[str, str],
    names: model.SubGroup,
    access_key: str,
) -> model.VmSpec:
    """Return the spec of a VM; `parts` are the provider's ids of its resources."""
    name = f"{placed.group.name}-{number}"
    return model.VmSpec(
        name=name,
        uid=deterministic_uid(op, name),
        mci=mci.name,
        group=placed.group.name,
        connection=placed.connection.name,
        provider=placed.connection.provider,
        region=placed.connection.region,
        zone=placed.group.zone or placed.connection.zone,
        spec=placed.spec.id,
        image=placed.image.id,
        csp_spec=placed.spec.csp_name,
        csp_image=placed.image.csp_name,
        cost=placed.spec.cost,
        network=names.network,
        subnet=names.subnet,
        groups=names.groups,
        key=names.key,
        access_key=access_key,
        parts=parts,
        user=placed.group.user or login_user(placed.image, placed.connection),
        disk_type=placed.group.disk_type,
        disk_gib=placed.group.disk_gib,
        label=placed.group.label,
        description=placed.group.description,
    )


def record_keys(ns: str, groups: Sequence[model.SubGroup]) -> list[Key]:
    """Return the keys of all records that subgroups name, for one read."""
    named: dict[str, set[str]] = {
        "vNet": {group.network for group in groups},
        "securityGroup": {name for group in groups for name in group.groups},
        "sshKey": {group.key for group in groups},
        "spec": {group.spec for group in groups},
        "image": {group.image for group in groups},
    }
    connections = {group.connection for group in groups}
    return [
        *(
            Key(ns, model.record_id(record_type, name))
            for record_type, names in named.items()
            for name in names
            if name
        ),
        *(Key(model.DEPLOYMENT_NS, model.record_id("connection", name)) for name in connections if name),
    ]


FIELDS = {"vNet": "vNetId", "securityGroup": "securityGroupIds", "sshKey": "sshKeyId"}
"""The request fields that name existing resources, by resource type."""


async def check_placement(catalogue: Catalogue, ns: str, groups: Sequence[model.SubGroup], field: str) -> None:
    """Refuse subgroups that cannot be placed; the error names the field: `field` is formatted with their number."""
    placer = SubGroupPlacer(catalogue, ns)
    await placer.load(groups)
    for number, group in enumerate(groups):
        try:
            await check_resources(placer.known, ns, await placer.place(group))
        except BadInput as error:
            raise BadInput(f"{field.format(number)}{error.field}", error.value, error.allowed) from error


async def check_resources(known: Catalogue, ns: str, placed: PlacedSubGroup) -> None:
    """Refuse a subgroup whose resources are missing or in another region."""
    group = placed.group
    if group.network:
        network = await _resource(known, ns, "vNet", group.network, placed)
        subnets = [subnet.name for subnet in model.network_of(network).subnets]
        if group.subnet and group.subnet not in subnets:
            raise BadInput(
                "subnetId", group.subnet, f"a subnet of vNet {group.network!r}: {', '.join(subnets) or 'none'}"
            )
    for name in group.groups:
        await _resource(known, ns, "securityGroup", name, placed)
    if group.key:
        await _resource(known, ns, "sshKey", group.key, placed)


async def _resource(known: Catalogue, ns: str, resource_type: str, name: str, placed: PlacedSubGroup) -> Object:
    """Return a resource of a subgroup, or raise if it is missing or in another region."""
    record = await known.record(Key(ns, model.record_id(resource_type, name)))
    if record is None or record.removed or record.kind != model.RESOURCE_LIFECYCLES[resource_type].kind:
        raise BadInput(FIELDS[resource_type], name, f"the name of a {resource_type} of namespace {ns!r}")
    if record.state == ResourceState.DELETING:
        raise BadInput(FIELDS[resource_type], name, f"a {resource_type} that is not {ResourceState.DELETING}")
    place = model.resource_identity(record)
    if (place.provider, place.region) != (placed.connection.provider, placed.connection.region):
        allowed = f"a {resource_type} of connection {placed.connection.name}: it is one of {place.connection}"
        raise BadInput(FIELDS[resource_type], name, allowed)
    return record
