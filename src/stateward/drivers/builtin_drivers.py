"""The declarations of the drivers that come with Stateward; each imports its driver when it makes one."""

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


def _container(setup: DriverSetup) -> Driver:
    from stateward.drivers.container import ContainerDriver

    return ContainerDriver(setup.region, setup.meter)


def _aws(setup: DriverSetup) -> Driver:
    from stateward.drivers.aws import AwsDriver

    return AwsDriver(setup.region, setup.meter)


def _azure(setup: DriverSetup) -> Driver:
    from stateward.drivers.azure import AzureDriver

    return AzureDriver(setup.region, setup.meter)


def _gcp(setup: DriverSetup) -> Driver:
    from stateward.drivers.gcp import GcpDriver

    return GcpDriver(setup.region, setup.meter)


def _openstack(setup: DriverSetup) -> Driver:
    from stateward.drivers.openstack import OpenStackDriver

    return OpenStackDriver(setup.region, setup.meter)


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
container = DriverPlugin(_container, on_host=True, options=("engine", "network", "command", "pull", "keep", "timeout"))
aws = DriverPlugin(_aws, on_host=False, options=("endpoint_url", "connect_timeout", "read_timeout"))
azure = DriverPlugin(
    _azure,
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
    _gcp,
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
    _openstack, on_host=False, options=("suspend", "config_drive", "connect_timeout", "read_timeout", "settle_time")
)
