"""Handlers of networks, security groups and keys: found at the provider by uid, shared by name.

A key normally has its public key (`key_pairs`). The provider creates a key without one, for an MCI that was requested
over the general API; nobody sees its private key.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from stateward.domains.mci import model
from stateward.domains.mci.control.drift import orphan_subnets
from stateward.domains.mci.guards.object_guards import guard_key, guard_network, guard_security_group
from stateward.domains.mci.lifecycle import ResourceState
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.provider.key_pairs import OWNED_BY
from stateward.domains.mci.provider.vm_waiting import ClientOf, GrantedClientOf
from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CloudResource,
    Driver,
    Outcome,
    RefusalReason,
    ResourceKind,
)
from stateward.engine import Ending, Handler, Job, Kind, ObservedOutcome, Permanent, Route, Rules, Temporary
from stateward.engine.kinds import Guard
from stateward.plugin.outcomes import raise_for_outcome
from stateward.store.records import Key, Object, to_json

log = logging.getLogger("stateward.mci")


class ResourceHandlers:
    """The handlers of networks, security groups and keys."""

    def __init__(self, client_of: ClientOf, granted_client_of: GrantedClientOf, catalogue: Catalogue) -> None:
        self._client_of, self._granted_client_of = client_of, granted_client_of
        self._catalogue = catalogue

    def kinds(self, complete: Callable[[Guard], Guard]) -> list[Kind]:
        """Return the kinds with their handlers; `complete` adds to a guard the checks of all kinds of the domain."""
        make = {"vNet": self._make_network, "securityGroup": self._make_security_group, "sshKey": self._make_key}
        guards: dict[str, Guard] = {"vNet": guard_network, "securityGroup": guard_security_group, "sshKey": guard_key}
        return [
            Kind(
                lifecycle,
                self._handlers(resource_type, make[resource_type]),
                _route,
                complete(guards[resource_type]),
                rules=Rules(reserved_labels=(model.MADE_FOR, model.SHARED, OWNED_BY)),
                spec_actions={"describe", "reshape"} & set(lifecycle.events),
            )
            for resource_type, lifecycle in model.RESOURCE_LIFECYCLES.items()
        ]

    def _handlers(self, resource_type: str, make: Callable[[Job], Awaitable[Ending]]) -> dict[str, Handler]:
        runs = {"create": make, "repair": make, "delete": self._delete}
        handlers = {action: Handler(run, self._observe) for action, run in runs.items()}
        if resource_type == "vNet":
            handlers["reshape"] = Handler(make)  # a cancelled one is undone later: see `orphan_subnets`
        elif resource_type == "securityGroup":
            handlers["reshape"] = Handler(self._change_rules)
        return handlers

    async def _observe(self, job: Job) -> ObservedOutcome:
        """No observation tells how far an operation got, but each call on a resource is repeatable."""
        driver = await self._driver(job, model.resource_identity(job.claim.object).connection)
        return (
            ObservedOutcome.NOT_DONE if job.is_untried or not driver.caps.has_resources else ObservedOutcome.REPEATABLE
        )

    async def _make_network(self, job: Job) -> Ending:
        """Create a network with the subnets of its spec and no others."""
        want = model.network_of(job.claim.object)
        driver = await self._granted_driver(job, want.connection)
        network = CloudResource(ResourceKind.NETWORK, want.uid, want.name, facts={"cidr": want.cidr})
        native = await self._ensure(job, driver, network)
        await self._remove_subnets(driver, job, want, native)  # first, because new subnets may need the same addresses
        subnets: dict[str, str] = {}
        for subnet in want.subnets:
            facts = {"cidr": subnet.cidr, "zone": subnet.zone}
            part = CloudResource(
                ResourceKind.SUBNET, model.subnet_key(want.uid, subnet.name), subnet.name, native, facts
            )
            subnets[subnet.name] = await self._ensure(job, driver, part)
        return Ending(seen=to_json(model.ResourceSeen(native, subnets)))

    async def _remove_subnets(self, driver: Driver, job: Job, want: model.NetworkSpec, native: str) -> None:
        """Delete the subnets that a network must not have: former ones and orphans."""
        wanted = {subnet.name for subnet in want.subnets}
        for name, id_ in model.resource_seen(job.claim.object).subnets.items():
            if name not in wanted:
                part = CloudResource(ResourceKind.SUBNET, model.subnet_key(want.uid, name), name, native_id=id_)
                raise_unless_removed(await _call(job, driver.remove(part), part))
        if job.action == "create" or not driver.caps.has_resources:
            return
        for part in orphan_subnets(want, native, (await driver.list_resources()).resources):
            outcome = await _call(job, driver.remove(part), part)
            if isinstance(outcome, CallRefused):  # an orphan subnet that stays must not fail the request
                log.warning(
                    "network %s: orphan subnet %s could not be deleted: %s", native, part.native_id, outcome.message
                )
            else:
                raise_unless_removed(outcome)

    async def _make_security_group(self, job: Job) -> Ending:
        return await self._set_rules(job, model.security_group_of(job.claim.object))

    async def _change_rules(self, job: Job) -> Ending:
        """Give a group other rules; if that fails or is cancelled, it gets the former ones back.

        Without that a rule could stay open at the provider that no record has.
        """
        previous = job.claim.operation.previous_spec or job.claim.object.spec
        former = msgspec.json.decode(previous, type=model.SecurityGroupSpec)

        async def restore(_result: object) -> None:
            await self._set_rules(job, former)

        await job.once("keep the former rules", _nothing, undo=restore)
        return await self._make_security_group(job)

    async def _set_rules(self, job: Job, want: model.SecurityGroupSpec) -> Ending:
        """Give a group exactly the rules of a spec."""
        network = await self._seen(job.ns, "vNet", want.network)
        rules = to_json(want.rules)
        part = CloudResource(ResourceKind.SECURITY_GROUP, want.uid, want.name, network.native_id, {"rules": rules})
        driver = await self._granted_driver(job, want.connection)
        return Ending(seen=to_json(model.ResourceSeen(await self._ensure(job, driver, part))))

    async def _make_key(self, job: Job) -> Ending:
        want = model.key_of(job.claim.object)
        facts = {"public_key": want.public_key} if want.public_key else {}
        part = CloudResource(ResourceKind.SSH_KEY, want.uid, want.name, facts=facts)
        driver = await self._granted_driver(job, want.connection)
        return Ending(seen=to_json(model.ResourceSeen(await self._ensure(job, driver, part))))

    async def _delete(self, job: Job) -> None:
        resource = job.claim.object
        where, seen = model.resource_identity(resource), model.resource_seen(resource)
        driver, kind = await self._driver(job, where.connection), ResourceKind(model.RESOURCE_TYPES[resource.kind])
        if kind is ResourceKind.NETWORK:
            await self._remove_subnets(driver, job, replace(model.network_of(resource), subnets=()), seen.native_id)
        part = CloudResource(kind, where.uid, where.name, native_id=seen.native_id)
        raise_unless_removed(await _call(job, driver.remove(part), part))

    async def _ensure(self, job: Job, driver: Driver, part: CloudResource) -> str:
        if not driver.caps.has_resources:
            return part.facts.get("public_key", part.name)  # such a driver knows a key by nothing else
        outcome = await _call(job, driver.ensure(part), part)
        raise_for_outcome(outcome)
        assert isinstance(outcome, CallAccepted | AlreadyDone)
        return outcome.native_id

    async def _seen(self, ns: str, resource_type: str, name: str) -> model.ResourceSeen:
        record = await self._catalogue.reader.object(Key(ns, model.record_id(resource_type, name)))
        if record is None or record.removed:
            raise Permanent(f"there is no {resource_type} {name!r}")
        if record.state == ResourceState.ERROR:
            raise Permanent(f"{resource_type} {name!r} is {record.state}: {record.error or 'no reason is known'}")
        if record.state != ResourceState.AVAILABLE:
            raise Temporary(f"{resource_type} {name!r} is {record.state}")
        return model.resource_seen(record)

    async def _granted_driver(self, job: Job, connection: str) -> Driver:
        return (await self._granted_client_of(connection, job.claim.work.lane, job.ns)).driver

    async def _driver(self, job: Job, connection: str) -> Driver:
        return (await self._client_of(connection, job.claim.work.lane)).driver


async def _nothing() -> None:
    """Do nothing: the step exists for its undo, which must be stored before the first call."""


async def _call(job: Job, call: Awaitable[Outcome], part: CloudResource) -> Outcome:
    """Call the provider of the job's lane for a resource."""
    return await job.call(call, at=job.claim.work.lane, target=f"{part.kind} {part.name}")


def _route(resource: Object, _action: str) -> Route:
    where = model.resource_identity(resource)
    return Route(where.provider, f"{where.provider}/{where.region}")


def raise_unless_removed(outcome: Outcome) -> None:
    """Raise unless a resource was removed; one that never existed counts as removed."""
    if isinstance(outcome, CallRefused) and outcome.why in (RefusalReason.NOT_FOUND, RefusalReason.UNABLE):
        return
    raise_for_outcome(outcome)
