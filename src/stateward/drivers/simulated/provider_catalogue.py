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
    gpus: int = 0
    gpu_model: str = ""
    gpu_memory_gib: float = 0.0


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

_SPECS = (
    # provider    name                 vCPUs GiB   dollars an hour
    ("aws",       "t3.nano",           2,    0.5, 0.0052),
    ("aws",       "t3.micro",          2,    1.0, 0.0104),
    ("aws",       "t3.small",          2,    2.0, 0.0208),
    ("aws",       "t3.medium",         2,    4.0, 0.0416),
    ("aws",       "t3.large",          2,    8.0, 0.0832),
    ("aws",       "m5.large",          2,    8.0, 0.0960),
    ("aws",       "m5.xlarge",         4,   16.0, 0.1920),
    ("aws",       "c5.large",          2,    4.0, 0.0850),
    ("aws",       "c5.2xlarge",        8,   16.0, 0.3400),
    ("aws",       "r5.large",          2,   16.0, 0.1260),
    ("azure",     "Standard_B1ls",     1,    0.5, 0.0052),
    ("azure",     "Standard_B1s",      1,    1.0, 0.0104),
    ("azure",     "Standard_B2s",      2,    4.0, 0.0416),
    ("azure",     "Standard_B2ms",     2,    8.0, 0.0832),
    ("azure",     "Standard_D2s_v5",   2,    8.0, 0.0960),
    ("azure",     "Standard_D4s_v5",   4,   16.0, 0.1920),
    ("azure",     "Standard_F2s_v2",   2,    4.0, 0.0846),
    ("azure",     "Standard_E2s_v5",   2,   16.0, 0.1260),
    ("gcp",       "f1-micro",          1,    0.6, 0.0076),
    ("gcp",       "e2-micro",          2,    1.0, 0.0084),
    ("gcp",       "e2-small",          2,    2.0, 0.0168),
    ("gcp",       "e2-medium",         2,    4.0, 0.0335),
    ("gcp",       "e2-standard-2",     2,    8.0, 0.0670),
    ("gcp",       "n2-standard-2",     2,    8.0, 0.0971),
    ("gcp",       "n2-standard-4",     4,   16.0, 0.1942),
    ("gcp",       "c2-standard-4",     4,   16.0, 0.2088),
    ("alibaba",   "ecs.t6-c4m1.large", 2,    0.5, 0.0060),
    ("alibaba",   "ecs.t6-c2m1.large", 2,    1.0, 0.0100),
    ("alibaba",   "ecs.t6-c1m1.large", 2,    2.0, 0.0200),
    ("alibaba",   "ecs.c6.large",      2,    4.0, 0.0830),
    ("alibaba",   "ecs.g6.large",      2,    8.0, 0.1020),
    ("alibaba",   "ecs.g6.xlarge",     4,   16.0, 0.2040),
    ("ncp",       "mi1-g3",            1,    1.0, 0.0120),
    ("ncp",       "c2-g3",             2,    4.0, 0.0650),
    ("ncp",       "s2-g3",             2,    8.0, 0.0770),
    ("ncp",       "s4-g3",             4,   16.0, 0.1540),
    ("ncp",       "m4-g3",             4,   32.0, 0.2130),
    ("openstack", "m1.tiny",           1,    0.5, 0.0050),
    ("openstack", "m1.small",          1,    2.0, 0.0150),
    ("openstack", "m1.medium",         2,    4.0, 0.0300),
    ("openstack", "m1.large",          4,    8.0, 0.0600),
    ("openstack", "m1.xlarge",         8,   16.0, 0.1200),
)  # fmt: skip
_GPU_SPECS = (
    # provider    name                           vCPUs GiB    dollars  GPUs model          GiB
    ("aws",       "g4dn.xlarge",                 4,    16.0,  0.6470,  1,   "NVIDIA T4",   16.0),
    ("azure",     "Standard_NC4as_T4_v3",        4,    28.0,  0.5260,  1,   "NVIDIA T4",   16.0),
    ("gcp",       "g2-standard-4",               4,    16.0,  0.7069,  1,   "NVIDIA L4",   24.0),
    ("alibaba",   "ecs.gn6i-c4g1.xlarge",        4,    15.0,  1.1680,  1,   "NVIDIA T4",   16.0),
)  # fmt: skip
SPECS: Mapping[str, Sequence[SimulatedSpec]] = {
    provider: (
        *(SimulatedSpec(name, vcpu, gib, cost) for owner, name, vcpu, gib, cost in _SPECS if owner == provider),
        *(SimulatedSpec(*row) for owner, *row in _GPU_SPECS if owner == provider),  # type: ignore[arg-type]
    )
    for provider in REGIONS
}
"""The sizes that each provider has in all of its regions."""

COMMON_IMAGES = (
    SimulatedImage("ubuntu22.04", "Ubuntu 22.04"),
    SimulatedImage("ubuntu24.04", "Ubuntu 24.04"),
    SimulatedImage("debian12", "Debian 12"),
)
"""The images that every provider has, under one name."""

_IMAGES = (
    ("aws",       "Ubuntu 22.04", "ami-0a1b2c3d4e5f60718"),
    ("aws",       "Ubuntu 24.04", "ami-0b2c3d4e5f6071829"),
    ("aws",       "Debian 12",    "ami-0c3d4e5f607182930"),
    ("azure",     "Ubuntu 22.04", "Canonical:0001-com-ubuntu-server-jammy:22_04-lts:latest"),
    ("azure",     "Ubuntu 24.04", "Canonical:ubuntu-24_04-lts:server:latest"),
    ("azure",     "Debian 12",    "Debian:debian-12:12:latest"),
    ("gcp",       "Ubuntu 22.04", "ubuntu-2204-lts"),
    ("gcp",       "Ubuntu 24.04", "ubuntu-2404-lts"),
    ("gcp",       "Debian 12",    "debian-12"),
    ("alibaba",   "Ubuntu 22.04", "ubuntu_22_04_x64_20G_alibase"),
    ("alibaba",   "Ubuntu 24.04", "ubuntu_24_04_x64_20G_alibase"),
    ("alibaba",   "Debian 12",    "debian_12_x64_20G_alibase"),
    ("ncp",       "Ubuntu 22.04", "SW.VSVR.OS.LNX64.UBNTU.SVR22.G003"),
    ("ncp",       "Ubuntu 24.04", "SW.VSVR.OS.LNX64.UBNTU.SVR24.G003"),
    ("openstack", "Ubuntu 22.04", "ubuntu-22.04"),
    ("openstack", "Debian 12",    "debian-12"),
    ("openstack", "CirrOS",       "cirros"),
)  # fmt: skip
"""The images that each provider has under names of its own."""

IMAGES: Mapping[str, Sequence[SimulatedImage]] = {
    provider: (*COMMON_IMAGES, *(SimulatedImage(name, system) for owner, system, name in _IMAGES if owner == provider))
    for provider in REGIONS
}
"""All images of each provider."""


def spec_of(provider: str, name: str) -> SimulatedSpec | None:
    """Return a size of a provider, or None."""
    return next((spec for spec in SPECS.get(provider, ()) if spec.name == name), None)
