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
from stateward.domains.systems.lifecycle import DEPLOY, JOB, OPEN_DEPLOY, SECRET, SERVICE
from stateward.domains.systems.model import ChangeSpec, DesiredJob, DesiredService, spec_of
from stateward.domains.systems.object_ids import secret_name
from stateward.domains.systems.secrets.keyring import KeyRing, SealedValue
from stateward.engine import Kind, Request
from stateward.engine.privacy import Privacy
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.filters import Selector
from stateward.store.records import Object, to_json

MAX_CHARS = 65_536
"""The longest value; Linux takes at most 131,072 bytes for one variable of the environment."""

SEALED_VALUE = Privacy(secrets=frozenset({"sealed"}))
OPEN_DEPLOYS = tuple(one.word for one in OPEN_DEPLOY)


class SecretSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The spec of a secret: the number of its value, which grows with each new one, and when it got that value."""

    version: int = 1
    changed: float = 0.0


def read_secret_spec(found: Object) -> SecretSpec:
    """Return the spec of a secret."""
    return msgspec.json.decode(found.spec, type=SecretSpec)


def sealed_value(found: Object) -> SealedValue:
    """Return the encrypted value of a secret."""
    return msgspec.json.decode(found.seen, type=SealedValue)


def secret_kind(keys: KeyRing) -> Kind:
    """Return the kind of secrets."""
    return Kind(
        SECRET,
        guard=partial(guard_secret, keys),
        privacy=SEALED_VALUE,
        spec=SecretSpec,
        general=False,
        made_by="the command stateward system secret create",
    )


async def guard_secret(keys: KeyRing, uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    """Accept a value only in its encrypted form, and a deletion only of a secret that nothing uses."""
    name = secret_name(found.id)
    if request.action == "delete":
        users = await find_users(uow, found.ns, name)
        if users:
            raise SecretInUse(name, tuple(users))
        return replace(request, spec=None, seen="{}")
    try:
        sealed = msgspec.json.decode(request.seen or "{}", type=SealedValue)
    except msgspec.ValidationError:
        raise ValueNotSealed(name) from None
    keys.unseal(found.ns, name, sealed)
    if request.action == "reencrypt":
        return replace(request, spec=None)
    known = 0 if request.creates is not None else read_secret_spec(found).version
    return replace(request, spec=to_json(SecretSpec(known + 1, uow.now)))


async def find_users(uow: UnitOfWork, ns: str, secret: str) -> list[str]:
    """Return the services and jobs that use a secret, and the open deploys that define such ones."""
    services = await uow.select(Selector(ns, SERVICE.kind))
    jobs = await uow.select(Selector(ns, JOB.kind))
    deploys = await uow.select(Selector(ns, DEPLOY.kind, states=OPEN_DEPLOYS))
    return sorted(one.id for one in (*services, *jobs, *deploys) if secret in used_secrets(one))


def used_secrets(found: Object) -> set[str]:
    """Return the names of the secrets that a service, a job, or a deploy refers to."""
    if found.kind == SERVICE.kind:
        desired = spec_of(found, DesiredService)
        return set() if desired is None else {one.secret for one in desired.service.secrets.values()}
    if found.kind == JOB.kind:
        wanted = spec_of(found, DesiredJob)
        return set() if wanted is None else {one.secret for one in wanted.job.program.secrets.values()}
    change = spec_of(found, ChangeSpec)
    return set() if change is None else set(change.picture.secrets())


def users_by_secret(found: Iterable[Object], names: Collection[str]) -> dict[str, list[str]]:
    """Return the services that use each of the secrets, sorted."""
    users: dict[str, list[str]] = {name: [] for name in names}
    for one in found:
        for name in used_secrets(one) & users.keys():
            users[name].append(one.id)
    return {name: sorted(ids) for name, ids in users.items()}
