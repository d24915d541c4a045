"""Keys of Tumblebug's own store, such as `/ns/default/mci/m1/vm/g1-1`, of the objects that this server has.

Its API shows them where an object names another one.
"""

from stateward.domains.mci.lifecycle import IMAGE, MCI, SPEC, VM
from stateward.domains.mci.model import RESOURCE_TYPES, image_record, resource_identity, spec_record, vm_of
from stateward.store.records import Object


def tumblebug_key(record: Object) -> str:
    """Return the key of an MCI, a VM, a resource, a spec or an image."""
    if record.kind == MCI.kind:
        return f"/ns/{record.ns}/mci/{record.id}"
    if record.kind == VM.kind:
        vm = vm_of(record)
        return f"/ns/{record.ns}/mci/{vm.mci}/vm/{vm.name}"
    if record.kind == SPEC.kind:
        return f"/ns/{record.ns}/resources/spec/{spec_record(record).id}"
    if record.kind == IMAGE.kind:
        return f"/ns/{record.ns}/resources/image/{image_record(record).id}"
    return f"/ns/{record.ns}/resources/{RESOURCE_TYPES[record.kind]}/{resource_identity(record).name}"


PRESENT_SEGMENTS = {"mci": "infra", "vm": "node", "subGroup": "nodeGroup"}
OLDER_SEGMENTS = {new: old for old, new in PRESENT_SEGMENTS.items()}
"""The types of objects in keys, by their names in the other release."""


def present_key(key: str) -> str:
    """Return a key with the names of Tumblebug's present release."""
    return _renamed(key, PRESENT_SEGMENTS)


def older_key(key: str) -> str:
    """Return a key, or the beginning of one, with the older names."""
    return _renamed(key, OLDER_SEGMENTS)


def _renamed(key: str, names: dict[str, str]) -> str:
    """Return a key whose types of objects have other names: `/ns/NAMESPACE/TYPE/NAME/TYPE/NAME`."""
    parts = key.split("/")
    if parts[1] != "ns" or len(parts) < 4 or parts[3] not in names:
        return key
    return "/".join(names.get(part, part) if number in (3, 5) else part for number, part in enumerate(parts))
