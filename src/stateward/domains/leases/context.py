"""What the work on leases is done with, and how all reservations of a lease are worked on at once.

If the resources of one reservation fail, the others go on. What may succeed later is tried again, all of it together,
because every step can be repeated; after so many attempts, what still fails has failed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from stateward.domains.leases.booking_writer import HostBooks
from stateward.domains.leases.bookings import Release
from stateward.domains.leases.model import Lease, lease_of
from stateward.domains.leases.policy import Filters
from stateward.domains.leases.pool_cache import Pools
from stateward.domains.leases.resources import Resource, Resources, Task
from stateward.engine import Engine, Job, Permanent, Request, Temporary
from stateward.engine.handlers import Fenced, WorkError
from stateward.store.errors import StoreError

ATTEMPTS = 6
"""How often the work on a lease is tried before what still fails has failed."""

ROUNDS = 3
"""How often other objects are asked to do something before a lease starts or ends."""

Failures = dict[str, WorkError]
"""Reservations whose resources could not be had, or taken back, with the reason."""


Reasons = dict[str, str]
"""Reservations for which another object was not allowed to do something, with the reason."""


class Workshop(Struct, frozen=True):
    """The engine, the hosts' books, the pools and the plug-ins."""

    engine: Engine
    books: HostBooks
    pools: Pools
    resources: Resources
    filters: Filters

    def tasks(self, job: Job, only: Callable[[Task], bool] = lambda _task: True) -> list[Task]:
        """Return the reservations of a job's lease that something is to be done for."""
        lease = lease_of(job.claim.object)
        tasks = [Task(self.engine, self.books, job, lease, spec, seen) for spec, seen in lease.reservations()]
        return [one for one in tasks if only(one)]

    def resource(self, task: Task) -> Resource:
        """Return a reservation's plug-in."""
        return self.resources[task.spec.resource_type]

    async def start(self, job: Job, tasks: Sequence[Task]) -> Failures:
        """Hand resources over; returns what failed for good."""
        denied = await self._children(job, "start", tasks, lambda task: self.resource(task).starts_with(task))
        return await self._each(job, tasks, denied, lambda task: self.resource(task).start(task))

    async def end(self, job: Job, tasks: Sequence[Task]) -> Failures:
        """Take resources back; returns what failed for good."""
        denied = await self._children(job, "end", tasks, lambda task: self.resource(task).ends_with(task))
        return await self._each(job, tasks, denied, lambda task: self.resource(task).end(task))

    async def release(self, job: Job, lease: Lease, reservations: Sequence[str]) -> None:
        """Take back what hosts have promised, also those that the lease itself has lost sight of."""
        known = (await self.pools.of(job.ns)).hosts_of(lease.object.id)
        hosts = sorted(known | lease.seen.booked)
        await self.books.change(job, [(name, Release(one)) for name in hosts for one in reservations])

    async def _children(
        self, job: Job, step: str, tasks: Sequence[Task], left: Callable[[Task], Awaitable[Sequence[Request]]]
    ) -> Reasons:
        """Have other objects worked on, until nothing is left to be done there; returns what was denied, and why."""
        denied: Reasons = {}
        for round_ in range(ROUNDS):
            wanted = {task.spec.id: await left(task) for task in tasks if task.spec.id not in denied}
            requests = [one for each in wanted.values() for one in each]
            if not requests:
                break
            reasons = await job.spawn(f"{step} {round_}", requests)
            denied |= {
                id_: reasons[one.object] for id_, each in wanted.items() for one in each if one.object in reasons
            }
        return denied

    async def _each(
        self, job: Job, tasks: Sequence[Task], denied: Reasons, work: Callable[[Task], Awaitable[None]]
    ) -> Failures:
        answers = await asyncio.gather(*(_tried(work, task, denied.get(task.spec.id)) for task in tasks))
        failures = {task.spec.id: error for task, error in zip(tasks, answers, strict=True) if error is not None}
        passing = [error for error in failures.values() if not isinstance(error, Permanent)]
        if passing and job.attempt < ATTEMPTS:
            raise passing[0]
        return failures


async def _tried(work: Callable[[Task], Awaitable[None]], task: Task, denied: str | None) -> WorkError | None:
    """Work on one reservation; what a plug-in lets through that talked to somebody may succeed later.

    Where another object was not allowed to do its part, that is the cause of what follows.
    """
    try:
        await work(task)
    except WorkError as error:
        return error if denied is None else type(error)(f"{error}: {denied}", after=error.after)
    except (Fenced, StoreError):
        raise
    except (OSError, EOFError, TimeoutError) as error:
        return Temporary(str(error) or type(error).__name__)
    except Exception as error:
        return Permanent(f"{type(error).__name__}: {error}")
    return None


def told(failures: Failures) -> str:
    """Return what failed, for whoever looks at the lease."""
    return "; ".join(f"reservation {one}: {error}" for one, error in failures.items())
