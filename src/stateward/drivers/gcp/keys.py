"""SSH keys, which Compute Engine has no resource for: entries of the project's metadata, named by our keys.

A key must outlive this process, be listed, and be found by every server. The metadata of the project are the one place
that Compute Engine itself keeps for keys, and every change of them is a compare-and-set by a fingerprint. An entry of
ours is not one that Google's agents read (`ssh-keys`): it opens no machine. A machine that is created with a key gets
the public key in its own metadata, and shuts out those of the project. A private key is made here, and returned once.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from stateward.drivers import port
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.cloud.networks import key_pair_of
from stateward.drivers.gcp.client import GceClient
from stateward.drivers.gcp.names import PREFIX, ResourceRecord, digest_of, read_record, write_record

ENTRY_PREFIX = f"{PREFIX}-ssh-"
MAX_ATTEMPTS = 5
"""How often a change of the metadata is tried, if others change them at the same time."""

CHANGED = 412
"""The status of an answer to a change of metadata that others have changed meanwhile."""


class ProjectKeys:
    """The SSH keys in the metadata of a project; one change at a time."""

    def __init__(self, calls: GceClient) -> None:
        self._calls = calls
        self._lock = asyncio.Lock()

    async def ensure(self, resource: port.CloudResource) -> port.Outcome:
        """Find a key, or create it; raises `CloudCallFailed`."""
        entry = entry_name(resource.key)
        pair = key_pair_of(resource)
        text = write_record(resource, (await self._calls.settings()).region, pair.public)
        if not await self._change(entry, text):
            return port.AlreadyDone(resource.key, entry)
        return port.CallAccepted(resource.key, entry, pair.private)

    async def remove(self, resource: port.CloudResource) -> port.Outcome:
        """Remove a key; machines that were created with it keep it. Raises `CloudCallFailed`."""
        entry = entry_name(resource.key)
        return (port.CallAccepted if await self._change(entry, None) else port.AlreadyDone)(resource.key, entry)

    async def listing(self, region: str) -> list[port.CloudResource]:
        """List the keys that were made for a region; raises `CloudCallFailed`."""
        entries = await self._entries()
        return [
            port.CloudResource(port.ResourceKind.SSH_KEY, record.key, record.name, native_id=entry)
            for entry, record in entries.items()
            if record.region == region
        ]

    async def public_keys(self) -> Mapping[str, str]:
        """Return the public keys by the names of their entries; raises `CloudCallFailed`."""
        return {entry: record.public_key for entry, record in (await self._entries()).items()}

    async def _entries(self) -> dict[str, ResourceRecord]:
        project = await self._calls.call("projects.get")
        return {
            str(item.key): record
            for item in project.common_instance_metadata.items
            if item.key.startswith(ENTRY_PREFIX) and (record := read_record(item.value)) is not None
        }

    async def _change(self, entry: str, text: str | None) -> bool:
        """Add an entry, or remove it (None); tells whether there was anything to do."""
        async with self._lock:
            for _ in range(MAX_ATTEMPTS):
                metadata = (await self._calls.call("projects.get")).common_instance_metadata
                if any(item.key == entry for item in metadata.items) == (text is not None):
                    return False
                try:
                    await self._calls.change(
                        "projects.set_common_instance_metadata", metadata_resource=_changed(metadata, entry, text)
                    )
                except CloudCallFailed as failed:
                    if failed.status != CHANGED:
                        raise
                else:
                    return True
        busy = port.TransientFailure("", "others change the metadata of the project at the same time")
        raise CloudCallFailed("projects.set_common_instance_metadata", "conditionNotMet", busy, CHANGED)


def entry_name(key: str) -> str:
    """Return the name of the entry of an SSH key."""
    return f"{ENTRY_PREFIX}{digest_of(key)}"


def _changed(metadata: Any, entry: str, text: str | None) -> dict[str, object]:  # noqa: ANN401 - the library's type
    """Return the metadata with an entry, or without it; all others stay as they are."""
    items = [{"key": item.key, "value": item.value} for item in metadata.items if item.key != entry]
    if text is not None:
        items.append({"key": entry, "value": text})
    return {"fingerprint": metadata.fingerprint, "items": items}
