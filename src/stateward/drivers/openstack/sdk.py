"""The only module that imports openstacksdk and keystoneauth.

The SDK's own retries are off: one call of the driver is one request, and the callers see and count throttling. Only a
token that has expired is renewed by the SDK, because a request that was answered with 401 was not carried out.

A request has two phases. Token, catalogue and versions are fetched first: if that fails, the request was never sent.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any

import requests
from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1.adapter import Adapter
from keystoneauth1.identity import v3
from keystoneauth1.session import Session
from msgspec import Struct
from openstack.connection import Connection
from openstack.exceptions import SDKException, ServiceDisabledException
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from stateward.drivers.cloud.settings import keep_out_of_logs, seconds_option
from stateward.drivers.openstack.settings import KeystoneLogin
from stateward.drivers.port import ProviderRegion
from stateward.errors import StatewardError

SDK_ERRORS = (keystone_errors.ClientException, SDKException, requests.RequestException)
LOGIN_ERRORS = (
    keystone_errors.AuthorizationFailure,
    keystone_errors.AuthPluginException,
    keystone_errors.MissingAuthPlugin,
    keystone_errors.NoMatchingPlugin,
)
"""The errors of the SDK that mean: there is no way to log in with this."""

ABSENCE_ERRORS = (keystone_errors.EndpointNotFound, ServiceDisabledException)
"""The errors of the SDK that mean: the catalogue has no such service in this region."""

HttpError = keystone_errors.HttpError
Unauthorized = keystone_errors.Unauthorized
_NEVER_SENT = (ConnectTimeoutError, NewConnectionError, requests.exceptions.SSLError, requests.exceptions.ProxyError)

OLDEST, NEWEST = (2, 69), (2, 96)
"""The microversions of Nova that the driver can use. Before 2.69, listings hide servers of a cell that is down."""


class NovaTooOld(StatewardError):
    """A Nova whose microversions the driver cannot use."""

    newest: str
    text = "Nova offers microversions up to {newest}, and the driver needs 2.69 or newer"


class NotSent(StatewardError):
    """A request that was never sent, because what it needs could not be fetched: the SDK's error says why."""

    error: Exception
    text = "{error}"


class HttpAnswer(Struct, frozen=True):
    """An answer: status, headers with names in lower case, and the body if it is JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any
    text: str = ""


class CloudSession:
    """A session with a cloud; it may be used by several threads."""

    def __init__(self, connection: Connection, timeouts: tuple[float, float]) -> None:
        self._connection, self._timeouts = connection, timeouts
        self._services: dict[str, Any] = {}  # bounded by: the services of OpenStack
        self._lock = Lock()  # the SDK makes its proxies when they are first used
        self._microversion = ""

    def send(self, service: str, method: str, path: str, params: Mapping[str, str], body: object) -> HttpAnswer:
        """Send one request; raises `NotSent`, or an error of the SDK if there was no answer."""
        try:
            proxy = self._prepare(service)
        except (*SDK_ERRORS, NovaTooOld) as error:
            raise NotSent(error) from error
        answer = Adapter.request(  # not that of the SDK's proxy, which may answer from a cache
            proxy,
            path,
            method,
            json=body,
            params=dict(params),
            connect_retries=0,
            status_code_retries=0,
            raise_exc=False,
            timeout=self._timeouts,
            redirect=False,
            microversion=self._microversion if service == "compute" else None,
        )
        headers = {name.lower(): value for name, value in answer.headers.items()}
        content: Any = None
        with suppress(ValueError):
            content = answer.json()
        return HttpAnswer(answer.status_code, headers, content, answer.text)

    def project_id(self) -> str:
        """Return the id of the project; raises `NotSent`."""
        try:
            return str(self._connection.session.get_project_id() or "")
        except SDK_ERRORS as error:
            raise NotSent(error) from error

    def close(self) -> None:
        """Close the connections."""
        self._connection.session.session.close()

    def _prepare(self, service: str) -> Any:  # noqa: ANN401 - the proxies of services have different types
        """Return the proxy of a service, after everything that it needs was fetched."""
        with self._lock:
            if service not in self._services:
                service_proxy = getattr(self._connection, service)
                if service == "compute":
                    data = service_proxy.get_endpoint_data()
                    if data is None:
                        raise keystone_errors.EndpointNotFound("the catalogue has no compute service in this region")
                    newest = data.max_microversion or (2, 0)
                    if newest < OLDEST:
                        raise NovaTooOld(_version(newest))
                    self._microversion = _version(min(newest, NEWEST))
                self._services[service] = service_proxy
        proxy = self._services[service]
        if not proxy.get_endpoint():
            raise keystone_errors.EndpointNotFound(f"the catalogue has no {service} service in this region")
        self._connection.session.get_token()
        return proxy


def _version(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)


def open_session(provider_region: ProviderRegion, login: KeystoneLogin, connections: int) -> CloudSession:
    """Create a session with a region; nothing is sent yet."""
    keep_out_of_logs("keystoneauth", "openstack")
    options = provider_region.options
    timeouts = seconds_option(options, "connect_timeout", 5.0), seconds_option(options, "read_timeout", 60.0)
    plugin = v3.ApplicationCredential if login.is_application else v3.Password
    keywords: dict[str, Any] = login.keywords()
    http = requests.Session()  # it keeps a connection for each thread, and repeats nothing
    for scheme in ("http://", "https://"):
        http.mount(scheme, HTTPAdapter(pool_maxsize=connections, max_retries=0))
    session = Session(
        auth=plugin(**keywords),
        session=http,
        verify=login.verify,
        timeout=timeouts[1],
        app_name="stateward",
    )
    connection = Connection(session=session, region_name=provider_region.region, interface=login.interface)
    return CloudSession(connection, timeouts)


def was_never_sent(error: BaseException) -> bool:
    """Tell whether an error of the SDK proves that a request did not reach the server."""
    return any(isinstance(cause, _NEVER_SENT) for cause in _causes(error))


def _causes(error: object) -> Iterator[object]:
    """Yield what an error was made from: the libraries put errors into errors, as context, argument or reason."""
    for _ in range(10):
        if not isinstance(error, BaseException):
            return
        yield error
        inner = getattr(error, "reason", None) or next((arg for arg in error.args if isinstance(arg, Exception)), None)
        error = inner or error.__cause__ or error.__context__
