"""Parsers of request bodies that choose specs and images."""

from collections.abc import Mapping

from msgspec import Struct

from stateward.domains.mci import spec_choice
from stateward.domains.mci.api.lenient_json import Fields, parse_flag, parse_number
from stateward.domains.mci.api.tumblebug_params import check_choice
from stateward.errors import BadInput

MAX_RESULTS = 10_000
METRICS = (*spec_choice.NUMBERS, *spec_choice.TEXTS)
A_CHOICE = {
    "filter": {"policy": [{"metric": "vCPU", "condition": [{"operator": ">=", "operand": "2"}]}]},
    "priority": {"policy": [{"metric": "cost", "weight": "1.0"}]},
    "limit": "5",
}
A_RANGE = {"vCPU": {"min": 2, "max": 4}, "providerName": "aws"}
AN_IMAGE_SEARCH = {"providerName": "aws", "regionName": "ap-northeast-2", "osType": "ubuntu 22.04", "maxResults": 10}


class SpecChoice(Struct, frozen=True):
    """What specs a caller wants."""

    conditions: tuple[spec_choice.Condition, ...]
    priorities: tuple[spec_choice.Priority, ...]
    limit: int


def parse_choice(body: Fields, regions: Mapping[str, spec_choice.Coordinate]) -> SpecChoice:
    """Parse a choice of specs; `regions` are the known locations, by `provider+region`."""
    wanted, order = body.object("filter"), body.object("priority")
    conditions = [condition for rule in _policies(wanted) for condition in _conditions(rule)]
    priorities = [_priority(rule, regions) for rule in _policies(order)]
    return SpecChoice(tuple(conditions), tuple(priorities), body.number("limit", default=0, low=0, high=MAX_RESULTS))


def _policies(body: Fields | None) -> list[Fields]:
    return [] if body is None else body.objects("policy")


def _conditions(rule: Fields) -> list[spec_choice.Condition]:
    metric = _word(rule, "metric", *METRICS)
    return [_condition(metric, condition) for condition in rule.objects("condition")]


def _condition(metric: str, body: Fields) -> spec_choice.Condition:
    if metric in spec_choice.TEXTS:
        return spec_choice.Condition(metric, _word(body, "operator", "==", default="=="), body.text("operand"))
    sign = _word(body, "operator", *spec_choice.OPERATORS, default="==")
    return spec_choice.Condition(metric, sign, body.real("operand", default=0.0, low=-1e9, high=1e9))


def _priority(rule: Fields, regions: Mapping[str, spec_choice.Coordinate]) -> spec_choice.Priority:
    metric = _word(rule, "metric", *spec_choice.PRIORITIES)
    weight = rule.real("weight", default=1.0, low=0.0, high=1e6)
    given = rule.objects("parameter")
    if metric in spec_choice.WAYS and not given:  # Tumblebug's clients send it so, for the cheapest specs
        return spec_choice.Priority("cost", weight)
    if metric not in spec_choice.WAYS:
        return spec_choice.Priority(metric, weight)
    way = _word(given[0], "key", *spec_choice.WAYS[metric])
    texts = given[0].texts("val")
    if not texts:
        raise BadInput(given[0].field("val"), None, "a list of at least one place")
    field = given[0].field("val")
    places = [
        _region(f"{field}[{number}]", text, regions) if metric == "latency" else _coordinate(f"{field}[{number}]", text)
        for number, text in enumerate(texts)
    ]
    return spec_choice.Priority(metric, weight, way, tuple(places))


def _coordinate(field: str, text: str) -> spec_choice.Coordinate:
    numbers = [parse_number(part) for part in text.replace(",", "/").split("/")]
    latitude, longitude = numbers if len(numbers) == 2 else (None, None)
    if latitude is None or longitude is None or not (-90.0 <= latitude <= 90.0 and -180.0 <= longitude <= 180.0):
        raise BadInput(field, text, "a latitude and a longitude such as 44.146838/-116.411403")
    return latitude, longitude


def _region(field: str, text: str, regions: Mapping[str, spec_choice.Coordinate]) -> spec_choice.Coordinate:
    coordinate = regions.get(text.strip().lower())
    if coordinate is None:
        raise BadInput(field, text, "a region with a known location, such as aws+ap-northeast-2")
    return coordinate


def _word(body: Fields, name: str, *allowed: str, default: str = "") -> str:
    word = check_choice(body.field(name), body.text(name, default=default).strip(), *allowed)
    if not word:
        raise BadInput(body.field(name), None, f"one of {', '.join(allowed)}")
    return word


def parse_ranges(body: Fields) -> SpecChoice:
    """Parse ranges of numbers (`{"vCPU": {"min": 2, "max": 4}}`) and parts of texts."""
    conditions: list[spec_choice.Condition] = []
    for metric in spec_choice.NUMBERS:
        limits = body.object(metric) if isinstance(body.raw(metric), dict) else None
        if limits is not None:
            low, high = (limits.real(name, default=0.0, low=0.0, high=1e9) for name in ("min", "max"))
            conditions += [spec_choice.Condition(metric, ">=", low)] if low else []
            conditions += [spec_choice.Condition(metric, "<=", high)] if high else []
        elif body.raw(metric) not in (None, "", 0):
            conditions.append(spec_choice.Condition(metric, "==", body.real(metric, default=0.0, low=0.0, high=1e9)))
    conditions += [
        spec_choice.Condition(metric, "==", text) for metric in spec_choice.TEXTS if (text := body.text(metric).strip())
    ]
    return SpecChoice(tuple(conditions), (), body.number("limit", default=0, low=0, high=MAX_RESULTS))


class ImageSearch(Struct, frozen=True):
    """What images a caller wants; an empty text fits all."""

    provider: str
    region: str
    words: tuple[str, ...]
    architecture: str
    spec: str
    is_gpu: bool
    is_kubernetes: bool
    limit: int


def parse_image_search(body: Fields) -> ImageSearch:
    """Parse a search of images."""
    words = " ".join([body.string("osType"), *body.texts("detailSearchKeys")]).lower().split()
    architecture = body.string("osArchitecture").lower()
    return ImageSearch(
        body.string("providerName").lower(),
        body.string("regionName").lower(),
        tuple(words),
        "" if architecture == "na" else architecture,
        body.string("matchedSpecId"),
        parse_flag(body.field("isGPUImage"), body.text("isGPUImage")),
        parse_flag(body.field("isKubernetesImage"), body.text("isKubernetesImage")),
        body.number("maxResults", default=0, low=0, high=MAX_RESULTS),
    )
