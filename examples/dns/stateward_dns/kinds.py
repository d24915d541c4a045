"""The kinds of the domain: declared here, and given their handlers where a server is known."""

from msgspec.structs import replace

from stateward.engine import Kind, Object, Route, Rules
from stateward_dns.guards import RRSET_LABEL, guard_record, guard_zone, record_lock_set
from stateward_dns.handlers import RecordHandlers, ZoneHandlers
from stateward_dns.lifecycle import RECORD, ZONE
from stateward_dns.model import RecordChange, RecordSpec, ZoneSpec
from stateward_dns.server_port import DnsServer

zone = Kind(ZONE, spec=ZoneSpec, guard=guard_zone, columns=("spec.about",))

record: Kind = Kind(
    RECORD,
    spec=RecordSpec,
    args={"change": RecordChange},
    guard=lambda uow, request, found: guard_record(record.read_spec, uow, request, found),
    lock_set=lambda request, found: record_lock_set(record.read_spec, request, found),
    rules=Rules(reserved_labels=(RRSET_LABEL,)),
    columns=("spec.zone", "spec.name", "spec.type", "spec.values", "spec.ttl"),
)


def kinds_on(server: DnsServer) -> list[Kind]:
    """Return the kinds with handlers that use a server; its operations share a lane."""

    def route(_object: Object, _action: str) -> Route:
        return Route("dns", f"dns {server.address}")

    return [
        replace(zone, handlers=ZoneHandlers(server).by_action(), route=route),
        replace(record, handlers=RecordHandlers(server).by_action(), route=route),
    ]
