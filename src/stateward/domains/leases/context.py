"""The context of lease handlers: engine, booking writer, host pools, resource plug-ins and policies.

It runs a step (start, end) for all reservations of a lease at once. If the resources of one reservation fail, the
others go on. Temporary failures make the whole step repeat, because every step is idempotent; after MAX_ATTEMPTS the
failures that are left are final.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from stateward.domains.leases.booking_writer import BookingWriter
from stateward.domains.leases.bookings import ReleaseHost
from stateward.domains.leases.model import Lease, read_lease
from stateward.domains.leases.policy import PolicyFilters
from stateward.domains.leases.pool_cache import PoolCache
from stateward.domains.leases.resources import ReservationTask, ResourcePlugin, ResourcePlugins
from stateward.engine import Engine, Job, Permanent, Request, Temporary
from stateward.engine.work_errors import Fenced, WorkError
from stateward.store.errors import StoreError

MAX_ATTEMPTS = 6
"""Attempts at a step of a lease before temporary failures count as final."""

MAX_CHILD_ROUNDS = 3
"""Rounds of child operations (on other objects) before a lease starts or ends."""

Failures = dict[str, WorkError]
"""Errors by the id of the reservation whose resources could not be handed over or taken back."""


DenialReasons = dict[str, str]
"""Reasons by the id of the reservation whose child operation was denied."""


class LeaseContext(Struct, frozen=True):
    """What handlers of leases work with."""

    engine: Engine
    booking_writer: BookingWriter
    pools: PoolCache
    resources: ResourcePlugins
    filters: PolicyFilters
    replace_after: float
    """Seconds that a host must have failed before its leases replace it."""

    def tasks(self, job: Job, only: Callable[[ReservationTask], bool] = lambda _task: True) -> list[ReservationTask]:
        """Return a task for each reservation of the job's lease that `only` accepts."""
        lease = read_lease(job.claim.object)
        tasks = [
            ReservationTask(self.engine, self.booking_writer, job, lease, spec, seen)
            for spec, seen in lease.reservations()
        ]
        return [task for task in tasks if only(task)]

    def resource(self, task: ReservationTask) -> ResourcePlugin:
        """Return the resource plug-in of a task's reservation."""
        return self.resources[task.spec.resource_type]

    async def start(self, job: Job, tasks: Sequence[ReservationTask]) -> Failures:
        """Hand the resources over to the reservations; returns the final failures."""
        denied = await self._run_children(job, "start", tasks, lambda task: self.resource(task).start_requests(task))
        return await self._run_all(job, tasks, denied, lambda task: self.resource(task).start(task))

    async def end(self, job: Job, tasks: Sequence[ReservationTask]) -> Failures:
        """Take the resources of the reservations back; returns the final failures."""
        denied = await self._run_children(job, "end", tasks, lambda task: self.resource(task).end_requests(task))
        return await self._run_all(job, tasks, denied, lambda task: self.resource(task).end(task))

    async def release(self, job: Job, lease: Lease, reservations: Sequence[str]) -> None:
        """Remove the bookings of reservations, also from hosts that only the pool still knows to be booked."""
        known = (await self.pools.get(job.ns)).hosts_of(lease.object.id)
        hosts = sorted(known | lease.seen.booked)
        await self.booking_writer.write(
            job, [(name, ReleaseHost(reservation)) for name in hosts for reservation in reservations]
        )

    async def _run_children(
        self,
        job: Job,
        step: str,
        tasks: Sequence[ReservationTask],
        left: Callable[[ReservationTask], Awaitable[Sequence[Request]]],
    ) -> DenialReasons:
        """Run child operations on other objects until no task asks for more; returns the denials by reservation."""
        denied: DenialReasons = {}
        for round_ in range(MAX_CHILD_ROUNDS):
            wanted = {task.spec.id: await left(task) for task in tasks if task.spec.id not in denied}
            requests = [request for each in wanted.values() for request in each]
            if not requests:
                break
            reasons = await job.spawn(f"{step} {round_}", requests)
            denied |= {
                id_: reasons[request.object]
                for id_, each in wanted.items()
                for request in each
                if request.object in reasons
            }
        return denied

    async def _run_all(
        self,
        job: Job,
        tasks: Sequence[ReservationTask],
        denied: DenialReasons,
        work: Callable[[ReservationTask], Awaitable[None]],
    ) -> Failures:
        answers = await asyncio.gather(*(_run_for_reservation(work, task, denied.get(task.spec.id)) for task in tasks))
        failures = {task.spec.id: error for task, error in zip(tasks, answers, strict=True) if error is not None}
        passing = [error for error in failures.values() if not isinstance(error, Permanent)]
        if passing and job.attempt < MAX_ATTEMPTS:
            raise passing[0]
        return failures


async def _run_for_reservation(
    work: Callable[[ReservationTask], Awaitable[None]], task: ReservationTask, denied: str | None
) -> WorkError | None:
    """Run a step for one reservation; returns its error, if any.

    An error of I/O that the plug-in did not translate counts as temporary, any other as permanent. A denied child
    operation is named in the error, because it is the cause.
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


def describe_failures(failures: Failures) -> str:
    """Return the failures as the error text of the lease."""
    return "; ".join(f"reservation {reservation}: {error}" for reservation, error in failures.items())
