"""Alerts: conditions of an object beside its state, with their begin and their reason, in the field `alerts` of `seen`.

An alert begins and ends once, and both are journaled. Whoever raises it has damped it before: a probe by its threshold,
a crash loop by the number of restarts, a lost node by its lease.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CONTROLLER
from stateward.store.records import Object

FAILED_AGAIN = "; to create it again failed: "
"""Separates the first reason of an alert from that of the last attempt to end it."""


class Alert(Struct, frozen=True):
    """An alert, its reason, and its begin."""

    name: str
    reason: str
    since: float


Alerts = tuple[Alert, ...]


def with_alert(alerts: Alerts, name: str, reason: str, now: float) -> Alerts:
    """Return the alerts with one more; one that is there already keeps its begin and its first reason."""
    return alerts if any(alert.name == name for alert in alerts) else (*alerts, Alert(name, reason, now))


def with_failure(alerts: Alerts, name: str, failure: str) -> Alerts:
    """Return the alerts, of which one tells why the last attempt to end it has failed."""
    return tuple(
        Alert(alert.name, alert.reason.partition(FAILED_AGAIN)[0] + FAILED_AGAIN + failure, alert.since)
        if alert.name == name
        else alert
        for alert in alerts
    )


def without_alerts(alerts: Alerts, *names: str) -> Alerts:
    """Return the alerts without some."""
    return tuple(alert for alert in alerts if alert.name not in names)


def begun_alerts(before: Iterable[Alert], after: Iterable[Alert]) -> list[Alert]:
    """Return the alerts that have begun; the swapped arguments give those that have ended."""
    known = {alert.name for alert in before}
    return [alert for alert in after if alert.name not in known]


class AlertedStatus(Struct, frozen=True):
    """The alerts in the status of an object."""

    alerts: Alerts = ()


def alerts_of(record: Object) -> Alerts:
    """Return the alerts of an object whose kind has some."""
    return msgspec.json.decode(record.seen, type=AlertedStatus).alerts


def save_alerts(uow: UnitOfWork, record: Object, before: Sequence[Alert], after: Sequence[Alert]) -> None:
    """Journal the alerts that have begun, and those that have ended."""
    for alert in begun_alerts(before, after):
        journal(uow, record, None, CONTROLLER, "", alert.name, reason=alert.reason)
    for alert in begun_alerts(after, before):
        journal(uow, record, None, CONTROLLER, "", f"{alert.name} ended", reason=alert.reason)
