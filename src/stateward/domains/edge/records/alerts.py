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


class Alert(Struct, frozen=True):
    """An alert, its reason when it began, and its begin."""

    name: str
    reason: str
    since: float


Alerts = tuple[Alert, ...]


def with_alert(alerts: Alerts, name: AlertName, reason: str, now: float) -> Alerts:
    """Return the alerts with one more; one that is there already keeps its begin and its first reason."""
    return alerts if any(one.name == name for one in alerts) else (*alerts, Alert(name, reason, now))


def without_alerts(alerts: Alerts, *names: AlertName) -> Alerts:
    """Return the alerts without some."""
    return tuple(one for one in alerts if one.name not in names)


def begun_alerts(before: Iterable[Alert], after: Iterable[Alert]) -> list[Alert]:
    """Return the alerts that have begun; the swapped arguments give those that have ended."""
    known = {one.name for one in before}
    return [one for one in after if one.name not in known]
