"""What an engine is equipped with: the kinds of all domains, and the deployment's own."""

from random import Random

from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.domains.registry import lifecycles
from stateward.engine import Kind
from stateward.server.simulated import SimulatedClouds, Temper


def all_kinds(clouds: SimulatedClouds | None = None) -> list[Kind]:
    """Return every kind that a server knows; with simulated clouds, all work is theirs."""
    domains = [Kind(one) if clouds is None else clouds.kind(one) for one in lifecycles()]
    return [*domains, token_kind(), quota_kind()]


def simulated_clouds() -> SimulatedClouds:
    """Return clouds that behave as clouds do."""
    return SimulatedClouds(Temper(), Random())  # noqa: S311 - chance, not secrets
