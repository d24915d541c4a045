"""Hosts, as their clients ask for them: registered, looked at, changed, removed."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.domains.leases.lifecycle import HOST
from stateward.domains.leases.model import Host, HostSpec, Share, host_key, host_of
from stateward.domains.leases.service import PAGE, Caller
from stateward.engine import Engine, NotFound
from stateward.errors import BadInput
from stateward.store.selection import Page, Selector

SIZES = ("vcpus", "memory_mb", "local_gb")
LONGEST = 200


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
        hosts: list[Host] = []
        after = None
        while True:
            chosen = Selector(ns, kind=HOST.kind)
            found = await self._engine.store.reader.list_objects(chosen, Page(after, PAGE))
            hosts += [host_of(one) for one in found]
            if len(found) < PAGE:
                return hosts
            after = found[-1].id

    async def register(self, caller: Caller, given: Mapping[str, Any]) -> Host:
        """Add a host."""
        name = given.get("name")
        if not isinstance(name, str) or not name or len(name) > LONGEST or "/" in name:
            raise BadInput("name", name, f"a name of 1 to {LONGEST} characters, without a stroke")
        spec = described(HostSpec(name, cleaning=self._cleaning), {k: v for k, v in given.items() if k != "name"})
        done = await self._engine.create(
            *host_key(caller.ns, name), HOST.kind, "register", spec=spec, actor=caller.actor, who=caller.who
        )
        return host_of(done.object)

    async def update(self, caller: Caller, name: str, given: Mapping[str, Any]) -> Host:
        """Change what a host is said to be; a property that is given as null is taken away."""
        return await self._act(caller, name, "update", spec=described((await self.get(caller.ns, name)).spec, given))

    async def remove(self, caller: Caller, name: str) -> Host:
        """Remove a host that nothing is promised of."""
        return await self._act(caller, name, "remove")

    async def fail(self, caller: Caller, name: str) -> Host:
        """Say that a host is out of order; its leases are told."""
        return await self._act(caller, name, "fail")

    async def recover(self, caller: Caller, name: str) -> Host:
        """Say that a host is in order again; the leases that miss it are told."""
        return await self._act(caller, name, "recover")

    async def _act(self, caller: Caller, name: str, action: str, **how: Any) -> Host:  # noqa: ANN401 - see `Engine.act`
        await self.get(caller.ns, name)
        done = await self._engine.act(*host_key(caller.ns, name), action, actor=caller.actor, who=caller.who, **how)
        return host_of(done.object)


def described(spec: HostSpec, given: Mapping[str, Any]) -> HostSpec:
    """Return a host with what is said of it: its size, and properties that reservations can ask for."""
    properties = dict(spec.properties)
    for name, value in given.items():
        if value is None:
            properties.pop(name, None)
        elif isinstance(value, str | int | float | bool):
            properties[name] = str(value)
        else:
            raise BadInput(name, value, "a text or a number")
    size = Share(*(_whole(field, properties.get(field, "0")) for field in SIZES))
    cleaning = _whole("cleaning_time", properties["cleaning_time"]) * 60.0 if "cleaning_time" in properties else None
    return replace(
        spec,
        size=size,
        properties={**properties, "hypervisor_hostname": spec.name},
        cleaning=spec.cleaning if cleaning is None else cleaning,
        reservable=properties.get("reservable", "true").lower() != "false",
    )


def _whole(field: str, value: str) -> int:
    try:
        return msgspec.convert(int(value), int)
    except ValueError:
        raise BadInput(field, value, "a whole number") from None
