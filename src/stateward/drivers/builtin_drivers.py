"""The declarations of the drivers that come with Stateward; each imports its driver when it makes one."""

from collections.abc import Callable
from importlib import import_module

from msgspec.structs import replace

from stateward.drivers.driver_plugin import DriverPlugin, DriverSetup
from stateward.drivers.port import Driver, ProviderRegion


def _simulated(setup: DriverSetup) -> Driver:
    from stateward.drivers.simulated import SimulatedDriver

    return SimulatedDriver(setup.region, setup.simulated(), setup.meter)


def _process(setup: DriverSetup) -> Driver:
    from stateward.drivers.process import ProcessDriver

    return ProcessDriver(with_folder(setup), setup.meter, confinement=setup.confinement)


def _qemu(setup: DriverSetup) -> Driver:
    from stateward.drivers.qemu import QemuDriver

    return QemuDriver(with_folder(setup), setup.meter)


def _by_class(module: str, name: str) -> Callable[[DriverSetup], Driver]:
    """Return a function that makes a driver from its region only, and imports its class for that."""

    def make(setup: DriverSetup) -> Driver:
        driver: Driver = getattr(import_module(module), name)(setup.region, setup.meter)
        return driver

    return make


def with_folder(setup: DriverSetup) -> ProviderRegion:
    """Add the folder of a driver to the region's options, unless they name one."""
    region = setup.region
    if "folder" in region.options:
        return region
    return replace(region, options={**region.options, "folder": str(setup.folder)})


simulated = DriverPlugin(_simulated, on_host=False)
process = DriverPlugin(_process, on_host=True, options=("folder", "keep", "specs", "images", "ssh_ports"))
qemu = DriverPlugin(
    _qemu,
    on_host=True,
    options=("folder", "keep", "arch", "accel", "bandwidth", "images", "ssh_ports"),
)
container = DriverPlugin(
    _by_class("stateward.drivers.container", "ContainerDriver"),
    on_host=True,
    options=("engine", "network", "command", "pull", "keep", "timeout"),
)
aws = DriverPlugin(
    _by_class("stateward.drivers.aws", "AwsDriver"),
    on_host=False,
    options=("endpoint_url", "connect_timeout", "read_timeout"),
)
azure = DriverPlugin(
    _by_class("stateward.drivers.azure", "AzureDriver"),
    on_host=False,
    options=(
        "resource_group",
        "subnet",
        "public_address",
        "endpoint_url",
        "connect_timeout",
        "read_timeout",
        "poll_interval",
    ),
)
gcp = DriverPlugin(
    _by_class("stateward.drivers.gcp", "GcpDriver"),
    on_host=False,
    options=(
        "project",
        "endpoint_url",
        "anonymous",
        "connect_timeout",
        "read_timeout",
        "operation_timeout",
        "public_address",
    ),
)
openstack = DriverPlugin(
    _by_class("stateward.drivers.openstack", "OpenStackDriver"),
    on_host=False,
    options=("suspend", "config_drive", "connect_timeout", "read_timeout", "settle_time"),
)
