"""The declaration of a driver: how it is made, and whether its machines run on the worker's own host.

A package offers a driver by an entry point of the group `stateward.drivers`, whose value is a `DriverPlugin`. Its
module should import the driver's library only in `make`, so that it is loaded when it is first used.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from stateward.drivers.port import Driver, Meter, ProviderRegion
from stateward.workloads.confinement import Confinement

if TYPE_CHECKING:
    from stateward.drivers.simulated import SimulatedCloud


class DriverSetup(Struct, frozen=True):
    """What a driver is made from: its region, a callback for each call, and what it may need on this host."""

    region: ProviderRegion
    meter: Meter
    folder: Path  # for its files on this host; it has to create it
    confinement: Confinement | None  # of the programs that it runs on this host for tenants
    simulated: "Callable[[], SimulatedCloud]"  # the simulated clouds of this process


class DriverPlugin(Struct, frozen=True):
    """A driver that connections can name.

    A driver that does not say otherwise acts on the host of the worker (`on_host`): its machines could do what the
    server may do, so a connection with it serves only the namespaces that an administrator grants it to.
    """

    make: Callable[[DriverSetup], Driver]
    on_host: bool = True
    options: tuple[str, ...] | None = None  # the names of its options; without them, it checks them itself
