"""Settings of the domain: `dns_host` in a file, or `STATEWARD_DNS_HOST`, and so on."""

from typing import Annotated

from msgspec import Meta, Struct

from stateward.plugin import about


class DnsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the DNS server is, and how it knows us."""

    host: Annotated[str, about("address of the DNS server; without one, only the demo works")] = ""
    port: Annotated[Annotated[int, Meta(ge=1, le=65_535)], about("its port")] = 53
    catalog: Annotated[str, about("catalog zone (RFC 9432) that names the server's zones")] = "catalog.invalid"
    key_name: Annotated[str, about("name of the TSIG key that signs updates and transfers")] = "stateward"
    key_secret: Annotated[str, about("the TSIG key, in Base64", secret=True)] = ""
    key_algorithm: Annotated[str, about("algorithm of the TSIG key")] = "hmac-sha256"
    timeout: Annotated[Annotated[float, Meta(gt=0, le=60)], about("seconds to wait for an answer")] = 5.0
    check_every: Annotated[
        Annotated[float, Meta(gt=0, le=86_400)], about("seconds between two comparisons of a zone with the server")
    ] = 60.0
