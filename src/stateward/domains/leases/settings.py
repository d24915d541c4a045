"""Settings of the domain: `leases_check_url` in a file, `STATEWARD_LEASES_CHECK_URL` in the environment, and so on."""

from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from stateward.config import about

Seconds = Annotated[float, Meta(ge=0, le=3_153_600_000)]
Timeout = Annotated[float, Meta(gt=0, le=300)]


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """What can be set; one line each, with what it means."""

    before_end: Annotated[Seconds, about("seconds from the event before_end_lease to the end; 0: no such event")] = (
        3600.0
    )
    cleaning: Annotated[Seconds, about("seconds between two leases of a host that has no cleaning_time")] = 0.0
    replace_after: Annotated[Seconds, about("seconds that a host must have failed before its leases replace it")] = 5.0
    keep_ended: Annotated[
        Seconds, about("seconds that a lease is kept after its end or an error; 0: until it is deleted")
    ] = 0.0
    max_duration: Annotated[Seconds, about("seconds that a lease may last; 0: no limit")] = 0.0
    max_duration_exempt: Annotated[str, about("namespaces without that limit, with commas between them")] = ""
    check_url: Annotated[str, about("policy service that is asked about leases and told of their end; empty: none")] = (
        ""
    )
    check_timeout: Annotated[Timeout, about("seconds that the policy service has for an answer")] = 5.0
    check_token: Annotated[str, about("token for the policy service, sent as X-Auth-Token", secret=True)] = ""

    def __post_init__(self) -> None:
        if self.check_url and not _is_url(self.check_url):
            raise ValueError("a URL such as https://policy.example/v1, without query and fragment")
        if not (self.check_token.isascii() and self.check_token.isprintable()):
            raise ValueError("a text of visible ASCII characters")


def _is_url(text: str) -> bool:
    """Tell whether a text is the URL of a service; the parser raises on a wrong bracket or port."""
    try:
        parts = urlsplit(text)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    plain = text.isascii() and text.isprintable() and " " not in text
    return parts.scheme in ("http", "https") and named and plain and not (parts.query or parts.fragment)
