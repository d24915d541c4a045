"""Alerts: conditions of an instance or a cloudlet beside its state, with their begin and their reason. Pure functions.

An alert begins and ends once, and both are journaled. Whoever raises it has damped it before: a probe by its threshold,
a crash loop by the number of restarts.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class AlertName(StrEnum):
    """The alerts that there are."""

    NODE_DOWN = "node down"
    APP_DOWN = "app down"
    UNHEALTHY = "unhealthy"
    CRASH_LOOP = "crash loop"
    OVER_CAPACITY = "over capacity"
    SITE_UNREACHABLE = "site unreachable"


FAILED_AGAIN = "; to create it again failed: "
"""Separates the first reason of an alert from that of the last attempt to end it."""


class Alert(Struct, frozen=True):
    """An alert, its reason, and its begin."""

    name: str
    reason: str
    since: float


Alerts = tuple[Alert, ...]


def with_alert(alerts: Alerts, name: AlertName, reason: str, now: float) -> Alerts:
    """Return the alerts with one more; one that is there already keeps its begin and its first reason."""
    return alerts if any(one.name == name for one in alerts) else (*alerts, Alert(name, reason, now))


def with_failure(alerts: Alerts, name: AlertName, failure: str) -> Alerts:
    """Return the alerts, of which one tells why the last attempt to end it has failed."""
    return tuple(
        Alert(one.name, one.reason.partition(FAILED_AGAIN)[0] + FAILED_AGAIN + failure, one.since)
        if one.name == name
        else one
        for one in alerts
    )


def without_alerts(alerts: Alerts, *names: AlertName) -> Alerts:
    """Return the alerts without some."""
    return tuple(one for one in alerts if one.name not in names)


def begun_alerts(before: Iterable[Alert], after: Iterable[Alert]) -> list[Alert]:
    """Return the alerts that have begun; the swapped arguments give those that have ended."""
    known = {one.name for one in before}
    return [one for one in after if one.name not in known]
