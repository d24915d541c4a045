"""Credentials by reference: only the reference to a secret is stored and shown, never the secret.

`env:PREFIX` means the variables PREFIX_ACCESS_KEY_ID, PREFIX_SECRET_ACCESS_KEY and, if set, PREFIX_SESSION_TOKEN;
`file:PATH` or `file:PATH#PROFILE` means an ini or JSON file with the field names of AWS's own credentials file. An
empty reference means the credential that boto3 finds by itself. A reference is read when a client is created, and again
after EC2 has rejected the credential.
"""

from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as IniError
from os import environ
from pathlib import Path
from typing import Literal

import msgspec

from stateward.errors import StatewardError
from stateward.naming import CREDENTIAL_REFERENCE_MEANS, is_credential_reference

HIDDEN = "(hidden)"


class CredentialMissing(StatewardError):
    """A reference leads to no usable credential."""

    reference: str
    reason: str
    text = "no credential under {reference!r}: {reason}"


class Credential:
    """A secret that only the SDK gets to see."""

    __slots__ = ("_access", "_secret", "_session")

    def __init__(self, access: str = "", secret: str = "", session: str = "") -> None:
        self._access, self._secret, self._session = access, secret, session

    def __repr__(self) -> str:
        return f"Credential({HIDDEN})"

    def keywords(self) -> dict[str, str]:
        """Return the arguments of the SDK; empty if the SDK must find a credential by itself."""
        pairs = {
            "aws_access_key_id": self._access,
            "aws_secret_access_key": self._secret,
            "aws_session_token": self._session,
        }
        return {name: value for name, value in pairs.items() if value}

    def hide(self, text: str) -> str:
        """Return a text without the secrets: an error message of the SDK may contain them."""
        for value in (self._secret, self._session, self._access):
            text = text.replace(value, HIDDEN) if value else text
        return text


def read_credential(reference: str) -> Credential:
    """Read the credential of a reference; raises `CredentialMissing`."""
    scheme, _, rest = reference.partition(":")
    if not reference:
        return Credential()
    if not is_credential_reference(reference):  # it may be the secret itself, so it is not shown
        raise CredentialMissing(HIDDEN, f"the reference must be {CREDENTIAL_REFERENCE_MEANS}")
    return _from_environment(reference, rest) if scheme == "env" else _from_file(reference, rest)


def _from_environment(reference: str, prefix: str) -> Credential:
    names = [f"{prefix}_{name}" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")]
    return _credential(reference, environ, names, "is not set")


def _from_file(reference: str, rest: str) -> Credential:
    name, _, profile = rest.partition("#")
    path = Path(name)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialMissing(reference, f"the file cannot be read ({type(error).__name__})") from None
    form: Literal["JSON", "ini"] = "JSON" if text.lstrip().startswith("{") else "ini"
    try:
        profiles = _json_profiles(text) if form == "JSON" else _ini_profiles(text)
    except (IniError, msgspec.DecodeError):  # their texts quote the file, so they are not shown
        raise CredentialMissing(reference, f"the file is not {form}") from None
    return _of_profile(reference, profiles, profile or "default")


def _of_profile(reference: str, profiles: Mapping[str, Mapping[str, str]], profile: str) -> Credential:
    if profile not in profiles:
        raise CredentialMissing(reference, f"there is no profile {profile!r} in the file")
    names = ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"]
    return _credential(reference, profiles[profile], names, f"is missing in profile {profile!r}")


def _credential(reference: str, values: Mapping[str, str], names: Sequence[str], problem: str) -> Credential:
    """Return the credential under three names, of which the last, the session token, may be missing."""
    for name in names[:2]:
        if not values.get(name):
            raise CredentialMissing(reference, f"{name} {problem}")
    return Credential(*(values.get(name, "") for name in names))


def _ini_profiles(text: str) -> dict[str, dict[str, str]]:
    parser = ConfigParser(interpolation=None)  # secrets may contain a percent sign
    parser.read_string(text)
    return {section: dict(parser[section]) for section in parser.sections()}


def _json_profiles(text: str) -> dict[str, dict[str, str]]:
    found = msgspec.json.decode(text, type=dict[str, str | dict[str, str]])
    flat = {name: value for name, value in found.items() if isinstance(value, str)}
    return {name: value for name, value in found.items() if isinstance(value, dict)} | (
        {"default": flat} if flat else {}
    )
