"""Containers over the Docker Engine API: one port for Docker and Podman."""

from stateward.containers.container_records import (
    KEY_LABEL,
    SECRETS_PATH,
    ContainerImage,
    ContainerLimits,
    ContainerNetwork,
    ContainerNetworkSpec,
    ContainerRecord,
    ContainerSpec,
    ContainerState,
    ContainerStats,
    ContainerVolume,
    ContainerVolumeSpec,
    EngineEvent,
    ExecEnd,
    ExecResult,
    LogChunk,
    LogStream,
    PublishedPort,
    PullProgress,
    RegistryLogin,
    VolumeMount,
)
from stateward.containers.container_starts import start_created
from stateward.containers.engine_client import EngineClient
from stateward.containers.engine_images import describe_pull
from stateward.containers.engine_requests import DEFAULT_REGISTRY, registry_of
from stateward.containers.engine_transport import EngineTls
from stateward.containers.errors import EngineRefusal, EngineRefused, EngineUnavailable, ExecTimedOut
from stateward.containers.port import ContainerEngine

__all__ = [
    "DEFAULT_REGISTRY",
    "KEY_LABEL",
    "SECRETS_PATH",
    "ContainerEngine",
    "ContainerImage",
    "ContainerLimits",
    "ContainerNetwork",
    "ContainerNetworkSpec",
    "ContainerRecord",
    "ContainerSpec",
    "ContainerState",
    "ContainerStats",
    "ContainerVolume",
    "ContainerVolumeSpec",
    "EngineClient",
    "EngineEvent",
    "EngineRefusal",
    "EngineRefused",
    "EngineTls",
    "EngineUnavailable",
    "ExecEnd",
    "ExecResult",
    "ExecTimedOut",
    "LogChunk",
    "LogStream",
    "PublishedPort",
    "PullProgress",
    "RegistryLogin",
    "VolumeMount",
    "describe_pull",
    "registry_of",
    "start_created",
]
