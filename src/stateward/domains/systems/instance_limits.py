"""How many instances a system and a namespace can have, by their definitions.

A service counts with its instances, and a job with those that one run has at the same time; each counts as at least
one. The sum is taken in the transaction that accepts a deploy, with the deploys that are under way, and under the lock
of the namespace's quota, so that two deploys cannot exceed a limit together.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from stateward.access.quotas import QuotaExceeded, quota_in, quota_key
from stateward.domains.systems.lifecycle import DEPLOY, JOB, OPEN_DEPLOY, SERVICE
from stateward.domains.systems.model import DesiredTree
from stateward.domains.systems.object_ids import path_of, system_of
from stateward.domains.systems.settings import SystemsSettings
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.locks.paths import Path, parse_path
from stateward.store.filters import Selector
from stateward.store.port import Store, Tx
from stateward.store.records import Key, Object

INSTANCES = "systems.instance"
"""The name of instances in a quota, where the other names are kinds."""

PARTS = (SERVICE.kind, JOB.kind)
OPEN_DEPLOYS = tuple(state.word for state in OPEN_DEPLOY)


class CountedService(Struct, frozen=True):
    """The part of a service's definition that counts."""

    instances: int = 1

    @property
    def size(self) -> int:
        """How many instances it counts as."""
        return max(1, self.instances)


class CountedJob(Struct, frozen=True):
    """The part of a job's definition that counts."""

    parallelism: int = 1
    completions: int = 1

    @property
    def size(self) -> int:
        """How many instances it counts as."""
        return min(self.parallelism, self.completions)


class CountedTree(Struct, frozen=True):
    """The services and jobs of a definition, by path."""

    services: dict[str, CountedService] = {}
    jobs: dict[str, CountedJob] = {}

    def sizes(self) -> dict[str, int]:
        """Return how many instances each of them counts as."""
        services = {path: service.size for path, service in self.services.items()}
        return services | {path: job.size for path, job in self.jobs.items()}


class CountedSpec(Struct, frozen=True):
    """The spec of a service, a job or a deploy, as far as it counts."""

    service: CountedService | None = None
    job: CountedJob | None = None
    picture: CountedTree = CountedTree()

    @property
    def size(self) -> int:
        """How many instances a service or a job counts as."""
        return (self.service or self.job or CountedService()).size


def check_system_size(settings: SystemsSettings, wanted: DesiredTree) -> None:
    """Refuse a definition that has too many instances, whatever else the system has (pure)."""
    sizes = _wanted_sizes(wanted)
    _require_room(wanted, sizes, sum(sizes.values()), settings.instances_per_system, "a system", "system")


async def check_instances(
    settings: SystemsSettings, uow: UnitOfWork, system: Key, deploy: str, path: str, wanted: DesiredTree
) -> None:
    """Refuse a deploy with which its system or its namespace would have too many instances.

    One that adds none is accepted, although a limit was lowered meanwhile.
    """
    sizes, top = _wanted_sizes(wanted), parse_path(path)
    present = await _present_sizes(uow, system.ns, deploy)
    replaced = sum(size for (owner, at), size in present.items() if owner == system.id and at[: len(top)] == top)
    added = sum(sizes.values()) - replaced
    if added <= 0:
        return
    in_system = sum(size for (owner, _), size in present.items() if owner == system.id) + added
    in_namespace = sum(present.values()) + added
    _require_room(wanted, sizes, in_system, settings.instances_per_system, f"system {system.id}", "system")
    _require_room(wanted, sizes, in_namespace, settings.instances_per_namespace, f"namespace {system.ns}", "namespace")
    quota = quota_in(uow.objects.get(quota_key(system.ns)))
    most = None if quota is None else quota.objects.get(INSTANCES)
    if most is not None and in_namespace > most:
        raise QuotaExceeded(system.ns, "instances of systems", most, retry=False)


async def check_first_instances(settings: SystemsSettings, store: Store, system: Key, wanted: DesiredTree) -> None:
    """Refuse what cannot be the first deploy of a system, to be created; its deploy checks it again."""

    async def check(tx: Tx) -> None:
        uow = UnitOfWork(tx, dry=True)
        await uow.load([quota_key(system.ns)])
        await check_instances(settings, uow, system, "", "/", wanted)

    await store.transact(check)


def _wanted_sizes(wanted: DesiredTree) -> dict[str, int]:
    return msgspec.convert(wanted, CountedTree, from_attributes=True).sizes()


def _require_room(
    wanted: DesiredTree, sizes: Mapping[str, int], total: int, limit: int, owner: str, scope: str
) -> None:
    """Name the largest service or job of a definition with which there would be more instances than allowed."""
    if total <= limit or not sizes:
        return
    path = max(sizes, key=lambda key: sizes[key])
    field = f"{wanted.field_of(path)}.{'instances' if path in wanted.services else 'parallelism'}"
    most = limit - total + sizes[path]
    room = f"at most {most:,}" if most > 0 else "left out, with its service or job"
    setting = f"setting systems_instances_per_{scope}"
    allowed = f"{room}: {owner} can have {limit:,} instances ({setting}), and would have {total:,}"
    raise BadInput(field, sizes[path], allowed)


Sizes = dict[tuple[str, Path], int]
"""What services and jobs count as, by system and path."""


class StoredSizes(Struct):
    """What a transaction has read: the services and jobs of a namespace, and those of its open deploys."""

    parts: Sizes = {}
    deploys: dict[str, Sizes] = {}

    def add(self, record: Object) -> None:
        """Add a record, or take out one that was removed or has ended."""
        system, ended = system_of(record.id), record.removed or record.state not in OPEN_DEPLOYS
        if record.kind == DEPLOY.kind and ended:
            self.deploys.pop(record.id, None)
        elif record.kind == DEPLOY.kind:
            trees = _counted(record.spec).picture.sizes().items()
            self.deploys[record.id] = {(system, parse_path(path)): size for path, size in trees}
        elif record.kind in PARTS and record.removed:
            self.parts.pop((system, path_of(record.id)), None)
        elif record.kind in PARTS:
            self.parts[system, path_of(record.id)] = _counted(record.spec).size


async def _present_sizes(uow: UnitOfWork, ns: str, deploy: str) -> Sizes:
    """Return what the services and jobs of a namespace count as.

    What is stored is read once in a transaction, which may accept many deploys; then its own changes count, too.
    Deploys are read first: one that ends meanwhile has created its services before.
    """
    stored = uow.counted.get((INSTANCES, ns))
    if not isinstance(stored, StoredSizes):
        stored = uow.counted[INSTANCES, ns] = StoredSizes()
        for kind, states in ((DEPLOY.kind, OPEN_DEPLOYS), (SERVICE.kind, None), (JOB.kind, None)):
            for record in await uow.peek_selected(Selector(ns, kind, states=states)):
                stored.add(record)
    own = StoredSizes(dict(stored.parts), dict(stored.deploys))
    for record in uow.objects.values():
        if record.ns == ns:
            own.add(record)
    sizes = own.parts
    for id_, trees in own.deploys.items():
        if id_ != deploy:
            sizes.update((part, max(size, sizes.get(part, 0))) for part, size in trees.items())
    return sizes


def _counted(spec: str) -> CountedSpec:
    try:
        return msgspec.json.decode(spec, type=CountedSpec)
    except msgspec.ValidationError:  # written by another version
        return CountedSpec()
