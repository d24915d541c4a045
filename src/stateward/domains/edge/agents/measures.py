"""Transactions for measures: the loads on a cloudlet are kept in one row, and alerts of its instances begin and end.

Loads change all the time. In a row of their own they neither change the versions of instances nor fill the journal.
Measures count only over the connection that serves the cloudlet, and a load only for a generation of its instance that
may run. So measures of a lost connection are unknown, not zero. A load that a program has reported is kept in the same
row, and for a while it counts instead of the measured one.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.measure_messages import Load, Measures
from stateward.domains.edge.agents.connections import NO_CLOUDLET
from stateward.domains.edge.agents.record_writer import journal_rejection
from stateward.domains.edge.lifecycle import CLOUDLET, CLUSTERINST, MEASURES
from stateward.domains.edge.lookups import NOT_PRESENT, loaded_object, save_status, unit_of_work
from stateward.domains.edge.model import (
    INSTANCE_LIFECYCLES,
    CloudletMeasures,
    ClusterInst,
    KeptLoad,
    ReportedLoad,
    cloudlet_of,
    cloudlet_status,
    cluster_id,
    instance_status,
    local_name,
    measures_key,
    read_spec,
)
from stateward.domains.edge.records.agent_upgrade import AgentRejection
from stateward.domains.edge.records.alert_names import AlertName
from stateward.engine.alerts import save_alerts, with_alert, without_alerts
from stateward.engine.transitions import absent_object, change_state
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import AGENT, CONTROLLER, Move, decide
from stateward.store.port import Reader, Tx
from stateward.store.records import Key, Object, to_json

STALE_LOAD = "load of another generation"
OUT_OF_RANGE = "load out of range"

KnownLoads: TypeAlias = Mapping[str, KeptLoad]
NOTHING_KNOWN: KnownLoads = {}


class CloudletReport(Struct, frozen=True):
    """Measures that have arrived over a connection."""

    ns: str
    cloudlet: str
    version: str
    measures: Measures


class MeasuresResult(Struct, frozen=True):
    """The loads of clusters that scale by them, by id; and why loads or all measures did not count."""

    scaled: tuple[tuple[str, Load], ...] = ()
    rejections: tuple[str, ...] = ()


async def store_measures(tx: Tx, reports: Sequence[CloudletReport]) -> list[MeasuresResult]:
    """Store a batch of measures."""
    keys = {
        key for report in reports for key in (Key(report.ns, report.cloudlet), measures_key(report.ns, report.cloudlet))
    }
    keys |= {Key(report.ns, f"{report.cloudlet}:{load.name}") for report in reports for load in report.measures.loads}
    async with unit_of_work(tx, keys) as uow:
        return [_store_report(uow, report) for report in reports]


def _store_report(uow: UnitOfWork, report: CloudletReport) -> MeasuresResult:
    cloudlet = loaded_object(uow, Key(report.ns, report.cloudlet), CLOUDLET.kind)
    if cloudlet is None:
        return MeasuresResult(rejections=(NO_CLOUDLET,))
    if report.measures.notify != cloudlet_status(cloudlet).serving:
        why = AgentRejection.OLD_CONNECTION
        journal_rejection(uow, cloudlet, AGENT, report.version, "measures", why)
        return MeasuresResult(rejections=(why,))
    rejections: list[str] = []
    counted: dict[str, Load] = {}
    reported = _fresh_reports(uow.objects.get(measures_key(report.ns, report.cloudlet)), uow.now)
    scaled = []
    for load in report.measures.loads:
        instance = uow.objects.get(Key(report.ns, f"{report.cloudlet}:{load.name}"))
        why_not = _rejection_of(instance, load)
        if instance is None or why_not:
            rejections.append(why_not)
            continue
        counted[load.name] = load
        _set_health(uow, instance, load)
        if (
            instance.kind == CLUSTERINST.kind
            and load.name not in reported
            and read_spec(instance, ClusterInst).autoscale
        ):
            scaled.append((instance.id, load))
    _keep(uow, report, counted)
    _set_site_alert(uow, cloudlet, report.measures.problem)
    return MeasuresResult(tuple(scaled), tuple(rejections))


def _rejection_of(instance: Object | None, load: Load) -> str:
    """Return why a load does not count, or nothing."""
    if (
        instance is None
        or instance.removed
        or instance.kind not in INSTANCE_LIFECYCLES
        or instance.state == NOT_PRESENT
    ):
        return "nothing is known of it"
    status = instance_status(instance)
    if load.generation not in (status.generation, status.confirmed):
        return STALE_LOAD
    return "" if load.is_in_range else OUT_OF_RANGE


def _set_health(uow: UnitOfWork, instance: Object, load: Load) -> None:
    """Begin or end the alert of an unhealthy app."""
    status = instance_status(instance)
    alerts = without_alerts(status.alerts, AlertName.UNHEALTHY)
    if load.is_healthy is False:
        alerts = with_alert(status.alerts, AlertName.UNHEALTHY, load.reason or "its probe fails", uow.now)
    if alerts != status.alerts:
        save_alerts(uow, save_status(uow, instance, replace(status, alerts=alerts)), status.alerts, alerts)


def _set_site_alert(uow: UnitOfWork, cloudlet: Object, problem: str) -> None:
    """Begin or end the alert of a cloudlet whose agent cannot see what runs there."""
    status = cloudlet_status(cloudlet)
    alerts = without_alerts(status.alerts, AlertName.SITE_UNREACHABLE)
    if problem:
        alerts = with_alert(status.alerts, AlertName.SITE_UNREACHABLE, problem, uow.now)
    if alerts != status.alerts:
        save_alerts(uow, save_status(uow, cloudlet, replace(status, alerts=alerts)), status.alerts, alerts)


def _keep(uow: UnitOfWork, report: CloudletReport, counted: Mapping[str, Load]) -> None:
    measures, row = report.measures, uow.objects.get(measures_key(report.ns, report.cloudlet))
    before = CloudletMeasures() if row is None or row.removed else read_measures(row)
    loads = before.loads if before.notify == measures.notify else {}
    unknown = {*measures.unknown, *(load.name for load in measures.loads)} - counted.keys()
    kept = {name: load for name, load in loads.items() if name not in unknown}
    kept |= {name: KeptLoad(uow.now, measures.notify, load) for name, load in counted.items()}
    _save(uow, report.ns, report.cloudlet, CloudletMeasures(measures.notify, kept, _fresh_reports(row, uow.now)))


def _save(uow: UnitOfWork, ns: str, cloudlet: str, after: CloudletMeasures) -> None:
    key = measures_key(ns, cloudlet)
    row = uow.objects.get(key)
    if row is not None and not row.removed:
        save_status(uow, row, after)
        return
    new = absent_object(key, MEASURES, uow.now)
    move = decide(MEASURES, new.state, "measure", CONTROLLER)
    assert isinstance(move, Move), move
    change_state(uow, new, move, cloudlet, None, seen=to_json(after))


async def store_reported_load(tx: Tx, cluster: Key, load: ReportedLoad) -> None:
    """Keep a cluster's reported load; `until` is in seconds from now."""
    ns, cloudlet = cluster.ns, cloudlet_of(cluster.id)
    key = measures_key(ns, cloudlet)
    async with unit_of_work(tx, [Key(ns, cloudlet), key]) as uow:
        if loaded_object(uow, Key(ns, cloudlet), CLOUDLET.kind) is None:
            return  # it was deleted meanwhile
        row = uow.objects.get(key)
        before = CloudletMeasures() if row is None or row.removed else read_measures(row)
        reported = {**_fresh_reports(row, uow.now), local_name(cluster.id): replace(load, until=uow.now + load.until)}
        _save(uow, ns, cloudlet, replace(before, reported=reported))


def _fresh_reports(row: Object | None, now: float) -> dict[str, ReportedLoad]:
    """Return the reported loads that still count, by local name."""
    measures = CloudletMeasures() if row is None or row.removed else read_measures(row)
    return {name: load for name, load in measures.reported.items() if now < load.until}


async def reported_loads_on(reader: Reader, cloudlets: Sequence[Object]) -> dict[str, ReportedLoad]:
    """Return the reported loads that still count on cloudlets of a namespace, by cluster; one query reads them all."""
    keys = {measures_key(cloudlet.ns, cloudlet.id): cloudlet.id for cloudlet in cloudlets}
    rows = await reader.objects(list(keys)) if keys else {}
    now = await reader.time()
    return {
        cluster_id(keys[key], name): load
        for key, row in rows.items()
        for name, load in _fresh_reports(row, now).items()
    }


def read_measures(row: Object) -> CloudletMeasures:
    """Read a cloudlet's measures."""
    return msgspec.json.decode(row.seen, type=CloudletMeasures)


def known_loads(cloudlet: Object, row: Object | None) -> KnownLoads:
    """Return the loads that are known now: those reported over the connection that serves the cloudlet."""
    if row is None or row.removed:
        return NOTHING_KNOWN
    measures = read_measures(row)
    return measures.loads if measures.notify == cloudlet_status(cloudlet).serving else NOTHING_KNOWN


async def loads_on(reader: Reader, cloudlets: Sequence[Object]) -> dict[Key, KnownLoads]:
    """Return the known loads of many cloudlets, by the cloudlet's key; one query reads them all."""
    keys = {cloudlet.key: measures_key(cloudlet.ns, cloudlet.id) for cloudlet in cloudlets}
    rows = await reader.objects(list(keys.values())) if keys else {}
    return {cloudlet.key: known_loads(cloudlet, rows.get(keys[cloudlet.key])) for cloudlet in cloudlets}
