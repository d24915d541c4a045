"""Machines as requests and answers of Compute Engine: pure functions.

The name of an instance is derived from its key, so a machine is addressed without a search, and Compute Engine itself
refuses a second one. The key is the label that listings are filtered by. A label has few characters, so the metadata
have the exact key and the exact name of the machine, too.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from stateward.drivers.gcp.names import KEY_LABEL, PREFIX, key_label, last_part, name_of, request_id
from stateward.drivers.gcp.settings import GceSettings
from stateward.drivers.port import MachineAction, MachineSpec, MachineState, Observation, ResourceKind
from stateward.drivers.ssh_keys import authorized_keys_of
from stateward.errors import BadInput

NAME_ITEM = f"{PREFIX}-name"
DEFAULT_USER = PREFIX
"""The user that gets the SSH key if a machine names none; the image's agent creates it."""

LABEL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")

STATES = {
    "PENDING": MachineState.PENDING,
    "PROVISIONING": MachineState.PENDING,
    "STAGING": MachineState.PENDING,
    "RUNNING": MachineState.RUNNING,
    "REPAIRING": MachineState.REBOOTING,  # after a fault of its host; then it runs again
    "SUSPENDING": MachineState.SUSPENDING,
    "SUSPENDED": MachineState.SUSPENDED,
    "PENDING_STOP": MachineState.SUSPENDING,
    "STOPPING": MachineState.SUSPENDING,
    "STOPPED": MachineState.SUSPENDED,
    "TERMINATED": MachineState.SUSPENDED,  # Google's word for stopped: it keeps its disk, and can be started
    "DEPROVISIONING": MachineState.TERMINATING,
}
STOPPED = ("TERMINATED", "STOPPED")
AT_REST = ("SUSPENDED", *STOPPED)
STARTING = ("PROVISIONING", "STAGING")


# --- creating --------------------------------------------------------------------------------------------------------


def insert_fields(
    machine_spec: MachineSpec, source_image: str, public_keys: Mapping[str, str], settings: GceSettings
) -> dict[str, object]:
    """Return the fields of the request that creates a machine; raises `BadInput` for a user that cannot be one."""
    groups = [group for group in machine_spec.resources.get(ResourceKind.SECURITY_GROUP, "").split(",") if group]
    disk: dict[str, object] = {"source_image": source_image}
    if machine_spec.disk_gib is not None:
        disk["disk_size_gb"] = machine_spec.disk_gib
    network, subnet = (machine_spec.resources.get(kind) for kind in (ResourceKind.NETWORK, ResourceKind.SUBNET))
    interface: dict[str, object] = {}
    if subnet:
        interface["subnetwork"] = f"regions/{settings.region}/subnetworks/{subnet}"
    elif network:
        interface["network"] = f"global/networks/{network}"
    if settings.has_public_address:
        interface["access_configs"] = [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}]
    items = {KEY_LABEL: machine_spec.key, NAME_ITEM: machine_spec.name}
    items["block-project-ssh-keys"] = "TRUE"  # keys of the whole project let nobody into our machines
    key = machine_spec.resources.get(ResourceKind.SSH_KEY)
    if keys := dict.fromkeys((*([public_keys[key]] if key else []), *authorized_keys_of(machine_spec))):
        user = machine_spec.user or DEFAULT_USER
        if not USER.fullmatch(user):
            raise BadInput("user", user, "the name of a user: letters, digits and . _ -")
        items |= {"ssh-keys": "\n".join(f"{user}:{public_key}" for public_key in keys), "enable-oslogin": "FALSE"}
    instance = {
        "name": name_of(machine_spec.key),
        "machine_type": f"zones/{settings.zone}/machineTypes/{machine_spec.spec}",
        "labels": labels_of(machine_spec, groups),
        "tags": {"items": groups},
        "metadata": {"items": [{"key": name, "value": value} for name, value in items.items()]},
        "disks": [{"boot": True, "auto_delete": True, "initialize_params": disk}],
        "network_interfaces": [interface],
    }
    return {"instance_resource": instance, "request_id": request_id("insert", machine_spec.key)}


def labels_of(machine_spec: MachineSpec, groups: Sequence[str]) -> dict[str, str]:
    """Return the labels of a machine; those of the user cannot replace ours. A group's label finds its machines."""
    labels = {_plain_label(name): _plain_label(value) for name, value in machine_spec.tags.items()}
    theirs = {
        name: value
        for name, value in labels.items()
        if LABEL_NAME.fullmatch(name) and not name.startswith(f"{PREFIX}-")
    }
    ours = {"name": _plain_label(machine_spec.name), KEY_LABEL: key_label(machine_spec.key)}
    return theirs | ours | dict.fromkeys(groups, "")


def _plain_label(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]


# --- observing -------------------------------------------------------------------------------------------------------


def key_of(instance: Any) -> str:  # noqa: ANN401 - the library's type
    """Return the key of an instance; empty if it is not ours."""
    label = str(instance.labels.get(KEY_LABEL, ""))
    written = _item(instance, KEY_LABEL)
    return written if written and key_label(written) == label else label


def observation(instance: Any, deleting: Collection[str] = ()) -> Observation:  # noqa: ANN401
    """Return an instance as the observation of the port; `deleting` are the names of those that we have deleted."""
    native_state, name = str(instance.status), str(instance.name)
    interface = next(iter(instance.network_interfaces), None)
    access = None if interface is None else next(iter(interface.access_configs), None)
    details = {
        "spec": last_part(instance.machine_type),
        "zone": last_part(instance.zone),
        "network": "" if interface is None else last_part(interface.network),
        "subnet": "" if interface is None else last_part(interface.subnetwork),
        "reason": str(instance.status_message),
    }
    return Observation(
        key=key_of(instance),
        native_id=name,
        state=_state(instance, native_state, is_deleting=name in deleting),
        native_state=native_state,
        name=_item(instance, NAME_ITEM) or name,
        public_ip="" if access is None else str(access.nat_i_p),
        private_ip="" if interface is None else str(interface.network_i_p),
        details={word: value for word, value in details.items() if value},
    )


def _state(instance: Any, native_state: str, *, is_deleting: bool) -> MachineState:  # noqa: ANN401
    state = STATES.get(native_state, MachineState.OTHER)
    if state is MachineState.SUSPENDING and native_state != "SUSPENDING" and is_deleting:
        return MachineState.TERMINATING  # Google shows a delete as STOPPING, like a stop
    has_rested = bool(instance.last_suspended_timestamp or instance.last_stop_timestamp)
    return MachineState.RESUMING if state is MachineState.PENDING and has_rested else state


def _item(instance: Any, name: str) -> str:  # noqa: ANN401
    return next((str(item.value) for item in instance.metadata.items if item.key == name), "")


# --- actions ---------------------------------------------------------------------------------------------------------


class InstanceAction(Struct, frozen=True):
    """How Compute Engine carries out an action: the call, and the states in which it is done or possible."""

    call: str
    done_states: Collection[str]
    possible_states: Collection[str]


ACTIONS = {
    #                                        call                 done in                       possible in
    MachineAction.SUSPEND:   InstanceAction("instances.suspend", ("SUSPENDING", *AT_REST),     ("RUNNING",)),
    MachineAction.RESUME:    InstanceAction("instances.resume",  (*STARTING, "RUNNING"),       ("SUSPENDED",)),
    MachineAction.REBOOT:    InstanceAction("instances.reset",   (),                           ("RUNNING",)),
    MachineAction.TERMINATE: InstanceAction("instances.delete",  (),                           tuple(STATES)),
}  # fmt: skip
