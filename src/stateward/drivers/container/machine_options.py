"""The options and credential of the container driver, and the sizes of its machines."""

import re
import shlex
from collections.abc import Mapping

from msgspec import Struct

from stateward.containers import (
    DEFAULT_REGISTRY,
    ContainerEngine,
    ContainerLimits,
    EngineClient,
    EngineTls,
    RegistryLogin,
)
from stateward.containers.container_records import NO_NETWORK
from stateward.credential_fields import CredentialField, read_fields
from stateward.drivers.port import ProviderRegion
from stateward.errors import BadInput

DEFAULT_ENGINE = "unix:///var/run/docker.sock"
ENDED_RETENTION_S = 3600.0
"""How long the container of an ended machine is kept: until then its key creates no new one."""

NAMED_SIZES = {"tiny": "1c-128m", "small": "1c-512m", "medium": "2c-2g", "large": "4c-8g"}
_SIZE = re.compile(r"(\d{1,3}(?:\.\d{1,2})?)c-(\d{1,6})([mg])")
SIZE_MEANS = f"processors and memory, such as 1c-512m or 0.5c-2g, or one of {', '.join(NAMED_SIZES)}"
MIN_MEMORY_BYTES = 6 << 20
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

_FIELDS = (
    CredentialField("ca_file", "CA_FILE", is_required=False),
    CredentialField("cert_file", "CERT_FILE", is_required=False),
    CredentialField("key_file", "KEY_FILE", is_required=False),
    CredentialField("registry", "REGISTRY", is_required=False),
    CredentialField("registry_user", "REGISTRY_USER", is_required=False),
    CredentialField("registry_password", "REGISTRY_PASSWORD", is_required=False),
)


class MachineOptions(Struct, frozen=True):
    """What the options of a connection say of its machines."""

    network: str
    command: tuple[str, ...] | None
    pulls: bool
    keep_s: float
    login: RegistryLogin | None


def read_options(region: ProviderRegion) -> MachineOptions:
    """Return the options of a region's machines; raises `BadInput` or `CredentialMissing`."""
    options, fields = region.options, _credential(region)
    login = None
    if fields.get("registry_user"):
        server = fields["registry"] or DEFAULT_REGISTRY
        login = RegistryLogin(fields["registry_user"], fields["registry_password"], server)
    return MachineOptions(
        _network(options.get("network", NO_NETWORK)),
        _command(options.get("command", "")),
        _yes_or_no(options.get("pull", "no"), "pull"),
        _seconds(options.get("keep", str(ENDED_RETENTION_S)), "keep"),
        login,
    )


def open_engine(region: ProviderRegion) -> ContainerEngine:
    """Return the client of a region's engine; raises `BadInput` or `CredentialMissing`."""
    fields, timeout_s = _credential(region), _seconds(region.options.get("timeout", "30"), "timeout")
    tls = EngineTls(fields["ca_file"], fields["cert_file"], fields["key_file"]) if fields.get("ca_file") else None
    return EngineClient(region.options.get("engine", DEFAULT_ENGINE), tls, timeout_s)


def _credential(region: ProviderRegion) -> Mapping[str, str]:
    return read_fields(region.credential, _FIELDS) if region.credential else {}


def limits_of(spec: str) -> ContainerLimits | None:
    """Return the limits that a size means, or None."""
    match = _SIZE.fullmatch(NAMED_SIZES.get(spec, spec))
    if match is None:
        return None
    cpus, memory = float(match[1]), int(match[2]) << (30 if match[3] == "g" else 20)
    return ContainerLimits(cpus, memory) if cpus and memory >= MIN_MEMORY_BYTES else None


def _network(name: str) -> str:
    """Check a network; the host's own would lead to every service that listens there for the host alone."""
    if name == "host" or not _NETWORK.fullmatch(name):
        raise BadInput("network", name, "the name of a network of the engine, and not host")
    return name


def _command(text: str) -> tuple[str, ...] | None:
    try:
        words = shlex.split(text)
    except ValueError:
        raise BadInput("command", text, "a command with balanced quotes") from None
    return tuple(words) or None


def _yes_or_no(text: str, option: str) -> bool:
    if text not in ("yes", "no"):
        raise BadInput(option, text, "yes or no")
    return text == "yes"


def _seconds(text: str, option: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise BadInput(option, text, "a number of seconds above 0")
    return seconds
