"""The few images of the test cloud, instead of the thousand that moto loads for each new world."""

from os import environ
from typing import Any

from moto.ec2.models import amis

IMAGE = "ami-00000000000000001"
OLDER = "ami-00000000000000002"
NEWER = "ami-00000000000000003"
ARM = "ami-00000000000000004"
NAME = "meadow-26.04"


def _image(native: str, name: str, architecture: str, day: int) -> dict[str, Any]:
    return {
        "ami_id": native,
        "name": name,
        "architecture": architecture,
        "creation_date": f"2026-01-{day:02}T00:00:00.000Z",
        "description": name,
        "image_type": "machine",
        "owner_id": "801119661308",
        "public": True,
        "root_device_name": "/dev/xvda",
        "root_device_type": "ebs",
        "sriov": "simple",
        "state": "available",
        "virtualization_type": "hvm",
        "hypervisor": "xen",
    }


def use_few_images() -> None:
    """Let new worlds have these images and no others."""
    environ["MOTO_AMIS_PATH"] = "in-memory"  # moto takes it for the sign that its own are not wanted
    amis.AMIS[:] = [
        _image(IMAGE, "hill-26.04", "x86_64", 1),
        _image(OLDER, NAME, "x86_64", 2),
        _image(NEWER, NAME, "x86_64", 3),
        _image(ARM, "dune-26.04", "arm64", 4),
    ]
