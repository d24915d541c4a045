"""The catalogue of the simulated providers: regions, machine sizes with prices, and images.

The names are the providers' own; the prices are close to those in the first of their regions, in dollars an hour.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct


class SimulatedSpec(Struct, frozen=True):
    """A size of machine."""

    name: str
    vcpu: int
    memory_gib: float
    cost: float  # dollars an hour


class SimulatedImage(Struct, frozen=True):
    """An image that a machine boots from."""

    name: str
    system: str


REGIONS: Mapping[str, Sequence[str]] = {
    "aws": ("ap-northeast-2", "ap-northeast-1", "ap-southeast-1", "us-east-1", "us-west-2", "eu-central-1"),
    "azure": ("koreacentral", "japaneast", "southeastasia", "eastus", "westus2", "westeurope"),
    "gcp": ("asia-northeast3", "asia-northeast1", "asia-southeast1", "us-central1", "us-east1", "europe-west1"),
    "alibaba": ("ap-northeast-2", "ap-northeast-1", "cn-hongkong", "us-east-1", "eu-central-1"),
    "ncp": ("kr", "jpn", "sgn"),
    "openstack": ("RegionOne", "RegionTwo"),
}  # fmt: skip
"""The regions of each provider."""

SPECS: Mapping[str, Sequence[SimulatedSpec]] = {
    "aws": (
        SimulatedSpec("t3.nano",           2,   0.5, 0.0052),
        SimulatedSpec("t3.micro",          2,   1.0, 0.0104),
        SimulatedSpec("t3.small",          2,   2.0, 0.0208),
        SimulatedSpec("t3.medium",         2,   4.0, 0.0416),
        SimulatedSpec("t3.large",          2,   8.0, 0.0832),
        SimulatedSpec("m5.large",          2,   8.0, 0.0960),
        SimulatedSpec("m5.xlarge",         4,  16.0, 0.1920),
        SimulatedSpec("c5.large",          2,   4.0, 0.0850),
        SimulatedSpec("c5.2xlarge",        8,  16.0, 0.3400),
        SimulatedSpec("r5.large",          2,  16.0, 0.1260),
    ),
    "azure": (
        SimulatedSpec("Standard_B1ls",     1,   0.5, 0.0052),
        SimulatedSpec("Standard_B1s",      1,   1.0, 0.0104),
        SimulatedSpec("Standard_B2s",      2,   4.0, 0.0416),
        SimulatedSpec("Standard_B2ms",     2,   8.0, 0.0832),
        SimulatedSpec("Standard_D2s_v5",   2,   8.0, 0.0960),
        SimulatedSpec("Standard_D4s_v5",   4,  16.0, 0.1920),
        SimulatedSpec("Standard_F2s_v2",   2,   4.0, 0.0846),
        SimulatedSpec("Standard_E2s_v5",   2,  16.0, 0.1260),
    ),
    "gcp": (
        SimulatedSpec("f1-micro",          1,   0.6, 0.0076),
        SimulatedSpec("e2-micro",          2,   1.0, 0.0084),
        SimulatedSpec("e2-small",          2,   2.0, 0.0168),
        SimulatedSpec("e2-medium",         2,   4.0, 0.0335),
        SimulatedSpec("e2-standard-2",     2,   8.0, 0.0670),
        SimulatedSpec("n2-standard-2",     2,   8.0, 0.0971),
        SimulatedSpec("n2-standard-4",     4,  16.0, 0.1942),
        SimulatedSpec("c2-standard-4",     4,  16.0, 0.2088),
    ),
    "alibaba": (
        SimulatedSpec("ecs.t6-c4m1.large", 2,   0.5, 0.0060),
        SimulatedSpec("ecs.t6-c2m1.large", 2,   1.0, 0.0100),
        SimulatedSpec("ecs.t6-c1m1.large", 2,   2.0, 0.0200),
        SimulatedSpec("ecs.c6.large",      2,   4.0, 0.0830),
        SimulatedSpec("ecs.g6.large",      2,   8.0, 0.1020),
        SimulatedSpec("ecs.g6.xlarge",     4,  16.0, 0.2040),
    ),
    "ncp": (
        SimulatedSpec("mi1-g3",            1,   1.0, 0.0120),
        SimulatedSpec("c2-g3",             2,   4.0, 0.0650),
        SimulatedSpec("s2-g3",             2,   8.0, 0.0770),
        SimulatedSpec("s4-g3",             4,  16.0, 0.1540),
        SimulatedSpec("m4-g3",             4,  32.0, 0.2130),
    ),
    "openstack": (
        SimulatedSpec("m1.tiny",           1,   0.5, 0.0050),
        SimulatedSpec("m1.small",          1,   2.0, 0.0150),
        SimulatedSpec("m1.medium",         2,   4.0, 0.0300),
        SimulatedSpec("m1.large",          4,   8.0, 0.0600),
        SimulatedSpec("m1.xlarge",         8,  16.0, 0.1200),
    ),
}  # fmt: skip
"""The sizes that each provider has in all of its regions."""

COMMON_IMAGES = (
    SimulatedImage("ubuntu22.04", "Ubuntu 22.04"),
    SimulatedImage("ubuntu24.04", "Ubuntu 24.04"),
    SimulatedImage("debian12", "Debian 12"),
)
"""The images that every provider has, under one name."""

OWN_IMAGES: Mapping[str, Sequence[SimulatedImage]] = {
    "aws": (
        SimulatedImage("ami-0a1b2c3d4e5f60718", "Ubuntu 22.04"),
        SimulatedImage("ami-0b2c3d4e5f6071829", "Ubuntu 24.04"),
        SimulatedImage("ami-0c3d4e5f607182930", "Debian 12"),
    ),
    "azure": (
        SimulatedImage("Canonical:0001-com-ubuntu-server-jammy:22_04-lts:latest", "Ubuntu 22.04"),
        SimulatedImage("Canonical:ubuntu-24_04-lts:server:latest", "Ubuntu 24.04"),
        SimulatedImage("Debian:debian-12:12:latest", "Debian 12"),
    ),
    "gcp": (
        SimulatedImage("ubuntu-2204-lts", "Ubuntu 22.04"),
        SimulatedImage("ubuntu-2404-lts", "Ubuntu 24.04"),
        SimulatedImage("debian-12", "Debian 12"),
    ),
    "alibaba": (
        SimulatedImage("ubuntu_22_04_x64_20G_alibase", "Ubuntu 22.04"),
        SimulatedImage("ubuntu_24_04_x64_20G_alibase", "Ubuntu 24.04"),
        SimulatedImage("debian_12_x64_20G_alibase", "Debian 12"),
    ),
    "ncp": (
        SimulatedImage("SW.VSVR.OS.LNX64.UBNTU.SVR22.G003", "Ubuntu 22.04"),
        SimulatedImage("SW.VSVR.OS.LNX64.UBNTU.SVR24.G003", "Ubuntu 24.04"),
    ),
    "openstack": (
        SimulatedImage("ubuntu-22.04", "Ubuntu 22.04"),
        SimulatedImage("debian-12", "Debian 12"),
        SimulatedImage("cirros", "CirrOS"),
    ),
}
"""The images that each provider has under names of its own."""

IMAGES: Mapping[str, Sequence[SimulatedImage]] = {
    provider: (*COMMON_IMAGES, *OWN_IMAGES.get(provider, ())) for provider in REGIONS
}
"""All images of each provider."""


def spec_of(provider: str, name: str) -> SimulatedSpec | None:
    """Return a size of a provider, or None."""
    return next((spec for spec in SPECS.get(provider, ()) if spec.name == name), None)
