"""Hosts, as their clients ask for them: registered, looked at, changed, removed."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from stateward.domains.leases.errors import Rejected
from stateward.domains.leases.lifecycle import HOST, PROPERTY, PropertyState
from stateward.domains.leases.model import SIZES, Host, HostSpec, Property, Share, host_key, host_of
from stateward.domains.leases.service import PAGE, Caller
from stateward.domains.leases.wire_values import MOST_MINUTES, MOST_SIZE, read_whole_number
from stateward.engine import Engine, NotFound
from stateward.errors import BadInput
from stateward.naming import check_text
from stateward.store.filters import Page, Selector
from stateward.store.records import Key, Object

LONGEST = 200
LONGEST_KEY = 64


def property_key(ns: str, name: str) -> Key:
    """Return the object that says whether a property is shown to everybody."""
    return Key(ns, f"property-{name}")


class Hosts:
    """Hosts of all namespaces."""

    def __init__(self, engine: Engine, cleaning: float = 0.0) -> None:
        self._engine = engine
        self._cleaning = cleaning

    async def get(self, ns: str, name: str) -> Host:
        """Return a host."""
        key = host_key(ns, name)
        found = await self._engine.get(*key)
        if found.kind != HOST.kind:
            raise NotFound(*key)
        return host_of(found)

    async def list(self, ns: str) -> list[Host]:
        """Return all hosts of a namespace."""
        return [host_of(one) for one in await self._all(Selector(ns, kind=HOST.kind))]

    async def _all(self, chosen: Selector) -> Sequence[Object]:
        objects: list[Object] = []
        after = None
        while True:
            found = await self._engine.store.reader.list_objects(chosen, Page(after, PAGE))
            objects += found
            if len(found) < PAGE:
                return objects
            after = found[-1].id

    async def register(self, caller: Caller, given: Mapping[str, Any]) -> Host:
        """Add a host."""
        name = given.get("name")
        if not isinstance(name, str):
            raise BadInput("name", name, "a text")
        check_text("name", name, 1, LONGEST, without="/")
        said = {key: value for key, value in given.items() if key != "name"}
        spec = described(HostSpec(name, cleaning=self._cleaning), said, self._cleaning)
        done = await self._engine.create(
            *host_key(caller.ns, name), HOST.kind, "register", spec=spec, actor=caller.actor, who=caller.who
        )
        return host_of(done.object)

    async def update(self, caller: Caller, name: str, given: Mapping[str, Any]) -> Host:
        """Change what a host is said to be; a property that is given as null is taken away."""
        spec = described((await self.get(caller.ns, name)).spec, given, self._cleaning)
        return await self._act(caller, name, "update", spec=spec)

    async def remove(self, caller: Caller, name: str) -> Host:
        """Remove a host that nothing is promised of."""
        return await self._act(caller, name, "remove")

    async def fail(self, caller: Caller, name: str) -> Host:
        """Say that a host is out of order; its leases are told."""
        return await self._act(caller, name, "fail")

    async def recover(self, caller: Caller, name: str) -> Host:
        """Say that a host is in order again; the leases that miss it are told."""
        return await self._act(caller, name, "recover")

    # --- properties --------------------------------------------------------------------------------------------------

    async def properties(self, ns: str) -> dict[str, Property]:
        """Return the properties that hosts of a namespace have, by name."""
        hidden = await self._all(Selector(ns, kind=PROPERTY.kind, states=(PropertyState.PRIVATE.word,)))
        private = {one.id for one in hidden}
        values: dict[str, set[str]] = {}
        for host in await self.list(ns):
            for name, value in host.spec.properties.items():
                values.setdefault(name, set()).add(value)
        return {
            name: Property(name, property_key(ns, name).id in private, tuple(sorted(found)))
            for name, found in sorted(values.items())
        }

    async def show_property(self, caller: Caller, name: str, *, private: bool) -> Property:
        """Show a property of hosts to everybody, or not."""
        key = property_key(caller.ns, name)
        found = (await self.properties(caller.ns)).get(name)
        if found is None:
            raise NotFound(*key)
        event = "hide" if private else "publish"
        try:
            await self._engine.act(*key, event, actor=caller.actor, who=caller.who)
        except NotFound:
            await self._engine.create(*key, PROPERTY.kind, event, actor=caller.actor, who=caller.who)
        return replace(found, private=private)

    async def _act(self, caller: Caller, name: str, action: str, **how: Any) -> Host:  # noqa: ANN401 - see `Engine.act`
        await self.get(caller.ns, name)
        done = await self._engine.act(*host_key(caller.ns, name), action, actor=caller.actor, who=caller.who, **how)
        return host_of(done.object)


def described(spec: HostSpec, given: Mapping[str, Any], cleaning: float) -> HostSpec:
    """Return a host with what is said of it: its size, and properties that reservations can ask for.

    `cleaning` is the cleaning time, in seconds, of a host that has no `cleaning_time` of its own any more.
    """
    properties = dict(spec.properties)
    for name, value in given.items():
        _check_key(name)
        if value is None:
            properties.pop(name, None)
        elif isinstance(value, str | int | float | bool):
            properties[name] = str(value)
        else:
            raise BadInput(name, value, "a text or a number")
    size = Share(*(read_whole_number(field, properties.get(field, "0"), 0, MOST_SIZE) for field in SIZES))
    if "cleaning_time" not in spec.properties:
        cleaning = spec.cleaning
    if "cleaning_time" in properties:
        cleaning = read_whole_number("cleaning_time", properties["cleaning_time"], 0, MOST_MINUTES) * 60.0
    return replace(
        spec,
        size=size,
        properties={**properties, "hypervisor_hostname": spec.name},
        cleaning=cleaning,
        reservable=_reservable(properties.get("reservable", "true")),
    )


def _check_key(name: str) -> None:
    if len(name) > LONGEST_KEY:
        allowed = f"a name of at most {LONGEST_KEY} characters"
        raise Rejected("Extra capability key too long", "property", name, allowed)
    check_text("property", name, 1, LONGEST_KEY, without="/")


def _reservable(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadInput("reservable", text, "true or false")
    return text.lower() == "true"
