"""The API of secrets: `/api/v1/systems/NAMESPACE/-/secrets`. No system can have the name `-`.

No response has a value. Whoever may read the namespace sees the names; a value is set, and a secret deleted, with the
right to govern, which a deploy needs as well.
"""

from typing import Annotated, Any

from litestar import Request, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import JSONBody, PathParameter
from msgspec import Meta, Struct

from stateward.access import Right
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.lifecycle import JOB, SERVICE
from stateward.domains.systems.object_ids import NAME, secret_name
from stateward.domains.systems.secrets.secret_actions import SecretActions, list_secrets
from stateward.domains.systems.secrets.secret_model import MAX_CHARS, read_secret_spec, sealed_value, users_by_secret
from stateward.domains.systems.views import AskedView, SecretView, asked_view, when
from stateward.engine import Engine
from stateward.plugin.request_params import IdempotencyKey, Ns
from stateward.plugin.route_options import actor_of, can_dry_run, engine_of, grant_of, needs
from stateward.store.filters import Page, Selector
from stateward.store.records import Object

SECRETS = "/{ns:str}/-/secrets"
SECRET = f"{SECRETS}/{{secret:str}}"
PAGE_SIZE = 1_000

SecretName = Annotated[str, PathParameter(pattern=NAME, description="the secret")]
Value = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_CHARS,
        description="the value; no response shows it",
        extra_json_schema={"writeOnly": True},
    ),
]
ContextDependency = NamedDependency[SystemContext]
Call = Request[Any, Any, Any]


class NewSecret(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret to be created."""

    name: Annotated[str, Meta(pattern=NAME)]
    value: Value


class NewSecretValue(Struct, frozen=True, forbid_unknown_fields=True):
    """The new value of a secret."""

    value: Value


@post(SECRETS, opt=needs(Right.GOVERN) | can_dry_run(), status_code=201, summary="Create a secret")
async def create_secret(
    request: Call, context: ContextDependency, ns: Ns, data: JSONBody[NewSecret], key: IdempotencyKey = None
) -> SecretView:
    """Create a secret of the namespace; its value is encrypted before it is stored."""
    accepted = await _actions(request, context, ns).create(data.name, data.value, _own(request, key))
    return _view(accepted.object, [])  # no deploy refers to a secret that doesn't exist


@put(SECRET, opt=needs(Right.GOVERN), summary="Update a secret")
async def update_secret(
    request: Call,
    context: ContextDependency,
    ns: Ns,
    secret: SecretName,
    data: JSONBody[NewSecretValue],
    key: IdempotencyKey = None,
) -> SecretView:
    """Give a secret a new value; services with `redeploy_on_secret_change` replace their instances."""
    accepted = await _actions(request, context, ns).update(secret, data.value, _own(request, key))
    return await _shown(request, accepted.object)


@delete(SECRET, opt=needs(Right.GOVERN) | can_dry_run(), status_code=200, summary="Delete a secret")
async def delete_secret(
    request: Call, context: ContextDependency, ns: Ns, secret: SecretName, key: IdempotencyKey = None
) -> SecretView:
    """Delete a secret that no service uses, and return it as it was, without its value."""
    former = await _actions(request, context, ns).secret(secret)
    await _actions(request, context, ns).delete(secret, _own(request, key))
    return _view(former, [])


@get(SECRETS, opt=needs(Right.READ), summary="List secrets")
async def get_secrets(request: Call, ns: Ns) -> list[SecretView]:
    """Return the secrets of a namespace by name, without their values."""
    return await secret_views(engine_of(request), ns, await list_secrets(engine_of(request), ns))


@get(SECRET, opt=needs(Right.READ), summary="Get a secret")
async def get_secret(request: Call, context: ContextDependency, ns: Ns, secret: SecretName) -> SecretView:
    """Return a secret without its value: its versions, its times, and the services that use it."""
    return await _shown(request, await _actions(request, context, ns).secret(secret))


@post("/{ns:str}/-/secret-rotation", opt=needs(Right.GOVERN), status_code=202, summary="Rotate the key of secrets")
async def rotate_secrets(request: Call, context: ContextDependency, ns: Ns, key: IdempotencyKey = None) -> AskedView:
    """Encrypt all secrets of the namespace with the first key of the key file."""
    return asked_view(await _actions(request, context, ns).rotate(_own(request, key)))


async def _shown(request: Call, secret: Object) -> SecretView:
    return (await secret_views(engine_of(request), secret.ns, [secret]))[0]


async def secret_views(engine: Engine, ns: str, secrets: list[Object]) -> list[SecretView]:
    """Return the views of secrets, each with the services and jobs that use it."""
    programs: list[Object] = []
    for kind in (SERVICE.kind, JOB.kind):
        after: str | None = None
        while page := await engine.store.reader.list_objects(Selector(ns, kind), Page(after, PAGE_SIZE)):
            programs += page
            after = page[-1].id
    users = users_by_secret(programs, [secret_name(secret.id) for secret in secrets])
    return [_view(secret, users[secret_name(secret.id)]) for secret in secrets]


def _view(secret: Object, users: list[str]) -> SecretView:
    spec = read_secret_spec(secret)
    changed = when(spec.changed or secret.created)
    return SecretView(
        secret.id,
        secret.ns,
        secret_name(secret.id),
        spec.version,
        sealed_value(secret).key,
        when(secret.created),
        changed,
        users,
    )


def _own(request: Call, key: str | None) -> str | None:
    return grant_of(request).own_key(key)


def _actions(request: Call, context: SystemContext, ns: str) -> SecretActions:
    return SecretActions(engine_of(request), context.secrets.keys, ns, grant_of(request).name, actor_of(request))


SECRET_ROUTES = (create_secret, update_secret, delete_secret, get_secrets, get_secret, rotate_secrets)
