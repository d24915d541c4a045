"""Machines as parameters and answers of EC2: pure functions."""

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct

from stateward.drivers.cloud.machines import KEY_TAG
from stateward.drivers.cloud_config import login_user_data
from stateward.drivers.port import MachineAction, MachineSpec, MachineState, Observation, ResourceKind

STATES = {
    "pending": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "stopping": MachineState.SUSPENDING,
    "stopped": MachineState.SUSPENDED,
    "shutting-down": MachineState.TERMINATING,
    "terminated": MachineState.TERMINATED,
}


def client_token(key: str) -> str:
    """Return the client token of a key: 64 ASCII characters, whatever the key is."""
    return sha256(key.encode()).hexdigest()


def tags_of(key: str, name: str, others: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """Return the tags of a new resource; others cannot replace ours."""
    return [{"Key": tag, "Value": value} for tag, value in {**(others or {}), "Name": name, KEY_TAG: key}.items()]


def tag_specifications(
    sort: str, key: str, name: str, others: Mapping[str, str] | None = None
) -> list[dict[str, object]]:
    """Return the tags as a parameter of a create, so that the resource is never without them."""
    return [{"ResourceType": sort, "Tags": tags_of(key, name, others)}]


def key_of(described: Mapping[str, Any]) -> str:
    """Return the key of a described resource; empty if it is not ours."""
    return _tag(described, KEY_TAG)


def launch_parameters(machine_spec: MachineSpec, image: str, root_device: str, zone: str) -> dict[str, object]:
    """Return the parameters that create a machine; equal specs give equal ones, as the client token requires."""
    parameters: dict[str, object] = {
        "ImageId": image,
        "InstanceType": machine_spec.spec,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": client_token(machine_spec.key),
        "TagSpecifications": tag_specifications("instance", machine_spec.key, machine_spec.name, machine_spec.tags),
    }
    subnet, key = machine_spec.resources.get(ResourceKind.SUBNET), machine_spec.resources.get(ResourceKind.SSH_KEY)
    if subnet:
        parameters["SubnetId"] = subnet  # a subnet is in one zone
    elif zone:
        parameters["Placement"] = {"AvailabilityZone": zone}
    if groups := machine_spec.resources.get(ResourceKind.SECURITY_GROUP):
        parameters["SecurityGroupIds"] = groups.split(",")
    if key:
        parameters["KeyName"] = key
    if user_data := login_user_data(machine_spec):
        parameters["UserData"] = user_data  # boto3 encodes it
    if machine_spec.disk_gib is not None:
        disk = {"VolumeSize": machine_spec.disk_gib, "DeleteOnTermination": True}
        parameters["BlockDeviceMappings"] = [{"DeviceName": root_device, "Ebs": disk}]
    return parameters


def observation(described: Mapping[str, Any]) -> Observation:
    """Return a described instance as the observation of the port."""
    native_state = str(described.get("State", {}).get("Name", ""))
    details = {
        "spec": described.get("InstanceType"),
        "image": described.get("ImageId"),
        "zone": described.get("Placement", {}).get("AvailabilityZone"),
        "vpc": described.get("VpcId"),
        "subnet": described.get("SubnetId"),
        "reason": described.get("StateReason", {}).get("Message"),
    }
    return Observation(
        key=key_of(described),
        native_id=str(described["InstanceId"]),
        state=STATES.get(native_state, MachineState.OTHER),
        native_state=native_state,
        name=_tag(described, "Name"),
        public_ip=described.get("PublicIpAddress") or "",
        private_ip=described.get("PrivateIpAddress") or "",
        details={name: str(value) for name, value in details.items() if value},
    )


def _tag(described: Mapping[str, Any], name: str) -> str:
    return next((str(tag["Value"]) for tag in described.get("Tags", ()) if tag["Key"] == name), "")


# --- actions ---------------------------------------------------------------------------------------------------------


class ActionCall(Struct, frozen=True):
    """How EC2 carries out an action: the call, the field of its answer, and the states in which it is already done."""

    call: str
    answer_field: str
    done_states: Collection[str]


ACTION_CALLS = {
    MachineAction.SUSPEND:   ActionCall("stop_instances",      "StoppingInstances",    ("stopping", "stopped")),
    MachineAction.RESUME:    ActionCall("start_instances",     "StartingInstances",    ("pending", "running")),
    MachineAction.REBOOT:    ActionCall("reboot_instances",    "",                     ()),
    MachineAction.TERMINATE: ActionCall("terminate_instances", "TerminatingInstances", ("shutting-down", "terminated")),
}  # fmt: skip


def already_done_ids(action: MachineAction, answer: Mapping[str, Any]) -> set[str]:
    """Return the instances that were in the wanted state before the call, as its answer shows."""
    how = ACTION_CALLS[action]
    changes = answer.get(how.answer_field, ())
    return {
        change["InstanceId"] for change in changes if change.get("PreviousState", {}).get("Name") in how.done_states
    }
