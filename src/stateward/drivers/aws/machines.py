"""Machines in the words of EC2, and back: pure, no calls."""

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


def tagged(sort: str, key: str, name: str, others: Mapping[str, str] | None = None) -> list[dict[str, object]]:
    """Return the tags as they are given along with a creation: there is no moment without them."""
    return [{"ResourceType": sort, "Tags": tags_of(key, name, others)}]


def key_of(described: Mapping[str, Any]) -> str:
    """Return the key that something carries, or nothing if it is not ours."""
    return _tag(described, KEY_TAG)


def launch(want: MachineSpec, image: str, root_device: str, zone: str) -> dict[str, object]:
    """Return the parameters that make a machine; the same want gives the same ones, as its token demands."""
    asked: dict[str, object] = {
        "ImageId": image,
        "InstanceType": want.spec,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": client_token(want.key),
        "TagSpecifications": tagged("instance", want.key, want.name, want.tags),
    }
    subnet, key = want.resources.get(ResourceKind.SUBNET), want.resources.get(ResourceKind.SSH_KEY)
    if subnet:
        asked["SubnetId"] = subnet  # it lies in a zone itself
    elif zone:
        asked["Placement"] = {"AvailabilityZone": zone}
    if groups := want.resources.get(ResourceKind.SECURITY_GROUP):
        asked["SecurityGroupIds"] = groups.split(",")
    if key:
        asked["KeyName"] = key
    if want.disk_gib is not None:
        disk = {"VolumeSize": want.disk_gib, "DeleteOnTermination": True}
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

CALLS = {
    MachineAction.SUSPEND: "stop_instances",
    MachineAction.RESUME: "start_instances",
    MachineAction.REBOOT: "reboot_instances",
    MachineAction.TERMINATE: "terminate_instances",
}
CHANGES = {
    MachineAction.SUSPEND: "StoppingInstances",
    MachineAction.RESUME: "StartingInstances",
    MachineAction.TERMINATE: "TerminatingInstances",
}
SO_ALREADY = {
    MachineAction.SUSPEND: {"stopping", "stopped"},
    MachineAction.RESUME: {"pending", "running"},
    MachineAction.REBOOT: set[str](),
    MachineAction.TERMINATE: {"shutting-down", "terminated"},
}


def needless(deed: MachineAction, answer: Mapping[str, Any]) -> set[str]:
    """Return the machines that an answer shows to have been there before."""
    changes = answer.get(CHANGES.get(deed, ""), ())
    return {one["InstanceId"] for one in changes if one.get("PreviousState", {}).get("Name") in SO_ALREADY[deed]}
