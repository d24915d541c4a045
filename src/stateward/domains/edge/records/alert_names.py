"""The names of alerts of instances and cloudlets."""

from enum import StrEnum


class AlertName(StrEnum):
    """The alerts that there are."""

    NODE_DOWN = "node down"
    APP_DOWN = "app down"
    UNHEALTHY = "unhealthy"
    CRASH_LOOP = "crash loop"
    OVER_CAPACITY = "over capacity"
    SITE_UNREACHABLE = "site unreachable"
