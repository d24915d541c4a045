"""Settings of the domain, from the environment of the process."""

from collections.abc import Mapping

from msgspec import Struct

from stateward.domains.leases.planning import BEFORE_END
from stateward.domains.leases.policy import ExternalCheck, Filter, Filters, MaxDuration
from stateward.errors import BadInput

PREFIX = "STATEWARD_LEASES_"


class Settings(Struct, frozen=True):
    """What can be set; times are in seconds, and 0 means none."""

    before_end: float = BEFORE_END  # how long before the end an owner is told
    cleaning: float = 0.0  # how long a host rests between two leases
    max_duration: float = 0.0
    max_duration_exempt: str = ""  # namespaces, with commas between them
    check_url: str = ""  # a service that is asked about every lease
    check_timeout: float = 5.0
    check_token: str = ""

    def filters(self) -> Filters:
        """Return the policies that are set."""
        found: list[Filter] = []
        if self.max_duration > 0:
            found.append(MaxDuration(self.max_duration, [one for one in self.max_duration_exempt.split(",") if one]))
        if self.check_url:
            found.append(ExternalCheck(self.check_url, self.check_timeout, self.check_token))
        return Filters(found)


def settings_of(environ: Mapping[str, str]) -> Settings:
    """Read the settings from an environment: STATEWARD_LEASES_MAX_DURATION=86400, and so on."""
    found: dict[str, float | str] = {}
    for name in Settings.__struct_fields__:
        text = environ.get(f"{PREFIX}{name.upper()}")
        if text is not None:
            found[name] = text if isinstance(getattr(Settings(), name), str) else _seconds(name, text)
    return Settings(**found)  # type: ignore[arg-type]


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise BadInput(f"{PREFIX}{name.upper()}", text, "a number of seconds")
    return seconds
