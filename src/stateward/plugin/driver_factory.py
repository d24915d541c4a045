"""The factory of drivers: makes those that installed packages declare, the built-in ones like all others, by name."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from stateward.drivers.driver_plugin import DriverPlugin, DriverSetup
from stateward.drivers.port import Driver, Meter, ProviderRegion
from stateward.drivers.simulated import SimulatedCloud
from stateward.errors import BadInput, UnknownName
from stateward.plugin.entry_points import FoundPart, load_group
from stateward.workloads.confinement import Confinement

GROUP = "stateward.drivers"


class DriverFactory:
    """Makes drivers; those that keep files on this host get a subfolder of `folder`.

    `more` are drivers that domains bring, beside those that packages declare. A declaration that cannot be loaded is a
    fault. It is logged, and raised when the driver is used.
    """

    def __init__(
        self,
        folder: Path,
        simulated: Callable[[], SimulatedCloud],
        confinement: Confinement | None = None,
        more: Iterable[FoundPart] = (),
    ) -> None:
        self._folder, self._simulated, self._confinement = folder, simulated, confinement
        self._drivers = load_group(GROUP, _read, more)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all drivers that can be used."""
        return tuple(self._drivers.usable)

    def is_on_host(self, name: str) -> bool:
        """Tell whether a driver's machines run on the worker's host; for a driver that is not known, they may."""
        driver = self._drivers.usable.get(name)
        return driver is None or driver.on_host

    def setup(self, name: str, provider_region: ProviderRegion, meter: Meter) -> DriverSetup:
        """Return what a driver is made from."""
        folder = self._folder / name / provider_region.region
        return DriverSetup(provider_region, meter, folder, self._confinement, self._simulated)

    def make(self, name: str, provider_region: ProviderRegion, meter: Meter = lambda _: None) -> Driver:
        """Make a driver for a region."""
        if name in self._drivers.faults:
            raise self._drivers.faults[name].with_traceback(None)  # it would grow with every use
        if name not in self._drivers.usable:
            raise UnknownName("driver", name, self._drivers.usable)
        known = self._drivers.usable[name].options
        for option in provider_region.options:
            if known is not None and option not in known:
                raise UnknownName(f"option of the driver {name}", option, known)
        try:
            return self._drivers.usable[name].make(self.setup(name, provider_region, meter))
        except ModuleNotFoundError as error:
            raise BadInput("driver", name, f"a driver whose library is installed ({error.name} is not)") from error


def _read(declared: Any) -> DriverPlugin:  # noqa: ANN401 - whatever a package declares
    if not isinstance(declared, DriverPlugin):
        raise BadInput("driver", type(declared).__name__, "a DriverPlugin")
    return declared
