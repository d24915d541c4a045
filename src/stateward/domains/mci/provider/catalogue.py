"""Catalogue of connections, specs and images: built-in ones and registered ones.

A new server has built-in connections to the simulated providers, several regions each, and `local` for this host.
Specs are named `{provider}+{region}+{name}`. A registered connection is an object of the deployment; a registered spec
or image is an object of a namespace.
"""

from collections.abc import Callable, Collection, Iterator
from copy import copy
from functools import cache

from msgspec.structs import replace

from stateward.domains.mci import model
from stateward.domains.mci.lifecycle import CONNECTION, IMAGE, SPEC
from stateward.drivers.process.shell_machine import NAMED_SIZES
from stateward.drivers.simulated.provider_catalogue import IMAGES, REGIONS, SPECS, SimulatedSpec
from stateward.engine.queries import list_all
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput, UnknownName
from stateward.store.filters import Selector
from stateward.store.port import Reader
from stateward.store.records import Key, Object

LOCAL = model.CloudConnection("local", "local", "here", driver="process")
LOCAL_IMAGE = "sh"

USERS = {
    "ubuntu": "ubuntu",
    "debian": "debian",
    "amazon linux": "ec2-user",
    "al2023-ami": "ec2-user",
    "centos": "centos",
    "rocky": "rocky",
    "cirros": "cirros",
}
"""Login users of images, by a word in the name of the image or of its operating system."""


def _built_in() -> Iterator[model.CloudConnection]:
    for provider, regions in REGIONS.items():
        for region in regions:
            yield model.CloudConnection(f"{provider}-{region}".lower(), provider, region)
    yield LOCAL


BUILT_IN = {connection.name: connection for connection in _built_in()}
"""The built-in connections, by name."""

BUILT_IN_LANES = frozenset(connection.lane for connection in BUILT_IN.values())


def _is_local(connection: model.CloudConnection) -> bool:
    return (connection.name, connection.lane, connection.driver) == (LOCAL.name, LOCAL.lane, LOCAL.driver)


class Catalogue:
    """Finds connections, specs and images.

    `on_host` tells which drivers run machines on this host; their connections start without grants. `local` enables the
    built-in connection to this host. `reader` is set when the engine is open.
    """

    reader: Reader

    def __init__(self, on_host: Callable[[str], bool], *, local: bool = True) -> None:
        self._on_host, self._local = on_host, local
        self._known: dict[Key, Object | None] | None = None
        self._found: dict[str, model.CloudConnection | None] | None = None
        self._uow: UnitOfWork | None = None

    def snapshot(self) -> "Catalogue":
        """Return a catalogue that reads each record once: 400 subgroups may name the same few records."""
        catalogue: Catalogue = copy(self)
        catalogue._known, catalogue._found = {}, {}
        return catalogue

    def within(self, uow: UnitOfWork) -> "Catalogue":
        """Return a catalogue that reads records inside a transaction."""
        catalogue: Catalogue = copy(self)
        catalogue._known, catalogue._found, catalogue._uow = None, None, uow
        return catalogue

    async def load(self, keys: Collection[Key]) -> None:
        """Read records in one query, for the calls that follow: in a snapshot or a transaction."""
        if self._uow is not None:
            records = dict(zip(keys, await self._uow.peek(keys), strict=True))
        elif self._known is not None:
            stored = await self.reader.objects(keys)
            records = {key: stored.get(key) for key in keys}
        if self._known is not None:
            self._known |= records

    async def record(self, key: Key) -> Object | None:
        """Return a record; a snapshot returns it as it was at its first read."""
        if self._known is None:
            return await self._read(key)
        if key not in self._known:
            self._known[key] = await self._read(key)
        return self._known[key]

    async def _read(self, key: Key) -> Object | None:
        return await self.reader.object(key) if self._uow is None else (await self._uow.peek([key]))[0]

    # --- connections -------------------------------------------------------------------------------------------------

    async def connection(self, name: str) -> model.CloudConnection:
        """Return an enabled connection, or raise."""
        connection = await self._find_connection(name)
        if connection is None or not connection.enabled:
            raise UnknownName("connection", name, [other.name for other in await self.connections()])
        return connection

    async def connection_of_machines(self, name: str) -> model.CloudConnection:
        """Return a connection, enabled or not, or raise: its machines can be terminated in any case."""
        return await self._find_connection(name) or await self.connection(name)

    async def stored_connection(self, name: str) -> tuple[model.CloudConnection, int]:
        """Return a connection as it is stored now, enabled or not, with the version of its record, or raise."""
        stored = await self.reader.object(Key(model.DEPLOYMENT_NS, model.record_id("connection", name)))
        connection = self.read_connection(name, stored) or await self.connection(name)
        return connection, 0 if stored is None else stored.version

    async def _find_connection(self, name: str) -> model.CloudConnection | None:
        if self._found is not None and name in self._found:
            return self._found[name]
        connection = self.read_connection(
            name, await self.record(Key(model.DEPLOYMENT_NS, model.record_id("connection", name)))
        )
        if self._found is not None:
            self._found[name] = connection
        return connection

    async def connections(self) -> list[model.CloudConnection]:
        """Return all enabled connections, sorted by name."""
        return [connection for connection in await self.all_connections() if connection.enabled]

    async def all_connections(self) -> list[model.CloudConnection]:
        """Return all connections, sorted by name, including disabled and removed ones."""
        known = {name: self._resolve(built_in) for name, built_in in BUILT_IN.items()}
        if self._uow is not None:  # only hints in errors need this list: a transaction lists no records for them
            return list(known.values())
        async for record in list_all(self.reader, Selector(model.DEPLOYMENT_NS, CONNECTION.kind)):
            connection = model.connection_record(record)
            known[connection.name] = self._resolve(connection)
        return [known[name] for name in sorted(known)]

    def read_connection(self, name: str, record: Object | None) -> model.CloudConnection | None:
        """Return the connection of a record, else the built-in connection of this name, else None."""
        if record is not None and not record.removed:
            return self._resolve(model.connection_record(record))
        return self._resolve(BUILT_IN[name]) if name in BUILT_IN else None

    def _resolve(self, connection: model.CloudConnection) -> model.CloudConnection:
        """Return a connection with its driver's default namespaces, and disabled if the configuration disables it."""
        namespaces = connection.namespaces
        if namespaces is None:
            namespaces = () if self._on_host(connection.driver) else ("*",)
        enabled = connection.enabled and (self._local or not _is_local(connection))
        return replace(connection, namespaces=namespaces, enabled=enabled)

    # --- specs and images --------------------------------------------------------------------------------------------

    async def spec(self, ns: str, id_: str) -> model.SpecRecord:
        """Return a spec that is registered in the namespace, or a built-in one."""
        record = await self.record(Key(ns, model.record_id("spec", id_)))
        if record is not None and not record.removed:
            return model.spec_record(record)
        spec = find_known_spec(id_)
        if spec is None:
            raise BadInput("specId", id_, "a registered spec, or {provider}+{region}+{name} of a known one")
        return spec

    async def image(self, ns: str, id_: str, connection: model.CloudConnection) -> model.ImageRecord:
        """Return an image that can be used at a connection."""
        record = await self.record(Key(ns, model.record_id("image", id_)))
        if record is not None and not record.removed:
            image = model.image_record(record)
            if image.connection not in ("", connection.name):
                raise BadInput("imageId", id_, f"an image of connection {connection.name}, not {image.connection}")
            return image
        known = _known_image(id_, connection)
        if known is None:
            raise BadInput("imageId", id_, f"an image known at {connection.name}")
        return known

    async def specs(self, ns: str) -> list[model.SpecRecord]:
        """Return the specs registered in a namespace."""
        return [model.spec_record(record) async for record in list_all(self.reader, Selector(ns, SPEC.kind))]

    async def images(self, ns: str) -> list[model.ImageRecord]:
        """Return the images registered in a namespace."""
        return [model.image_record(record) async for record in list_all(self.reader, Selector(ns, IMAGE.kind))]


def known_specs(connection: model.CloudConnection) -> list[model.SpecRecord]:
    """Return the built-in specs of a connection."""
    if connection.driver == "process":
        sizes = [SimulatedSpec(name, size.processors, size.mib / 1024, 0.0) for name, size in NAMED_SIZES.items()]
    else:
        sizes = list(SPECS.get(connection.provider, ()))
    return [
        model.SpecRecord(
            f"{connection.provider}+{connection.region}+{size.name}",
            connection.name,
            size.name,
            size.vcpu,
            size.memory_gib,
            size.cost,
            gpus=size.gpus,
            gpu_model=size.gpu_model,
            gpu_memory_gib=size.gpu_memory_gib,
        )
        for size in sizes
    ]


def known_images(connection: model.CloudConnection) -> list[model.ImageRecord]:
    """Return the built-in images of a connection."""
    if connection.driver == "process":
        return [model.ImageRecord(LOCAL_IMAGE, connection.name, LOCAL_IMAGE, "a process group")]
    return [
        model.ImageRecord(image.name, connection.name, image.name, image.system)
        for image in IMAGES.get(connection.provider, ())
    ]


def find_known_spec(id_: str) -> model.SpecRecord | None:
    """Return a built-in spec by its full name."""
    return _built_in_specs().get(id_)


@cache
def _built_in_specs() -> dict[str, model.SpecRecord]:
    """Return all built-in specs by id: 400 subgroups look up 400 of them, several times."""
    return {spec.id: spec for connection in BUILT_IN.values() for spec in known_specs(connection)}


def _known_image(id_: str, connection: model.CloudConnection) -> model.ImageRecord | None:
    """Find a built-in image by its name or operating system, in full (`{provider}+{region}+{name}`) or short."""
    *place, name = id_.lower().split("+")
    if place != [connection.provider.lower(), connection.region.lower()][: len(place)]:
        return None
    for image in known_images(connection):
        if name in (image.csp_name.lower(), image.system.lower(), image.system.lower().replace(" ", "")):
            return image
    return None


def login_user(image: model.ImageRecord, connection: model.CloudConnection) -> str:
    """Return the login user of an image, or an empty text if it is not known."""
    system = f"{image.system} {image.csp_name}".lower()
    if connection.driver == "process":
        return ""  # a process group runs under the server's own user
    if connection.provider == "aws" and "debian" in system:
        return "admin"
    return next((user for word, user in USERS.items() if word in system), "")
