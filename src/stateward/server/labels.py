"""Changing an object's labels: a program of its own, because no action of a lifecycle does it."""

import msgspec
from msgspec.structs import replace

from stateward.engine import NotFound
from stateward.engine.errors import VersionMismatch
from stateward.engine.kinds import Kinds
from stateward.errors import BadInput
from stateward.store.changes import Changes
from stateward.store.port import Tx
from stateward.store.records import JournalEntry, Key, Object


async def relabel(
    tx: Tx, kinds: Kinds, key: Key, labels: dict[str, str], version: int | None, actor: str, who: str
) -> Object:
    """Replace an object's labels, if it still has the version that the caller has seen; labels as they are stay."""
    found = (await tx.objects([key])).get(key)
    if found is None or found.removed:
        raise NotFound(*key)
    if version is not None and version != found.version:
        raise VersionMismatch(found.id, version, found.version)
    _keep(kinds, found, labels)
    text = msgspec.json.encode(labels, order="sorted").decode()
    if text == found.labels:
        return found
    changed = replace(found, labels=text, version=found.version + 1)
    line = JournalEntry(found.ns, found.id, found.kind, None, tx.now, actor, who, "labels changed", None, None, None)
    await tx.apply(Changes(objects=[changed], journal=[line]))
    return changed


def _keep(kinds: Kinds, found: Object, labels: dict[str, str]) -> None:
    """Refuse to take away, or to change, a label by which the object's domain finds it."""
    former: dict[str, str] = msgspec.json.decode(found.labels)
    for name in sorted(kinds[found.kind].reserved_labels & former.keys()):
        if labels.get(name) != former[name]:
            raise BadInput("labels", labels, f"all that it needs: {name}={former[name]} is how its domain finds it")
