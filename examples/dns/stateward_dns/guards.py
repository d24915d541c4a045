"""Guards: conditions that span objects, checked in the transaction that accepts a request.

A record needs a ready zone, and a name and type in it that no other record has. A zone with records is not deleted.
Both guards lock the zone (it is in the lock set of its records), so neither can be passed by the other in between.
"""

import re
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from stateward.engine import Denied, Key, NotFound, Object, Request, Selector, UnitOfWork, to_json
from stateward.plugin import BadInput
from stateward_dns.lifecycle import RECORD, ZONE, ZoneState
from stateward_dns.model import ZONE_NAME, RecordChange, RecordSpec, rrset_key

ReadSpec = Callable[[Object], RecordSpec]
"""Reads a stored spec in its present version: `Kind.read_spec`."""

RRSET_LABEL = "rrset"
"""The label by which a record with the same name and type is record."""

NEEDS_ZONE = frozenset({"create", "enable", "change", "repair"})
"""The actions that write to the zone; disabling and deleting are possible while the zone is not ready."""


class ZoneNotReady(Denied, code="zone_not_ready", retry=True):
    """A record cannot be written to its zone now."""

    zone: str
    state: str
    text = "zone {zone} is {state}, and has to be ready"


class RecordTaken(Denied, code="record_taken"):
    """Another record has this name and type."""

    zone: str
    rrset: str
    record: str
    text = "record {record} has {rrset} of zone {zone} already"


class ZoneNotEmpty(Denied, code="zone_not_empty"):
    """The zone has records."""

    zone: str
    records: list[str]
    text = "zone {zone} has records; delete them first: {records}"


async def guard_zone(uow: UnitOfWork, request: Request, record: Object) -> Request | None:
    """Check the name of a new zone, and that a zone to delete has no records."""
    if request.creates is not None and re.match(ZONE_NAME, record.id) is None:
        raise BadInput("id", record.id, "a domain name in lower case, such as example.org")
    if request.action == "delete":
        records = await uow.select(Selector(record.ns, RECORD.kind, parent=record.id))
        if records:
            raise ZoneNotEmpty(record.id, [one.id for one in records[:5]])
    return None


async def guard_record(read_spec: ReadSpec, uow: UnitOfWork, request: Request, record: Object) -> Request | None:
    """Check the zone of a record; a change of its values becomes its new spec."""
    is_new = request.creates is not None
    spec = msgspec.json.decode(request.spec or "{}", type=RecordSpec) if is_new else read_spec(record)
    if request.action in NEEDS_ZONE:
        _require_ready(uow, record.ns, spec.zone)
    if request.creates is not None:
        return await _adopt(uow, request, spec)
    if request.action == "change":
        return replace(request, spec=to_json(_changed(spec, msgspec.json.decode(request.args, type=RecordChange))))
    return None


def record_lock_set(read_spec: ReadSpec, request: Request, record: Object | None) -> Iterable[Key]:
    """Return the zone of a record; the spec of a new one is not checked yet."""
    if request.creates is None:
        return () if record is None else [Key(request.ns, read_spec(record).zone)]
    zone = msgspec.json.decode(request.spec or "{}").get("zone")
    return [Key(request.ns, zone)] if isinstance(zone, str) else ()


def _require_ready(uow: UnitOfWork, ns: str, zone: str) -> None:
    record = uow.objects.get(Key(ns, zone))
    if record is None or record.removed or record.kind != ZONE.kind:
        raise NotFound(ns, zone)
    if record.state != ZoneState.READY:
        raise ZoneNotReady(zone, record.state)


async def _adopt(uow: UnitOfWork, request: Request, spec: RecordSpec) -> Request:
    """Make a new record a part of its zone, and find it by its name and type from now on."""
    assert request.creates is not None
    rrset = str(rrset_key(spec))
    for other in await uow.select(Selector(request.ns, RECORD.kind, parent=spec.zone, labels=((RRSET_LABEL, rrset),))):
        raise RecordTaken(spec.zone, rrset, other.id)
    labels = {**msgspec.json.decode(request.creates.labels), RRSET_LABEL: rrset}
    return replace(request, creates=replace(request.creates, parent=spec.zone, labels=to_json(labels)))


def _changed(spec: RecordSpec, change: RecordChange) -> RecordSpec:
    return replace(spec, values=change.values or spec.values, ttl=change.ttl or spec.ttl)
