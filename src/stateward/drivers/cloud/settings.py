"""The options of a cloud's region, and its credential, read and checked in the same way by every driver.

A credential goes to the address that a connection names, so nobody on the network may read it.
"""

import logging
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from stateward.credential_fields import HIDDEN
from stateward.errors import BadInput

FLAGS = {"true": True, "false": False}


class HiddenCredential:
    """A secret that only the library gets to see."""

    __slots__ = ("_secrets",)

    def __init__(self, *secrets: str) -> None:
        self._secrets = tuple(filter(None, secrets))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({HIDDEN})"

    def hide(self, text: str) -> str:
        """Return a text without the secrets: an error message of the library may contain them."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


def check_endpoint(url: str) -> str:
    """Return the address of an API, without a slash at its end; raises `BadInput` if it is not safe."""
    scheme, host = address_parts(url)
    if host and (scheme == "https" or (scheme == "http" and is_this_host(host))):
        return url.rstrip("/")
    raise BadInput("endpoint_url", url, "an https address, or the http address of a simulator on loopback")


def address_parts(url: str) -> tuple[str, str]:
    """Return the scheme and the host of an address; empty ones if it is none."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or ""
    except ValueError:
        return "", ""


def is_this_host(host: str) -> bool:
    """Tell whether a host is the loopback address of this one."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def keep_out_of_logs(*libraries: str) -> None:
    """Turn the debug logs of libraries off: they contain whole requests and answers, and so tokens and new keys."""
    for name in libraries:
        logger = logging.getLogger(name)
        if logger.level < logging.INFO:
            logger.setLevel(logging.INFO)


def flag_option(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return an option that is true or false; raises `BadInput` for another word."""
    written = options.get(name, str(default).lower())
    if written not in FLAGS:
        raise BadInput(name, written, "true or false")
    return FLAGS[written]


def seconds_option(options: Mapping[str, str], name: str, default: float, *, least: float = 0.001) -> float:
    """Return an option that is a time; raises `BadInput` for what is none, or too short."""
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = -1.0
    if not least <= seconds < float("inf"):
        raise BadInput(name, options[name], "a number of seconds")
    return seconds
