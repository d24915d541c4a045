"""The only module that imports boto3, which has no types.

The SDK's own retries are off: one call of the driver is one request, and the callers see and count throttling. All
clients share one loader, because EC2's API description is large, and each session would read it again.
"""

import logging
from collections.abc import Mapping
from functools import cache
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import boto3  # type: ignore[import-untyped]
import botocore.session  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from botocore.loaders import Loader  # type: ignore[import-untyped]

from stateward.drivers.aws.credential_refs import Credential
from stateward.drivers.endpoint_urls import check_endpoint, is_this_host
from stateward.drivers.port import ProviderRegion
from stateward.errors import BadInput

__all__ = [
    "CREDENTIAL_ERRORS",
    "NEVER_SENT",
    "SDK_ERRORS",
    "BotoCoreError",
    "ClientError",
    "ParamValidationError",
    "connect",
]

SDK_ERRORS = (ClientError, BotoCoreError)
NEVER_SENT = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)
CREDENTIAL_ERRORS = (
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
"""The errors of the SDK that mean: no credential was found."""

OWN_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn")

_session_lock = Lock()  # clients may be used by several threads, sessions may not


def connect(provider_region: ProviderRegion, credential: Credential, connections: int) -> Any:  # noqa: ANN401 - boto3 has no types
    """Create a client for a region."""
    _keep_secrets_out_of_logs()
    with _session_lock:
        session = botocore.session.get_session()
        session.register_component("data_loader", _loader())
        return boto3.Session(botocore_session=session, **credential.keywords()).client(
            "ec2",
            region_name=provider_region.region,
            endpoint_url=_endpoint(provider_region),
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                connect_timeout=_seconds(provider_region.options, "connect_timeout", 5.0),
                read_timeout=_seconds(provider_region.options, "read_timeout", 30.0),
                max_pool_connections=connections,
                user_agent_extra="stateward",
            ),
        )


def _endpoint(provider_region: ProviderRegion) -> str | None:
    """Return the address in place of Amazon's own; the server's own credential goes only to Amazon or to this host."""
    if not (given := provider_region.options.get("endpoint_url")):
        return None
    url = check_endpoint(given)
    host = urlsplit(url).hostname or ""
    if not provider_region.credential and not is_this_host(host) and not host.endswith(OWN_DOMAINS):
        allowed = "an address of AWS, unless the connection names a credential: the server's own is not sent elsewhere"
        raise BadInput("endpoint_url", url, allowed)
    return url


@cache
def _loader() -> Any:  # noqa: ANN401
    return Loader()


def _keep_secrets_out_of_logs() -> None:
    """Turn botocore's debug log off: it contains whole answers and signed headers, and so new private keys."""
    logger = logging.getLogger("botocore")
    if logger.level < logging.INFO:
        logger.setLevel(logging.INFO)


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise BadInput(name, options[name], "a number of seconds")
    return seconds
