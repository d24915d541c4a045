"""The rotation of keys: one operation encrypts all secrets of a namespace with the first key, in batches.

A secret that has the first key already is left alone. So a worker that takes over after a crash goes on with the rest,
and the rotation can be repeated at any time. A secret that gets a new value meanwhile has the first key by that.
"""

import asyncio

from stateward.domains.systems.errors import NoSecretsKey, SecretUnreadable
from stateward.domains.systems.lifecycle import ROTATION
from stateward.domains.systems.object_ids import secret_name
from stateward.domains.systems.secrets.secret_actions import SecretReader, list_secrets
from stateward.domains.systems.secrets.secret_model import sealed_value
from stateward.engine import Denied, Handler, Job, Kind, Permanent
from stateward.errors import count_text
from stateward.lifecycle import CONTROLLER
from stateward.store.records import Object

BATCH = 200
"""How many secrets one transaction changes, at most."""

MAX_NAMED = 5
"""How many secrets that cannot be decrypted an error names."""


class KeyRotation:
    """The handler of rotations."""

    def __init__(self, secrets: SecretReader) -> None:
        self._secrets = secrets

    def kind(self) -> Kind:
        """Return the kind of rotations."""
        return Kind(ROTATION, {"rotate": Handler(self.rotate)}, general=False)

    async def rotate(self, job: Job) -> None:
        """Encrypt all secrets of the namespace with the first key; fails if one cannot be decrypted."""
        unreadable: list[str] = []
        total, after = 0, None
        while page := await list_secrets(self._secrets.engine, job.ns, after, BATCH):
            unreadable += [
                error for error in await asyncio.gather(*(self._reencrypt(job, secret) for secret in page)) if error
            ]
            total, after = total + len(page), page[-1].id
            await job.progress(f"{count_text(total, 'secret')} done")
        if unreadable:
            more = len(unreadable) - MAX_NAMED
            raise Permanent("; ".join(unreadable[:MAX_NAMED]) + (f"; and {more} more" if more > 0 else ""))

    async def _reencrypt(self, job: Job, secret: Object) -> str:
        """Encrypt a secret with the first key, unless it is; returns why it cannot be decrypted, if so."""
        keys, name, engine = self._secrets.keys, secret_name(secret.id), self._secrets.engine
        while True:
            sealed = sealed_value(secret)
            try:
                if sealed.key == keys.first:
                    return ""
                fresh = keys.seal(secret.ns, name, keys.unseal(secret.ns, name, sealed))
            except NoSecretsKey as error:
                raise Permanent(str(error)) from error
            except SecretUnreadable as error:
                return str(error)
            try:
                await engine.act(
                    *secret.key,
                    "reencrypt",
                    seen=fresh,
                    version=secret.version,
                    actor=CONTROLLER,
                    who=job.claim.operation.who,
                )
            except Denied:  # it was changed or deleted since it was read
                now = await engine.store.reader.object(secret.key)
                if now is None or now.removed:
                    return ""
                if now.version == secret.version:
                    raise
                secret = now
            else:
                return ""
