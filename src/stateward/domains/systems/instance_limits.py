"""How many instances a system and a namespace can have, by their definitions.

A service counts with its instances, and a job with those that one run has at the same time; each counts as at least
one. The check is part of the transaction that accepts a deploy, and under the lock of the namespace's quota, so that
two deploys cannot exceed a limit together.

Counting reads all services and jobs of the namespace, so few deploys count. The others know a bound: there are at most
as many instances as were counted last, and as deploys have added since. Bounds are never lowered, whatever is removed,
fails or is rolled back; a deploy that a bound does not prove to be within the limits counts again.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.access.quotas import QuotaExceeded, quota_in, quota_key
from stateward.access.tokens import SYSTEM as DEPLOYMENT
from stateward.domains.systems.lifecycle import DEPLOY, JOB, OPEN_DEPLOY, SERVICE, USAGE
from stateward.domains.systems.model import DesiredTree, seen_of
from stateward.domains.systems.object_ids import job_id, path_of, service_id, system_of
from stateward.domains.systems.settings import SystemsSettings
from stateward.engine import Denied, Engine
from stateward.engine.transitions import absent_object, change_state
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import CONTROLLER, Move, decide
from stateward.locks.paths import Path, parse_path
from stateward.store.filters import Page, Selector
from stateward.store.port import Store, Tx
from stateward.store.records import Key, Object, to_json

T = TypeVar("T", bound=Struct)

INSTANCES = "systems.instance"
"""The name of instances in a quota, where the other names are kinds."""

KNOWN_S = 3_600.0
"""How long a bound is used after it was counted."""

PAGE_SIZE = 1_000
WHO = "systems"
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


class CountedSteps(Struct, frozen=True):
    """The steps of a deploy, as far as they count: the definition before."""

    before: CountedTree = CountedTree()


def check_system_size(settings: SystemsSettings, wanted: DesiredTree) -> None:
    """Refuse a definition that has too many instances, whatever else the system has (pure)."""
    sizes = _wanted_sizes(wanted)
    _require_room(wanted, sizes, sum(sizes.values()), settings.instances_per_system, "a system", "system")


class Usage(Struct, frozen=True):
    """The observations of a usage: how many instances there are at most."""

    most: int


def usage_keys(ns: str, system: str) -> tuple[Key, Key]:
    """Return the keys of the bounds of a system and of its namespace."""
    return Key(DEPLOYMENT, f"system-instances-{ns}:{system}"), Key(DEPLOYMENT, f"instances-{ns}")


async def check_instances(
    settings: SystemsSettings, uow: UnitOfWork, system: Key, deploy: str, path: str, wanted: DesiredTree
) -> None:
    """Refuse a deploy with which its system or its namespace would have too many instances.

    One that adds none is accepted, although a limit was lowered meanwhile.
    """
    added = await _added_instances(uow, system, wanted)
    if not added:
        return
    quota = quota_in(uow.objects.get(quota_key(system.ns)))
    most = None if quota is None else quota.objects.get(INSTANCES)
    scopes = (
        Scope("system", system.id, settings.instances_per_system, None),
        Scope("namespace", system.ns, settings.instances_per_namespace, most),
    )
    for scope, key in zip(scopes, usage_keys(system.ns, system.id), strict=True):
        known = _known_bound(uow, key)
        if known is not None and known.most + added <= scope.least_limit:
            record, seen = uow.objects[key], to_json(Usage(known.most + added))
            uow.save_object(key, replace(record, seen=seen, version=uow.next_version(key)))
        else:
            _write_bound(uow, key, await _count_instances(scope, uow, system, deploy, path, wanted))


class Scope(Struct, frozen=True):
    """A system or a namespace, with the setting that limits its instances, and the limit of its quota."""

    word: str
    name: str
    limit: int
    quota: int | None

    @property
    def least_limit(self) -> int:
        """The limit that counts."""
        return self.limit if self.quota is None else min(self.limit, self.quota)

    @property
    def parent(self) -> str | None:
        """The parent of what counts; None: all of a namespace counts."""
        return self.name if self.word == "system" else None


async def _added_instances(uow: UnitOfWork, system: Key, wanted: DesiredTree) -> int:
    """Return how many instances a deploy can add at most: what it removes may stay, if it fails."""
    sizes = _wanted_sizes(wanted)
    ids = {service_id(system.id, parse_path(path)): sizes[path] for path in wanted.services}
    ids |= {job_id(system.id, parse_path(path)): sizes[path] for path in wanted.jobs}
    present = await uow.peek_selected(Selector(system.ns, ids=tuple(ids))) if ids else ()
    before = {part.id: _counted(part.spec).size for part in present}
    return sum(max(0, size - before.get(id_, 0)) for id_, size in ids.items())


def _known_bound(uow: UnitOfWork, key: Key) -> Usage | None:
    """Return a bound; None if it is not known, or old: servers of other versions may have accepted deploys since."""
    record = uow.objects.get(key)
    if record is None or record.removed or uow.now - record.since > KNOWN_S:
        return None
    return seen_of(record, Usage)


def _write_bound(uow: UnitOfWork, key: Key, most: int) -> None:
    """Write what was counted."""
    known = uow.objects.get(key)
    before = absent_object(key, USAGE, uow.now) if known is None or known.removed else known
    move = decide(USAGE, before.state, "count", CONTROLLER)
    assert isinstance(move, Move), move
    change_state(uow, before, move, "", None, seen=to_json(Usage(most)))


async def _count_instances(
    scope: Scope, uow: UnitOfWork, system: Key, deploy: str, path: str, wanted: DesiredTree
) -> int:
    """Return how many instances there are at most while a deploy is open; refuse too many."""
    sizes, top = _wanted_sizes(wanted), parse_path(path)
    present = await _present_sizes(uow, system, scope, deploy)
    total = sum(present.values())
    replaced = sum(size for (owner, at), size in present.items() if owner == system.id and at[: len(top)] == top)
    added = sum(sizes.values()) - replaced
    if added > 0:
        _require_room(wanted, sizes, total + added, scope.limit, f"{scope.word} {scope.name}", scope.word)
        if scope.quota is not None and total + added > scope.quota:
            raise QuotaExceeded(system.ns, "instances of systems", scope.quota, retry=False)
    # While it is open, and if it fails, there may be both what it adds and what it removes.
    return total + sum(max(0, size - present.get((system.id, parse_path(at)), 0)) for at, size in sizes.items())


async def forget_old_bounds(engine: Engine) -> None:
    """Remove the bounds that are too old to be used, such as those of systems that are gone."""
    reader, after = engine.store.reader, ""
    old = await reader.time() - KNOWN_S
    while page := await reader.list_objects(Selector(DEPLOYMENT, USAGE.kind), Page(after, PAGE_SIZE)):
        after = page[-1].id
        for record in page:
            if record.since < old:
                with suppress(Denied):  # it was counted again meanwhile
                    await engine.act(*record.key, "forget", actor=CONTROLLER, who=WHO, version=record.version)


async def check_first_instances(settings: SystemsSettings, store: Store, system: Key, wanted: DesiredTree) -> None:
    """Refuse what cannot be the first deploy of a system, to be created; its deploy checks it again."""

    async def check(tx: Tx) -> None:
        uow = UnitOfWork(tx, dry=True)
        await uow.load([quota_key(system.ns), *usage_keys(*system)])
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
    """What a transaction has read: the services and jobs of a namespace, those of its open deploys and those before."""

    parts: Sizes = {}
    deploys: dict[str, Sizes] = {}
    replaced: list[Sizes] = []

    def add(self, record: Object) -> None:
        """Add a record, or take out one that was removed or has ended."""
        system, ended = system_of(record.id), record.removed or record.state not in OPEN_DEPLOYS
        if record.kind == DEPLOY.kind and ended:
            self.deploys.pop(record.id, None)
        elif record.kind == DEPLOY.kind:
            self.deploys[record.id] = _sizes_in(system, _counted(record.spec).picture)
        elif record.kind in PARTS and record.removed:
            self.parts.pop((system, path_of(record.id)), None)
        elif record.kind in PARTS:
            self.parts[system, path_of(record.id)] = _counted(record.spec).size


async def _present_sizes(uow: UnitOfWork, system: Key, scope: Scope, deploy: str) -> Sizes:
    """Return what the services and jobs of a system or a namespace count as.

    What is stored is read once in a transaction, which may accept many deploys; then its own changes count, too.
    """
    place = (scope.word, f"{system.ns}:{scope.name}")
    stored = uow.counted.get(place)
    if not isinstance(stored, StoredSizes):
        stored = uow.counted[place] = await _read_sizes(uow, system.ns, scope.parent)
    own = StoredSizes(dict(stored.parts), dict(stored.deploys))
    for record in uow.objects.values():
        if record.ns == system.ns and scope.parent in (None, system_of(record.id)):
            own.add(record)
    sizes = own.parts
    open_sizes = [trees for id_, trees in own.deploys.items() if id_ != deploy]
    for trees in (*open_sizes, *stored.replaced):
        sizes.update((part, max(size, sizes.get(part, 0))) for part, size in trees.items())
    return sizes


async def _read_sizes(uow: UnitOfWork, ns: str, parent: str | None) -> StoredSizes:
    """Read the services and jobs of a namespace, or of one of its systems, and those of open deploys.

    Deploys are read first: one that ends meanwhile has created its services before. What an open deploy has replaced
    counts, because it may go back to that; a deploy stores it before it changes anything, so it is read last.
    """
    stored = StoredSizes()
    deploys = await uow.peek_selected(Selector(ns, DEPLOY.kind, parent, OPEN_DEPLOYS))
    for record in (*deploys, *[part for kind in PARTS for part in await uow.peek_selected(Selector(ns, kind, parent))]):
        stored.add(record)
    operations = await uow.tx.operations([Key(ns, record.op) for record in deploys if record.op is not None])
    stored.replaced = [
        _sizes_in(system_of(operation.object), _decoded(operation.steps, CountedSteps).before)
        for operation in operations.values()
    ]
    return stored


def _sizes_in(system: str, tree: CountedTree) -> Sizes:
    return {(system, parse_path(path)): size for path, size in tree.sizes().items()}


def _counted(spec: str) -> CountedSpec:
    return _decoded(spec, CountedSpec)


def _decoded(text: str, wanted: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=wanted)
    except msgspec.ValidationError:  # written by another version
        return wanted()
