"""What the simulated providers offer: regions, sizes of machines with their prices, and images.

The names are the providers' own; the prices are near what they ask in the first of their regions, in dollars an hour.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct


class Spec(Struct, frozen=True):
    """A size of machine."""

    name: str
    vcpu: int
    memory_gib: float
    cost: float  # dollars an hour


class Image(Struct, frozen=True):
    """What a machine starts from."""

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

SPECS: Mapping[str, Sequence[Spec]] = {
    "aws": (
        Spec("t3.nano",           2,   0.5, 0.0052),
        Spec("t3.micro",          2,   1.0, 0.0104),
        Spec("t3.small",          2,   2.0, 0.0208),
        Spec("t3.medium",         2,   4.0, 0.0416),
        Spec("t3.large",          2,   8.0, 0.0832),
        Spec("m5.large",          2,   8.0, 0.0960),
        Spec("m5.xlarge",         4,  16.0, 0.1920),
        Spec("c5.large",          2,   4.0, 0.0850),
        Spec("c5.2xlarge",        8,  16.0, 0.3400),
        Spec("r5.large",          2,  16.0, 0.1260),
    ),
    "azure": (
        Spec("Standard_B1ls",     1,   0.5, 0.0052),
        Spec("Standard_B1s",      1,   1.0, 0.0104),
        Spec("Standard_B2s",      2,   4.0, 0.0416),
        Spec("Standard_B2ms",     2,   8.0, 0.0832),
        Spec("Standard_D2s_v5",   2,   8.0, 0.0960),
        Spec("Standard_D4s_v5",   4,  16.0, 0.1920),
        Spec("Standard_F2s_v2",   2,   4.0, 0.0846),
        Spec("Standard_E2s_v5",   2,  16.0, 0.1260),
    ),
    "gcp": (
        Spec("f1-micro",          1,   0.6, 0.0076),
        Spec("e2-micro",          2,   1.0, 0.0084),
        Spec("e2-small",          2,   2.0, 0.0168),
        Spec("e2-medium",         2,   4.0, 0.0335),
        Spec("e2-standard-2",     2,   8.0, 0.0670),
        Spec("n2-standard-2",     2,   8.0, 0.0971),
        Spec("n2-standard-4",     4,  16.0, 0.1942),
        Spec("c2-standard-4",     4,  16.0, 0.2088),
    ),
    "alibaba": (
        Spec("ecs.t6-c4m1.large", 2,   0.5, 0.0060),
        Spec("ecs.t6-c2m1.large", 2,   1.0, 0.0100),
        Spec("ecs.t6-c1m1.large", 2,   2.0, 0.0200),
        Spec("ecs.c6.large",      2,   4.0, 0.0830),
        Spec("ecs.g6.large",      2,   8.0, 0.1020),
        Spec("ecs.g6.xlarge",     4,  16.0, 0.2040),
    ),
    "ncp": (
        Spec("mi1-g3",            1,   1.0, 0.0120),
        Spec("c2-g3",             2,   4.0, 0.0650),
        Spec("s2-g3",             2,   8.0, 0.0770),
        Spec("s4-g3",             4,  16.0, 0.1540),
        Spec("m4-g3",             4,  32.0, 0.2130),
    ),
    "openstack": (
        Spec("m1.tiny",           1,   0.5, 0.0050),
        Spec("m1.small",          1,   2.0, 0.0150),
        Spec("m1.medium",         2,   4.0, 0.0300),
        Spec("m1.large",          4,   8.0, 0.0600),
        Spec("m1.xlarge",         8,  16.0, 0.1200),
    ),
}  # fmt: skip
"""The sizes that each provider has in all of its regions."""

COMMON_IMAGES = (
    Image("ubuntu22.04", "Ubuntu 22.04"),
    Image("ubuntu24.04", "Ubuntu 24.04"),
    Image("debian12", "Debian 12"),
)
"""The images that every provider has, under one name."""

OWN_IMAGES: Mapping[str, Sequence[Image]] = {
    "aws": (
        Image("ami-0a1b2c3d4e5f60718", "Ubuntu 22.04"),
        Image("ami-0b2c3d4e5f6071829", "Ubuntu 24.04"),
        Image("ami-0c3d4e5f607182930", "Debian 12"),
    ),
    "azure": (
        Image("Canonical:0001-com-ubuntu-server-jammy:22_04-lts:latest", "Ubuntu 22.04"),
        Image("Canonical:ubuntu-24_04-lts:server:latest", "Ubuntu 24.04"),
        Image("Debian:debian-12:12:latest", "Debian 12"),
    ),
    "gcp": (
        Image("ubuntu-2204-lts", "Ubuntu 22.04"),
        Image("ubuntu-2404-lts", "Ubuntu 24.04"),
        Image("debian-12", "Debian 12"),
    ),
    "alibaba": (
        Image("ubuntu_22_04_x64_20G_alibase", "Ubuntu 22.04"),
        Image("ubuntu_24_04_x64_20G_alibase", "Ubuntu 24.04"),
        Image("debian_12_x64_20G_alibase", "Debian 12"),
    ),
    "ncp": (
        Image("SW.VSVR.OS.LNX64.UBNTU.SVR22.G003", "Ubuntu 22.04"),
        Image("SW.VSVR.OS.LNX64.UBNTU.SVR24.G003", "Ubuntu 24.04"),
    ),
    "openstack": (
        Image("ubuntu-22.04", "Ubuntu 22.04"),
        Image("debian-12", "Debian 12"),
        Image("cirros", "CirrOS"),
    ),
}
"""The images that each provider has under names of its own."""

IMAGES: Mapping[str, Sequence[Image]] = {
    provider: (*COMMON_IMAGES, *OWN_IMAGES.get(provider, ())) for provider in REGIONS
}
"""All images of each provider."""


def spec_of(provider: str, name: str) -> Spec | None:
    """Return a size of a provider's, if it has it."""
    return next((spec for spec in SPECS.get(provider, ()) if spec.name == name), None)
