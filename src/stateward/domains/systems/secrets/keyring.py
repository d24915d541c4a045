"""The keys by which the values of secrets are encrypted.

A file has one key per line: 32 random bytes in hexadecimal digits. The first key encrypts, and all of them decrypt, so
a new key can be put in front while values of the old one are still stored. The file is read again when it has changed.
With the embedded database, it is created in the data folder at the first need. On PostgreSQL, all processes must be
given the same keys: a key that a server made for itself would be lost with its host.

A variable of the environment may have the keys instead. It is no setting, which a command line could show to all users
of the host. It is removed from the environment before anything is started, so no child inherits it.

The cipher is AES-SIV (RFC 5297): the same value of the same secret gives the same text, so that a request that is
repeated with its idempotency key is known as the same. The text is bound to its namespace and its name, so none can be
put into the place of another. Each text names its key, so a missing key is an error that names it, and never garbage.
"""

import os
import re
import secrets
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Struct

from stateward.access.private_files import UnusableFile, create_private_file, read_private_file
from stateward.data_folder import PREFIX
from stateward.domains.systems.errors import NoSecretsKey, SecretUnreadable
from stateward.errors import BadInput

KEYS_VARIABLE = f"{PREFIX}SYSTEMS_SECRETS_KEYS"
KEY_FILE = "systems-secrets-keys"
KEY_BYTES = 32
PURPOSE = b"stateward systems secret 1"
"""What the keys are derived for; it is a part of all stored texts."""

_KEY = re.compile(rf"[0-9a-fA-F]{{{2 * KEY_BYTES}}}")


class SecretText(str):
    """The value of a secret; a traceback or a log that shows its `repr` does not show the value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class SealedValue(Struct, frozen=True):
    """The value of a secret as it is stored: its text, and the id of the key that decrypts it."""

    key: str
    sealed: dict[str, str]  # a mapping, as `Privacy` masks them: no answer has its text

    @property
    def text(self) -> str:
        """The encrypted value, in base64."""
        return self.sealed.get("value", "")


class SealingKey:
    """One key: its id, which is no secret, and its cipher."""

    def __init__(self, master: bytes) -> None:
        self.id = HKDF(SHA512(), 4, None, PURPOSE + b" id").derive(master).hex()
        self._cipher = AESSIV(HKDF(SHA512(), 64, None, PURPOSE).derive(master))

    def seal(self, ns: str, name: str, value: str) -> SealedValue:
        """Encrypt the value of a secret."""
        sealed = self._cipher.encrypt(value.encode(), _bound_to(ns, name))
        return SealedValue(self.id, {"value": b64encode(sealed).decode()})

    def unseal(self, ns: str, name: str, sealed: SealedValue) -> SecretText:
        """Decrypt the value of a secret; raises `SecretUnreadable` if the stored text was changed."""
        try:
            plain = self._cipher.decrypt(b64decode(sealed.text, validate=True), _bound_to(ns, name))
            return SecretText(plain.decode())
        except (InvalidTag, NotBase64, ValueError):
            raise SecretUnreadable(name, "its stored text is not one that this key has encrypted for it") from None


def _bound_to(ns: str, name: str) -> list[bytes]:
    return [PURPOSE, ns.encode(), name.encode()]


class KeyRing:
    """The keys of a deployment: those that are given, or those of its file."""

    def __init__(
        self,
        folder: Path | None = None,
        file: str = "",
        given: tuple[SealingKey, ...] = (),
        *,
        is_embedded: bool = True,
    ) -> None:
        embedded = folder / KEY_FILE if folder is not None and is_embedded else None
        self._path = Path(file) if file else embedded
        self._creates = not file
        self._stamp: tuple[int, ...] = ()
        self._given, self._keys = given, given

    def seal(self, ns: str, name: str, value: str) -> SealedValue:
        """Encrypt the value of a secret with the first key; raises `NoSecretsKey`.

        The first secret of an embedded database creates the file. One that is missing later is being replaced: a key
        made in between would be lost with the value that it has encrypted.
        """
        if self._creates and self._path is not None and not (self._given or self._stamp):
            create_private_file(self._path, secrets.token_hex(KEY_BYTES) + "\n")
        return self._all()[0].seal(ns, name, value)

    def unseal(self, ns: str, name: str, sealed: SealedValue) -> SecretText:
        """Decrypt the value of a secret; raises `NoSecretsKey` or `SecretUnreadable`."""
        keys = self._all()
        for key in keys:
            if key.id == sealed.key:
                return key.unseal(ns, name, sealed)
        known = ", ".join(key.id for key in keys)
        raise SecretUnreadable(name, f"it is encrypted with key {sealed.key}, and {self._source} has {known}")

    @property
    def first(self) -> str:
        """The id of the key that encrypts; raises `NoSecretsKey`."""
        return self._all()[0].id

    @property
    def _source(self) -> str:
        return KEYS_VARIABLE if self._given else str(self._path)

    def _all(self) -> tuple[SealingKey, ...]:
        if self._given:
            return self._given
        if self._path is None:
            raise NoSecretsKey("this deployment has no key")
        try:
            status = self._path.stat()
        except OSError as error:
            raise NoSecretsKey(f"{self._path} cannot be read ({error.strerror})") from error
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)
        if stamp != self._stamp:
            self._keys = tuple(read_keys(self._path))
            self._stamp = stamp
        return self._keys


_TAKEN: list[tuple[SealingKey, ...]] = []
"""The keys that the environment of this process had, if they were taken out of it."""


def take_environment_keys(key_file: str = "") -> tuple[SealingKey, ...]:
    """Take the keys out of the environment, and return them; a process has them once. Raises `BadInput`."""
    text = os.environ.pop(KEYS_VARIABLE, None)
    if text is not None:
        words = text.replace(",", " ").split()
        if not words or not all(map(_KEY.fullmatch, words)):  # the value is not shown: it may be nearly a key
            raise BadInput(KEYS_VARIABLE, None, "keys of 64 hexadecimal digits, with blanks or commas between them")
        _TAKEN[:] = [tuple(SealingKey(bytes.fromhex(word)) for word in words)]
    if _TAKEN and key_file:
        raise BadInput("systems_secrets_key_file", key_file, f"empty where the environment has {KEYS_VARIABLE}")
    return _TAKEN[0] if _TAKEN else ()


def read_keys(path: Path) -> list[SealingKey]:
    """Return the keys of a file; raises `NoSecretsKey` if it has none, or something else."""
    try:
        lines = read_private_file(path).decode(errors="replace").splitlines()
    except UnusableFile as error:
        raise NoSecretsKey(error.why) from error
    keys = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text and not _KEY.fullmatch(text):
            raise NoSecretsKey(f"line {number} of {path} is not a key")
        if text:
            keys.append(SealingKey(bytes.fromhex(text)))
    if not keys:
        raise NoSecretsKey(f"{path} has no key")
    return keys
