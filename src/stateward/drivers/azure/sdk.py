"""The only module that imports Azure's libraries.

One call of the driver is one request. So the libraries' pipeline is built here from the few steps that it needs:
without the retries, without redirects, and without the step that registers resource providers and waits for that.
aiohttp itself sends a PUT or a DELETE a second time if a used connection breaks; that is turned off too.

A plain HTTP endpoint is a simulator. It is allowed on loopback only, and gets a token without a secret in it.
"""

from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, TypeAlias

import aiohttp
from azure.core import MatchConditions
from azure.core.credentials import AccessToken
from azure.core.exceptions import AzureError, ClientAuthenticationError, DecodeError, HttpResponseError
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.policies import ContentDecodePolicy, RequestIdPolicy, SansIOHTTPPolicy, UserAgentPolicy
from azure.core.pipeline.transport import AioHttpTransport
from azure.identity.aio import ClientSecretCredential, DefaultAzureCredential
from azure.mgmt.core.policies import AsyncARMChallengeAuthenticationPolicy

from stateward.drivers.azure.settings import AzureSettings, ServicePrincipal
from stateward.drivers.cloud.settings import keep_out_of_logs

if TYPE_CHECKING:
    from azure.mgmt.compute.aio import ComputeManagementClient
    from azure.mgmt.network.aio import NetworkManagementClient

__all__ = [
    "CREATE_ONLY",
    "NEVER_SENT",
    "SDK_ERRORS",
    "ArmConnection",
    "ClientAuthenticationError",
    "DecodeError",
    "HttpResponseError",
    "TokenFailed",
    "load_clients",
]

ClientClasses: TypeAlias = "tuple[type[ComputeManagementClient], type[NetworkManagementClient]]"

SDK_ERRORS = (AzureError, aiohttp.ClientError, JSONDecodeError, OSError)
NEVER_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
"""The errors of aiohttp that mean: no connection was made. Azure's libraries report more errors as "not sent"."""

CREATE_ONLY = {"etag": "*", "match_condition": MatchConditions.IfMissing}
"""The parameters that make a PUT fail if the resource exists."""


class TokenFailed(Exception):
    """No token could be had, so the request was not sent; `__cause__` says why."""


class TokenSource:
    """A credential whose errors cannot be confused with those of the request itself."""

    def __init__(self, credential: ClientSecretCredential | DefaultAzureCredential) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # noqa: ANN401 - the library's own type
        """Return a token; raises `TokenFailed`."""
        try:
            return await self._credential.get_token(*scopes, **options)
        except (*SDK_ERRORS, ValueError) as error:
            raise TokenFailed(str(error)) from error

    async def close(self) -> None:
        """Close the credential's connections."""
        await self._credential.close()

    async def __aenter__(self) -> "TokenSource":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class SimulatorToken(SansIOHTTPPolicy[Any, Any]):
    """The token for a simulator: it names the client, and holds no secret."""

    def __init__(self, client: str) -> None:
        self._client = client

    def on_request(self, request: PipelineRequest[Any]) -> None:
        """Add the token to a request."""
        request.http_request.headers["Authorization"] = f"Bearer simulated-{self._client}"


def load_clients() -> ClientClasses:
    """Import the libraries' clients; it takes a second, so it happens when a driver is made."""
    from azure.mgmt.compute.aio import ComputeManagementClient
    from azure.mgmt.network.aio import NetworkManagementClient

    return ComputeManagementClient, NetworkManagementClient


class ArmConnection:
    """The clients of one credential, on one pool of connections."""

    def __init__(self, classes: ClientClasses, settings: AzureSettings, principal: ServicePrincipal) -> None:
        keep_out_of_logs("azure", "msal")
        self.settings, self.principal = settings, principal
        self._tokens = TokenSource(_credential(settings, principal))
        self._session = aiohttp.ClientSession(
            trust_env=True, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
        self._session._retry_connection = False  # noqa: SLF001 - there is no other way, and a test watches it
        scope = f"{self.settings.endpoint_url}/.default"  # a foreign endpoint gets no token that Azure would accept
        policy: object = AsyncARMChallengeAuthenticationPolicy(self._tokens, scope)
        if self.settings.is_simulator:
            policy = SimulatorToken(self.principal.client)
        common: dict[str, Any] = {
            "base_url": settings.endpoint_url,
            "policies": [RequestIdPolicy(), UserAgentPolicy("stateward"), ContentDecodePolicy(), policy],
            "transport": AioHttpTransport(
                session=self._session,
                session_owner=False,
                connection_timeout=settings.connect_timeout,
                read_timeout=settings.read_timeout,
            ),
        }
        compute, network = classes
        self.compute = compute(self._tokens, principal.subscription, **common)
        self.network = network(self._tokens, principal.subscription, **common)

    async def close(self) -> None:
        """Close the connections."""
        await self._tokens.close()
        await self._session.close()


def _credential(
    settings: AzureSettings, principal: ServicePrincipal
) -> ClientSecretCredential | DefaultAzureCredential:
    times = {"connection_timeout": settings.connect_timeout, "read_timeout": settings.read_timeout, "retry_total": 0}
    if principal.is_default:
        return DefaultAzureCredential(**times)
    return ClientSecretCredential(principal.tenant, principal.client, principal.secret, **times)
