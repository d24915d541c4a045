"""Addresses of clouds that a connection names: a credential goes there, so nobody on the network may read it."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from stateward.errors import BadInput


def check_endpoint(url: str) -> str:
    """Return the address of an API, without a slash at its end; raises `BadInput` if it is not safe."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if host and (parts.scheme == "https" or (parts.scheme == "http" and is_this_host(host))):
        return url.rstrip("/")
    raise BadInput("endpoint_url", url, "an https address, or the http address of a simulator on loopback")


def is_this_host(host: str) -> bool:
    """Tell whether a host is the loopback address of this one."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
