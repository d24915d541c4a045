"""Service accounts by reference: only the reference to a secret is stored and shown, never the secret.

`env:PREFIX` means the variable PREFIX_SERVICE_ACCOUNT, with the path or the content of a service account's JSON file;
`file:PATH` means such a file. An empty reference means the credential that the library finds by itself. A reference is
read when the clients are created, and again after Google has rejected the credential.
"""

from os import environ
from pathlib import Path

import msgspec

from stateward.drivers.credential_fields import HIDDEN, CredentialMissing
from stateward.naming import is_credential_reference

VARIABLE = "SERVICE_ACCOUNT"
REFERENCE_MEANS = "env:PREFIX or file:PATH"
SHORTEST_SECRET = 8
"""Shorter lines of a private key are no secret, but parts of words."""


class AccountFile(msgspec.Struct, frozen=True, tag="service_account", tag_field="type"):
    """The fields that a service account's file must have."""

    client_email: str
    private_key: str
    token_uri: str
    project_id: str = ""
    private_key_id: str = ""

    def __repr__(self) -> str:
        return f"AccountFile({HIDDEN})"


_FILE_DECODER = msgspec.json.Decoder(AccountFile)  # threads use it: see the one of `MachineRecord`


class ServiceAccount:
    """A service account, whose secret only the library gets to see; without a file, the library finds one by itself."""

    __slots__ = ("_content", "_file")

    def __init__(self, content: str = "", file: AccountFile | None = None) -> None:
        self._content, self._file = content, file

    def __repr__(self) -> str:
        return f"ServiceAccount({HIDDEN})"

    @property
    def project(self) -> str:
        """The project of the account, if its file names one."""
        return "" if self._file is None else self._file.project_id

    def fields(self) -> dict[str, object] | None:
        """Return the fields of the file for the library; None if it must find a credential by itself."""
        if self._file is None:
            return None
        found: dict[str, object] = msgspec.json.decode(self._content)
        return found

    def hide(self, text: str) -> str:
        """Return a text without the secrets: an error message of the library may contain them."""
        if self._file is None:
            return text
        for value in (self._file.private_key, *self._file.private_key.splitlines(), self._file.private_key_id):
            text = text.replace(value, HIDDEN) if len(value) >= SHORTEST_SECRET else text
        return text


def read_service_account(reference: str) -> ServiceAccount:
    """Read the service account of a reference; raises `CredentialMissing`."""
    if not reference:
        return ServiceAccount()
    scheme, _, rest = reference.partition(":")
    if not is_credential_reference(reference):  # it may be the secret itself, so it is not shown
        raise CredentialMissing(HIDDEN, f"the reference must be {REFERENCE_MEANS}")
    return _from_environment(reference, rest) if scheme == "env" else _from_file(reference, Path(rest))


def _from_environment(reference: str, prefix: str) -> ServiceAccount:
    name = f"{prefix}_{VARIABLE}"
    value = environ.get(name, "").strip()
    if not value:
        raise CredentialMissing(reference, f"{name} is not set")
    return _account(reference, value) if value.startswith("{") else _from_file(reference, Path(value))


def _from_file(reference: str, path: Path) -> ServiceAccount:
    try:
        return _account(reference, path.read_text())
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise CredentialMissing(reference, f"the file cannot be read ({type(error).__name__})") from None


def _account(reference: str, content: str) -> ServiceAccount:
    try:
        return ServiceAccount(content, _FILE_DECODER.decode(content))
    except msgspec.DecodeError:  # its text may quote the content, so it is not shown
        raise CredentialMissing(reference, "the content is not the JSON file of a service account") from None
