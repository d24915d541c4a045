"""Sample objects of all domains, in the states and with the observations that the console has to show."""

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from stateward.store.records import JournalEntry, Object

NS, FLEET_NS = "demo", "fleet"
LARGE_MCI = "crowd"
WHO = "sample data"
HOUR, DAY = 3_600.0, 86_400.0

GROUPS = (("aws", 3), ("azure", 2), ("gcp", 2), ("ncp", 1), ("ovc", 4), ("edge", 4))
LANES = (
    ("aws/ap-northeast-2", 30), ("aws/eu-north-1", 30), ("azure/westeurope", 20), ("azure/koreacentral", 20),
    ("gcp/europe-west4", 25), ("ncp/kr", 10), ("ovc/node-1", 4), ("ovc/node-2", 4), ("edge/oslo", 8),
)  # fmt: skip

PROVIDERS = {
    "aws": ("ap-northeast-2", "eu-north-1", "us-east-1"),
    "azure": ("koreacentral", "westeurope"),
    "gcp": ("asia-northeast3", "europe-west4"),
    "ncp": ("kr",),
}


class SampleObject(Struct, frozen=True):
    """A sample object."""

    kind: str
    id: str
    state: str
    parent: str | None = None
    spec: dict[str, Any] = {}
    seen: Any = {}
    labels: dict[str, str] = {}
    error: str | None = None
    queue: str | None = None


def sample_objects(now: float) -> Iterator[SampleObject]:
    """Yield all sample objects but the large fleet."""
    yield from _mci()
    yield from _ovc()
    yield from _edge()
    yield from _leases(now)
    yield from _systems(now)


def _mci() -> Iterator[SampleObject]:
    groups = (("web", "aws", "ap-northeast-2", 4), ("web", "gcp", "europe-west4", 3), ("db", "azure", "westeurope", 2))
    yield SampleObject("mci.mci", "shop", "Partial", spec={"name": "shop", "groups": []})
    odd = {("web", 2): "Suspended", ("db", 1): "Failed"}
    for group, provider, region, size in groups:
        for number in range(1, size + 1):
            spec = {"name": f"{group}-{number}", "group": group, "provider": provider, "region": region, "mci": "shop"}
            state = odd.get((group, number), "Running") if provider != "gcp" else "Running"
            error = "QuotaExceeded: no room for Standard_D2s" if state == "Failed" else None
            seen = {"public_ip": f"203.0.113.{10 + number}", "native_state": state.lower()}
            name = f"shop.{group}-{provider}-{number}"
            labels = {"tier": group, "subgroup": group, "provider": provider, "region": region}
            yield SampleObject("mci.vm", name, state, "shop", spec, seen, labels, error)
    yield SampleObject("mci.mci", "lab", "Running", spec={"name": "lab"})
    for number in (1, 2):
        spec = {"name": f"node-{number}", "group": "node", "provider": "ncp", "region": "kr", "mci": "lab"}
        labels = {"tier": "node", "subgroup": "node", "provider": "ncp", "region": "kr"}
        yield SampleObject("mci.vm", f"lab.node-{number}", "Running", "lab", spec, labels=labels)


def _ovc() -> Iterator[SampleObject]:
    place = {"provider": "ovc", "region": "node-1"}
    yield SampleObject("ovc.account", "acme", "CONFIRMED")
    yield SampleObject("ovc.cloudspace", "acme-prod", "DEPLOYED", "acme", place)
    yield SampleObject(
        "ovc.vm", "ledger", "RUNNING", "acme-prod", {**place, "vcpus": 4, "memory": 8192}, labels={"app": "ledger"}
    )
    yield SampleObject("ovc.vm", "builder", "HALTED", "acme-prod", {**place, "region": "node-2"}, labels={"app": "ci"})
    yield SampleObject("ovc.vm", "broken", "ERROR", "acme-prod", place, error="node-1 has no memory left for 8192 MB")
    yield SampleObject("ovc.disk", "ledger-data", "ASSIGNED", "ledger", {**place, "size": 100}, queue="ledger")
    yield SampleObject("ovc.disk", "ledger-logs", "CREATED", "ledger", {**place, "size": 20}, queue="ledger")
    yield SampleObject("ovc.vm", "old-web", "DELETED", "acme-prod", place)
    yield SampleObject("ovc.disk", "old-data", "TOBEDELETED", "acme-prod", {**place, "size": 500})
    yield SampleObject("ovc.node", "node-1", "ENABLED")
    yield SampleObject("ovc.node", "node-2", "MAINTENANCE")


def _edge() -> Iterator[SampleObject]:
    towns = (("oslo", "Ready", "2.4.1"), ("bergen", "Ready", "2.4.0"), ("busan", "UpdateError", "2.3.9"))
    for town, state, version in towns:
        spec = {"provider": "edge", "region": town}
        seen = {"version": version, "target": "2.4.1", "serving": int(state == "Ready"), "controller": "north"}
        error = "the new agent did not call within 600 s" if state == "UpdateError" else None
        yield SampleObject("edge.cloudlet", town, state, None, spec, seen, error=error)
        place = {"provider": "edge", "region": town}
        yield SampleObject("edge.clusterinst", f"{town}-k8s", "Ready", town, {**place, "nodes": 3})
        yield SampleObject("edge.appinst", f"{town}-vision", "Ready", town, place)
    yield SampleObject("edge.cloudlet", "tromso", "Offline", None, {"provider": "edge", "region": "tromso"})


def _leases(now: float) -> Iterator[SampleObject]:
    day = now - now % DAY
    plans = (
        #name          state        from   to   hosts
        ("night-train", "TERMINATED", -20,  -6,  (0, 1)),
        ("gpu-day",     "ACTIVE",     -4,   10,  (0, 1, 2)),
        ("ci-burst",    "ACTIVE",     -2,   5,   (3,)),
        ("gpu-night",   "PENDING",    12,   26,  (0, 1)),
        ("rendering",   "PENDING",    8,    40,  (2, 3)),
        ("audit",       "PENDING",    30,   54,  (4,)),
        ("broken-plan", "ERROR",      -10,  20,  (5,)),
    )  # fmt: skip
    books: dict[int, list[Any]] = {number: [] for number in range(6)}
    for name, state, first, last, hosts in plans:
        start, end = day + (12 + first) * HOUR, day + (12 + last) * HOUR
        for number in hosts:
            books[number].append([name, f"{name}-r", start, end])
        reserved = [{"id": f"{name}-r", "resource_type": "physical:host", "details": {"min": len(hosts)}}]
        spec = {"name": name, "start": start, "end": end, "before_end": None, "reservations": reserved, "user": "ann"}
        yield SampleObject("leases.lease", name, state, None, spec, error="no host left" if state == "ERROR" else None)
    for number, bookings in books.items():
        state = "failed" if number == 5 else "up"
        seen = {"bookings": bookings}
        yield SampleObject("leases.host", f"host-{number + 1}", state, None, {"name": f"host-{number + 1}"}, seen)


def _systems(now: float) -> Iterator[SampleObject]:
    yield SampleObject("systems.system", "billing", "degraded", spec={"backend": "simulated"})
    tree = (
        ("api", "billing", "stable"), ("api.auth", "billing.api", "stable"), ("api.rates", "billing.api", "degraded"),
        ("jobs", "billing", "stable"), ("jobs.invoices", "billing.jobs", "stable"), ("web", "billing", "stable"),
    )  # fmt: skip
    for name, parent, state in tree:
        service = {"image": f"billing/{name}:1.8", "instances": 3, **({"address": 0} if name == "web" else {})}
        spec = {"service": service, "assigned_port": 28420, "path": "/" + name.replace(".", "/")}
        yield SampleObject(
            "systems.service", f"billing.{name}", state, parent, spec, {"ready": 2 if state == "degraded" else 3}
        )
    yield from _jobs(now)
    host = {"cpu": 8, "memory": 16_384, "slots": 12, "connected": True, "version": "0.2.0", "address": "10.0.0.7"}
    yield SampleObject("systems.node", "rack-7", "ready", None, {"labels": {"zone": "a"}}, host)
    yield SampleObject("systems.secret", "secret+db", "stored", None, {"version": 2})
    yield SampleObject("systems.deploy", "deploy-0", "succeeded", "billing", {"path": "/web"})
    yield SampleObject("systems.nodepool", "billing.pool", "stable", "billing", {"nodes": 5})


def _jobs(now: float) -> Iterator[SampleObject]:
    job = {"path": "/close", "job": {"command": ["close-month"], "schedule": "0 3 1 * *"}}
    yield SampleObject("systems.job", "billing.close", "active", "billing", job, {"next": now + DAY})
    yield SampleObject("systems.jobrun", "billing.close@0193a1", "succeeded", "billing.close", {"trigger": "request"})


def large_fleet(cells: int, chance: Random) -> Iterator[SampleObject]:
    """Yield a large fleet of VMs over providers and regions."""
    places = [(provider, region) for provider, regions in PROVIDERS.items() for region in regions]
    states = ("Running",) * 12 + ("Suspended",) * 4 + ("Failed", "Terminated", "Undefined")
    for number in range(cells):
        provider, region = places[number % len(places)]
        spec = {"name": f"vm-{number:05}", "group": "crowd", "provider": provider, "region": region}
        error = "InsufficientCapacity: try another zone" if (state := chance.choice(states)) == "Failed" else None
        yield SampleObject("mci.vm", f"vm-{number:05}", state, None, spec, {}, {"provider": provider}, error)


def large_mci(size: int, chance: Random) -> Iterator[SampleObject]:
    """Yield an MCI with many VMs in subgroups over all regions."""
    places = [(provider, region) for provider, regions in PROVIDERS.items() for region in regions]
    groups = ("web",) * 6 + ("db",) * 3 + ("batch",)
    states = ("Running",) * 15 + ("Suspended",) * 3 + ("Failed", "Undefined")
    yield SampleObject("mci.mci", LARGE_MCI, "Partial", spec={"name": LARGE_MCI})
    for number in range(size):
        provider, region = places[number % len(places)]
        group, state = chance.choice(groups), chance.choice(states)
        spec = {"name": f"{group}-{number}", "group": group, "provider": provider, "region": region, "mci": LARGE_MCI}
        labels = {"mci": LARGE_MCI, "subgroup": group, "provider": provider, "region": region}
        yield SampleObject("mci.vm", f"{LARGE_MCI}.vm-{number:05}", state, LARGE_MCI, spec, {}, labels)


def object_of(ns: str, part: SampleObject, at: float) -> Object:
    """Return the row of a sample object."""
    texts = [msgspec.json.encode(value).decode() for value in (part.spec, part.labels, part.seen)]
    return Object(
        ns, part.id, part.kind, part.state, at, 1, 1, None, part.queue or part.id, part.parent,
        texts[0], texts[1], part.error, at, False, texts[2],
    )  # fmt: skip


def entry_of(ns: str, part: SampleObject, at: float) -> JournalEntry:
    """Return the journal entry of an object's creation."""
    return JournalEntry(ns, part.id, part.kind, None, at, "controller", WHO, "enter", None, part.state, part.error)
