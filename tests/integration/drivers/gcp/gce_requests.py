"""The requests of Compute Engine's REST API: routes, filters of listings, and errors in its JSON."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

PREFIX = "/compute/v1/projects/"
PAGE = 500

_ZONE, _REGION = "{project}/zones/{zone}", "{project}/regions/{region}"
_INSTANCE = f"{_ZONE}/instances/{{name}}"
ROUTES = (
    ("GET", "{project}", "projects.get"),
    ("POST", "{project}/setCommonInstanceMetadata", "projects.set_common_instance_metadata"),
    ("GET", "{project}/aggregated/instances", "instances.aggregated_list"),
    ("GET", f"{_ZONE}/instances", "instances.list"),
    ("POST", f"{_ZONE}/instances", "instances.insert"),
    ("GET", _INSTANCE, "instances.get"),
    ("DELETE", _INSTANCE, "instances.delete"),
    *[("POST", f"{_INSTANCE}/{verb}", f"instances.{verb}") for verb in ("suspend", "resume", "start", "stop", "reset")],
    ("GET", f"{_ZONE}/operations/{{name}}", "zone_operations.get"),
    ("GET", f"{_REGION}/operations/{{name}}", "region_operations.get"),
    ("GET", "{project}/global/operations/{name}", "global_operations.get"),
    ("GET", f"{_ZONE}/machineTypes/{{name}}", "machine_types.get"),
    ("GET", "{project}/global/images/family/{name}", "images.get_from_family"),
    ("GET", "{project}/global/images/{name}", "images.get"),
    *[
        (method, f"{place}{tail}", f"{service}.{action}")
        for service, place in (
            ("networks", "{project}/global/networks"),
            ("firewalls", "{project}/global/firewalls"),
            ("subnetworks", f"{_REGION}/subnetworks"),
        )
        for method, tail, action in (
            ("GET", "", "list"),
            ("POST", "", "insert"),
            ("GET", "/{name}", "get"),
            ("DELETE", "/{name}", "delete"),
            ("PATCH", "/{name}", "patch"),
        )
    ],
)
_PATTERNS = [
    (method, re.compile(PREFIX + re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)), action) for method, path, action in ROUTES
]


class GceRequest(Struct):
    """One request: the call that it means, where, and with what."""

    action: str
    project: str = ""
    zone: str = ""
    region: str = ""
    name: str = ""
    query: Mapping[str, str] = {}
    body: dict[str, Any] = {}


class GceError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message

    def body(self) -> dict[str, Any]:
        """Return the error as Compute Engine writes it."""
        details = [{"message": self.message, "domain": "global", "reason": self.reason}]
        return {"error": {"code": self.status, "message": self.message, "errors": details}}


def not_found(what: str) -> GceError:
    """Return the error for a resource that does not exist."""
    return GceError(404, "notFound", f"The resource '{what}' was not found")


def invalid(field: str, why: str) -> GceError:
    """Return the error for a bad field."""
    return GceError(400, "invalid", f"Invalid value for field '{field}': {why}")


def read_request(method: str, path: str, query: Mapping[str, str], body: dict[str, Any]) -> GceRequest:
    """Return the request that a path means; raises `GceError`."""
    for wanted, pattern, action in _PATTERNS:
        if wanted == method and (found := pattern.fullmatch(path)):
            return GceRequest(action, query=query, body=body, **found.groupdict())
    raise GceError(404, "notFound", f"no such route: {method} {path}")


# --- filters ---------------------------------------------------------------------------------------------------------

_REGEX = re.compile(r'name eq "(.*)"')
_PRESENT = re.compile(r"labels\.([a-z0-9_-]+):\*")
_EQUAL = re.compile(r'\(labels\.([a-z0-9_-]+) = "([^"]*)"\)')


def read_filter(text: str) -> Callable[[dict[str, Any]], bool]:
    """Return the predicate of a filter; one that Compute Engine is not known to take is an error."""
    if not text:
        return lambda _: True
    if found := _REGEX.fullmatch(text):
        pattern = re.compile(found[1])
        return lambda one: pattern.fullmatch(one["name"]) is not None
    if found := _PRESENT.fullmatch(text):
        label = found[1]
        return lambda one: label in one.get("labels", {})
    pairs = [_EQUAL.fullmatch(part) for part in text.split(" OR ")]
    if not all(pairs):
        raise invalid("filter", f"'{text}'. Invalid list filter expression.")
    wanted = {(pair[1], pair[2]) for pair in pairs if pair}
    return lambda one: any(one.get("labels", {}).get(label) == value for label, value in wanted)


def page_of(request: GceRequest, items: list[dict[str, Any]], most: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return one page of what passes the filter, and the token of the next one."""
    passes = read_filter(request.query.get("filter", ""))
    chosen = [one for one in items if passes(one)]
    size = min(int(request.query.get("maxResults", PAGE)), most)
    start = int(request.query.get("pageToken") or 0)
    more = {"nextPageToken": str(start + size)} if start + size < len(chosen) else {}
    return chosen[start : start + size], more
