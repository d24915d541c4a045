"""What is done to cloudspaces and accounts: they are nothing by themselves, and take along what is below them."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from stateward.domains.ovc.crowds import Crowd, all_of
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, VM
from stateward.domains.ovc.looking import objects
from stateward.domains.ovc.model import seen_of, text, vm_seen
from stateward.domains.ovc.small import is_done, nothing
from stateward.engine import Handler, Job, Kind, Permanent, Request
from stateward.engine.kinds import After, Company, Guard
from stateward.lifecycle import CONTROLLER, Lifecycle
from stateward.store.port import Reader
from stateward.store.records import Object
from stateward.store.selection import Selector

BELOW = {CLOUDSPACE.kind: (VM,), ACCOUNT.kind: (CLOUDSPACE, DISK, IMAGE)}
"""What is below, in the order in which it goes: VMs stand on images."""

OUT = frozenset({"DELETED", "TOBEDELETED", "DESTROYED"})
UNTOUCHED = frozenset({"VIRTUAL", "MODELED", "ERROR"})
"""What the recycle bin does not take: what is not there, or not whole. It stays below its parent."""


class Containers:
    """The handlers of cloudspaces and accounts."""

    def __init__(self) -> None:
        self.reader: Reader | None = None

    def kind(self, lifecycle: Lifecycle, guard: Guard, company: Company, after: After) -> Kind:
        """Return the kind of cloudspaces, or of accounts, with its handlers."""
        handlers = {action: Handler(nothing, is_done) for action in lifecycle.actions}
        runs: dict[str, Callable[[Job], Awaitable[Any]]] = {
            "delete": self._delete,
            "restore": self._restore,
            "destroy": self._destroy,
        }
        handlers |= {action: Handler(run) for action, run in runs.items()}
        return Kind(lifecycle, handlers, guard=guard, company=company, after=after)

    async def _delete(self, job: Job) -> None:
        await self._take_along(job, lambda one: one.state not in OUT | UNTOUCHED)

    async def _restore(self, job: Job) -> None:
        """Bring back exactly those that went down with it."""
        await self._take_along(job, lambda one: one.state in OUT and _went_with(one, job.object))

    async def _destroy(self, job: Job) -> None:
        await self._take_along(job, lambda one: one.state != "DESTROYED")

    async def _take_along(self, job: Job, concerned: Callable[[Object], bool]) -> None:
        """Do to all that are concerned what is done to their parent; one that will not go keeps it from going."""
        for lifecycle in BELOW[job.claim.object.kind]:
            left = partial(self._below, job, lifecycle.kind, concerned)
            crowd = Crowd(left, _asking(job), first=_clones_first)
            failed = (await all_of(job, lifecycle.kind, crowd, self._reader)).failed
            if failed:
                some = "; ".join(f"{id_}: {why}" for id_, why in list(failed.items())[:5])
                raise Permanent(f"{len(failed)} of its {lifecycle.kind} could not {job.action}: {some}")

    async def _below(self, job: Job, kind: str, concerned: Callable[[Object], bool]) -> Sequence[Object]:
        chosen = Selector(job.ns, kind, job.object)
        return [one async for one in objects(self._reader, chosen) if concerned(one) or _is_busy(one, job)]

    @property
    def _reader(self) -> Reader:
        assert self.reader is not None
        return self.reader


def _is_busy(one: Object, job: Job) -> bool:
    """Tell whether somebody else is at one who may be concerned afterwards."""
    return one.op is not None and job.action != "restore"


def _went_with(one: Object, parent: str) -> bool:
    stay = seen_of(one).bin
    return stay is not None and stay.along == parent


def _clones_first(one: Object, left: Sequence[Object]) -> bool:
    """Let a VM wait for its clones."""
    if one.kind != VM.kind:
        return True
    clones = set(vm_seen(one).clones)
    return not any(other.id in clones for other in left)


def _asking(job: Job) -> Callable[[Object], Request]:
    args = text({"along": job.object}) if job.action == "delete" else text({})
    who = job.claim.operation.who
    return lambda one: Request(job.ns, one.id, job.action, "", actor=CONTROLLER, who=who, args=args)
