"""What an MCI can be made of: connections, specs and images, those known from the start and those registered.

A fresh server knows the simulated providers under their own names, with several regions each, and this host as `local`.
Specs are named `{provider}+{region}+{name}`. What is registered later is an object, of the deployment (connections) or
of a namespace (specs and images).
"""

from collections.abc import AsyncIterator, Iterator

import msgspec

from stateward.domains.mci.lifecycle import CONNECTION, IMAGE, SPEC
from stateward.domains.mci.model import HOME, Connection, Image, Spec, part_id
from stateward.drivers.process.sizes import NAMED
from stateward.drivers.simulated.catalogue import IMAGES, REGIONS, SPECS
from stateward.errors import BadInput, UnknownName
from stateward.store.port import Reader
from stateward.store.records import Key, Object
from stateward.store.selection import Page, Selector

LOCAL = Connection("local", "local", "here", driver="process")
LOCAL_IMAGE = "sh"
PAGE = 1000


def _built_in() -> Iterator[Connection]:
    for provider, regions in REGIONS.items():
        for region in regions:
            yield Connection(f"{provider}-{region}".lower(), provider, region)
    yield LOCAL


BUILT_IN = {one.name: one for one in _built_in()}
"""The connections that every server knows."""


class Catalogue:
    """Finds connections, specs and images."""

    def __init__(self) -> None:
        self.reader: Reader | None = None

    @property
    def _reader(self) -> Reader:
        assert self.reader is not None, "the engine is not open"
        return self.reader

    # --- connections -------------------------------------------------------------------------------------------------

    async def connection(self, name: str) -> Connection:
        """Return a connection, or raise."""
        found = await self._reader.object(Key(HOME, part_id("connection", name)))
        if found is not None and not found.removed:
            return msgspec.json.decode(found.spec, type=Connection)
        try:
            return BUILT_IN[name]
        except KeyError:
            raise UnknownName("connection", name, [one.name for one in await self.connections()]) from None

    async def connections(self) -> list[Connection]:
        """Return all connections, by name."""
        known = dict(BUILT_IN)
        async for found in objects(self._reader, Selector(HOME, CONNECTION.kind)):
            one = msgspec.json.decode(found.spec, type=Connection)
            known[one.name] = one
        return [known[name] for name in sorted(known)]

    # --- specs and images --------------------------------------------------------------------------------------------

    async def spec(self, ns: str, id_: str) -> Spec:
        """Return a spec: one registered in the namespace, or one of a provider."""
        found = await self._reader.object(Key(ns, part_id("spec", id_)))
        if found is not None and not found.removed:
            return msgspec.json.decode(found.spec, type=Spec)
        spec = _known_spec(id_)
        if spec is None:
            raise BadInput("specId", id_, "a registered spec, or {provider}+{region}+{name} of a known one")
        return spec

    async def image(self, ns: str, id_: str, connection: Connection) -> Image:
        """Return an image that can be used at a connection."""
        found = await self._reader.object(Key(ns, part_id("image", id_)))
        if found is not None and not found.removed:
            image = msgspec.json.decode(found.spec, type=Image)
            if image.connection not in ("", connection.name):
                raise BadInput("imageId", id_, f"an image of connection {connection.name}, not {image.connection}")
            return image
        known = _known_image(id_, connection)
        if known is None:
            raise BadInput("imageId", id_, f"an image known at {connection.name}")
        return known

    async def specs(self, ns: str) -> list[Spec]:
        """Return the specs registered in a namespace."""
        return [
            msgspec.json.decode(one.spec, type=Spec) async for one in objects(self._reader, Selector(ns, SPEC.kind))
        ]

    async def images(self, ns: str) -> list[Image]:
        """Return the images registered in a namespace."""
        return [
            msgspec.json.decode(one.spec, type=Image) async for one in objects(self._reader, Selector(ns, IMAGE.kind))
        ]


def known_specs(connection: Connection) -> list[Spec]:
    """Return the specs that are known from the start at a connection."""
    if connection.driver == "process":
        return [
            Spec(
                f"{connection.provider}+{connection.region}+{name}",
                connection.name,
                name,
                size.processors,
                size.mib / 1024,
            )
            for name, size in NAMED.items()
        ]
    return [
        Spec(
            f"{connection.provider}+{connection.region}+{one.name}",
            connection.name,
            one.name,
            one.vcpu,
            one.memory_gib,
            one.cost,
        )
        for one in SPECS.get(connection.provider, ())
    ]


def known_images(connection: Connection) -> list[Image]:
    """Return the images that are known from the start at a connection."""
    if connection.driver == "process":
        return [Image(LOCAL_IMAGE, connection.name, LOCAL_IMAGE, "a process group")]
    return [Image(one.name, connection.name, one.name, one.system) for one in IMAGES.get(connection.provider, ())]


def _known_spec(id_: str) -> Spec | None:
    provider, _, rest = id_.partition("+")
    region, _, name = rest.partition("+")
    for connection in BUILT_IN.values():
        if (connection.provider, connection.region) == (provider, region):
            return next((one for one in known_specs(connection) if one.csp_name == name), None)
    return None


def _known_image(id_: str, connection: Connection) -> Image | None:
    """Find an image by the provider's name of it, or by its system, in full (`{provider}+{region}+{name}`) or short."""
    name = id_.rpartition("+")[2].lower()
    for image in known_images(connection):
        if name in (image.csp_name.lower(), image.system.lower(), image.system.lower().replace(" ", "")):
            return image
    return None


async def objects(reader: Reader, selector: Selector) -> AsyncIterator[Object]:
    """Yield all chosen objects, page by page."""
    after: str | None = None
    while True:
        page = await reader.list_objects(selector, Page(after, PAGE))
        for one in page:
            yield one
        if len(page) < PAGE:
            return
        after = page[-1].id
