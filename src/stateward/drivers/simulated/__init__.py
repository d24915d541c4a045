"""Clouds that exist in one process only, with the providers' names, prices and troubles, for 100,000 machines."""

from stateward.drivers.simulated.cloud import SimulatedCloud
from stateward.drivers.simulated.cloud_file import CloudUnavailable
from stateward.drivers.simulated.driver import SimulatedDriver
from stateward.drivers.simulated.faults import CALM, STORMY, Fate, Span, Temper
from stateward.drivers.simulated.provider_catalogue import IMAGES, REGIONS, SPECS, Image, Spec, spec_of

__all__ = [
    "CALM",
    "IMAGES",
    "REGIONS",
    "SPECS",
    "STORMY",
    "CloudUnavailable",
    "Fate",
    "Image",
    "SimulatedCloud",
    "SimulatedDriver",
    "Span",
    "Spec",
    "Temper",
    "spec_of",
]
