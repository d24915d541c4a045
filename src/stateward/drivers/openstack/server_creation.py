"""The creation of servers, once for each key, at a cloud that has no client tokens.

Nova would make a second server for a repeated create. So each create begins with a search for its keys: in a listing of
all servers, and among those that were deleted not long ago. Three things could still make a second server:

- another call of this process for the same key: calls for one key wait for each other;
- a create without an answer, which Nova may still be working on and show later: for a settle time no other create of
  its key is sent, unless a listing shows the server;
- another process that was taken for dead: after a create, a listing of what has changed since the search shows its
  server. The older server stays, and the driver deletes the one that it has just made.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import cache
from time import monotonic
from weakref import WeakValueDictionary

from msgspec import Struct

from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.openstack.cloud_client import ApiCall, OpenStackClient
from stateward.drivers.openstack.flavors import FlavorLookup
from stateward.drivers.openstack.neutron_resources import NeutronResources
from stateward.drivers.openstack.server_listing import ServerLister, age_rank, by_key
from stateward.drivers.openstack.server_states import GONE
from stateward.drivers.openstack.servers import KEY_TEXT, MAX_TEXT, ServerPlan, create_body
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    MachineSpec,
    Observation,
    Outcome,
    RefusalReason,
    ResourceKind,
)
from stateward.errors import BadInput

SETTLE_S = 60.0
"""How long a create without an answer may take until a listing shows its server: Nova's own time-out of messages."""

REMEMBERED = timedelta(days=1)
"""How far back the search for deleted servers goes; a create is not repeated after that."""


class CreationSettings(Struct, frozen=True):
    """Where servers are created, and how: `settle_s` is the time in which no create of a key is repeated."""

    region: str
    zone: str = ""
    settle_s: float = SETTLE_S
    config_drive: bool = False  # whether user data is on a drive, too: for networks without a metadata service


class CreateGuard:
    """What this process knows of the creates in one project: those under way, and those without an answer."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
        self._unanswered: dict[str, float] = {}

    def lock(self, key: str) -> asyncio.Lock:
        """Return the lock of a key in this event loop."""
        name = id(asyncio.get_running_loop()), key
        found = self._locks.get(name)
        if found is None:
            found = self._locks[name] = asyncio.Lock()
        return found

    def note(self, key: str, settle_s: float) -> None:
        """Note that a create has no answer yet."""
        self._unanswered[key] = self._clock() + settle_s

    def clear(self, key: str) -> None:
        """Note that a create was answered, or that its server was seen."""
        self._unanswered.pop(key, None)

    def may_be_accepted(self, key: str) -> bool:
        """Tell whether an earlier create of a key may still be accepted."""
        if self._clock() < self._unanswered.get(key, 0.0):
            return True
        self.clear(key)
        return False


@cache  # bounded by: the projects and regions of connections
def guard_of(project: str, region: str) -> CreateGuard:  # noqa: ARG001 - they are what the cache goes by
    """Return the guard of a project in a region, the same for all drivers of this process."""
    return CreateGuard()


class ServerCreation:
    """Creates servers."""

    def __init__(
        self,
        calls: OpenStackClient,
        lister: ServerLister,
        flavors: FlavorLookup,
        resources: NeutronResources,
        settings: CreationSettings,
    ) -> None:
        self._calls, self._lister, self._flavors, self._resources = calls, lister, flavors, resources
        self._settings = settings

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Create machines; one outcome for each, in order."""
        different = {machine_spec.key: machine_spec for machine_spec in reversed(machine_specs)}
        if not different:
            return []
        try:
            guard = guard_of(await self._calls.project_id(), self._settings.region)
        except CloudCallFailed as failed:
            return [failed.outcome_for(machine_spec.key) for machine_spec in machine_specs]
        async with AsyncExitStack() as stack:
            for key in sorted(different):  # always in one order, so that two calls never wait for each other
                await stack.enter_async_context(guard.lock(key))
            outcomes = await self._create(guard, different)
        return [outcomes[machine_spec.key] for machine_spec in machine_specs]

    async def _create(self, guard: CreateGuard, wanted: Mapping[str, MachineSpec]) -> dict[str, Outcome]:
        live, changed = await asyncio.gather(
            self._lister.list_servers(wanted), self._lister.list_changes(datetime.now(UTC) - REMEMBERED, wanted)
        )
        present = by_key([*live.machines, *changed.machines])
        failed = live.failed or changed.failed
        if failed is not None:  # what was listed exists, and of the others nothing is known
            existing = {key: existing_outcome(one) for key, one in present.items() if one.state not in GONE}
            return {**{key: failed.outcome_for(key) for key in wanted}, **existing}
        for key in present:
            guard.clear(key)
        absent = [machine_spec for key, machine_spec in wanted.items() if key not in present]
        made = await asyncio.gather(*(self._make(guard, machine_spec) for machine_spec in absent))
        accepted = {outcome.key: outcome for outcome in made if isinstance(outcome, CallAccepted)}
        lost = await self._remove_duplicates(accepted, live.time or datetime.now(UTC)) if accepted else {}
        return {
            **{key: existing_outcome(one) for key, one in present.items()},
            **{outcome.key: outcome for outcome in made},
            **lost,
        }

    async def _make(self, guard: CreateGuard, machine_spec: MachineSpec) -> Outcome:
        key = machine_spec.key
        if guard.may_be_accepted(key):
            return CallUnanswered(key, "an earlier create of this key had no answer, and may still be accepted")
        if len(f"{KEY_TEXT}{key}") > MAX_TEXT:
            return CallRefused(key, RefusalReason.INVALID, f"the key is too long: Nova keeps {MAX_TEXT} characters")
        try:
            body = create_body(machine_spec, await self._plan(machine_spec))
            guard.note(key, self._settings.settle_s)  # before it is sent: a cancelled caller learns of no answer
            made = await self._calls.record(ApiCall("CreateServer", "compute", "POST", "/servers", body), "server")
        except BadInput as error:
            return CallRefused(key, RefusalReason.INVALID, str(error))
        except CloudCallFailed as failed:
            if not isinstance(failed.outcome, CallUnanswered):
                guard.clear(key)
            return failed.outcome_for(key)
        guard.clear(key)
        return CallAccepted(key, str(made["id"]))

    async def _plan(self, machine_spec: MachineSpec) -> ServerPlan:
        flavor, image = await asyncio.gather(
            self._flavors.flavor(machine_spec.spec), self._flavors.image(machine_spec.image)
        )
        network = machine_spec.resources.get(ResourceKind.NETWORK, "")
        if subnet := machine_spec.resources.get(ResourceKind.SUBNET):
            network = await self._resources.network_of(subnet)
        return ServerPlan(flavor.native_id, image.native_id, network, self._settings.zone, self._settings.config_drive)

    async def _remove_duplicates(self, accepted: Mapping[str, CallAccepted], since: datetime) -> dict[str, Outcome]:
        """Delete the servers that were just made, where another process has made an older one; returns the outcomes."""
        seen = await self._lister.list_changes(since, accepted)
        lost: dict[str, Outcome] = {}
        for key, outcome in accepted.items():
            first = _first([one for one in seen.machines if one.key == key], outcome.native_id)
            if first is None:
                continue
            try:
                await self._calls.call(ApiCall("DeleteServer", "compute", "DELETE", f"/servers/{outcome.native_id}"))
            except CloudCallFailed as failed:
                lost[key] = CallUnanswered(key, f"{first.native_id} has the same key, and {failed}")
            else:
                lost[key] = AlreadyDone(key, first.native_id)
        return lost


def _first(machines: Collection[Observation], own: str) -> Observation | None:
    """Return the oldest live machine of a key, if it is not our own."""
    live = sorted((one for one in machines if one.state not in GONE), key=age_rank)
    is_listed = own in {one.native_id for one in live}  # else nobody knows which one is older
    return live[0] if is_listed and live[0].native_id != own else None


def existing_outcome(found: Observation) -> Outcome:
    """Return the outcome of a create whose key exists already."""
    if found.state in GONE:
        text = f"the machine of this key, {found.native_id}, is {found.native_state}"
        return CallRefused(found.key, RefusalReason.CONFLICT, text)
    return AlreadyDone(found.key, found.native_id)
