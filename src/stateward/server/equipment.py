"""What an engine is equipped with: the kinds of all domains, and the deployment's own."""

from collections.abc import Sequence

from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.domains.plugin import DomainPlugin
from stateward.engine import Kind
from stateward.engine.maintenance.retention import history_kind


def kinds_of(plugins: Sequence[DomainPlugin]) -> list[Kind]:
    """Return every kind that a server knows: those of the domains, and the deployment's own."""
    return [*(kind for plugin in plugins for kind in plugin.kinds), token_kind(), quota_kind(), history_kind()]
