"""The stored records of secrets, and their check inside the accepting transaction.

The encrypted value is in the observed state of the object, and not in its spec: the journal keeps specs for ever, and
with them values of former keys. A request has the encrypted value, so neither operations nor idempotency records can
contain another one.
"""

from collections.abc import Collection, Iterable
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.systems.errors import SecretInUse, ValueNotSealed
from stateward.domains.systems.lifecycle import DEPLOY, JOB, JOBRUN, OPEN_DEPLOY, OPEN_RUN, SECRET, SERVICE
from stateward.domains.systems.model import (
    ChangeSpec,
    DesiredJob,
    DesiredService,
    JobRunSpec,
    read_deploy_steps,
    spec_of,
)
from stateward.domains.systems.object_ids import secret_name
from stateward.domains.systems.secrets.keyring import KeyRing, SealedValue
from stateward.engine import Kind, Request
from stateward.engine.privacy import Privacy
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, to_json

MAX_CHARS = 65_536
"""The longest value; Linux takes at most 131,072 bytes for one variable of the environment."""

SEALED_VALUE = Privacy(secrets=frozenset({"sealed"}))
OPEN_DEPLOYS = tuple(state.word for state in OPEN_DEPLOY)
OPEN_RUNS = tuple(state.word for state in OPEN_RUN)


class SecretSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The spec of a secret: the number of its value, which grows with each new one, and when it got that value."""

    version: int = 1
    changed: float = 0.0


def read_secret_spec(secret: Object) -> SecretSpec:
    """Return the spec of a secret."""
    return msgspec.json.decode(secret.spec, type=SecretSpec)


def sealed_value(secret: Object) -> SealedValue:
    """Return the encrypted value of a secret."""
    return msgspec.json.decode(secret.seen, type=SealedValue)


def secret_kind(keys: KeyRing) -> Kind:
    """Return the kind of secrets."""
    return Kind(
        SECRET,
        guard=partial(guard_secret, keys),
        privacy=SEALED_VALUE,
        spec=SecretSpec,
        made_by="the command stateward system secret create",
    )


async def guard_secret(keys: KeyRing, uow: UnitOfWork, request: Request, secret: Object) -> Request | None:
    """Accept a value only in its encrypted form, and a deletion only of a secret that nothing uses."""
    name = secret_name(secret.id)
    if request.action == "delete":
        users = await find_users(uow, secret.ns, name)
        if users:
            raise SecretInUse(name, tuple(users))
        return replace(request, spec=None, seen="{}")
    try:
        sealed = msgspec.json.decode(request.seen or "{}", type=SealedValue)
    except msgspec.ValidationError:
        raise ValueNotSealed(name) from None
    keys.unseal(secret.ns, name, sealed)
    if request.action == "reencrypt":
        return replace(request, spec=None)
    known = 0 if request.creates is not None else read_secret_spec(secret).version
    return replace(request, spec=to_json(SecretSpec(known + 1, uow.now)))


async def find_users(uow: UnitOfWork, ns: str, secret: str) -> list[str]:
    """Return what uses a secret: services and jobs, runs that can start further instances, and open deploys.

    An open deploy needs the secrets of its definition, and those of the definition before, which it restores if it
    fails or is cancelled. The deploys are locked first, so that none can restore its services and end meanwhile; their
    steps are read last, because a deploy stores the definition before and only then changes a service.
    """
    deploys = await uow.select(Selector(ns, DEPLOY.kind, states=OPEN_DEPLOYS))
    programs = [*await uow.select(Selector(ns, SERVICE.kind)), *await uow.select(Selector(ns, JOB.kind))]
    runs = await uow.select(Selector(ns, JOBRUN.kind, states=OPEN_RUNS))
    users = {record.id for record in (*programs, *runs, *deploys) if secret in used_secrets(record)}
    operations = await uow.tx.operations({Key(ns, deploy.op) for deploy in deploys if deploy.op is not None})
    users |= {
        operation.object for operation in operations.values() if secret in read_deploy_steps(operation).before.secrets()
    }
    return sorted(users)


def used_secrets(record: Object) -> set[str]:
    """Return the names of the secrets that a service, a job, a run, or the definition of a deploy refers to."""
    if record.kind == SERVICE.kind:
        desired = spec_of(record, DesiredService)
        return set() if desired is None else {secret.secret for secret in desired.service.secrets.values()}
    if record.kind in (JOB.kind, JOBRUN.kind):
        wanted: DesiredJob | JobRunSpec | None
        wanted = spec_of(record, DesiredJob) if record.kind == JOB.kind else spec_of(record, JobRunSpec)
        job = None if wanted is None else wanted.job
        return set() if job is None else {secret.secret for secret in job.program.secrets.values()}
    change = spec_of(record, ChangeSpec)
    return set() if change is None else set(change.picture.secrets())


def users_by_secret(records: Iterable[Object], names: Collection[str]) -> dict[str, list[str]]:
    """Return the services that use each of the secrets, sorted."""
    users: dict[str, list[str]] = {name: [] for name in names}
    for record in records:
        for name in used_secrets(record) & users.keys():
            users[name].append(record.id)
    return {name: sorted(ids) for name, ids in users.items()}
