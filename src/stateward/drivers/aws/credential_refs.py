"""Credentials of AWS by reference.

`env:PREFIX` means the variables PREFIX_ACCESS_KEY_ID, PREFIX_SECRET_ACCESS_KEY and, if set, PREFIX_SESSION_TOKEN; a
file has the field names of AWS's own credentials file. An empty reference means the credential that boto3 finds by
itself. A reference is read when a client is created, and again after EC2 has rejected the credential.
"""

from stateward.drivers.credential_fields import HIDDEN, CredentialField, CredentialMissing, read_fields

__all__ = ["HIDDEN", "Credential", "CredentialMissing", "read_credential"]

FIELDS = (
    CredentialField("aws_access_key_id", "ACCESS_KEY_ID"),
    CredentialField("aws_secret_access_key", "SECRET_ACCESS_KEY"),
    CredentialField("aws_session_token", "SESSION_TOKEN", is_required=False),
)


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
    return Credential(*read_fields(reference, FIELDS).values()) if reference else Credential()
