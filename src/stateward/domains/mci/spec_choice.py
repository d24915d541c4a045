"""Choice of specs: which fit conditions, and which come first.

The conditions compare fields of the catalogue. The order is a weighted sum: each priority gives each spec a share from
0 (best) to 1 (worst of those that fit). Distances are great circles between the locations of regions, and
latencies follow from distances: nothing is measured. A region whose location is not known comes last.
"""

import math
import operator
from collections.abc import Callable, Sequence
from random import Random

from msgspec import Struct

from stateward.domains.mci.model import CloudConnection, SpecRecord

EARTH_KM = 6371.0

Coordinate = tuple[float, float]
"""Latitude and longitude, in degrees."""


class SpecOffer(Struct, frozen=True):
    """A spec with the connection that offers it and the location of its region, if that is known."""

    spec: SpecRecord
    connection: CloudConnection
    at: Coordinate | None


NUMBERS: dict[str, Callable[[SpecOffer], float]] = {
    "vCPU": lambda offer: offer.spec.vcpu,
    "memoryGiB": lambda offer: offer.spec.memory_gib,
    "costPerHour": lambda offer: offer.spec.cost,
    "diskSizeGB": lambda offer: offer.spec.disk_gib,
    "acceleratorCount": lambda offer: offer.spec.gpus,
    "acceleratorMemoryGB": lambda offer: offer.spec.gpu_memory_gib,
}
"""The fields that are compared as numbers."""

TEXTS: dict[str, Callable[[SpecOffer], str]] = {
    "id": lambda offer: offer.spec.id,
    "name": lambda offer: offer.spec.id,
    "providerName": lambda offer: offer.connection.provider,
    "regionName": lambda offer: offer.connection.region,
    "connectionName": lambda offer: offer.connection.name,
    "cspSpecName": lambda offer: offer.spec.csp_name,
    "architecture": lambda offer: offer.spec.architecture,
    "acceleratorModel": lambda offer: offer.spec.gpu_model,
    "acceleratorType": lambda offer: "gpu" if offer.spec.gpus else "",
    "infraType": lambda _: "vm",
    "description": lambda offer: offer.spec.description,
}
"""The fields that are compared as texts: the operand is a part of the field, in any case."""

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": math.isclose,
}


class Condition(Struct, frozen=True):
    """One condition: a metric, an operator and an operand; texts are compared by `==` only."""

    metric: str
    operator: str
    operand: float | str

    def holds(self, offer: SpecOffer) -> bool:
        """Tell whether an offer fits."""
        if isinstance(self.operand, str):
            return self.operand.lower() in TEXTS[self.metric](offer).lower()
        return OPERATORS[self.operator](NUMBERS[self.metric](offer), self.operand)


class Priority(Struct, frozen=True):
    """What comes first: a metric, its weight, and the places that a distance is measured to."""

    metric: str
    weight: float = 1.0
    way: str = ""
    places: tuple[Coordinate, ...] = ()


PRIORITIES = ("cost", "performance", "location", "latency", "random")
WAYS = {
    "location": ("coordinateClose", "coordinateWithin", "coordinateFair"),
    "latency": ("latencyMinimal",),
}
"""How a distance to several places counts: to the nearest one, to the farthest one, or the same to all of them."""


def choose(
    offers: Sequence[SpecOffer],
    conditions: Sequence[Condition],
    priorities: Sequence[Priority],
    limit: int,
    chance: Random,
) -> list[SpecOffer]:
    """Return the offers that fit all conditions, best first; without a priority the cheapest comes first."""
    fitting = [offer for offer in offers if all(condition.holds(offer) for condition in conditions)]
    wanted = priorities or (Priority("cost"),)
    shares = [_shares(fitting, priority, chance) for priority in wanted]
    totals = [
        sum(priority.weight * share[number] for priority, share in zip(wanted, shares, strict=True))
        for number in range(len(fitting))
    ]
    order = sorted(
        range(len(fitting)), key=lambda number: (totals[number], _cost(fitting[number]), fitting[number].spec.id)
    )
    return [fitting[number] for number in order][: limit or None]


def _shares(offers: Sequence[SpecOffer], by: Priority, chance: Random) -> list[float]:
    """Return the share of each offer: 0 for the best, 1 for the worst."""
    values = [_value(offer, by, chance) for offer in offers]
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    spread = high - low or 1.0
    return [(value - low) / spread if math.isfinite(value) else 2.0 for value in values]


def _value(offer: SpecOffer, by: Priority, chance: Random) -> float:
    match by.metric:
        case "cost":
            return _cost(offer)
        case "performance":
            return -offer.spec.vcpu - offer.spec.memory_gib / 1024
        case "random":
            return chance.random()
        case _:
            if offer.at is None or not by.places:
                return math.inf
            distances = [distance_km(offer.at, place) for place in by.places]
            if by.way == "coordinateFair":
                return max(distances) - min(distances)
            return max(distances) if by.way in ("coordinateWithin", "latencyMinimal") else min(distances)


def _cost(offer: SpecOffer) -> float:
    """Return the price; a spec without a known price comes last."""
    return offer.spec.cost or math.inf


def distance_km(origin: Coordinate, other: Coordinate) -> float:
    """Return the length of the great circle between two places."""
    (lat1, long1), (lat2, long2) = (tuple(map(math.radians, place)) for place in (origin, other))
    half = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((long2 - long1) / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(min(1.0, half)))
