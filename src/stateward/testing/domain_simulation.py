"""Simulations of a domain: random workloads made of its tables, under crashes and faults, one world for each seed.

A table and its handlers are right if no order of requests, crashes, delays and lost answers breaks a promise. Nobody
can write down these orders, but a seed can choose one. In each world, several processes serve the domain; they are
killed, suspended and cut off, and handlers are slow and fail. Then all faults end, and everything must come to rest.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stateward.engine.handlers import Handler
from stateward.engine.job import Job
from stateward.engine.kinds import Kind
from stateward.engine.work_errors import Permanent, Temporary, Throttled, Unknown
from stateward.lifecycle import Meaning
from stateward.lifecycle.rows import Row
from stateward.store.records import Object
from stateward.testing.effects import Effect, Effects
from stateward.testing.faulty_store import CommitRecord
from stateward.testing.invariants import Violation
from stateward.testing.kind_sources import Domain, runtime_of
from stateward.testing.process_faults import ProcessFaults
from stateward.testing.simulated_process import SimulatedProcess
from stateward.testing.simulated_world import SimulatedWorld, WorldOutcome
from stateward.testing.virtual_loop import LoopParty
from stateward.testing.workload import Specs, Workload, outside_actors

SHOWN_EVENTS = 80
"""How many of the last events of a failed world are shown."""

REST_S = 3600.0
"""The virtual seconds within which everything must end after the faults have, besides the longest deadline."""


REPORTS = (Meaning.STEP, Meaning.SUCCESS, Meaning.FAILURE)
"""The meanings of rows by which another party reports about its work."""


class HandlerFaults(Struct, frozen=True):
    """The probability of each fault of a handler. All but `lost` come before it runs, and so have no effect."""

    throttled: float = 0.04
    temporary: float = 0.08
    permanent: float = 0.05
    lost: float = 0.06  # the handler has run, and its answer is unknown
    slow: float = 0.1
    longest_s: float = 9.0


NO_HANDLER_FAULTS = HandlerFaults(0.0, 0.0, 0.0, 0.0, 0.0)


class SimulationReport(Struct, frozen=True):
    """The size of a simulation: all its worlds together."""

    worlds: int
    operations: int
    effects: int
    commits: int


class SimulatedState(Struct, frozen=True):
    """A world as an invariant sees it: the objects that exist, the effects, and whether all has come to rest."""

    objects: Sequence[Object]
    effects: Effects
    at_rest: bool

    def of_kind(self, kind: str) -> list[Object]:
        """Return the objects of a kind."""
        return [record for record in self.objects if record.kind == kind]


StateInvariant = Callable[[SimulatedState], None]
"""A function that asserts what must be true: after each commit, and with `at_rest` when everything has ended."""


class SimulationFailed(AssertionError):
    """A world broke a promise. `simulate(..., seeds=[seed])` runs it again, exactly."""

    def __init__(self, outcome: WorldOutcome) -> None:
        self.seed = outcome.seed
        self.problem = outcome.wrong or ""
        self.trace = outcome.events
        again = f"simulate(..., seeds=[{outcome.seed}]) runs it again"
        super().__init__("\n".join((f"seed {outcome.seed}: {again}", "", *outcome.events[-SHOWN_EVENTS:])))


async def do_nothing(job: Job) -> None:
    """Succeed at once; the handler of actions that have none, and for `simulate(..., handler=do_nothing)`."""


def simulate(
    domain: Domain | Callable[[Effects], Domain],
    seeds: int | Iterable[int] = 20,
    *,
    handler: Callable[[Job], Awaitable[Any]] | None = None,
    specs: Specs | None = None,
    invariants: Sequence[StateInvariant] = (),
    trouble_s: float = 20.0,
    pause_s: float = 0.25,
    listener: Callable[[str], None] | None = None,
) -> SimulationReport:
    """Run a world for each seed, and check the invariants after every commit; raises `SimulationFailed`.

    `domain` is a domain, kinds, or a function that returns them for each process and gets the world's ledger of
    effects. `handler` replaces the handlers of all actions, for domains whose own ones need a provider. Specs are made
    from the kinds' types, or by `specs`, a function of chance for each kind. The `invariants` of the domain are checked
    too: functions that assert, after each commit that changes objects and at the end. Faults last for `trouble_s`
    virtual seconds, with a request every `pause_s` on average. `listener` hears of each event.
    """
    __tracebackhide__ = True  # pytest shows the line that calls it
    outcomes: list[WorldOutcome] = []
    refusals: dict[str, str] = {}
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        world = DomainWorld(seed, domain, handler, listener, invariants)
        outcome = world.run(partial(_run, specs=specs or {}, times=(trouble_s, pause_s), refusals=refusals))
        if outcome.wrong is not None:
            raise SimulationFailed(outcome)
        outcomes.append(outcome)
    report = SimulationReport(
        len(outcomes),
        sum(outcome.operations for outcome in outcomes),
        sum(outcome.effects for outcome in outcomes),
        sum(outcome.commits for outcome in outcomes),
    )
    if not report.operations:
        raise AssertionError(f"no operation was accepted in {report.worlds} worlds; the last refusals: {refusals}")
    return report


class DomainWorld(SimulatedWorld[SimulatedProcess]):
    """A world with the kinds of a domain."""

    def __init__(
        self,
        seed: int,
        domain: Domain | Callable[[Effects], Domain],
        handler: Callable[[Job], Awaitable[Any]] | None,
        listener: Callable[[str], None] | None,
        invariants: Sequence[StateInvariant] = (),
    ) -> None:
        super().__init__(seed, listener)
        self._invariants = invariants
        self.effects = Effects(self._on_effect)
        self.handler_faults = HandlerFaults()
        self._domain = domain
        self._handler = handler
        self._luck = self.chance("handlers")
        self.kinds = runtime_of(self._source()).kinds

    def _source(self) -> Domain:
        return self._domain(self.effects) if callable(self._domain) else self._domain

    def make_process(self, name: str) -> SimulatedProcess:
        runtime = runtime_of(self._source())
        return self.simulated_process(name, [self._with_faults(kind) for kind in runtime.kinds], runtime.bind_engine)

    def _with_faults(self, kind: Kind) -> Kind:
        actions = {row.event for row in kind.lifecycle.rows if _needs_handler(kind, row)}
        own = kind.handlers if self._handler is None else {}
        given = {action: own.get(action) or Handler(self._handler or do_nothing) for action in sorted(actions)}
        return kind.with_handlers(
            {action: replace(handler, run=self._faulty(handler)) for action, handler in {**own, **given}.items()}
        )

    def _faulty(self, handler: Handler) -> Callable[[Job], Awaitable[Any]]:
        luck = self._luck

        async def run(job: Job) -> Any:
            faults = self.handler_faults
            slow = luck.random() < faults.slow
            await asyncio.sleep(luck.random() * (faults.longest_s if slow else 0.3))
            roll = luck.random()
            for share, error in (
                (faults.throttled, Throttled("injected", after=0.5 + luck.random())),
                (faults.temporary, Temporary("injected")),
                (faults.permanent, Permanent("injected")),
            ):
                if roll < share:
                    raise error
                roll -= share
            result = await handler.run(job)
            if luck.random() < faults.lost:
                raise Unknown("injected: the answer was lost")
            return result

        return run

    def _on_effect(self, effect: Effect, first: Effect | None) -> None:
        self.note(f"effect {effect.key!r}")
        if first is not None:
            self.wrong(f"the effect {effect.key!r} happened twice")

    def committed(self, party: LoopParty, function: str, record: CommitRecord) -> None:
        super().committed(party, function, record)
        if not self.is_over and any(changes.objects for changes in record.changes):
            self.check_invariants(at_rest=False)

    def check_invariants(self, *, at_rest: bool) -> None:
        """Check the invariants of the domain."""
        objects = [record for record in self.inspector.seen.objects.values() if not record.removed]
        for invariant in self._invariants:
            try:
                invariant(SimulatedState(objects, self.effects, at_rest))
            except AssertionError as error:
                self.wrong(f"{getattr(invariant, '__name__', invariant)} does not hold: {error}".rstrip(": "))

    def count_effects(self) -> int:
        return len(self.effects)

    def calm_down(self) -> None:
        self.handler_faults = NO_HANDLER_FAULTS
        super().calm_down()


def _needs_handler(kind: Kind, row: Row) -> bool:
    """Tell whether a worker must carry out what a row begins: nobody else can report the end of it.

    Without a handler it would last until its deadline, perhaps a day, and the workers would renew their leases so long.
    """
    if row.meaning is not Meaning.REQUEST or row.via is None:
        return row.meaning in (Meaning.ACTION, Meaning.HIDDEN)
    reports = (event for event in kind.lifecycle.allowed[row.via] if event.meaning in REPORTS)
    return not any(outside_actors(event) for event in reports)


async def _run(world: DomainWorld, specs: Specs, times: tuple[float, float], refusals: dict[str, str]) -> None:
    trouble_s, pause_s = times
    workload, faults = Workload(world, specs, pause_s), ProcessFaults(world)
    for _ in range(faults.workers):
        world.add_process()
    tasks = [asyncio.create_task(coroutine) for coroutine in (workload.run(), faults.live())]
    broken, _ = await asyncio.wait(tasks, timeout=trouble_s)
    for task in broken:  # they run for ever, unless one fails
        task.result()
    world.note("all faults end")
    for task in tasks:
        task.cancel()
    world.calm_down()
    if not any(process.works and not process.dead and not process.leaving for process in world.processes):
        world.add_process().works = True
    finishing = asyncio.create_task(workload.finish_remote())
    longest = max((row.within or 0.0 for kind in world.kinds for row in kind.lifecycle.rows), default=0.0)
    await world.rest(REST_S + longest)
    finishing.cancel()
    refusals |= workload.refusals
    for op in workload.accepted:
        if op not in world.inspector.ended:
            raise Violation(f"{op} was accepted, and has not ended")
    world.check_invariants(at_rest=True)
