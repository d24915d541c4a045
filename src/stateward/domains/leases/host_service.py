"""The service for hosts and their properties: register, list, update, remove, report as failed or recovered."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from stateward.domains.leases.errors import BlazarBadInput
from stateward.domains.leases.lifecycle import HOST, PROPERTY, PropertyState
from stateward.domains.leases.list_pages import read_page
from stateward.domains.leases.model import SIZES, HostSpec, LeaseHost, Property, Share, host_key, read_host
from stateward.domains.leases.schemas import GIVEN_BY_SERVER, NAME_FIELDS, shown_fields
from stateward.domains.leases.service import MAX_TRIES, LeaseCaller
from stateward.domains.leases.wire_values import (
    MAX_CLEANING_MINUTES,
    MAX_SIZE,
    check_host_name,
    read_whole_number,
)
from stateward.engine import Engine, NotFound
from stateward.engine.errors import VersionMismatch
from stateward.engine.queries import list_all
from stateward.errors import BadInput
from stateward.naming import check_text
from stateward.store.filters import Selector
from stateward.store.records import Key

MAX_KEY_LENGTH = 64


def property_key(ns: str, name: str) -> Key:
    """Return the key of the object that says whether a property is private."""
    return Key(ns, f"property-{name}")


class HostService:
    """The hosts of all namespaces; `cleaning` is the default cleaning time in seconds."""

    def __init__(self, engine: Engine, cleaning: float = 0.0) -> None:
        self._engine = engine
        self._cleaning = cleaning

    async def get(self, ns: str, name: str) -> LeaseHost:
        """Return a host."""
        key = host_key(ns, name)
        record = await self._engine.record(*key)
        if record.kind != HOST.kind:
            raise NotFound(*key)
        return read_host(record)

    async def page(self, ns: str, marker: str | None, limit: int | None) -> tuple[list[LeaseHost], str | None]:
        """Return the hosts that follow a name, in the order of names, and the last name if others follow."""
        after = None if marker is None else host_key(ns, marker).id
        page = await read_page(self._engine.store.reader, Selector(ns, kind=HOST.kind), after, limit)
        hosts = [read_host(record) for record in page.objects]
        return hosts, None if page.last is None else hosts[-1].spec.name

    async def list(self, ns: str) -> list[LeaseHost]:
        """Return all hosts of a namespace."""
        return [read_host(record) async for record in list_all(self._engine.store.reader, Selector(ns, kind=HOST.kind))]

    async def register(self, caller: LeaseCaller, given: Mapping[str, Any]) -> LeaseHost:
        """Register a host."""
        name = given.get("name")
        if not isinstance(name, str):
            raise BadInput("name", name, "a text")
        check_host_name("name", name)
        said = _without_fixed(given, dict.fromkeys(NAME_FIELDS, name))
        spec = read_host_spec(HostSpec(name, cleaning=self._cleaning), said, self._cleaning)
        done = await self._engine.create(
            *host_key(caller.ns, name), HOST.kind, "register", spec=spec, actor=caller.actor, who=caller.who
        )
        return read_host(done.object)

    async def update(self, caller: LeaseCaller, name: str, given: Mapping[str, Any]) -> LeaseHost:
        """Update the properties of a host; null removes a property.

        The spec is made from the host as it was read, so the update is repeated if the host has changed since.
        """
        for _ in range(MAX_TRIES):
            host = await self.get(caller.ns, name)
            spec = read_host_spec(host.spec, _without_fixed(given, shown_fields(host)), self._cleaning)
            try:
                return await self._act(caller, name, "update", spec=spec, version=host.object.version)
            except VersionMismatch as error:
                changed = error
        raise changed

    async def remove(self, caller: LeaseCaller, name: str) -> LeaseHost:
        """Remove a host without bookings."""
        return await self._act(caller, name, "remove")

    async def fail(self, caller: LeaseCaller, name: str) -> LeaseHost:
        """Report a host as failed; its leases replace it."""
        return await self._act(caller, name, "fail")

    async def recover(self, caller: LeaseCaller, name: str) -> LeaseHost:
        """Report a host as up again; the leases that lost it are healed."""
        return await self._act(caller, name, "recover")

    # --- properties --------------------------------------------------------------------------------------------------

    async def properties(self, ns: str) -> dict[str, Property]:
        """Return the properties that hosts of a namespace have, by name."""
        hidden = Selector(ns, kind=PROPERTY.kind, states=(PropertyState.PRIVATE.word,))
        private = {record.id async for record in list_all(self._engine.store.reader, hidden)}
        values: dict[str, set[str]] = {}
        for host in await self.list(ns):
            for name, value in host.spec.properties.items():
                values.setdefault(name, set()).add(value)
        return {
            name: Property(name, property_key(ns, name).id in private, tuple(sorted(texts)))
            for name, texts in sorted(values.items())
        }

    async def show_property(self, caller: LeaseCaller, name: str, *, private: bool) -> Property:
        """Make a property of hosts private or public."""
        key = property_key(caller.ns, name)
        prop = (await self.properties(caller.ns)).get(name)
        if prop is None:
            raise NotFound(*key)
        event = "hide" if private else "publish"
        try:
            await self._engine.act(*key, event, actor=caller.actor, who=caller.who)
        except NotFound:
            await self._engine.create(*key, PROPERTY.kind, event, actor=caller.actor, who=caller.who)
        return replace(prop, private=private)

    async def _act(self, caller: LeaseCaller, name: str, action: str, **how: Any) -> LeaseHost:  # noqa: ANN401 - see `Engine.act`
        await self.get(caller.ns, name)
        done = await self._engine.act(*host_key(caller.ns, name), action, actor=caller.actor, who=caller.who, **how)
        return read_host(done.object)


def _without_fixed(given: Mapping[str, Any], fixed: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the properties among the fields of a host; raises if another field differs from what it is.

    A client can send a host back as it was shown.
    """
    for name in (*NAME_FIELDS, *GIVEN_BY_SERVER):
        if name in given and (name not in fixed or given[name] != fixed[name]):
            allowed = f"{fixed[name]!r}, as it is, or left out" if name in fixed else "left out"
            raise BadInput(name, given[name], f"{allowed}: it cannot be set")
    return {name: value for name, value in given.items() if name not in (*NAME_FIELDS, *GIVEN_BY_SERVER)}


def read_host_spec(spec: HostSpec, given: Mapping[str, Any], cleaning: float) -> HostSpec:
    """Return the spec of a host with the given properties, and the size that some of them say.

    `cleaning` is the cleaning time, in seconds, of a host that has no `cleaning_time` of its own any more.
    """
    properties = dict(spec.properties)
    for name, value in given.items():
        if len(name) > MAX_KEY_LENGTH:
            allowed = f"a name of at most {MAX_KEY_LENGTH} characters"
            raise BlazarBadInput("Extra capability key too long", "property", name, allowed)
        check_text("property", name, 1, MAX_KEY_LENGTH, without="/")
        if value is None:
            properties.pop(name, None)
        elif isinstance(value, str | int | float | bool):
            properties[name] = str(value)
        else:
            raise BadInput(name, value, "a text or a number")
    size = Share(*(read_whole_number(field, properties.get(field, "0"), 0, MAX_SIZE) for field in SIZES))
    if "cleaning_time" not in spec.properties:
        cleaning = spec.cleaning
    if "cleaning_time" in properties:
        cleaning = read_whole_number("cleaning_time", properties["cleaning_time"], 0, MAX_CLEANING_MINUTES) * 60.0
    text = properties.get("reservable", "true")
    if text.lower() not in ("true", "false"):
        raise BadInput("reservable", text, "true or false")
    return replace(
        spec,
        size=size,
        properties={**properties, "hypervisor_hostname": spec.name},
        cleaning=cleaning,
        reservable=text.lower() == "true",
    )
