"""Credentials by reference: only the reference to a secret is stored and shown, never the secret.

`env:PREFIX` means variables that begin with the prefix; `file:PATH` or `file:PATH#PROFILE` means an ini or JSON file. A
driver says which fields it needs. No error quotes a value, and a reference that is none is not shown: it may be the
secret itself.
"""

import os
import stat
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
MAX_FILE_BYTES = 1 << 20


class CredentialMissing(StatewardError):
    """A reference leads to no usable credential."""

    reference: str
    reason: str
    text = "no credential under {reference!r}: {reason}"


class NotAFile(OSError):
    """What is to have a credential is no regular file, or a very large one."""


class CredentialField(msgspec.Struct, frozen=True):
    """A field of a credential: its name in a file, and how its variable ends."""

    name: str
    variable: str
    is_required: bool = True


def read_fields(reference: str, fields: Sequence[CredentialField]) -> dict[str, str]:
    """Read the fields of a credential, by name; raises `CredentialMissing`."""
    if not is_credential_reference(reference):
        raise CredentialMissing(HIDDEN, f"the reference must be {CREDENTIAL_REFERENCE_MEANS}")
    scheme, _, rest = reference.partition(":")
    if scheme == "env":
        names = {field: f"{rest}_{field.variable}" for field in fields}
        return _values(reference, environ, names, "is not set")
    path, _, profile = rest.partition("#")
    values = _profile(reference, Path(path), profile or "default")
    problem = f"is missing in profile {profile or 'default'!r}"
    return _values(reference, values, {field: field.name for field in fields}, problem)


def _values(
    reference: str, source: Mapping[str, str], names: Mapping[CredentialField, str], problem: str
) -> dict[str, str]:
    for field, name in names.items():
        if field.is_required and not source.get(name):
            raise CredentialMissing(reference, f"{name} {problem}")
    return {field.name: source.get(name, "") for field, name in names.items()}


def _profile(reference: str, path: Path, profile: str) -> Mapping[str, str]:
    text = read_text(reference, path)
    form: Literal["JSON", "ini"] = "JSON" if text.lstrip().startswith("{") else "ini"
    try:
        profiles = _json_profiles(text) if form == "JSON" else _ini_profiles(text)
    except (IniError, msgspec.DecodeError):  # their texts quote the file, so they are not shown
        raise CredentialMissing(reference, f"the file is not {form}") from None
    if profile not in profiles:
        raise CredentialMissing(reference, f"there is no profile {profile!r} in the file")
    return profiles[profile]


def read_text(reference: str, path: Path) -> str:
    """Return the content of a file; raises `CredentialMissing`."""
    try:
        # whoever names a pipe or a device neither stops the reader nor takes its memory
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotAFile
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise NotAFile
        return content.decode()
    except (OSError, ValueError) as error:
        raise CredentialMissing(reference, f"the file cannot be read ({type(error).__name__})") from None


def _ini_profiles(text: str) -> dict[str, dict[str, str]]:
    parser = ConfigParser(interpolation=None)  # secrets may contain a percent sign
    parser.read_string(text)
    return {section: dict(parser[section]) for section in parser.sections()}


_PROFILES_DECODER = msgspec.json.Decoder(dict[str, str | dict[str, str]])


def _json_profiles(text: str) -> dict[str, dict[str, str]]:
    decoded = _PROFILES_DECODER.decode(text)
    flat = {name: value for name, value in decoded.items() if isinstance(value, str)}
    return {name: value for name, value in decoded.items() if isinstance(value, dict)} | (
        {"default": flat} if flat else {}
    )
