"""The actions on the secrets of a namespace, and the reader of their values.

A value is encrypted here, before the engine has the request. Only `SecretReader` decrypts values: for instances that
are started, and for the rotation of keys.
"""

from collections.abc import Collection, Mapping
from typing import Any

from stateward.domains.systems.errors import SecretMissing
from stateward.domains.systems.lifecycle import ROTATION, SECRET
from stateward.domains.systems.object_ids import ROTATION_ID, checked_name, secret_id, secret_name
from stateward.domains.systems.secrets.keyring import KeyRing
from stateward.domains.systems.secrets.secret_model import MAX_CHARS, read_secret_spec, sealed_value
from stateward.engine import Accepted, Engine, NotFound
from stateward.errors import BadInput
from stateward.lifecycle import ADMIN
from stateward.store.errors import StoreError
from stateward.store.filters import Page, Selector
from stateward.store.records import Key, Object

MAX_SECRETS = 10_000
"""The most secrets of a namespace that are listed."""


class SecretReader:
    """Reads secrets from the store, and decrypts their values."""

    engine: Engine

    def __init__(self, keys: KeyRing) -> None:
        self.keys = keys
        self._known: dict[Key, Object] = {}

    async def values(self, ns: str, names: Collection[str]) -> Mapping[str, str]:
        """Return the values of secrets; raises if one is missing, or cannot be decrypted.

        While the database cannot be reached, the encrypted values that this process read last are used: an instance
        that has crashed must not wait for the database.
        """
        return {name: self.keys.unseal(ns, name, sealed_value(await self._read(ns, name))) for name in names}

    async def _read(self, ns: str, name: str) -> Object:
        key = Key(ns, secret_id(name))
        try:
            record = await self.engine.store.reader.object(key)
        except StoreError:
            if key not in self._known:
                raise
            return self._known[key]
        if record is None or record.removed or record.kind != SECRET.kind:
            self._known.pop(key, None)
            raise SecretMissing(name)
        self._known[key] = record
        return record

    async def versions(self, ns: str, names: Collection[str] | None = None) -> dict[str, int]:
        """Return the numbers of the present values of the named secrets of a namespace, or of all, by name."""
        ids = None if names is None else tuple(secret_id(name) for name in names)
        chosen, page = Selector(ns, SECRET.kind, ids=ids), Page(None, MAX_SECRETS if ids is None else len(ids))
        secrets = await self.engine.store.reader.list_objects(chosen, page) if ids != () else ()
        return {secret_name(secret.id): read_secret_spec(secret).version for secret in secrets}


async def list_secrets(engine: Engine, ns: str, after: str | None = None, limit: int = MAX_SECRETS) -> list[Object]:
    """Return the secrets of a namespace, by name."""
    return list(await engine.store.reader.list_objects(Selector(ns, SECRET.kind), Page(after, limit)))


class SecretActions:
    """The actions on the secrets of one namespace, on behalf of one caller."""

    def __init__(self, engine: Engine, keys: KeyRing, ns: str, who: str = "", actor: str = ADMIN) -> None:
        self._engine, self._keys, self._ns = engine, keys, ns
        self._how: dict[str, Any] = {"who": who, "actor": actor}

    async def create(self, name: str, value: str, key: str | None = None) -> Accepted:
        """Create a secret."""
        sealed = self._keys.seal(self._ns, checked_name("name", name), checked_value(value))
        return await self._engine.create(
            self._ns, secret_id(name), SECRET.kind, "create", seen=sealed, key=key, **self._how
        )

    async def update(self, name: str, value: str, key: str | None = None) -> Accepted:
        """Give a secret a new value."""
        sealed = self._keys.seal(self._ns, checked_name("name", name), checked_value(value))
        await self.secret(name)
        return await self._engine.act(self._ns, secret_id(name), "update", seen=sealed, key=key, **self._how)

    async def delete(self, name: str, key: str | None = None) -> Accepted:
        """Delete a secret that nothing uses."""
        return await self._engine.act(self._ns, secret_id(name), "delete", key=key, **self._how)

    async def rotate(self, key: str | None = None) -> Accepted:
        """Encrypt all secrets of the namespace with the first key."""
        _ = self._keys.first  # without a key it is refused here, and not in a worker
        record = await self._engine.store.reader.object(Key(self._ns, ROTATION_ID))
        if record is None or record.removed:
            return await self._engine.create(self._ns, ROTATION_ID, ROTATION.kind, "rotate", key=key, **self._how)
        return await self._engine.act(self._ns, ROTATION_ID, "rotate", key=key, **self._how)

    async def secret(self, name: str) -> Object:
        """Return a secret, or raise."""
        record = await self._engine.store.reader.object(Key(self._ns, secret_id(name)))
        if record is None or record.removed or record.kind != SECRET.kind:
            raise NotFound(self._ns, secret_id(name))
        return record


def checked_value(value: str) -> str:
    """Return the value of a new secret, or raise an error without it."""
    if not 1 <= len(value.encode()) <= MAX_CHARS or "\0" in value:
        raise BadInput("value", None, f"a text of 1 to {MAX_CHARS:,} bytes without a NUL character")
    return value
