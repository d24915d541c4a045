"""The only module that imports boto3, which has no types.

The SDK's own retries are off: one call of the driver is one request, and the callers see and count throttling. All
clients share one loader, because EC2's API description is large, and each session would read it again.
"""

from functools import cache
from threading import Lock
from typing import Any

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

from stateward.drivers.aws.settings import Credential, Ec2Settings
from stateward.drivers.cloud.settings import keep_out_of_logs

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

_session_lock = Lock()  # clients may be used by several threads, sessions may not


def connect(settings: Ec2Settings, credential: Credential, connections: int) -> Any:  # noqa: ANN401 - boto3 has no types
    """Create a client for a region."""
    keep_out_of_logs("botocore")
    with _session_lock:
        session = botocore.session.get_session()
        session.register_component("data_loader", _loader())
        return boto3.Session(botocore_session=session, **credential.keywords()).client(
            "ec2",
            region_name=settings.region,
            endpoint_url=settings.endpoint_url,
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                connect_timeout=settings.connect_timeout,
                read_timeout=settings.read_timeout,
                max_pool_connections=connections,
                user_agent_extra="stateward",
            ),
        )


@cache
def _loader() -> Any:  # noqa: ANN401
    return Loader()
