"""Machines as documents of Nova's API, and their states in the words of the port: pure functions and tables.

The key of a machine is in its metadata. It is in its description too: Nova forgets the metadata of a server when it is
deleted, and a key whose server was deleted must not get a second one.

Nova has two states for a server: `vm_state` is the last stable one, `task_state` is what is being done to it. Neither
alone tells where a server is: an active server whose task is `suspending` is on its way, and a building server without
a task is between two steps. A combination that is not in these tables is `OTHER`, never a guess.
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from stateward.drivers.cloud.machines import KEY_TAG
from stateward.drivers.cloud_config import login_user_data
from stateward.drivers.openstack.errors import fault_reason
from stateward.drivers.port import MachineSpec, MachineState, Observation, ResourceKind

KEY_TEXT = "stateward:"
"""What the description of everything that the driver creates begins with; the key follows."""

SCHEDULING = "scheduling"
"""The task of a server until Nova has found a cell and a host for it."""

MAX_TEXT = 255
"""The longest value of metadata, and the longest description."""


STABLE = {
    "building":          MachineState.PENDING,
    "active":            MachineState.RUNNING,
    "paused":            MachineState.SUSPENDED,
    "suspended":         MachineState.SUSPENDED,
    "stopped":           MachineState.SUSPENDED,
    "resized":           MachineState.RUNNING,
    "soft-delete":       MachineState.TERMINATED,
    "deleted":           MachineState.TERMINATED,
    "error":             MachineState.FAILED,
}  # fmt: skip
"""What a server without a task is; rescued and shelved ones are for their owners to bring back."""

TASKS = {
    "suspending":              MachineState.SUSPENDING,
    "pausing":                 MachineState.SUSPENDING,
    "powering-off":            MachineState.SUSPENDING,
    "resuming":                MachineState.RESUMING,
    "unpausing":               MachineState.RESUMING,
    "powering-on":             MachineState.RESUMING,
    "rebooting":               MachineState.REBOOTING,
    "reboot_pending":          MachineState.REBOOTING,
    "reboot_started":          MachineState.REBOOTING,
    "rebooting_hard":          MachineState.REBOOTING,
    "reboot_pending_hard":     MachineState.REBOOTING,
    "reboot_started_hard":     MachineState.REBOOTING,
    "deleting":                MachineState.TERMINATING,
    "soft-deleting":           MachineState.TERMINATING,
    "rebuilding":              MachineState.PENDING,
    "rebuild_block_device_mapping": MachineState.PENDING,
    "rebuild_spawning":        MachineState.PENDING,
}  # fmt: skip
"""What a server is while something is done to it, whatever it was before."""

HARMLESS_TASKS = frozenset(
    {
        "image_snapshot",
        "image_snapshot_pending",
        "image_pending_upload",
        "image_uploading",
        "image_backup",
        "migrating",
        "updating_password",
        "resize_prep",
    }
)
"""Tasks during which a server stays what it is."""

STATUSES = {
    "ACTIVE": "active",
    "BUILD": "building",
    "DELETED": "deleted",
    "ERROR": "error",
    "PAUSED": "paused",
    "SHUTOFF": "stopped",
    "SOFT_DELETED": "soft-delete",
    "SUSPENDED": "suspended",
}
"""The `vm_state` of a status, for clouds whose policies hide the extended states."""


class ServerPlan(Struct, frozen=True):
    """What a create needs besides the spec, as the cloud knows it: ids, the zone, and whether there is a drive."""

    flavor: str
    image: str
    network: str = ""
    zone: str = ""
    config_drive: bool = False


def described_key(document: Mapping[str, Any]) -> str:
    """Return the key in the description of a server or a resource; empty if it is not ours."""
    text = str(document.get("description") or "")
    return text.removeprefix(KEY_TEXT) if text.startswith(KEY_TEXT) else ""


def key_of(server: Mapping[str, Any]) -> str:
    """Return the key of a server; empty if it is not ours."""
    key = str((server.get("metadata") or {}).get(KEY_TAG) or "")
    return key or (described_key(server) if server.get("status") == "DELETED" else "")


def create_body(spec: MachineSpec, plan: ServerPlan) -> dict[str, object]:
    """Return the request that creates a server; tags become metadata, and cannot replace the key.

    Raises `BadInput` for keys that may log in and are none.
    """
    server: dict[str, object] = {
        "name": spec.name,
        "flavorRef": plan.flavor,
        "imageRef": plan.image,
        "networks": [{"uuid": plan.network}] if plan.network else "auto",
        "metadata": {**spec.tags, KEY_TAG: spec.key},
        "description": f"{KEY_TEXT}{spec.key}",
    }
    if plan.zone:
        server["availability_zone"] = plan.zone
    if groups := spec.resources.get(ResourceKind.SECURITY_GROUP):
        server["security_groups"] = [{"name": group} for group in groups.split(",")]
    if key := spec.resources.get(ResourceKind.SSH_KEY):
        server["key_name"] = key
    if user_data := login_user_data(spec):
        server["user_data"] = b64encode(user_data.encode()).decode()
    if plan.config_drive:
        server["config_drive"] = True
    if spec.disk_gib is not None:
        server["imageRef"] = ""
        server["block_device_mapping_v2"] = [_boot_volume(plan.image, spec.disk_gib)]
    return {"server": server}


def _boot_volume(image: str, gib: int) -> dict[str, object]:
    """Return a volume to boot from: the disk of a flavor cannot have another size."""
    return {
        "boot_index": 0,
        "uuid": image,
        "source_type": "image",
        "destination_type": "volume",
        "volume_size": gib,
        "delete_on_termination": True,
    }


def states_of(server: Mapping[str, Any]) -> tuple[str, str]:
    """Return a server's `vm_state` and `task_state`; the status stands in where a policy hides them."""
    status = str(server.get("status") or "")
    vm_state = str(server.get("OS-EXT-STS:vm_state") or STATUSES.get(status, status.lower()))
    return vm_state, str(server.get("OS-EXT-STS:task_state") or "")


def observation(server: Mapping[str, Any]) -> Observation:
    """Return a server as the observation of the port."""
    vm_state, task_state = states_of(server)
    fault = str((server.get("fault") or {}).get("message") or "").strip()
    image = server.get("image") or {}
    details = {
        "spec": (server.get("flavor") or {}).get("original_name"),
        "image": image.get("id") if isinstance(image, Mapping) else "",
        "zone": server.get("OS-EXT-AZ:availability_zone"),
        "created": server.get("created"),
        "reason": fault,
        "cause": fault_reason(fault),
    }
    every = [address for network in (server.get("addresses") or {}).values() for address in network]
    every.sort(key=lambda address: int(address.get("version", 4)))
    first = {str(address.get("OS-EXT-IPS:type")): str(address.get("addr", "")) for address in reversed(every)}
    public, private = first.get("floating") or str(server.get("accessIPv4") or ""), first.get("fixed", "")
    return Observation(
        key=key_of(server),
        native_id=str(server["id"]),
        state=machine_state(vm_state, task_state),
        native_state=native_state(vm_state, task_state),
        name=str(server.get("name") or ""),
        public_ip=public,
        private_ip=private,
        details={name: str(value) for name, value in details.items() if value},
    )


def is_scheduling(server: Mapping[str, Any]) -> bool:
    """Tell whether a listed server may be in no cell yet; where a policy hides its task, its status says so."""
    return server.get("status") == "BUILD" and server.get("OS-EXT-STS:task_state", SCHEDULING) == SCHEDULING


def is_unreadable(server: Mapping[str, Any]) -> bool:
    """Tell whether a listed server is in a cell that is down: Nova shows its id and hardly more."""
    return server.get("status") == "UNKNOWN" and "metadata" not in server


def machine_state(vm_state: str, task_state: str) -> MachineState:
    """Return what a server is, by its two states."""
    if vm_state in ("deleted", "soft-delete"):
        return MachineState.TERMINATED
    if not task_state or task_state in HARMLESS_TASKS or (vm_state == "building" and task_state not in TASKS):
        return STABLE.get(vm_state, MachineState.OTHER)
    return TASKS.get(task_state, MachineState.OTHER)


def native_state(vm_state: str, task_state: str) -> str:
    """Return both states as one text."""
    return f"{vm_state}/{task_state}" if task_state else vm_state
