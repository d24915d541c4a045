"""The key pairs of Nova, which belong to the user of the login.

A key pair has no field for a key of ours, so its name contains it. Nova refuses a second one of the same name. The
driver makes the pair itself, because newer Novas make none. The private key leaves this process in the outcome only.
"""

from urllib.parse import quote

from stateward.drivers.cloud.errors import CloudCallFailed, found_or_none
from stateward.drivers.cloud.networks import key_pair_of
from stateward.drivers.openstack.client import ApiCall, OpenStackClient
from stateward.drivers.openstack.states import MAX_TEXT
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CloudResource,
    Outcome,
    RefusalReason,
    ResourceKind,
)

START = "stateward-"


def keypair_name(resource: CloudResource) -> str:
    """Return the name of a key pair: for people first, and with the key in hexadecimal at its end."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in resource.name)
    return f"{START}{plain[:60]}-{resource.key.encode().hex()}"


def key_in_name(name: str) -> str:
    """Return the key in the name of a key pair; empty if it is not ours."""
    if not name.startswith(START):
        return ""
    try:
        return bytes.fromhex(name.rpartition("-")[2]).decode()
    except ValueError:
        return ""


class Keypairs:
    """Finds, creates and removes key pairs."""

    def __init__(self, calls: OpenStackClient) -> None:
        self._calls = calls

    async def ensure(self, resource: CloudResource) -> Outcome:
        """Create a key pair, unless there is one of its name; a secret whose answer was lost is lost."""
        name = keypair_name(resource)
        if len(name) > MAX_TEXT:
            return CallRefused(resource.key, RefusalReason.INVALID, "the key is too long for the name of a key pair")
        if any(other.native_id == name for other in await self.listing()):
            return AlreadyDone(resource.key, name)
        pair = key_pair_of(resource)
        body = {"keypair": {"name": name, "type": "ssh", "public_key": pair.public}}
        try:
            await self._calls.call(ApiCall("CreateKeypair", "compute", "POST", "/os-keypairs", body))
        except CloudCallFailed as failed:
            if failed.why is RefusalReason.CONFLICT:  # somebody else has just made it
                return AlreadyDone(resource.key, name)
            raise
        return CallAccepted(resource.key, name, pair.private)

    async def remove(self, resource: CloudResource) -> Outcome:
        """Remove the key pairs that carry a key."""
        names = [pair.native_id for pair in await self.listing() if pair.key == resource.key]
        deleted = [await self._delete(name) for name in names]
        return (CallAccepted if any(deleted) else AlreadyDone)(resource.key, resource.native_id)

    async def listing(self) -> list[CloudResource]:
        """List our key pairs."""
        call = ApiCall("ListKeypairs", "compute", "GET", "/os-keypairs")
        names = [str(pair["keypair"]["name"]) async for page in self._calls.pages(call, "keypairs") for pair in page]
        pairs = [(key_in_name(name), name) for name in names]
        return [CloudResource(ResourceKind.SSH_KEY, key, "", native_id=name) for key, name in pairs if key]

    async def _delete(self, name: str) -> bool:
        path = f"/os-keypairs/{quote(name, safe='')}"
        call = self._calls.call(ApiCall("DeleteKeypair", "compute", "DELETE", path))
        return await found_or_none(call) is not None
