"""The only module that imports google-cloud-compute, whose types are not used: they are 100,000 lines.

The import of its clients takes 2 seconds and 138 MiB, so it happens when a driver is made. The library's own retries
are off: one call of the driver is one request, and the callers see and count throttling. Its calls that wait for an
operation are not used, either: they would poll an address of their own choice, and sleep in our threads.
"""

from collections.abc import Mapping
from typing import Any

from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
from google.auth import default as find_credentials
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.oauth2.service_account import Credentials
from google.protobuf.json_format import ParseError
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectionError as RequestsConnectionError
from requests.exceptions import ConnectTimeout, RequestException
from urllib3.exceptions import MaxRetryError, NameResolutionError, NewConnectionError

from stateward.credential_fields import CredentialMissing
from stateward.drivers.cloud.settings import keep_out_of_logs
from stateward.drivers.gcp.settings import GceSettings, ServiceAccount

__all__ = [
    "AUTH_ERRORS",
    "SDK_ERRORS",
    "UNSENDABLE",
    "TokenServerError",
    "VendorCallError",
    "connect",
    "load_clients",
    "was_never_sent",
]

VendorCallError = GoogleAPICallError
TokenServerError = TransportError
"""The server that issues tokens cannot be reached; the call itself was not sent."""

AUTH_ERRORS = (GoogleAuthError,)
UNSENDABLE = (TypeError, ValueError)
"""The errors of the library for a request that has no address, such as that of a name with a slash."""

SDK_ERRORS = (GoogleAPIError, GoogleAuthError, RequestException, ParseError, *UNSENDABLE)
SCOPES = ("https://www.googleapis.com/auth/compute",)

CLIENTS: Mapping[str, str] = {
    "firewalls": "FirewallsClient",
    "global_operations": "GlobalOperationsClient",
    "images": "ImagesClient",
    "instances": "InstancesClient",
    "machine_types": "MachineTypesClient",
    "networks": "NetworksClient",
    "projects": "ProjectsClient",
    "region_operations": "RegionOperationsClient",
    "subnetworks": "SubnetworksClient",
    "zone_operations": "ZoneOperationsClient",
}
"""The services that the driver uses, by their names in calls (`instances.insert`), and their clients in the library."""


class PooledAdapter(HTTPAdapter):  # type: ignore[misc]
    """Connections for many threads, with a time-out of its own for connecting, which the library does not offer."""

    def __init__(self, connections: int, connect_timeout_s: float) -> None:
        self._connect_timeout_s = connect_timeout_s
        super().__init__(pool_maxsize=connections)

    def send(self, request: Any, *args: Any, timeout: Any = None, **more: Any) -> Any:  # noqa: ANN401
        """Send a request, and never a second time."""
        return super().send(request, *args, timeout=(self._connect_timeout_s, timeout), **more)


class LocalCredentials(Credentials):  # type: ignore[misc]
    """A service account that is used at an address of the user's choice, and nowhere else.

    Google's own class asks another server of Google, in the background, where the account may be used.
    """

    def _is_regional_access_boundary_lookup_required(self) -> bool:
        return False


def load_clients() -> Mapping[str, Any]:
    """Import the library's clients, by their services."""
    from google.cloud import compute_v1

    return {service: getattr(compute_v1, client) for service, client in CLIENTS.items()}


def connect(
    classes: Mapping[str, Any], settings: GceSettings, account: ServiceAccount, connections: int
) -> tuple[dict[str, Any], str]:
    """Create the clients; returns them with the project that the credential belongs to, if that is known."""
    keep_out_of_logs("google")
    credentials, project = _credentials(settings, account)
    options = ClientOptions(api_endpoint=settings.endpoint_url or None)
    clients = {name: made(credentials=credentials, client_options=options) for name, made in classes.items()}
    for client in clients.values():
        session = client.transport._session  # noqa: SLF001 - the library offers no other way to the connections
        for scheme in ("http://", "https://"):
            session.mount(scheme, PooledAdapter(connections, settings.connect_timeout_s))
    return clients, project


def was_never_sent(error: Exception) -> bool:
    """Tell whether an error proves that the request did not leave this host."""
    if isinstance(error, (ConnectTimeout, TokenServerError)):
        return True
    cause = error.args[0] if isinstance(error, RequestsConnectionError) and error.args else None
    reason = cause.reason if isinstance(cause, MaxRetryError) else cause
    return isinstance(reason, (NewConnectionError, NameResolutionError))


def _credentials(settings: GceSettings, account: ServiceAccount) -> tuple[Any, str]:
    if settings.is_anonymous:
        return AnonymousCredentials(), ""
    fields = account.fields()
    if fields is None:
        credentials, project = find_credentials(scopes=SCOPES)
        return credentials, project or ""
    made = LocalCredentials if settings.endpoint_url else Credentials
    try:
        return made.from_service_account_info(fields, scopes=SCOPES), account.project
    except (ValueError, TypeError, GoogleAuthError) as error:  # their texts may quote the key, so they are not shown
        raise CredentialMissing("(the file)", f"its key cannot be read ({type(error).__name__})") from None
