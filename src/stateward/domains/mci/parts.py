"""Networks, security groups and keys: made at the provider, found again by their uid, shared by name.

The private half of a key that the provider makes is told to whoever asked for it, once, and kept nowhere.
"""

import msgspec
from msgspec import Struct

from stateward.domains.mci.catalogue import Catalogue
from stateward.domains.mci.lifecycle import SECURITY_GROUP, SSH_KEY, VNET, PartState
from stateward.domains.mci.model import GroupSpec, KeySpec, NetworkSpec, PartSeen, part_id, text
from stateward.domains.mci.vms import CloudOf, answered
from stateward.drivers import Accepted, Already, Driver, Outcome, Part, PartKind, Refused, Why
from stateward.engine import Ending, Handler, Job, Kind, Permanent, Route, Temporary
from stateward.lifecycle import Lifecycle
from stateward.store.records import Key, Object

KINDS: dict[str, Lifecycle] = {"vNet": VNET, "securityGroup": SECURITY_GROUP, "sshKey": SSH_KEY}
"""The kinds of parts, by what the wire calls them."""

WORDS = {lifecycle.kind: word for word, lifecycle in KINDS.items()}


class Where(Struct, frozen=True):
    """What all parts have in common."""

    name: str
    uid: str
    connection: str
    provider: str
    region: str


class Secrets:
    """Private keys on their way to whoever asked for them: by operation, in this process, for one reading."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}

    def put(self, op: str, secret: str) -> None:
        """Keep a secret until it is taken; the oldest go when nobody comes."""
        if secret:
            self._kept[op] = secret
            while len(self._kept) > 100:
                del self._kept[next(iter(self._kept))]

    def take(self, op: str) -> str:
        """Take a secret: it is gone then."""
        return self._kept.pop(op, "")


class Parts:
    """The handlers of networks, security groups and keys."""

    def __init__(self, cloud_of: CloudOf, catalogue: Catalogue, secrets: Secrets) -> None:
        self._cloud_of = cloud_of
        self._catalogue = catalogue
        self._secrets = secrets

    def kinds(self) -> list[Kind]:
        """Return the kinds, with their handlers."""
        make = {"vNet": self._network, "securityGroup": self._group, "sshKey": self._key}
        return [
            Kind(
                lifecycle,
                {
                    "create": Handler(make[word]),
                    "repair": Handler(make[word]),
                    "delete": Handler(self._delete),
                },
                _route,
            )
            for word, lifecycle in KINDS.items()
        ]

    async def _network(self, job: Job) -> Ending:
        want = msgspec.json.decode(job.claim.object.spec, type=NetworkSpec)
        driver = await self._driver(want.connection)
        network = Part(PartKind.NETWORK, want.uid, want.name, facts={"cidr": want.cidr})
        native = await self._ensure(driver, job, network)
        subnets: dict[str, str] = {}
        for one in want.subnets:
            part = Part(
                PartKind.SUBNET, f"{want.uid}-{one.name}", one.name, native, {"cidr": one.cidr, "zone": one.zone}
            )
            subnets[one.name] = await self._ensure(driver, job, part)
        return Ending(seen=text(PartSeen(native, subnets)))

    async def _group(self, job: Job) -> Ending:
        want = msgspec.json.decode(job.claim.object.spec, type=GroupSpec)
        network = await self._seen(job.ns, "vNet", want.network)
        rules = msgspec.json.encode(want.rules).decode()
        part = Part(PartKind.SECURITY_GROUP, want.uid, want.name, network.native_id, {"rules": rules})
        return Ending(seen=text(PartSeen(await self._ensure(await self._driver(want.connection), job, part))))

    async def _key(self, job: Job) -> Ending:
        want = msgspec.json.decode(job.claim.object.spec, type=KeySpec)
        facts = {"public_key": want.public_key} if want.public_key else {}
        part = Part(PartKind.SSH_KEY, want.uid, want.name, facts=facts)
        return Ending(seen=text(PartSeen(await self._ensure(await self._driver(want.connection), job, part))))

    async def _delete(self, job: Job) -> None:
        found = job.claim.object
        where, seen = msgspec.json.decode(found.spec, type=Where), part_seen(found)
        driver, kind = await self._driver(where.connection), PartKind(WORDS[found.kind])
        for name, native in seen.subnets.items():
            gone(await driver.remove(Part(PartKind.SUBNET, f"{where.uid}-{name}", name, native_id=native)))
        gone(await driver.remove(Part(kind, where.uid, where.name, native_id=seen.native_id)))

    async def _ensure(self, driver: Driver, job: Job, part: Part) -> str:
        if not driver.caps.parts:
            return part.name
        outcome = await driver.ensure(part)
        answered(outcome)
        assert isinstance(outcome, Accepted | Already)
        if isinstance(outcome, Accepted):
            self._secrets.put(job.key.id, outcome.secret)
        return outcome.native_id

    async def _seen(self, ns: str, word: str, name: str) -> PartSeen:
        assert self._catalogue.reader is not None
        found = await self._catalogue.reader.object(Key(ns, part_id(word, name)))
        if found is None or found.removed:
            raise Permanent(f"there is no {word} {name!r}")
        if found.state != PartState.AVAILABLE:
            raise Temporary(f"{word} {name!r} is {found.state}")
        return part_seen(found)

    async def _driver(self, connection: str) -> Driver:
        return (await self._cloud_of(connection)).driver


def part_seen(found: Object) -> PartSeen:
    """Return what was seen of a part."""
    return msgspec.json.decode(found.seen, type=PartSeen)


def where_of(found: Object) -> Where:
    """Return what all parts have in common, of one of them."""
    return msgspec.json.decode(found.spec, type=Where)


def _route(found: Object, _action: str) -> Route:
    where = where_of(found)
    return Route(where.provider, f"{where.provider}/{where.region}")


def gone(outcome: Outcome) -> None:
    """Read the outcome of a removal: what was never there is gone."""
    if isinstance(outcome, Refused) and outcome.why in (Why.NOT_FOUND, Why.UNABLE):
        return
    answered(outcome)
