"""Simulated clouds in one process, with the providers' names, prices and faults, for 100,000 machines."""

from stateward.drivers.simulated.cloud import SimulatedCloud
from stateward.drivers.simulated.cloud_file import CloudUnavailable
from stateward.drivers.simulated.driver import SimulatedDriver
from stateward.drivers.simulated.faults import CALM, STORMY, CallFate, FaultProfile, Span
from stateward.drivers.simulated.provider_catalogue import (
    IMAGES,
    REGIONS,
    SPECS,
    SimulatedImage,
    SimulatedSpec,
    spec_of,
)

__all__ = [
    "CALM",
    "IMAGES",
    "REGIONS",
    "SPECS",
    "STORMY",
    "CallFate",
    "CloudUnavailable",
    "FaultProfile",
    "SimulatedCloud",
    "SimulatedDriver",
    "SimulatedImage",
    "SimulatedSpec",
    "Span",
    "spec_of",
]
