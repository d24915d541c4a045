"""What an engine is equipped with: the kinds of all domains, and the deployment's own."""

from collections.abc import Sequence
from random import Random

from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.domains.furnishing import wings
from stateward.domains.registry import lifecycles
from stateward.domains.wing import Site, Wing
from stateward.engine import Kind
from stateward.server.simulated import SimulatedClouds, Temper


def all_wings(site: Site, clouds: SimulatedClouds | None = None) -> list[Wing]:
    """Furnish all domains; the work of those that have no wing of their own is the simulated clouds', if given."""
    return wings(site, Kind if clouds is None else clouds.kind)


def kinds_of(wings: Sequence[Wing]) -> list[Kind]:
    """Return every kind that a server knows: those of the domains, and the deployment's own."""
    return [*(kind for wing in wings for kind in wing.kinds), token_kind(), quota_kind()]


def all_kinds(clouds: SimulatedClouds | None = None) -> list[Kind]:
    """Return every kind without its domain's wing; with simulated clouds, all work is theirs."""
    domains = [Kind(one) if clouds is None else clouds.kind(one) for one in lifecycles()]
    return [*domains, token_kind(), quota_kind()]


def simulated_clouds() -> SimulatedClouds:
    """Return clouds that behave as clouds do."""
    return SimulatedClouds(Temper(), Random())  # noqa: S311 - chance, not secrets
