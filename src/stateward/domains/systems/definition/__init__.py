"""The definition of a system, in YAML: a tree of services and jobs, and the node pools that they run on."""

from stateward.domains.systems.definition.document import BadDefinition
from stateward.domains.systems.definition.model import (
    HealthCheck,
    JobDefinition,
    NodePool,
    PinnedImage,
    Resources,
    Rollout,
    SecretRef,
    Service,
    Tree,
    file_name,
    revision_of,
    used_versions,
)
from stateward.domains.systems.definition.parser import locate_error, read

__all__ = [
    "BadDefinition",
    "HealthCheck",
    "JobDefinition",
    "NodePool",
    "PinnedImage",
    "Resources",
    "Rollout",
    "SecretRef",
    "Service",
    "Tree",
    "file_name",
    "locate_error",
    "read",
    "revision_of",
    "used_versions",
]
