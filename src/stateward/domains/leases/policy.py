"""Policy filters: they check a lease when it is created or updated, and are notified when it ends.

A filter denies by raising. The external service is asked over HTTP with a time-out; without an answer the lease is
denied. Notices of ends are delivered again until the service accepts them (`notices`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from stateward.aio.certificates import trusted_certificates
from stateward.domains.leases.enforcement import Body, PolicyQuestion, ending_body, question_body
from stateward.domains.leases.errors import DeniedByPolicy, NoticeUndelivered
from stateward.domains.leases.model import Lease, LeaseHost
from stateward.domains.leases.settings import Settings
from stateward.errors import BadInput
from stateward.plugin.entry_points import FoundPart, PluginFault, load_group

if TYPE_CHECKING:
    import httpx

GROUP = "stateward.lease_filters"
ATTRIBUTES = ("needs_hosts", "notifies", "check", "on_end")
MAX_MESSAGE_LENGTH = 500
"""Characters of the service's own message that a caller gets."""


class PolicyFilter(Protocol):
    """A policy.

    needs_hosts   its check needs the hosts that the lease would get
    notifies      it is notified of the ends of leases (`on_end`)
    """

    needs_hosts: bool
    notifies: bool

    async def check(self, question: PolicyQuestion) -> None:
        """Raise DeniedByPolicy for a new lease, or an update, that is not allowed."""

    async def on_end(self, lease: Lease, hosts: Mapping[str, LeaseHost]) -> None:
        """Take notice of the end of a lease; raises NoticeUndelivered if it must be delivered again."""


class PolicyFilters:
    """All policies together."""

    def __init__(self, filters: Sequence[PolicyFilter] = ()) -> None:
        self._filters = filters
        self.needs_hosts = any(filter_.needs_hosts for filter_ in filters)
        self.notifies = any(filter_.notifies for filter_ in filters)

    async def check(self, question: PolicyQuestion) -> None:
        """Raise if one of the filters denies."""
        for filter_ in self._filters:
            await filter_.check(question)

    async def on_end(self, lease: Lease, hosts: Mapping[str, LeaseHost]) -> None:
        """Notify all filters of the end of a lease."""
        for filter_ in self._filters:
            if filter_.notifies:
                await filter_.on_end(lease, hosts)


class MaxLeaseDurationFilter:
    """Limits the duration of leases, except those of exempt projects."""

    needs_hosts = False
    notifies = False

    def __init__(self, seconds: float, exempt: Sequence[str] = ()) -> None:
        self._seconds = seconds
        self._exempt = frozenset(exempt)

    async def check(self, question: PolicyQuestion) -> None:
        """Deny a lease that is too long; a lease that is too long already may stay, but not grow."""
        spec, before = question.wanted, None if question.current is None else question.current.spec
        lasts = spec.end - spec.start
        grows = before is None or lasts > before.end - before.start
        if spec.project not in self._exempt and lasts > self._seconds and grows:
            raise DeniedByPolicy(
                "max duration", f"a lease may last {self._seconds:g} s, and this one lasts {lasts:g} s"
            )

    async def on_end(self, lease: Lease, hosts: Mapping[str, LeaseHost]) -> None:
        """Do nothing."""


class ExternalServiceFilter:
    """Asks a service by POST to /check-create or /check-update: 2xx allows, anything else denies."""

    needs_hosts = True
    notifies = True

    def __init__(self, url: str, timeout: float = 5.0, token: str = "") -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._headers = {"X-Auth-Token": token} if token else {}

    async def check(self, question: PolicyQuestion) -> None:
        """Ask whether a lease is allowed."""
        import httpx  # its import takes 0.1 s, and most deployments have no such service

        path = "check-create" if question.current is None else "check-update"
        try:
            answer = await self._post(path, question_body(question))
        except httpx.HTTPError as error:
            raise DeniedByPolicy("external check", f"no answer: {_reason(error)}") from error
        if not answer.is_success:
            raise DeniedByPolicy("external check", _message(answer))

    async def on_end(self, lease: Lease, hosts: Mapping[str, LeaseHost]) -> None:
        """Notify the service of the end of a lease by POST to /on-end; only 2xx means that it was accepted."""
        import httpx

        try:
            answer = await self._post("on-end", ending_body(lease, hosts))
        except httpx.HTTPError as error:
            raise NoticeUndelivered(f"no answer: {_reason(error)}") from error
        if not answer.is_success:
            raise NoticeUndelivered(f"the answer to on-end was {answer.status_code}")

    async def _post(self, what: str, body: Body) -> "httpx.Response":
        import httpx

        trusted = trusted_certificates()
        async with httpx.AsyncClient(timeout=self._timeout, headers=self._headers, verify=trusted) as client:
            return await client.post(f"{self._url}/{what}", json=body)


class BrokenFilter:
    """Denies every lease in place of an installed filter that cannot be used: nobody knows what that would allow."""

    needs_hosts = False
    notifies = False

    def __init__(self, fault: PluginFault) -> None:
        self._fault = fault

    async def check(self, question: PolicyQuestion) -> None:  # noqa: ARG002 - whatever is asked
        """Deny, with the reason why the filter cannot be used."""
        raise DeniedByPolicy(self._fault.plugin, str(self._fault))

    async def on_end(self, lease: Lease, hosts: Mapping[str, LeaseHost]) -> None:
        """Do nothing."""


def max_duration_filter(settings: Settings) -> MaxLeaseDurationFilter | None:
    """Create the filter of durations, if there is a limit."""
    exempt = [text.strip() for text in settings.max_duration_exempt.split(",") if text.strip()]
    return MaxLeaseDurationFilter(settings.max_duration, exempt) if settings.max_duration > 0 else None


def external_service_filter(settings: Settings) -> ExternalServiceFilter | None:
    """Create the filter that asks a service, if there is one."""
    if not settings.check_url:
        return None
    return ExternalServiceFilter(settings.check_url, settings.check_timeout, settings.check_token)


def create_filters(settings: Settings, more: Iterable[FoundPart] = ()) -> PolicyFilters:
    """Create the filters that installed packages declare, and those that domains bring.

    Each is declared by an entry point, whose value is a function of the settings that returns the filter, or None if
    they do not ask for it.
    """
    group = load_group(GROUP, lambda create: _checked(create(settings)), more)
    filters = [filter_ for filter_ in group.usable.values() if filter_ is not None]
    return PolicyFilters([*filters, *map(BrokenFilter, group.faults.values())])


def _checked(created: Any) -> PolicyFilter | None:  # noqa: ANN401 - whatever a package creates
    if created is None:
        return None
    lacking = [name for name in ATTRIBUTES if not hasattr(created, name)]
    if lacking:
        raise BadInput("filter", type(created).__name__, f"a PolicyFilter, with {', '.join(lacking)}")
    filter_: PolicyFilter = created
    return filter_


def _reason(error: "httpx.HTTPError") -> str:
    return str(error) or type(error).__name__


def _message(answer: "httpx.Response") -> str:
    try:
        return str(answer.json()["message"])[:MAX_MESSAGE_LENGTH]
    except (ValueError, KeyError, TypeError):
        return f"the answer was {answer.status_code}"
