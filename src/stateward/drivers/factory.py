"""The factory of drivers, by name. A driver's library is imported when the driver is first used."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from stateward.drivers.confinement import Confinement
from stateward.drivers.port import Driver, Meter, ProviderRegion
from stateward.drivers.simulated import SimulatedCloud, SimulatedDriver
from stateward.errors import BadInput, UnknownName

DriverMaker: TypeAlias = Callable[[ProviderRegion, Meter], Driver]


class DriverEntry(Struct, frozen=True):
    """How to make a driver, and whether its machines run on the host of the calling worker."""

    make: DriverMaker
    on_host: bool = False


class DriverFactory:
    """Makes drivers; those that keep files on this host get a subfolder of `folder`."""

    def __init__(
        self, folder: Path, simulated: Callable[[], SimulatedCloud], confinement: Confinement | None = None
    ) -> None:
        self._folder, self._confinement = folder, confinement
        self._simulated = simulated
        self._makers: dict[str, DriverEntry] = {
            "simulated": DriverEntry(self._simulate),
            "process": DriverEntry(self._process, on_host=True),
            "qemu": DriverEntry(self._qemu, on_host=True),
            "aws": DriverEntry(self._aws),
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all drivers."""
        return tuple(self._makers)

    def is_on_host(self, name: str) -> bool:
        """Tell whether a driver's machines run on the worker's host; for an unknown driver the answer is yes."""
        return name not in self._makers or self._makers[name].on_host

    def make(self, name: str, provider_region: ProviderRegion, meter: Meter = lambda _: None) -> Driver:
        """Make a driver for a region."""
        if name not in self._makers:
            raise UnknownName("driver", name, self._makers)
        try:
            return self._makers[name].make(provider_region, meter)
        except ModuleNotFoundError as error:
            raise BadInput("driver", name, f"a driver whose library is installed ({error.name} is not)") from error

    def _simulate(self, provider_region: ProviderRegion, meter: Meter) -> Driver:
        return SimulatedDriver(provider_region, self._simulated(), meter)

    def _process(self, provider_region: ProviderRegion, meter: Meter) -> Driver:
        from stateward.drivers.process import ProcessDriver

        return ProcessDriver(self._with_folder(provider_region, "process"), meter, confinement=self._confinement)

    def _qemu(self, provider_region: ProviderRegion, meter: Meter) -> Driver:
        from stateward.drivers.qemu import QemuDriver

        return QemuDriver(self._with_folder(provider_region, "qemu"), meter)

    def _aws(self, provider_region: ProviderRegion, meter: Meter) -> Driver:
        from stateward.drivers.aws import AwsDriver

        return AwsDriver(provider_region, meter)

    def _with_folder(self, provider_region: ProviderRegion, name: str) -> ProviderRegion:
        """Add the folder of a driver to the region's options, unless they name one."""
        if "folder" in provider_region.options:
            return provider_region
        folder = str(self._folder / name / provider_region.region)
        return replace(provider_region, options={**provider_region.options, "folder": folder})
