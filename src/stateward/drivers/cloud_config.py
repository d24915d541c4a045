"""Documents for cloud-init: what a new machine does at its first start.

JSON is YAML too, so a value cannot break out of its place.
"""

from collections.abc import Mapping

import msgspec

from stateward.drivers.port import MachineSpec
from stateward.drivers.ssh_keys import authorized_keys_of


def cloud_config(fields: Mapping[str, object]) -> str:
    """Return the user data with these fields of a cloud-config."""
    return f"#cloud-config\n{msgspec.json.encode(fields).decode()}\n"


def login_user_data(machine_spec: MachineSpec) -> str:
    """Return the user data that lets further keys log in as the image's own user; empty if there are none."""
    keys = authorized_keys_of(machine_spec)
    return cloud_config({"ssh_authorized_keys": keys}) if keys else ""
