"""Keys of Tumblebug's own store, such as `/ns/default/mci/m1/vm/g1-1`, of the objects that this server has.

Its API shows them where an object names another one.
"""

from stateward.domains.mci.lifecycle import IMAGE, MCI, SPEC, VM
from stateward.domains.mci.model import RESOURCE_TYPES, image_record, resource_identity, spec_record, vm_of
from stateward.store.records import Object


def tumblebug_key(found: Object) -> str:
    """Return the key of an MCI, a VM, a resource, a spec or an image."""
    if found.kind == MCI.kind:
        return f"/ns/{found.ns}/mci/{found.id}"
    if found.kind == VM.kind:
        vm = vm_of(found)
        return f"/ns/{found.ns}/mci/{vm.mci}/vm/{vm.name}"
    if found.kind == SPEC.kind:
        return f"/ns/{found.ns}/resources/spec/{spec_record(found).id}"
    if found.kind == IMAGE.kind:
        return f"/ns/{found.ns}/resources/image/{image_record(found).id}"
    return f"/ns/{found.ns}/resources/{RESOURCE_TYPES[found.kind]}/{resource_identity(found).name}"


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
    return "/".join(names.get(one, one) if number in (3, 5) else one for number, one in enumerate(parts))
