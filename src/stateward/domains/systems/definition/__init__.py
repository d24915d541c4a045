"""The definition of a system, in YAML: a tree of services, and the node pools that they run on."""

from stateward.domains.systems.definition.document import BadDefinition
from stateward.domains.systems.definition.model import HealthCheck, NodePool, Rollout, Service, Tree, revision_of
from stateward.domains.systems.definition.parser import read

__all__ = ["BadDefinition", "HealthCheck", "NodePool", "Rollout", "Service", "Tree", "read", "revision_of"]
