"""Machines as parameters and answers of EC2 (pure)."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from stateward.drivers.port import MachineAction, MachineSpec, MachineState, Observation, ResourceKind

KEY_TAG = "stateward:key"
"""What carries the key on everything that is made."""

STATES = {
    "pending": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "stopping": MachineState.SUSPENDING,
    "stopped": MachineState.SUSPENDED,
    "shutting-down": MachineState.TERMINATING,
    "terminated": MachineState.TERMINATED,
}
GONE = frozenset({MachineState.TERMINATING, MachineState.TERMINATED})


def client_token(key: str) -> str:
    """Derive the token under which a key's machine is asked for: 64 ASCII characters, whatever the key."""
    return sha256(key.encode()).hexdigest()


def tags_of(key: str, name: str, others: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """Return the tags of something that is made; ours cannot be overruled."""
    return [{"Key": word, "Value": value} for word, value in {**(others or {}), "Name": name, KEY_TAG: key}.items()]


def tag_specifications(
    sort: str, key: str, name: str, others: Mapping[str, str] | None = None
) -> list[dict[str, object]]:
    """Return the tags as they are given along with a creation: there is no moment without them."""
    return [{"ResourceType": sort, "Tags": tags_of(key, name, others)}]


def key_of(described: Mapping[str, Any]) -> str:
    """Return the key that something carries, or nothing if it is not ours."""
    return _tag(described, KEY_TAG)


def launch_parameters(machine_spec: MachineSpec, image: str, root_device: str, zone: str) -> dict[str, object]:
    """Return the parameters that make a machine; the same want gives the same ones, as its token demands."""
    asked: dict[str, object] = {
        "ImageId": image,
        "InstanceType": machine_spec.spec,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": client_token(machine_spec.key),
        "TagSpecifications": tag_specifications("instance", machine_spec.key, machine_spec.name, machine_spec.tags),
    }
    subnet, key = machine_spec.resources.get(ResourceKind.SUBNET), machine_spec.resources.get(ResourceKind.SSH_KEY)
    if subnet:
        asked["SubnetId"] = subnet  # it lies in a zone itself
    elif zone:
        asked["Placement"] = {"AvailabilityZone": zone}
    if groups := machine_spec.resources.get(ResourceKind.SECURITY_GROUP):
        asked["SecurityGroupIds"] = groups.split(",")
    if key:
        asked["KeyName"] = key
    if machine_spec.disk_gib is not None:
        disk = {"VolumeSize": machine_spec.disk_gib, "DeleteOnTermination": True}
        asked["BlockDeviceMappings"] = [{"DeviceName": root_device, "Ebs": disk}]
    return asked


def observation(described: Mapping[str, Any]) -> Observation:
    """Return a machine as the port shows it."""
    word = str(described.get("State", {}).get("Name", ""))
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
        state=STATES.get(word, MachineState.OTHER),
        native_state=word,
        name=_tag(described, "Name"),
        public_ip=described.get("PublicIpAddress") or "",
        private_ip=described.get("PrivateIpAddress") or "",
        details={name: str(value) for name, value in details.items() if value},
    )


def _tag(described: Mapping[str, Any], name: str) -> str:
    return next((str(tag["Value"]) for tag in described.get("Tags", ()) if tag["Key"] == name), "")


# --- deeds -----------------------------------------------------------------------------------------------------------

ACTION_CALLS = {
    MachineAction.SUSPEND: "stop_instances",
    MachineAction.RESUME: "start_instances",
    MachineAction.REBOOT: "reboot_instances",
    MachineAction.TERMINATE: "terminate_instances",
}
ANSWER_FIELDS = {
    MachineAction.SUSPEND: "StoppingInstances",
    MachineAction.RESUME: "StartingInstances",
    MachineAction.TERMINATE: "TerminatingInstances",
}
DONE_STATES = {
    MachineAction.SUSPEND: {"stopping", "stopped"},
    MachineAction.RESUME: {"pending", "running"},
    MachineAction.REBOOT: set[str](),
    MachineAction.TERMINATE: {"shutting-down", "terminated"},
}


def already_done_ids(action: MachineAction, answer: Mapping[str, Any]) -> set[str]:
    """Return the machines that an answer shows to have been there before."""
    changes = answer.get(ANSWER_FIELDS.get(action, ""), ())
    return {one["InstanceId"] for one in changes if one.get("PreviousState", {}).get("Name") in DONE_STATES[action]}
