"""Plans: what a subgroup comes to, once its spec, image and connection are known; and the numbers of its VMs."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from hashlib import blake2b

from msgspec import Struct

from stateward.domains.mci.catalogue import Catalogue
from stateward.domains.mci.grants import check_grant
from stateward.domains.mci.model import Connection, Image, MciSpec, Spec, SubGroup, VmSpec
from stateward.drivers import Driver, Learns, Refused
from stateward.engine import Temporary
from stateward.errors import BadInput, StatewardError

DriverOf = Callable[[Connection], Awaitable[Driver]]


class Planned(Struct, frozen=True):
    """A subgroup with all that it names."""

    group: SubGroup
    connection: Connection
    spec: Spec
    image: Image
    doubt: str = ""  # why nobody can say now whether the provider has what is named

    @property
    def shared(self) -> str:
        """The part of the names of the shared resources that tells connections apart."""
        return self.connection.name


async def resolve(catalogue: Catalogue, driver_of: DriverOf, ns: str, group: SubGroup) -> Planned:
    """Find what a subgroup names; what is not there, or not to be had at the provider, is bad input.

    A provider that cannot say so now refuses nothing: whoever makes VMs there will see.
    """
    spec = await catalogue.spec(ns, group.spec)
    connection = await catalogue.connection(group.connection or spec.connection)
    check_grant(connection, ns)
    if spec.connection != connection.name:
        same = (await catalogue.connection(spec.connection)).provider == connection.provider
        if not same:
            raise BadInput("specId", group.spec, f"a spec of connection {connection.name}, not {spec.connection}")
    image = await catalogue.image(ns, group.image, connection)
    driver = await driver_of(connection)
    if isinstance(driver, Learns):
        driver.learn(spec.csp_name, image.csp_name)
    answer = await driver.check(spec.csp_name, image.csp_name)
    if isinstance(answer, Refused):
        raise BadInput("specId", group.spec, f"what {connection.name} offers: {answer.message}")
    return Planned(group, connection, spec, image, "" if answer is None else answer.message)


async def resolve_all(
    catalogue: Catalogue, driver_of: DriverOf, ns: str, groups: Iterable[SubGroup]
) -> tuple[list[Planned], list[str]]:
    """Resolve subgroups; returns those that can be, and what is wrong with the others."""
    planned: list[Planned] = []
    troubles: list[str] = []
    for group in groups:
        try:
            planned.append(await resolve(catalogue, driver_of, ns, group))
        except Temporary:
            raise  # that is no trouble of the subgroup's
        except StatewardError as error:
            troubles.append(f"{group.name}: {error}")
    return planned, troubles


def free_numbers(taken: Collection[str], group: str, count: int) -> list[int]:
    """Return the numbers of further VMs of a subgroup: behind the highest that a record still has."""
    tails = (name.removeprefix(f"{group}-") for name in taken if name.startswith(f"{group}-"))
    used = [int(tail) for tail in tails if tail.isdigit()]
    first = max(used, default=0) + 1
    return list(range(first, first + count))


def uid_of(op: str, name: str) -> str:
    """Return the uid of a VM that an operation makes: the same however often the operation is repeated."""
    return blake2b(f"{op}/{name}".encode(), digest_size=10).hexdigest()


def vm_spec(mci: MciSpec, one: Planned, number: int, op: str, parts: dict[str, str], names: SubGroup) -> VmSpec:
    """Return what is wanted of a subgroup's VM; `parts` are the provider's ids of what it stands on."""
    name = f"{one.group.name}-{number}"
    return VmSpec(
        name=name,
        uid=uid_of(op, name),
        mci=mci.name,
        group=one.group.name,
        connection=one.connection.name,
        provider=one.connection.provider,
        region=one.connection.region,
        zone=one.group.zone or one.connection.zone,
        spec=one.spec.id,
        image=one.image.id,
        csp_spec=one.spec.csp_name,
        csp_image=one.image.csp_name,
        cost=one.spec.cost,
        network=names.network,
        subnet=names.subnet,
        groups=names.groups,
        key=names.key,
        parts=parts,
        user=one.group.user,
        disk_type=one.group.disk_type,
        disk_gib=one.group.disk_gib,
        label=one.group.label,
        description=one.group.description,
    )
